//! Iterators over values in tables and in value files, while these are rewritten.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{Db, DbIterator, ErrorKind, Options, ReadOptions, sim::SimEnv};
use std::ops::Bound::{Excluded, Unbounded};

const KEYS: u64 = 600;

fn open_mixed(sim: &SimEnv, cache_bytes: usize) -> Db {
    let mut options = Options { cache_bytes, ..small() };
    (options.family.min_blob_size, options.family.expert.vsst_bytes) = (100, 16 << 10);
    Db::open_in(env(sim), DIR, options).unwrap()
}

/// Puts and deletes; two thirds of the values are separated.
fn change(db: &Db, model: &mut Model, rng: &mut Rng, changes: u64) {
    for _ in 0..changes {
        let key = key(rng.below(KEYS));
        if rng.one_in(6) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let mut value = vec![0; rng.below(300) as usize];
            rng.fill(&mut value);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if rng.one_in(400) {
            db.flush().unwrap();
        }
    }
}

fn agrees(i: &DbIterator, model: &Model, at: Option<&Vec<u8>>, ask: bool) {
    assert_eq!(i.valid(), at.is_some());
    if let Some(key) = at {
        assert_eq!(i.key(), key);
        assert!(!ask || i.value().unwrap() == model[key]);
    }
}

/// Seeks, and moves in both directions with turns.
fn walk(i: &mut DbIterator, model: &Model, rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let target = key(rng.below(KEYS + 2));
        let mut at = if rng.one_in(2) {
            i.seek(&target).map(|()| model.range(target..).next()).unwrap()
        } else {
            i.seek_for_prev(&target).map(|()| model.range(..=target).next_back()).unwrap()
        }
        .map(|(key, _)| key);
        for _ in 0..1 + rng.below(3) {
            let (forward, asks) = (rng.one_in(2), rng.below(4));
            let steps_max = if rng.one_in(4) { KEYS } else { 12 };
            for _ in 0..rng.below(steps_max) {
                agrees(i, model, at, rng.below(3) < asks);
                let Some(key) = at else { break };
                at = if forward {
                    i.next().map(|()| model.range((Excluded(key.clone()), Unbounded)).next()).unwrap()
                } else {
                    i.prev().map(|()| model.range(..key.clone()).next_back()).unwrap()
                }
                .map(|(key, _)| key);
            }
        }
    }
}

#[test]
fn moves_agree_with_a_model_while_values_move() {
    for seed in 0..6 {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let db = open_mixed(&sim, if seed % 2 == 0 { 64 << 10 } else { 8 << 10 });
        let mut model = Model::new();
        change(&db, &mut model, &mut rng, 3000);
        for options in [
            ReadOptions::default(),
            ReadOptions { fill_cache: false, ..Default::default() },
            ReadOptions { readahead_bytes: 64 << 10, ..Default::default() },
            ReadOptions { readahead_bytes: 4 << 10, fill_cache: false, ..Default::default() },
            ReadOptions { expected_entries: 1 + rng.below(40) as usize, ..Default::default() },
        ] {
            let mut i = db.iter(options).unwrap();
            walk(&mut i, &model, &mut rng, 20);
            let then = model.clone();
            change(&db, &mut model, &mut rng, 1500);
            if rng.one_in(2) {
                db.compact_range(db.default_column_family(), None, None).unwrap();
            }
            settle(&db);
            walk(&mut i, &then, &mut rng, 20);
        }
        assert!(contents(&db) == model);
        assert!(db.stats().iter_values_read > 0, "{}", db.describe());
    }
}

#[test]
fn scans_read_values_in_batches_and_keys_without_them() {
    let (sim, mut rng) = (SimEnv::new(10), Rng::new(10));
    let db = open_mixed(&sim, 8 << 10);
    let mut model = Model::new();
    change(&db, &mut model, &mut rng, 3000);
    db.flush().unwrap();
    settle(&db);
    let separated = model.values().filter(|v| v.len() >= 100).count() as u64;
    for keys_only in [true, false] {
        // With `keys_only`, or without a call for values.
        let mut i = db.iter(ReadOptions { keys_only, ..Default::default() }).unwrap();
        i.seek_to_first().unwrap();
        while i.valid() {
            i.next().unwrap();
        }
    }
    assert_eq!(db.stats().iter_value_reads, 0);
    assert!(contents(&db) == model);
    let stats = db.stats();
    assert!(stats.iter_values_read > separated / 2, "{stats:?}");
    assert!(stats.iter_value_reads < stats.iter_values_read, "{stats:?}");
}

