//! Iterators: both directions, bounds, prefix, keys only, over memtables and every level.

use crate::common::*;
use lavastore_lavakv::{Db, DbIterator, FamilyOptions, KeyPrefix, Options, ReadOptions, sim::SimEnv};

/// Even keys in tables, odd ones in the memtable, some deleted.
fn store(sim: &SimEnv) -> (Db, Model) {
    let (db, mut model) = (open(sim), Model::new());
    for i in (0..400).step_by(2) {
        fill(&db, &mut model, i..i + 1, 0);
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    for i in (0..400).step_by(10) {
        fill(&db, &mut model, i..i + 1, 1);
    }
    db.delete_range(&key(150), &key(160)).unwrap();
    model.retain(|k, _| !(key(150)..key(160)).contains(k));
    db.flush().unwrap();
    for i in (1..400).step_by(4) {
        fill(&db, &mut model, i..i + 1, 2);
    }
    for i in (0..400).step_by(7) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    (db, model)
}

fn forward(i: &mut DbIterator) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    i.seek_to_first().unwrap();
    while i.valid() {
        keys.push(i.key().to_vec());
        i.next().unwrap();
    }
    keys
}

fn backward(i: &mut DbIterator) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    i.seek_to_last().unwrap();
    while i.valid() {
        keys.push(i.key().to_vec());
        i.prev().unwrap();
    }
    keys.reverse();
    keys
}

#[test]
fn iterators_move_both_ways_within_every_kind_of_bound() {
    let sim = SimEnv::new(1);
    let (db, model) = store(&sim);
    let bounds =
        [None, Some(key(0)), Some(key(99)), Some(key(155)), Some(key(250)), Some(key(999)), Some(vec![])];
    for lower in &bounds {
        for upper in &bounds {
            let options = || ReadOptions {
                lower_bound: lower.clone(),
                upper_bound: upper.clone(),
                ..Default::default()
            };
            let inside = |k: &&Vec<u8>| {
                lower.as_ref().is_none_or(|l| *k >= l) && upper.as_ref().is_none_or(|u| *k < u)
            };
            let expected: Vec<Vec<u8>> = model.keys().filter(inside).cloned().collect();
            let mut i = db.iter(options()).unwrap();
            assert_eq!(forward(&mut i), expected, "{lower:?} {upper:?}");
            assert_eq!(backward(&mut i), expected, "{lower:?} {upper:?}");
            assert_eq!(db.iter(options()).unwrap().entries().count(), expected.len());
        }
    }
}

#[test]
fn prefix_iteration_returns_exactly_the_prefix() {
    let sim = SimEnv::new(2);
    let (db, model) = store(&sim);
    for prefix in ["", "key", "key0000", "key0001", "key00015", "key000399", "zzz", "key9"] {
        let options = || ReadOptions { prefix: Some(prefix.into()), ..Default::default() };
        let expected: Vec<Vec<u8>> =
            model.keys().filter(|k| k.starts_with(prefix.as_bytes())).cloned().collect();
        let mut i = db.iter(options()).unwrap();
        assert_eq!(forward(&mut i), expected, "{prefix}");
        assert_eq!(backward(&mut i), expected, "{prefix}");
        // A prefix and a bound apply together.
        let bounded = ReadOptions { lower_bound: Some(key(200)), ..options() };
        let expected: Vec<_> = expected.into_iter().filter(|k| *k >= key(200)).collect();
        assert_eq!(forward(&mut db.iter(bounded).unwrap()), expected, "{prefix}");
    }
}

