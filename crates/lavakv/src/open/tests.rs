//! Logs that no store writes, every page and record under its checksum: what opening, verification and repair say of them.

use super::*;
use crate::batch::header;
use crate::{Db, RepairOptions, RepairReport};
use base::Uid;
use io::sim::{CrashKind, SimEnv};
use store::commit::Durability;
use table::segment::{RecordReference, SegmentReference};

const DIR: &str = "/store";

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 128 << 10)
}

/// A store with a table, at work.
fn store(sim: &SimEnv) -> Db {
    let db = Db::open_in(sim.env(), DIR, options()).unwrap();
    db.put(b"in a table", b"1").unwrap();
    db.flush().unwrap();
    db
}

/// Puts a change into the log and nowhere else; the batch says that its sequence is `off` more than that of its record.
fn log(db: &Db, (nth, off): (u64, u64), kind: ValueKind, key: &[u8], value: &[u8]) {
    let engine = db.engine();
    let seq = engine.tree.snapshots.visible() + nth;
    let mut body = Vec::new();
    Change { kind, family: DEFAULT_FAMILY, key, value }.encode_into(&mut body);
    let head = header(seq + off, 1);
    engine.log.shared().put(TENANT, &[&head, &body], (seq, seq), Durability::Buffered).unwrap();
}

fn killed(sim: &SimEnv, db: Db) -> SimEnv {
    let after = sim.crash(CrashKind::ProcessKill, 1);
    drop(db);
    after
}

fn refusal(sim: &SimEnv) -> Error {
    let e = Db::open_in(sim.env(), DIR, options()).map(drop).expect_err("a store that cannot be opened");
    assert!(e.is_corruption() && e.file().is_some(), "{e}");
    e
}

fn repaired(sim: &SimEnv) -> (RepairReport, Db) {
    let options = RepairOptions { options: options(), dry_run: false, ..RepairOptions::default() };
    let report = Db::repair_in(&sim.env(), DIR, &sim.env(), "/repaired", &options).unwrap();
    (report, Db::open_in(sim.env(), "/repaired", self::options()).unwrap())
}

#[test]
fn a_batch_that_claims_another_sequence_is_told() {
    let sim = SimEnv::new(1);
    let db = store(&sim);
    log(&db, (1, 5), ValueKind::Value, b"key", b"value");
    let told = "a batch in the log has another sequence than its record";
    let found = db.verify().unwrap().errors;
    assert!(found.iter().any(|e| e.is_corruption() && e.message() == told), "{found:?}");
    let after = killed(&sim, db);
    let e = refusal(&after);
    assert!(e.message().ends_with(told), "{e}");
}

/// What the log has of a key is lost, and said to be; what is before it, behind it and in tables is saved.
#[test]
fn changes_that_lead_nowhere_are_told_by_a_repair() {
    let sim = SimEnv::new(2);
    let db = store(&sim);
    db.put(b"large", &[7; 100_000]).unwrap();
    let state = db.default_column_family().0.read_state();
    let large = state.active.get(b"large", base::MAX_SEQ).expect("it is in memory");
    assert_eq!(large.kind, ValueKind::PlacedReference);
    let missing = SegmentReference {
        file: 900,
        uid: Uid::from_words(9, 9),
        raw_len: 100_000,
        stored_len: 100_200,
        checksum: 1,
    };
    log(&db, (1, 0), ValueKind::Merge, b"merged", b"1");
    log(&db, (2, 0), ValueKind::PlacedReference, b"missing", &missing.encode());
    log(&db, (3, 0), ValueKind::PlacedReference, b"other", large.value);
    log(&db, (4, 0), ValueKind::Value, b"behind", b"2");
    let after = killed(&sim, db);
    let (report, db) = repaired(&after);
    let lost: Vec<_> = report.lost.iter().map(|lost| lost.from.clone().unwrap()).collect();
    for (key, told) in [
        (&b"merged"[..], "the log has a change of kind Merge, which this release cannot replay"),
        (b"missing", "a segment that the log refers to is missing, or does not say what it is"),
        (b"other", "a segment holds the value of another key"),
    ] {
        assert!(lost.iter().any(|lost| lost == key), "{report:?}");
        assert!(report.damaged.iter().any(|damage| damage.why == told), "{told}: {report:?}");
        assert_eq!(db.get(key).unwrap(), None);
    }
    assert_eq!(lost.len(), 3);
    assert_eq!(db.get(b"in a table").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get(b"behind").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(db.get(b"large").unwrap().map(|value| value.len()), Some(100_000));
}

/// A value beside the log that is not in its file may be in a tail of an earlier release, or may end the log.
#[test]
fn a_killed_store_with_a_value_beside_its_log_is_refused() {
    let sim = SimEnv::new(3);
    let db = store(&sim);
    let table = db.default_column_family().0.read_state().version.files(0)[0].number;
    let reference = RecordReference {
        file: table,
        uid: Uid::from_words(9, 9),
        offset: 0,
        raw_len: 100,
        stored_len: 200,
        synced_bytes: 4000,
    };
    log(&db, (1, 0), ValueKind::PlacedReference, b"lost", &reference.encode());
    let after = killed(&sim, db);
    let e = Db::open_in(after.env(), DIR, options()).map(drop).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(Path::new(DIR))), "{e}");
    assert!(e.message().contains("6e427b33"), "{e}");
}

