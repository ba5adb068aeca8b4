//! Repair: its results, its reports, and the files that it leaves alone. (The torture row `repair`
//! draws random damages.)

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use lavastore_lavakv::{Compression, Db, ErrorKind, FamilyOptions, Options, Result, WriteBatch};
use repair::{RepairOptions, RepairReport};
use std::path::Path;

const INTO: &str = "/repaired";

fn try_repair(sim: &SimEnv, dry_run: bool) -> Result<RepairReport> {
    let env = env(sim);
    repair::repair_in(
        &env,
        DIR,
        &env,
        INTO,
        &RepairOptions { options: small(), dry_run, ..RepairOptions::default() },
    )
}

/// Repairs, and checks that the damaged store is unchanged.
fn repair(sim: &SimEnv) -> (RepairReport, Db) {
    let image = |sim: &SimEnv| {
        let fs = env(sim).fs;
        let read = |name: &str| fs.read_all(&Path::new(DIR).join(name), 64 << 20).unwrap();
        files(sim).into_iter().map(|(name, _)| (read(&name), name)).collect::<Vec<_>>()
    };
    let before = image(sim);
    let report = try_repair(sim, false).unwrap();
    assert!(image(sim) == before, "the damaged store was changed");
    (report, Db::open_in(env(sim), INTO, small()).unwrap())
}

/// A store with two families, separated values, deletions, a large value and an unflushed log,
/// closed.
fn store(sim: &SimEnv) -> (Model, Model) {
    let db = open(sim);
    let options = FamilyOptions { min_blob_size: 0, compression: Compression::None, ..small_family() };
    let other = db.create_column_family("other", options).unwrap();
    let (mut model, mut others) = (Model::new(), Model::new());
    for round in 0..3 {
        fill(&db, &mut model, 0..300, round);
        for i in 0..100 {
            let long = value(i, round).repeat(8);
            db.put_cf(&other, &key(i), &long).unwrap();
            others.insert(key(i), long);
        }
        db.put(&key(1000 + round), &value(round, 1).repeat(500)).unwrap();
        model.insert(key(1000 + round), value(round, 1).repeat(500));
        db.delete_range(&key(10), &key(20 + round)).unwrap();
        model.retain(|k, _| *k < key(10) || *k >= key(20 + round));
        db.flush().unwrap();
    }
    let mut batch = WriteBatch::new();
    batch.put(b"in the log", b"1");
    batch.put_cf(&other, b"in the log too", b"2");
    batch.delete(&key(0));
    db.write(&batch).unwrap();
    model.insert(b"in the log".to_vec(), b"1".to_vec());
    others.insert(b"in the log too".to_vec(), b"2".to_vec());
    model.remove(&key(0));
    drop(other);
    db.close().unwrap();
    (model, others)
}

fn same(db: &Db, models: &(Model, Model)) {
    assert!(contents(db) == models.0, "the default family");
    let other = db.column_family("other").expect("the family has its name");
    assert!(contents_cf(db, &other) == models.1, "the other family");
    assert_eq!(other.options().min_blob_size, 0, "the family has its options");
    assert!(db.verify().unwrap().errors.is_empty());
}

fn erase(sim: &SimEnv, part: &str) -> usize {
    let names = files_like(sim, part);
    names.iter().for_each(|name| env(sim).fs.remove(&path(name)).unwrap());
    names.len()
}

#[test]
fn repair_of_a_sound_store_changes_no_data() {
    let sim = SimEnv::new(1);
    let models = store(&sim);
    let (report, db) = repair(&sim);
    assert!(report.from_manifest && report.is_lossless() && report.damaged.is_empty(), "{report:?}");
    same(&db, &models);
}

#[test]
fn repair_restores_everything_without_current_and_manifest() {
    for lost in [&["CURRENT"][..], &["MANIFEST"], &["CURRENT", "MANIFEST"]] {
        let sim = SimEnv::new(2);
        let models = store(&sim);
        lost.iter().for_each(|part| assert_eq!(erase(&sim, part), 1));
        assert_eq!(try_open(&sim).err().unwrap().kind(), ErrorKind::Corruption);
        let (report, db) = repair(&sim);
        assert_eq!(report.from_manifest, lost == ["CURRENT"]);
        assert!(report.is_lossless() && !report.damaged.is_empty(), "{report:?}");
        same(&db, &models);
    }
}

#[test]
fn a_missing_table_is_reported_by_range_and_the_rest_restored() {
    let sim = SimEnv::new(3);
    let models = store(&sim);
    let name = files_like(&sim, ".ksst").pop().unwrap();
    env(&sim).fs.remove(&path(&name)).unwrap();
    let (report, db) = repair(&sim);
    assert!(!report.is_lossless() && report.lost.iter().all(|lost| lost.file == name), "{report:?}");
    let other = db.column_family("other").unwrap();
    for (id, model, found) in [(0, &models.0, contents(&db)), (1, &models.1, contents_cf(&db, &other))] {
        for (k, v) in model {
            let told = report.lost.iter().any(|lost| lost.covers(id, k));
            assert!(found.get(k) == Some(v) || told, "{}", k.escape_ascii());
        }
    }
}

