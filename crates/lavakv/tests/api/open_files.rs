//! A store has more files than the process may have open: whatever is done with it, all the same.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Compression, Db, FamilyOptions, Options, RepairOptions};
use std::path::Path;

/// So many files may be open.
const OPEN_MAX: u64 = 100;
/// Files of either kind, at least.
const FILES_MIN: usize = 110;

fn few() -> Options {
    let family = FamilyOptions {
        file_bytes: 8 << 10,
        min_blob_size: 64,
        vsst_bytes: 8 << 10,
        compression: Compression::None,
        ..small_family()
    };
    Options { open_files_max: 16, family, ..small() }
}

fn made(sim: &SimEnv) -> Model {
    let db = Db::open_in(env(sim), DIR, few()).unwrap();
    let mut model = Model::new();
    for i in 0..40_000 {
        let value = if i % 2 == 0 { value(i, 1) } else { vec![b'k'; 60] };
        db.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
    db.flush().unwrap();
    db.close().unwrap();
    let count = |end: &str| files(sim).iter().filter(|(name, _)| name.ends_with(end)).count();
    let counts = [".ksst", ".vsst"].map(count);
    assert!(counts.iter().all(|n| *n > FILES_MIN), "{counts:?}");
    model
}

#[test]
fn a_store_of_more_files_than_may_be_open_is_written_read_verified_copied_and_opened() {
    let sim = SimEnv::new(3);
    sim.set_open_max(Some(OPEN_MAX));
    let model = made(&sim);
    let db = Db::open_in(env(&sim), DIR, few()).unwrap();
    assert!(contents(&db) == model);
    assert!(db.verify().unwrap().errors.is_empty());
    db.checkpoint("/copy").unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    let copy = Db::open_in(env(&sim), "/copy", few()).unwrap();
    assert!(contents(&copy) == model);
}

#[test]
fn a_store_of_more_files_than_may_be_open_is_repaired() {
    let sim = SimEnv::new(4);
    let model = made(&sim);
    for lost in [None, Some("CURRENT"), Some("MANIFEST")] {
        for dry_run in [true, false] {
            let sim = sim.crash(CrashKind::ProcessKill, 1);
            for (name, _) in files(&sim) {
                if lost.is_some_and(|lost| name.starts_with(lost)) {
                    env(&sim).fs.remove(&Path::new(DIR).join(&name)).unwrap();
                }
            }
            sim.set_open_max(Some(OPEN_MAX));
            let options = RepairOptions { options: few(), dry_run, without_speed: false };
            let report = Db::repair_in(&env(&sim), DIR, &env(&sim), "/new", &options).unwrap();
            assert!(report.lost.is_empty(), "{lost:?}: {report:?}");
            assert_eq!(sim.open_now(), 0);
            if !dry_run {
                assert!(contents(&Db::open_in(env(&sim), "/new", few()).unwrap()) == model);
            }
        }
    }
}
