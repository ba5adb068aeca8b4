//! Reading beside a live writer, which flushes, compacts, rolls its manifest and recycles its log
//! meanwhile.

use crate::common::*;
use lavastore_lavakv::{Db, sim::SimEnv};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Each open sees all writes acknowledged before it, in a state that existed at some moment.
#[test]
fn repeated_read_only_opens_beside_a_writer() {
    let tmp = TempDir::new("beside");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        // Also stops the writer when an assertion fails: the scope waits for it.
        let _stop = StopOnDrop(&stop);
        s.spawn(|| {
            // Round n writes n to all keys in ascending order. A consistent state is "n up to some
            // key, then n - 1".
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for i in 0..300 {
                    db.put(&key(i), &value(n / 1000, n)).unwrap();
                }
                n += 1;
                acknowledged.store(n, Ordering::Release);
                if n.is_multiple_of(17) {
                    db.flush().unwrap();
                }
                if n.is_multiple_of(50) {
                    db.compact_range(db.default_column_family(), None, None).unwrap();
                }
            }
        });
        while acknowledged.load(Ordering::Acquire) < 3 {
            std::thread::yield_now();
        }
        for _ in 0..40 {
            let before = acknowledged.load(Ordering::Acquire);
            let reader = Db::open_read_only(tmp.path(), small()).unwrap();
            let found = contents(&reader);
            assert_eq!(found.len(), 300);
            let rounds: Vec<u64> = (0..300).map(|i| round_of(&found[&key(i)])).collect();
            assert!(rounds.is_sorted_by(|a, b| a >= b), "{rounds:?}");
            assert!(rounds[0] - rounds[299] <= 1, "{rounds:?}");
            assert!(rounds[299] + 1 >= before, "{} rounds acknowledged, {rounds:?}", before);
            // The reader keeps its state, whatever files the writer removes.
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(contents(&reader) == found);
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn round_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split('/').nth(1).unwrap().parse().unwrap()
}

/// In simulation, at every point of the writer's background work.
#[test]
fn read_only_opens_at_every_step_of_the_writer() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    for round in 0..3 {
        for part in 0..12 {
            fill(&db, &mut model, part * 100..part * 100 + 100, round);
            db.run_background_step();
            let reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
            assert!(contents(&reader) == model, "round {round}, part {part}");
        }
    }
    let reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    let then = model.clone();
    fill(&db, &mut model, 0..1200, 9);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert!(contents(&reader) == then, "tables that were removed are still read");
    drop(db);
    assert!(contents(&reader) == then, "the writer is gone");
    assert!(contents(&open(&sim)) == model, "a reader holds no lock");
}