#[test]
fn a_dry_run_writes_nothing_and_reports_the_same() {
    let sim = SimEnv::new(4);
    store(&sim);
    erase(&sim, ".vsst");
    let dry = try_repair(&sim, true).unwrap();
    assert!(!env(&sim).fs.exists(Path::new(INTO)).unwrap());
    let (report, _db) = repair(&sim);
    assert!(dry.lost == report.lost && dry.damaged == report.damaged && !dry.lost.is_empty());
}

#[test]
fn repair_refuses_locked_existing_and_missing_stores() {
    let sim = SimEnv::new(5);
    store(&sim);
    let db = open(&sim);
    assert_eq!(try_repair(&sim, false).err().unwrap().kind(), ErrorKind::Locked);
    drop(db);
    let elsewhere = Db::open_in(env(&sim), INTO, Options { create_if_missing: true, ..small() }).unwrap();
    drop(elsewhere);
    assert_eq!(try_repair(&sim, false).err().unwrap().kind(), ErrorKind::AlreadyExists);
    let env = env(&sim);
    let inside = repair::repair_in(&env, DIR, &env, Path::new(DIR).join("new"), &RepairOptions::default());
    assert_eq!(inside.err().unwrap().kind(), ErrorKind::InvalidArgument);
    assert!(!env.fs.exists(&Path::new(DIR).join("new")).unwrap());
    let missing = repair::repair_in(&env, "/nowhere", &env, "/new", &RepairOptions::default());
    assert_eq!(missing.err().unwrap().kind(), ErrorKind::NotFound);
}

/// At every operation of a repair the result is complete or refused as incomplete.
#[test]
fn an_interrupted_repair_leaves_no_store() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(6);
    let db = open(&sim);
    let options = FamilyOptions { min_blob_size: 0, ..small_family() };
    let other = db.create_column_family("other", options).unwrap();
    let (mut model, mut others) = (Model::new(), Model::new());
    fill(&db, &mut model, 0..400, 0);
    db.flush().unwrap();
    fill(&db, &mut model, 400..410, 0);
    for i in 0..50 {
        db.put_cf(&other, &key(i), &value(i, 1)).unwrap();
        others.insert(key(i), value(i, 1));
    }
    drop(other);
    db.close().unwrap();
    erase(&sim, "CURRENT");
    let start = sim.op_count();
    try_repair(&sim, false).unwrap();
    let (record, models) = (sim.record(), (model, others));
    let (mut whole, mut marked) = (0, 0);
    for op in start..=sim.op_count() {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss, CrashKind::PowerLossWith(Policy::Dropped)]
        {
            let after = record.crash_at(op, kind, op);
            let is_marked = env(&after).fs.exists(&Path::new(INTO).join("UNFINISHED")).unwrap();
            let options = Options { create_if_missing: false, ..small() };
            let read = Db::open_read_only_in(env(&after), INTO, options.clone()).map(drop);
            match Db::open_in(env(&after), INTO, options) {
                Ok(db) => {
                    read.unwrap();
                    same(&db, &models);
                    whole += 1;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NotFound, "operation {op}, {kind:?}: {e}");
                    assert_eq!(read.err().map(|e| e.kind()), Some(ErrorKind::NotFound), "operation {op}");
                    assert_eq!(
                        is_marked,
                        e.to_string().contains("a repair"),
                        "operation {op}, {kind:?}: {e}"
                    );
                    marked += u64::from(is_marked);
                }
            }
        }
    }
    assert!(whole > 0 && marked > 100, "{whole} whole, {marked} marked");
}

#[test]
fn the_remains_of_a_repair_are_replaced_by_the_next() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(7);
    let models = store(&sim);
    let start = sim.op_count();
    try_repair(&sim, false).unwrap();
    let end = sim.op_count();
    // The repair first reads the old store.
    let late = start.midpoint(end).midpoint(end);
    let after = sim.record().crash_at(late, CrashKind::ProcessKill, 1);
    let env = env(&after);
    assert!(env.fs.exists(&Path::new(INTO).join("CURRENT")).unwrap());
    let again = repair::repair_in(&env, INTO, &env, "/third", &RepairOptions::default());
    assert_eq!(again.err().unwrap().kind(), ErrorKind::NotFound);
    // A second concurrent repair is refused.
    let lock = env.fs.lock(&Path::new(INTO).join("LOCK"), "another repair").unwrap();
    assert_eq!(try_repair(&after, false).err().unwrap().kind(), ErrorKind::Locked);
    drop(lock);
    let (report, db) = repair(&after);
    assert!(report.is_lossless());
    same(&db, &models);
}

