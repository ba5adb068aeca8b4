//! A store with little in it is small on disk, with the options nobody set, however often it is opened.

use crate::common::*;
use lavastore_lavakv::{Db, Options, sim::SimEnv};

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