#[test]
fn seeks_and_turns_agree_with_a_model() {
    let sim = SimEnv::new(3);
    let (db, model) = store(&sim);
    let mut rng = lavastore_lavakv::io::Rng::new(3);
    for options in [
        ReadOptions::default(),
        ReadOptions { fill_cache: false, ..Default::default() },
        ReadOptions { readahead_bytes: 64 << 10, ..Default::default() },
    ] {
        let mut i = db.iter(options).unwrap();
        let mut at: Option<Vec<u8>> = None;
        for _ in 0..3000 {
            let target = key(rng.below(420));
            let next = |k: &Vec<u8>| {
                model.range::<Vec<u8>, _>((std::ops::Bound::Excluded(k), std::ops::Bound::Unbounded)).next()
            };
            at = match (rng.below(6), &at) {
                (0, _) => i.seek(&target).map(|()| model.range(target..).next()).unwrap(),
                (1, _) => i.seek_for_prev(&target).map(|()| model.range(..=target).next_back()).unwrap(),
                (2 | 3, Some(k)) => i.next().map(|()| next(k)).unwrap(),
                (4 | 5, Some(k)) => i.prev().map(|()| model.range(..k.clone()).next_back()).unwrap(),
                (n, None) if n % 2 == 0 => i.seek_to_first().map(|()| model.iter().next()).unwrap(),
                (_, _) => i.seek_to_last().map(|()| model.iter().next_back()).unwrap(),
            }
            .map(|(k, _)| k.clone());
            assert_eq!(i.valid(), at.is_some());
            if let Some(k) = &at {
                assert_eq!((i.key(), i.value().unwrap()), (&k[..], &model[k][..]));
            }
        }
    }
}

#[test]
fn keys_only_iteration_agrees_with_entries() {
    fn may_move_to_another_thread<T: Send>(_: &T) {}
    let sim = SimEnv::new(4);
    let (db, model) = store(&sim);
    may_move_to_another_thread(&db.iter(ReadOptions::default()).unwrap());
    let mut i = db.iter(ReadOptions { keys_only: true, ..Default::default() }).unwrap();
    i.seek(&key(100)).unwrap();
    assert!(i.valid() && i.value().unwrap().is_empty());
    let from_here: Vec<_> = i.entries().map(|e| e.unwrap()).collect();
    let expected: Vec<_> = model.range(key(100)..).map(|(k, _)| (k.clone(), Vec::new())).collect();
    assert_eq!(from_here, expected);
    let mut entries = db.iter(ReadOptions::default()).unwrap().entries();
    assert_eq!(entries.by_ref().count(), model.len());
    assert!(entries.next().is_none() && entries.next().is_none());
}