/// A mark that is empty or torn. Empty and without `CURRENT`: an interrupted checkpoint. Empty
/// beside `CURRENT`: a complete store. Anything else: an interrupted repair.
#[test]
fn an_empty_or_torn_repair_mark_is_recognized() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(31);
    let (model, _) = store(&sim);
    let (_, db) = repair(&sim);
    drop(db);
    let open_repaired = |sim: &SimEnv| Db::open_in(env(sim), INTO, small());
    let mark = format!("{INTO}/UNFINISHED");
    for bytes in [&b""[..], b"r", b"repai", b"repair\n", b"\0\0\0\0\0\0\0", b"something else"] {
        let beside = sim.fork(1);
        beside.write_file(&mark, bytes).unwrap();
        let read_only = Db::open_read_only_in(env(&beside), INTO, small());
        if bytes.is_empty() {
            assert!(contents(&read_only.unwrap()) == model);
            assert!(
                contents(&open_repaired(&beside).unwrap()) == model,
                "a mark beside CURRENT that says nothing"
            );
            assert!(beside.read_file(&mark).is_err(), "the first open for writing removes it");
        } else {
            for refused in [read_only.map(drop), open_repaired(&beside).map(drop)] {
                let e = refused.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
                assert!(e.to_string().contains("UNFINISHED was left, remove that file"), "{e}");
            }
        }
        // Torn at its creation, with no other file in the directory.
        let alone = SimEnv::new(32);
        let (model, _) = store(&alone);
        env(&alone).fs.create_dir_all(Path::new(INTO)).unwrap();
        alone.write_file(&mark, bytes).unwrap();
        let e = open_repaired(&alone).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
        let again = try_repair(&alone, false);
        if bytes.is_empty() {
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists, "it may be that of a checkpoint");
        } else {
            again.unwrap();
            assert!(contents(&open_repaired(&alone).unwrap()) == model);
        }
    }
}

/// The mark cannot be removed: the error says that only this remains to be done, and removing it by
/// hand suffices.
#[test]
fn a_leftover_repair_mark_can_be_removed_by_hand() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let sim = SimEnv::new(33);
    let (model, _) = store(&sim);
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Remove]).path("UNFINISHED"));
    let e = try_repair(&sim, false).unwrap_err();
    assert!(e.to_string().contains("remove that file by hand"), "{e}");
    assert_eq!(Db::open_in(env(&sim), INTO, small()).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    sim.erase(format!("{INTO}/UNFINISHED")).unwrap();
    assert!(contents(&Db::open_in(env(&sim), INTO, small()).unwrap()) == model);
}