/// What is replayed is flushed where it is more than memory may hold: before the log has come to a file that is missing, which is set
/// aside all the same.
#[test]
fn a_missing_file_keeps_its_number_from_tables_that_are_written_before_the_log_names_it() {
    let sim = SimEnv::new(6);
    let roomy = Options { memtable_bytes: 1 << 20, memory_bytes: 4 << 20, ..options() }
        .expert(|expert| expert.log_group_bytes = 256 << 10);
    let db = Db::open_in(sim.env(), DIR, roomy).unwrap();
    for nth in 0..300u32 {
        db.put(&nth.to_be_bytes(), &[1; 1000]).unwrap();
    }
    db.put(b"large", &[7; 100_000]).unwrap();
    let state = db.default_column_family().0.read_state();
    let large = state.active.get(b"large", base::MAX_SEQ).expect("it is in memory");
    let file = SegmentReference::decode(large.value).unwrap().file;
    db.put(b"behind", b"2").unwrap();
    let after = killed(&sim, db);
    let name = version::names::vsst(file);
    after.erase(format!("{DIR}/{name}")).unwrap();
    let db = Db::open_in(after.env(), DIR, options()).unwrap();
    assert!(db.stats().flushes > 0, "nothing was flushed while the log was replayed");
    assert_eq!(db.get(b"behind").unwrap().as_deref(), Some(&b"2"[..]));
    let e = db.get(b"large").unwrap_err();
    assert!(e.is_corruption() && e.file().is_some_and(|path| path.ends_with(&name)), "{e}");
    assert_eq!(db.damaged_files().into_iter().map(|f| f.file).collect::<Vec<_>>(), [name]);
}

/// Every store has it from its first edit on.
#[test]
fn a_store_without_the_family_default_is_told() {
    let sim = SimEnv::new(4);
    let db = Db::open_in(sim.env(), DIR, options()).unwrap();
    db.engine().files.manifest.commit(Edit(vec![Record::DropFamily { id: DEFAULT_FAMILY }])).unwrap();
    let e = refusal(&killed(&sim, db));
    assert!(e.message().ends_with("the manifest has no family `default`"), "{e}");
}

/// Without a byte left, and without the ballast, there is no room to begin a log. The store opens; its own writes try again, and
/// an engine beside it, which cannot, is told who can.
#[test]
fn a_log_that_found_no_room_is_begun_by_who_opened_the_store() {
    let sim = SimEnv::new(5);
    let db = store(&sim);
    db.put(b"in the log", b"2").unwrap();
    let after = killed(&sim, db);
    let env = after.env();
    for entry in env.fs.list(Path::new(DIR)).unwrap() {
        if entry.name.ends_with(".log") && [32 << 10, 64 << 10].contains(&entry.len) {
            env.fs.remove(&io::fs::join(Path::new(DIR), &entry.name)).unwrap();
        }
    }
    after.set_capacity(Some(after.used()));
    let db = Db::open_in(env, DIR, options()).unwrap();
    let beside =
        || db.engine().log.shared().append(TENANT, &[b"batch"], (90, 90), Durability::Buffered).map(drop);
    let e = beside().unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::NoSpace, Some(Path::new(DIR))), "{e}");
    assert!(e.message().starts_with("there was no room on the volume to begin the log: make room"), "{e}");
    after.set_capacity(None);
    assert_eq!(beside().unwrap_err().kind(), ErrorKind::NoSpace, "room alone does not begin it");
    db.put(b"behind", b"3").unwrap();
    beside().unwrap();
    assert_eq!(db.get(b"in the log").unwrap().as_deref(), Some(&b"2"[..]));
}
