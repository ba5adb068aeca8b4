//! Lives of a store with both engines, with a crash at every operation.

use crate::both::open;
use crate::life::{DIR, Found, Life, find, find_keys, find_records, kv_options, log_options};
use io::Rng;
use io::sim::{CrashKind, SimEnv};
use lavakv::Db;
use lavalog::LogStore;
use std::path::Path;

const NOTHING: Found = Found { keys: 0, records: 0 };

/// What a crash left, opened together, or first each alone, which changes nothing for the other.
fn found(left: &SimEnv, alone: u64) -> Found {
    if alone == 1 {
        let db = match Db::open_in(left.env(), DIR, kv_options()) {
            // Changes that only the log of records has: that is opened with it.
            Err(e) if e.kind() == base::ErrorKind::Unsupported => {
                let (db, logs) = open(&left.env()).unwrap();
                return find(&db, &logs);
            }
            opened => opened.unwrap(),
        };
        let keys = find_keys(&db);
        db.close().unwrap();
        let (db, logs) = open(&left.env()).unwrap();
        assert_eq!(find_keys(&db), keys);
        return find(&db, &logs);
    }
    if alone == 2 && left.env().fs.exists(&Path::new(DIR).join("CURRENT")).unwrap() {
        let logs = LogStore::open(&left.env(), Path::new(DIR), &log_options()).unwrap();
        let records = find_records(&logs);
        logs.close().unwrap();
        let (db, logs) = open(&left.env()).unwrap();
        assert_eq!(find_records(&logs), records);
        return find(&db, &logs);
    }
    // Who only reads sees the same, without the logs.
    let exists = left.env().fs.exists(&Path::new(DIR).join("CURRENT")).unwrap();
    let read = (alone == 3 && exists)
        .then(|| find_keys(&Db::open_read_only_in(left.env(), DIR, kv_options()).unwrap()));
    let (db, logs) = open(&left.env()).unwrap();
    let found = find(&db, &logs);
    assert!(read.is_none_or(|keys| keys == found.keys), "{read:?} beside {found:?}");
    found
}

#[test]
fn both_come_back_after_a_crash_at_every_operation() {
    let (mut states, mut moments) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut life = Life::new(SimEnv::new(seed), seed, NOTHING);
        for nth in 0..3 {
            life.live(20 + rng.below(60));
            let record = life.sim.record();
            let ops = record.mutations();
            for &op in &ops {
                if !rng.one_in(3) {
                    continue;
                }
                let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
                let left = record.crash_at(op, kind, seed);
                life.judge(found(&left, rng.below(8)), op, kind);
                states += 1;
            }
            moments += ops.len();
            // Life goes on from one of them.
            let op = ops[rng.below(ops.len() as u64) as usize];
            let left = record.crash_at(op, CrashKind::PowerLoss, seed + 1);
            let at = found(&left, 0);
            life.judge(at, op, CrashKind::PowerLoss);
            life = Life::new(left.crash(CrashKind::ProcessKill, nth), rng.next_u64(), at);
        }
    }
    assert!(states > 500, "{states} states of {moments}");
}