/// A target inside the damaged store, by `..` or a link, is refused, and nothing is created there.
#[test]
fn repair_never_writes_into_the_damaged_store() {
    let base = TempDir::new("repair-into");
    let (damaged, beside) = (base.path().join("a"), base.path().join("link"));
    let db = Db::open_with(&damaged, small()).unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    std::os::unix::fs::symlink(&damaged, &beside).unwrap();
    let options = RepairOptions { options: small(), dry_run: false, ..RepairOptions::default() };
    let names = || std::fs::read_dir(&damaged).unwrap().count();
    let before = names();
    let inside = [
        damaged.join("b"),
        damaged.join("../a/b"),
        damaged.join("b/c/d"),
        damaged.join("b/../c"),
        beside.join("b"),
        base.path().join("new/../a/b"),
        base.path().join("./a/../link/b"),
    ];
    for into in &inside {
        let e = repair::repair(&damaged, into, &options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{}: {e}", into.display());
        let e = repair::repair(&beside, into, &options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{}: {e}", into.display());
        assert_eq!(names(), before, "{}", into.display());
    }
    let outside = damaged.join("../b");
    assert!(repair::repair(&beside, &outside, &options).unwrap().is_lossless());
    assert_eq!(Db::open_with(&outside, small()).unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

fn told(report: &RepairReport, part: &str) -> bool {
    report.damaged.iter().any(|damage| damage.why.contains(part))
}

/// A table identifies itself, whatever its name.
#[test]
fn exchanged_table_names_are_reported_without_loss() {
    let sim = SimEnv::new(11);
    let models = store(&sim);
    let tables = files_like(&sim, ".ksst");
    let fs = env(&sim).fs;
    fs.rename(&path(&tables[0]), &path("aside")).unwrap();
    fs.rename(&path(&tables[1]), &path(&tables[0])).unwrap();
    fs.rename(&path("aside"), &path(&tables[1])).unwrap();
    let (report, db) = repair(&sim);
    assert!(report.is_lossless(), "{report:?}");
    assert!(
        told(
            &report,
            "the file has the contents of another table: names were swapped, and the repair uses the contents"
        ),
        "{report:?}"
    );
    same(&db, &models);
}

/// A crash between the removals of a compaction's inputs, and the manifest is lost. Entries of the
/// remaining input that are not in the outputs may have been deleted, and may reappear. The repair
/// reports that, and loses nothing of the outputs.
#[test]
fn leftover_compaction_inputs_may_resurrect_deleted_keys() {
    let sim = SimEnv::new(12);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..100, 0);
    db.flush().unwrap();
    for i in (0..5).chain(95..100) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    db.flush().unwrap();
    let reader = db.iter(Default::default()).unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    // The reader retains both.
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    drop((reader, db));
    let mut tables = files_like(&killed, ".ksst");
    tables.sort();
    env(&killed).fs.remove(&path(&tables[1])).unwrap();
    assert_eq!(erase(&killed, "MANIFEST") + erase(&killed, "CURRENT"), 2);
    let (report, db) = repair(&killed);
    assert!(report.lost.iter().any(|lost| lost.only_come_back && lost.covers(0, &key(0))), "{report:?}");
    assert!(report.lost.iter().all(|lost| lost.only_come_back), "{report:?}");
    let found = contents(&db);
    for (k, v) in &model {
        assert_eq!(found.get(k), Some(v), "{}", k.escape_ascii());
    }
}

/// An iterator retains the older input of a compaction until the close, while the newer one with
/// deletions is removed at once. Without the manifest no repair could tell that entries beside the
/// output were deleted. So the close leaves no input behind.
#[test]
fn closing_removes_tables_kept_only_by_readers() {
    let sim = SimEnv::new(14);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..100, 0);
    db.flush().unwrap();
    let reader = db.iter(Default::default()).unwrap();
    for i in (0..5).chain(95..100) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    db.flush().unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(files_like(&sim, ".ksst").len(), 2, "the output, and what the reader keeps");
    drop(reader);
    db.close().unwrap();
    assert_eq!(files_like(&sim, ".ksst").len(), 1, "the output alone");
    // A power loss does not bring one back either.
    for (kind, seed) in [(CrashKind::ProcessKill, 1), (CrashKind::PowerLoss, 2), (CrashKind::PowerLoss, 3)] {
        let damaged = sim.crash(kind, seed);
        assert_eq!(erase(&damaged, "MANIFEST"), 1);
        let (report, db) = repair(&damaged);
        assert!(report.is_lossless() && !report.from_manifest, "{report:?}");
        assert_eq!(contents(&db), model);
    }
}

/// The remains of the manifest describe a table whose properties are damaged.
#[test]
fn a_table_with_damaged_properties_is_described_by_the_manifest() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(13);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..300, 0);
    db.flush().unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    let manifest = files_like(&sim, "MANIFEST").pop().unwrap();
    let len_of = |name: &str| files(&sim).into_iter().find(|(other, _)| other == name).unwrap().1;
    let (mut silent, end) = (0, len_of(&manifest));
    for table in files_like(&sim, ".ksst") {
        let len = len_of(&table);
        for back in 1..=len.min(4096) / 128 {
            let damaged = sim.fork(back);
            damaged.overwrite(path(&manifest), end - 60, &[0; 60]).unwrap();
            damaged.overwrite(path(&table), len - back * 128, &[0; 100]).unwrap();
            let (report, db) = repair(&damaged);
            let found = contents(&db);
            let is_told = |key: &[u8]| report.lost.iter().any(|lost| lost.covers(0, key));
            for key in model.keys().filter(|key| !found.contains_key(*key)) {
                assert!(is_told(key), "{}, at {back}: {report:?}", key.escape_ascii());
            }
            let whole = |key: &[u8]| report.lost.iter().any(|lost| lost.may_come_back && lost.covers(0, key));
            silent += u64::from(whole(&key(0)) && whole(&key(200)));
            assert!(report.lost.iter().all(|lost| lost.from.as_deref() != Some(b"")), "{report:?}");
        }
    }
    assert!(silent > 0, "no table was told whole");
}

/// The log still has the changes of a table. Without a manifest only the table's sequences tell
/// that, up to its last one.
#[test]
fn repair_does_not_replay_changes_already_in_tables() {
    let sim = SimEnv::new(41);
    let db = open(&sim);
    (0..10).for_each(|i| db.put(&key(i), &value(i, 0)).unwrap());
    db.flush().unwrap();
    db.put(b"in the log", b"1").unwrap();
    let sim = sim.crash(CrashKind::ProcessKill, 1);
    remove_manifest(&env(&sim));
    let (report, db) = repair(&sim);
    let family = &report.families[0];
    assert_eq!((family.records, family.log_changes), (10, 1), "{report:?}");
    assert_eq!(contents(&db).len(), 11);
}
