//! A store with little data is small on disk with default options, after any number of opens.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Db, Options};

fn allocated(sim: &SimEnv) -> u64 {
    env(sim).fs.list(std::path::Path::new(DIR)).unwrap().iter().map(|entry| entry.allocated).sum()
}

#[test]
fn two_records_take_less_than_a_megabyte() {
    let sim = SimEnv::new(1);
    let open = || Db::open_in(env(&sim), DIR, Options::default()).unwrap();
    let db = open();
    db.put(b"one", b"1").unwrap();
    db.put(b"two", &[2; 1000]).unwrap();
    assert!(allocated(&sim) < 1_000_000, "open: {:?}", files(&sim));
    settle(&db);
    db.close().unwrap();
    for round in 0..12 {
        let db = open();
        if round % 3 == 0 {
            db.put(b"three", &[round; 100]).unwrap();
        }
        settle(&db);
        assert!(allocated(&sim) < 1_000_000, "round {round}: {:?}", files(&sim));
        db.close().unwrap();
        assert!(allocated(&sim) < 1_000_000, "closed, round {round}: {:?}", files(&sim));
    }
}

/// Short processes with one command each: no background job ever completes.
#[test]
fn the_log_does_not_grow_with_the_number_of_opens() {
    let sim = SimEnv::new(2);
    let mut model = Model::new();
    for round in 0..100 {
        let db = Db::open_in(env(&sim), DIR, Options::default()).unwrap();
        db.put(&key(round), b"1").unwrap();
        model.insert(key(round), b"1".to_vec());
        db.close().unwrap();
        let groups = files_like(&sim, ".log").len();
        assert!(groups <= 20, "round {round}: {groups} log groups");
    }
    assert_eq!(contents(&Db::open_in(env(&sim), DIR, Options::default()).unwrap()), model);
}

/// The log of a busy store is replayed at the open, not flushed, whatever its number of groups.
#[test]
fn full_log_groups_are_not_flushed_at_open() {
    let sim = SimEnv::new(3);
    let options = || {
        Options { memtable_bytes: 16 << 20, memory_bytes: 64 << 20, ..Options::default() }
            .expert(|expert| expert.log_group_bytes = 64 << 10)
    };
    let db = Db::open_in(env(&sim), DIR, options()).unwrap();
    let mut model = Model::new();
    for n in 0..3000 {
        db.put(&key(n), &[7; 1000]).unwrap();
        model.insert(key(n), vec![7; 1000]);
    }
    assert!(files_like(&sim, ".log").len() > 30);
    let after = sim.crash(CrashKind::ProcessKill, 1);
    drop(db);
    let db = Db::open_in(env(&after), DIR, options()).unwrap();
    assert_eq!(files_like(&after, ".ksst").len(), 0, "tables were made before the store was open");
    assert_eq!(contents(&db), model);
}
