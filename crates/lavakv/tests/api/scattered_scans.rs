//! Scans over values that overwrites have scattered over many files: how many reads they take, of how many bytes, and how many of them
//! are at the device together.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{Ablation, Db, FamilyOptions, Options, ReadOptions, Statistics, sim::SimEnv};

const KEYS: u64 = 3000;
const LEN: usize = 4000;
const SCANNED: usize = 1000;

fn value(i: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{i:05}/{round}/").into_bytes();
    value.resize(LEN, (i + round) as u8);
    value
}

/// A store whose values were written in random order, half of them twice, and whose files are as flushes and collections left them.
fn scattered(sim: &SimEnv) -> (Db, Model) {
    let family = FamilyOptions { min_blob_size: 512, vsst_bytes: 256 << 10, ..FamilyOptions::default() };
    let ablation = Ablation::without(["correlated"]).unwrap();
    let options = Options {
        family,
        ablation,
        memtable_bytes: 512 << 10,
        memory_bytes: 2 << 20,
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let db = Db::open_in(env(sim), DIR, options).unwrap();
    let (mut rng, mut model) = (Rng::new(3), Model::new());
    let mut keys: Vec<u64> = (0..KEYS).collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    keys.extend((0..KEYS / 2).map(|_| rng.below(KEYS)));
    for (round, i) in keys.into_iter().enumerate() {
        db.put(&key(i), &value(i, round as u64)).unwrap();
        model.insert(key(i), value(i, round as u64));
    }
    db.flush().unwrap();
    settle(&db);
    (db, model)
}

fn uncached(expected_entries: usize) -> ReadOptions {
    ReadOptions { fill_cache: false, expected_entries, ..ReadOptions::default() }
}

/// What a scan of so many entries from `from` on did.
#[track_caller]
fn scan(db: &Db, model: &Model, options: ReadOptions, (from, entries): (u64, usize)) -> Statistics {
    let before = db.stats();
    let mut iter = db.iter(options).unwrap();
    iter.seek(&key(from)).unwrap();
    for (nth, (key, value)) in model.range(key(from)..).take(entries).enumerate() {
        assert_eq!((iter.key(), iter.value().unwrap()), (&key[..], &value[..]));
        if nth + 1 < entries {
            iter.next().unwrap();
        }
    }
    drop(iter);
    let after = db.stats();
    Statistics {
        iter_values_read: after.iter_values_read - before.iter_values_read,
        iter_value_batches: after.iter_value_batches - before.iter_value_batches,
        iter_value_reads: after.iter_value_reads - before.iter_value_reads,
        iter_value_reads_ahead: after.iter_value_reads_ahead - before.iter_value_reads_ahead,
        iter_value_bytes: after.iter_value_bytes - before.iter_value_bytes,
        ..Statistics::default()
    }
}

#[test]
fn a_scan_of_known_length_takes_few_batches_and_few_reads() {
    let sim = SimEnv::new(1);
    let (db, model) = scattered(&sim);
    for from in [0, 700, 1900] {
        let seen = scan(&db, &model, uncached(SCANNED), (from, SCANNED));
        let Statistics { iter_value_batches: batches, iter_value_reads: reads, .. } = seen;
        assert_eq!((seen.iter_values_read, batches), (SCANNED as u64, 2), "{reads} reads");
        // The first brings 256; all others are read while these are gone through, each file by one run or two.
        println!("{reads} reads, {} ahead, {} bytes", seen.iter_value_reads_ahead, seen.iter_value_bytes);
        assert!(seen.iter_value_reads_ahead > 0);
        assert!(reads * 10 < SCANNED as u64, "{reads} reads");
        let wanted = (SCANNED * LEN) as u64;
        assert!(seen.iter_value_bytes < 2 * wanted, "{} of {wanted} bytes", seen.iter_value_bytes);
    }
    // As short as it says: nothing more is read.
    assert_eq!(scan(&db, &model, uncached(10), (40, 10)).iter_values_read, 10);
}

#[test]
fn a_scan_of_unknown_length_looks_as_far_as_it_has_come() {
    let sim = SimEnv::new(2);
    let (db, model) = scattered(&sim);
    for entries in [1, 2, 5, 20, 100, 400, 1000, 2500] {
        let seen = scan(&db, &model, uncached(0), (100, entries));
        let most = if entries < 2 { 1 } else { 4 * entries as u64 + 4 };
        let (read, batches) = (seen.iter_values_read, seen.iter_value_batches);
        assert!(entries as u64 <= read && read <= most, "{read} of {entries}");
        // One alone, then 4, 8, 16, 32, 64, and so on, while they are scattered.
        let log = entries.ilog2() as u64;
        assert!(batches <= log + 2, "{batches} batches of {entries}");
    }
    let given = ReadOptions { readahead_bytes: 64 << 10, ..uncached(0) };
    let seen = scan(&db, &model, given, (100, 1000));
    assert!(seen.iter_value_batches > 60, "who says how much to read ahead gets that: {seen:?}");
}

#[test]
fn values_in_order_are_read_by_short_windows() {
    let sim = SimEnv::new(3);
    let family = FamilyOptions { min_blob_size: 512, ..FamilyOptions::default() };
    let options = Options { family, cache_bytes: 1 << 20, ..Options::default() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let mut model = Model::new();
    for i in 0..KEYS {
        db.put(&key(i), &value(i, 0)).unwrap();
        model.insert(key(i), value(i, 0));
    }
    db.flush().unwrap();
    settle(&db);
    let seen = scan(&db, &model, uncached(SCANNED), (0, SCANNED));
    assert_eq!((seen.iter_values_read, seen.iter_value_batches), (SCANNED as u64, 4));
    assert!(seen.iter_value_reads <= 20, "{seen:?}");
}
