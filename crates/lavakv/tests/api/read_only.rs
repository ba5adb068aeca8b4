//! Read-only opens: their requirements, and their tolerance compared with opens for writing.

use crate::common::*;
use lavastore_lavakv::io::{Access, CreateOptions, SyncKind};
use lavastore_lavakv::sim::{CrashKind, Policy, SimEnv};
use lavastore_lavakv::{DamagedFiles, Db, ErrorKind, Options};

fn open_read_only(sim: &SimEnv) -> lavastore_lavakv::Result<Db> {
    Db::open_read_only_in(env(sim), path(""), small())
}

#[test]
fn read_only_open_needs_no_write_permission() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..1500, 0);
    // Data in tables, in log groups, and in the open page.
    for (kind, closed) in [(CrashKind::ProcessKill, false), (CrashKind::ProcessKill, true)] {
        let after = sim.crash(kind, 1);
        if closed {
            drop(open(&after));
        }
        after.set_read_only(true);
        let hash = after.state_hash();
        let copy = open_read_only(&after).unwrap();
        assert!(contents(&copy) == model, "closed: {closed}");
        assert!(copy.verify().unwrap().errors.is_empty());
        fails(copy.put(b"k", b"v"), ErrorKind::ReadOnly);
        drop(copy);
        assert_eq!(after.state_hash(), hash, "nothing was written");
    }
}

/// Zeros the end of a file, which holds its footer.
fn without_footer(sim: &SimEnv, name: &str) {
    let (fs, path) = (sim.env().fs, path(name));
    let mut bytes = fs.read_all(&path, 64 << 20).unwrap();
    let keep = bytes.len() - 64;
    bytes[keep..].fill(0);
    fs.remove(&path).unwrap();
    let mut file =
        fs.create(&path, &CreateOptions { access: Access::Buffered, ..Default::default() }).unwrap();
    file.append(&bytes).unwrap();
    file.sync(SyncKind::Full).unwrap();
}

#[test]
fn a_damaged_footer_affects_only_its_table() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(2);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..3000, 0);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    drop(db);
    let tables = files_like(&sim, ".ksst");
    assert!(tables.len() > 3, "{tables:?}");
    without_footer(&sim, &tables[1]);
    let copy = open_read_only(&sim).unwrap();
    let (mut read, mut damaged) = (0, 0);
    for (key, value) in &model {
        match copy.get(key) {
            Ok(found) => {
                assert_eq!(found.as_deref(), Some(&value[..]));
                read += 1;
            }
            Err(e) => {
                assert!(e.is_corruption() && e.file().is_some_and(|f| f.ends_with(&tables[1])), "{e}");
                damaged += 1;
            }
        }
    }
    assert!(read > 1000 && damaged > 0, "{read} read, {damaged} damaged");
}

#[test]
fn a_store_without_current_is_not_treated_as_empty() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(3);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..100, 0);
    db.flush().unwrap();
    drop(db);
    sim.env().fs.remove(&path("CURRENT")).unwrap();
    refused(try_open(&sim), ErrorKind::Corruption, "CURRENT");
    let strict = || Options { damaged_files: DamagedFiles::Refuse, ..small() };
    refused(Db::open_read_only_in(env(&sim), DIR, strict()), ErrorKind::Corruption, "CURRENT");
    // The manifest has all data.
    let db = open_read_only(&sim).unwrap();
    assert!(contents(&db) == model && db.damage().len() == 1, "{:?}", db.damage());
    fails(Db::open_read_only_in(env(&sim), "/nothing", small()), ErrorKind::NotFound);
}

/// A checkpoint interrupted by a power failure is complete, missing or recognized as incomplete,
/// and can be repeated.
#[test]
fn an_interrupted_checkpoint_is_named() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(4);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..1500, 0);
    db.flush().unwrap();
    let start = sim.op_count();
    db.checkpoint("/copy").unwrap();
    let record = sim.record();
    let (mut whole, mut cut_off) = (0, 0);
    for op in start..sim.op_count() {
        for policy in [Policy::Dropped, Policy::Torn] {
            let after = record.crash_at(op, CrashKind::PowerLossWith(policy), op);
            for opened in [Db::open_read_only_in(env(&after), "/copy", small()), open_without_making(&after)]
            {
                match opened {
                    Ok(copy) => {
                        assert!(contents(&copy) == model, "operation {op}");
                        whole += 1;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::NotFound, "operation {op}: {e}");
                        cut_off += u32::from(e.message().contains("was interrupted"));
                    }
                }
            }
            let again = open(&after).checkpoint("/copy");
            assert!(
                again.as_ref().map_or_else(|e| e.kind() == ErrorKind::AlreadyExists, |()| true),
                "{again:?}"
            );
            let copy = Db::open_in(env(&after), "/copy", small()).unwrap();
            assert!(contents(&copy) == model, "operation {op}, taken again");
            assert!(!after.env().fs.exists("/copy/UNFINISHED".as_ref()).unwrap());
        }
    }
    assert!(whole > 3 && cut_off > 20, "{whole} whole, {cut_off} cut off");
}

fn open_without_making(sim: &SimEnv) -> lavastore_lavakv::Result<Db> {
    let options = lavastore_lavakv::Options { create_if_missing: false, ..small() };
    Db::open_in(env(sim), "/copy", options)
}