/// An unreadable value is an error that names its file, at its entry only.
#[test]
fn each_damaged_value_is_an_error_at_its_entry() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(11);
    let db = open_mixed(&sim, 8 << 10);
    let mut model = Model::new();
    for n in 0..100 {
        let value = vec![n as u8; 400];
        db.put(&key(n), &value).unwrap();
        model.insert(key(n), value);
    }
    db.flush().unwrap();
    settle(&db);
    let file = files_like(&sim, ".vsst").remove(0);
    let bytes = sim.read_file(path(&file)).unwrap();
    // In the middle of a value if values are uncompressed; else in some record.
    sim.flip_bit(path(&file), bytes.len() as u64 / 3, 3).unwrap();
    let (mut seen, mut damaged) = (0, 0);
    let options = ReadOptions { fill_cache: false, ..Default::default() };
    let mut i = db.iter(options).unwrap();
    i.seek_to_first().unwrap();
    while i.valid() {
        match i.value() {
            Ok(value) => assert_eq!(value, model[i.key()]),
            Err(_) => {
                refused(i.value(), ErrorKind::Corruption, &file);
                damaged += 1;
            }
        }
        seen += 1;
        i.next().unwrap();
    }
    assert_eq!((seen, damaged), (100, 1));
}

/// Keys with values of 400 bytes in several value files, none of them in key order.
fn scattered(sim: &SimEnv, keys: u64, cache_bytes: usize) -> (Db, Model) {
    let db = open_mixed(sim, cache_bytes);
    let mut model = Model::new();
    for n in 0..keys {
        let (key, value) = (key(n * 7 % keys), vec![n as u8; 400]);
        db.put(&key, &value).unwrap();
        model.insert(key, value);
        if n % 150 == 149 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    settle(&db);
    (db, model)
}

#[test]
fn a_page_of_known_length_is_one_batch() {
    let sim = SimEnv::new(12);
    let (db, model) = scattered(&sim, 597, 0);
    let mut reads = Vec::new();
    for expected_entries in [0, 40] {
        let mut i = db.iter(ReadOptions { expected_entries, ..Default::default() }).unwrap();
        let before = db.stats();
        i.seek(&key(100)).unwrap();
        assert_eq!(db.stats().iter_values_read, before.iter_values_read, "nobody has asked");
        assert_eq!(i.value().unwrap(), model[&key(100)]);
        let after = db.stats();
        reads.push(after.iter_values_read - before.iter_values_read);
    }
    assert_eq!(reads, [1, 40]);
}

#[test]
fn a_scan_ended_or_reversed_within_a_window_leaves_no_state() {
    let sim = SimEnv::new(13);
    let (db, model) = scattered(&sim, 597, 8 << 10);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    for stop in [70, 130, 200, 260, 330, 400, 590] {
        let mut i = db.iter(ReadOptions::default()).unwrap();
        i.seek_to_first().unwrap();
        for key in &keys[..stop] {
            assert_eq!((i.key(), i.value().unwrap()), (&key[..], &model[*key][..]));
            i.next().unwrap();
        }
        if stop % 20 == 0 {
            for key in keys[..stop].iter().rev() {
                i.prev().unwrap();
                assert_eq!((i.key(), i.value().unwrap()), (&key[..], &model[*key][..]));
            }
        }
    }
    assert!(db.stats().iter_value_reads_ahead > 0);
    // Files read by a dropped iterator are removed like others.
    for n in 0..597 {
        db.put(&key(n), &[1; 400]).unwrap();
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    db.close().unwrap();
}

/// Each record in turn is damaged: a long scan returns every other value, and the error at its
/// entry.
#[test]
fn damage_in_a_read_ahead_window_is_reported_at_its_entry() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    for (nth, share) in [(0, 2), (1, 3), (2, 5)] {
        let sim = SimEnv::new(14);
        let (db, model) = scattered(&sim, 597, 0);
        let file = files_like(&sim, ".vsst").remove(nth);
        let len = sim.read_file(path(&file)).unwrap().len() as u64;
        sim.flip_bit(path(&file), len / share, 3).unwrap();
        let mut damaged = Vec::new();
        let mut i = db.iter(ReadOptions::default()).unwrap();
        i.seek_to_first().unwrap();
        for key in model.keys() {
            assert_eq!(i.key(), key);
            match i.value() {
                Ok(value) => assert_eq!(value, model[key]),
                Err(_) => {
                    refused(i.value(), ErrorKind::Corruption, &file);
                    refused(db.get(key), ErrorKind::Corruption, &file);
                    damaged.push(key.clone());
                }
            }
            i.next().unwrap();
        }
        assert!(!i.valid());
        assert_eq!(damaged.len(), 1, "{damaged:?}");
    }
}