/// An iterator sees the moment of its creation.
#[test]
fn an_iterator_sees_a_consistent_snapshot() {
    let sim = SimEnv::new(5);
    let (db, mut model) = store(&sim);
    let before = model.clone();
    let mut i = db.iter(ReadOptions::default()).unwrap();
    i.seek(&key(200)).unwrap();
    for round in 3..6 {
        fill(&db, &mut model, 0..2000, round);
        db.flush().unwrap();
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(forward(&mut i), before.keys().cloned().collect::<Vec<_>>());
    let pinned = db.space().unwrap().pinned_bytes;
    assert!(pinned > 0, "the iterator's tables are pinned");
    drop(i);
    settle(&db);
    assert_eq!(db.space().unwrap().pinned_bytes, 0, "and removed when it is gone");
    assert!(contents(&db) == model);
}

#[test]
fn an_empty_store_iterates_nothing() {
    let sim = SimEnv::new(6);
    let db = open(&sim);
    let mut i = db.iter(ReadOptions::default()).unwrap();
    assert!(forward(&mut i).is_empty() && backward(&mut i).is_empty());
    i.seek(b"x").unwrap();
    assert!(!i.valid());
    assert_eq!(i.entries().count(), 0);
}

/// With any number of tables, a cold seek takes one batch of reads for indexes and one for blocks.
#[test]
fn a_cold_seek_waits_for_two_read_batches() {
    for (cache_bytes, tables) in [(0, 1), (0, 2), (0, 3), (1 << 20, 3)] {
        let sim = SimEnv::new(9);
        let db = Db::open_in(env(&sim), DIR, Options { cache_bytes, ..small() }).unwrap();
        let mut model = Model::new();
        for round in 0..tables {
            fill(&db, &mut model, 0..100, round);
            db.flush().unwrap();
        }
        let seek = |target| {
            let before = db.stats();
            let mut i = db.iter(ReadOptions::default()).unwrap();
            i.seek(&key(target)).unwrap();
            assert_eq!(i.key(), key(target));
            assert_eq!(i.value().unwrap(), model[&key(target)]);
            let after = db.stats();
            let batches = after.iter_seek_batches - before.iter_seek_batches;
            (batches, after.iter_seek_reads - before.iter_seek_reads)
        };
        let cold = seek(40);
        let again = seek(40);
        match cache_bytes {
            0 => assert_eq!((cold, again), ((2, 2 * tables), (2, 2 * tables))),
            // Recently written data may be cached; recently read data is.
            _ => assert_eq!(again, (0, 0), "{cold:?}"),
        }
    }
}

/// A bounded iterator leaves out the tables outside its bounds, so it learns nothing about the keys
/// there.
#[test]
fn a_bounded_iterator_hides_nothing_outside_its_bounds() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    for table in [0..100, 6_000..6_100] {
        fill(&db, &mut model, table, 0);
        db.flush().unwrap();
    }
    (300..3_000).for_each(|i| db.delete(&key(i)).unwrap());
    db.flush().unwrap();
    let bounded = || ReadOptions {
        lower_bound: Some(key(300)),
        upper_bound: Some(key(3_000)),
        ..ReadOptions::default()
    };
    let all: Vec<Vec<u8>> = model.keys().cloned().collect();
    let iter = |options| db.iter(options).unwrap();
    for moves in [forward, backward] {
        // The second walk confirms the range of the first.
        (0..3).for_each(|_| assert!(moves(&mut iter(bounded())).is_empty()));
        assert_eq!(forward(&mut iter(ReadOptions::default())), all);
        assert_eq!(backward(&mut iter(ReadOptions::default())), all);
    }
}

/// A scan within one prefix asks the filters, in the families whose tables have prefixes in them.
#[test]
fn a_scan_of_an_absent_prefix_reads_no_data() {
    let sim = SimEnv::new(1);
    let refused = |prefix, filter_bits_per_key| {
        let family = FamilyOptions { prefix: Some(prefix), filter_bits_per_key, ..FamilyOptions::default() };
        family.validate().unwrap_err().to_string()
    };
    assert!(refused(KeyPrefix::Fixed(3), 0).contains("set filter_bits_per_key above 0"));
    assert!(refused(KeyPrefix::Fixed(0), 10).contains("bytes of prefix = 0 is out of range"));
    let with = |prefix| {
        let family = FamilyOptions { prefix, ..FamilyOptions::default() };
        Options { family, cache_bytes: 0, ..Options::default() }
    };
    let scan = |db: &Db, user: u64| {
        let prefix = Some(format!("user{user:04}/").into_bytes());
        let before = db.stats().prefix_exclusions;
        let found = forward(&mut db.iter(ReadOptions { prefix, ..ReadOptions::default() }).unwrap()).len();
        (found, db.stats().prefix_exclusions - before)
    };
    let mut db = Db::open_in(env(&sim), DIR, with(Some(KeyPrefix::Delimiter(b'/')))).unwrap();
    for user in (0..2_000).step_by(2) {
        (0..3).for_each(|n| db.put(format!("user{user:04}/{n}").as_bytes(), &value(n, user)).unwrap());
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    for prefix in [Some(KeyPrefix::Delimiter(b'/')), None, Some(KeyPrefix::Fixed(3))] {
        // The tables say which prefixes they have, whatever the option is now.
        db.close().unwrap();
        db = Db::open_in(env(&sim), DIR, with(prefix)).unwrap();
        let absent = (0..100).map(|n| scan(&db, 2 * n + 1));
        let (found, excluded) = absent.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(found, 0);
        assert!(excluded >= 95, "{excluded} of 100 scans asked no more than the filter");
        assert!((0..100).all(|n| scan(&db, 2 * n).0 == 3));
    }
}
