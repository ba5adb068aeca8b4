//! A full disk during flushes of separated values and collections.

use crate::common::*;
use crate::*;
use lavastore_lavakv::ErrorKind;

/// Overwrites a few keys until the disk is full.
fn fill_up(db: &Db, model: &mut Model, rng: &mut Rng) -> u64 {
    for n in 0..100_000 {
        let (key, value) = (key(rng.below(400)), noise(rng, 4000));
        match db.put(&key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                return n;
            }
        }
        if n % 7 == 0 {
            db.run_background_step();
        }
        if n > 20_000 {
            break;
        }
    }
    0
}

/// At many capacities, so that space runs out in flush, compaction and collection.
#[test]
fn writes_and_collections_stop_and_resume() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let (mut full, mut collected) = (0, 0);
    for step in 0..16u64 {
        let (sim, mut rng, mut model) = (SimEnv::new(step), Rng::new(step), Model::new());
        let db = open_apart(&sim, 200);
        sim.set_capacity(Some((1600 << 10) + step * 12_288));
        full += u64::from(fill_up(&db, &mut model, &mut rng) > 0);
        reads_back(&db, &model);
        for _ in 0..300 {
            db.run_background_step();
            sim.advance_ns(10_000_000);
        }
        reads_back(&db, &model);
        sim.set_capacity(None);
        sim.advance_ns(500_000_000);
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
        for i in 0..300 {
            let value = noise(&mut rng, 3000);
            db.put(&key(i), &value).unwrap_or_else(|e| panic!("step {step}: {e}"));
            model.insert(key(i), value);
        }
        compact(&db);
        nothing_left_over(&db, &sim);
        collected += db.stats().gc_runs;
        db.close().unwrap();
        let db = open_apart(&sim, 200);
        reads_back(&db, &model);
        nothing_left_over(&db, &sim);
    }
    assert!(full > 6 && collected > 16, "full {full} times, {collected} collections");
}

/// Each page that a collection writes is in turn the first that does not fit.
#[test]
fn a_collection_that_finds_no_room_leaves_nothing() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let (mut failed, mut done) = (0, 0);
    for step in 0..40u64 {
        let (sim, mut model) = (SimEnv::new(step), Model::new());
        let mut options = apart(200);
        // Only a quiet store collects.
        options.family.expert.gc_ratio_percent = 60;
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        fill_long(&db, &mut model, 0..60, 0, 1500);
        compact(&db);
        fill_long(&db, &mut model, (0..60).filter(|i| i % 3 != 0), 1, 30);
        db.flush().unwrap();
        // The present room, and a little more.
        sim.set_capacity(Some(sim.used() + step * 1024));
        let compacted = db.compact_range(db.default_column_family(), None, None);
        if let Err(e) = compacted {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        }
        for _ in 0..200 {
            db.run_background_step();
            sim.advance_ns(1_000_000);
        }
        failed += db.stats().background_errors;
        reads_back(&db, &model);
        sim.set_capacity(None);
        sim.advance_ns(1_000_000_000);
        settle(&db);
        compact(&db);
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
        done += db.stats().gc_runs;
    }
    assert!(failed > 5 && done > 5, "{failed} failed, {done} done");
}
