//! put, get, delete, delete_range and batches, in the default family and in others.

use crate::common::*;
use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{
    Db, Durability, ErrorKind, Options, ReadOptions, Statistics, WriteBatch, WriteOptions,
};

#[test]
fn every_write_and_read_method_round_trips() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let family = db.create_column_family("family", small_family()).unwrap();
    let default = db.default_column_family().clone();
    for reopened in [false, true] {
        for (f, other) in [(&default, &family), (&family, &default)] {
            let name = f.name().as_bytes();
            db.put_cf(f, b"a", name).unwrap();
            assert_eq!(db.get_cf(f, b"a").unwrap().as_deref(), Some(name));
            assert!(db.get_cf(other, b"a").unwrap().is_none_or(|v| *v != *name));
            db.put_cf(f, b"a", b"again").unwrap();
            assert_eq!(db.get_cf(f, b"a").unwrap().unwrap().into_vec(), b"again");
            db.delete_cf(f, b"a").unwrap();
            assert!(db.get_cf(f, b"a").unwrap().is_none());
            db.delete_cf(f, b"never there").unwrap();
            for durability in [WriteOptions::durable(), WriteOptions::buffered(), WriteOptions::volatile()] {
                db.put_opt(f, b"b", b"1", &durability).unwrap();
                assert_eq!(&**db.get_opt(f, b"b", &ReadOptions::default()).unwrap().as_ref().unwrap(), b"1");
                db.delete_opt(f, b"b", &durability).unwrap();
                assert!(db.get_cf(f, b"b").unwrap().is_none());
            }
            for i in 0..10 {
                db.put_cf(f, &key(i), b"x").unwrap();
            }
            db.delete_range_cf(f, &key(3), &key(7)).unwrap();
            assert_eq!(contents_cf(&db, f).len(), 6);
            db.put_cf(f, &key(5), b"back").unwrap();
            assert_eq!(db.get_cf(f, &key(5)).unwrap().as_deref(), Some(&b"back"[..]));
            db.delete_range_cf(f, b"", &[0xff; 20]).unwrap();
            assert!(contents_cf(&db, f).is_empty());
        }
        if !reopened {
            db.flush().unwrap();
        }
    }
    db.put(b"d", b"1").unwrap();
    db.delete(b"d").unwrap();
    db.put(b"e", b"2").unwrap();
    db.delete_range(b"d", b"f").unwrap();
    assert!(contents(&db).is_empty());
}

#[test]
fn a_batch_applies_atomically_and_in_order() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let family = db.create_column_family("family", small_family()).unwrap();
    db.put(b"old", b"1").unwrap();
    db.put_cf(&family, b"old", b"1").unwrap();
    let mut batch = WriteBatch::new();
    assert!(batch.is_empty() && batch.byte_len() > 0);
    batch.put(b"k", b"first");
    batch.put(b"k", b"second");
    batch.delete(b"old");
    batch.put_cf(&family, b"k", b"theirs");
    batch.put(b"gone", b"x");
    batch.delete_range(b"g", b"h");
    batch.put(b"gx", b"after the range");
    batch.put_cf(&family, b"ranged", b"x");
    batch.delete_range_cf(&family, b"r", b"s");
    batch.delete_cf(&family, b"old");
    assert_eq!(batch.len(), 10);
    let before = db.snapshot().sequence();
    db.write(&batch).unwrap();
    assert_eq!(db.snapshot().sequence(), before + 10, "one sequence for each change");
    let expected: Model =
        [(b"gx".to_vec(), b"after the range".to_vec()), (b"k".to_vec(), b"second".to_vec())].into();
    let check = |db: &Db| {
        assert!(contents(db) == expected);
        let theirs = contents_cf(db, &db.column_family("family").unwrap());
        assert_eq!(theirs.into_iter().collect::<Vec<_>>(), [(b"k".to_vec(), b"theirs".to_vec())]);
    };
    check(&db);
    db.write_opt(&batch, &WriteOptions::durable()).unwrap();
    check(&db);
    db.write_opt(&batch.clone(), &WriteOptions::volatile()).unwrap();
    check(&db);
    drop((db, family));
    let db = open(&sim);
    check(&db);
    db.flush().unwrap();
    check(&db);
}

/// The promise of each durability, at a power loss right after the acknowledgement.
#[test]
fn durability_is_set_per_write_or_per_store() {
    use lavastore_lavakv::sim::{CrashKind, Policy};
    let power = CrashKind::PowerLossWith(Policy::Dropped);
    for store_wide in [Durability::Durable, Durability::Buffered, Durability::Volatile] {
        let sim = SimEnv::new(3);
        let options = Options { durability: store_wide, ..small() };
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        db.put(b"by store", b"1").unwrap();
        let killed = contents(&open(&sim.crash(CrashKind::ProcessKill, 1)));
        assert_eq!(killed.len(), usize::from(store_wide != Durability::Volatile), "{store_wide:?}");
        // The seed decides for each unsynced write whether it is lost: one of sixteen power losses
        // loses it.
        let left = |seed| contents(&open(&sim.crash(power, seed))).len();
        let all_kept = (0..16).all(|seed| left(seed) == 1);
        assert_eq!(all_kept, store_wide == Durability::Durable, "{store_wide:?}");
        db.put_opt(db.default_column_family(), b"by write", b"2", &WriteOptions::durable()).unwrap();
        let lost = contents(&open(&sim.crash(power, 2)));
        assert!(lost.contains_key(&b"by write"[..]), "{store_wide:?}");
        // A flush and a clean close make everything durable.
        db.put_opt(db.default_column_family(), b"volatile", b"3", &WriteOptions::volatile()).unwrap();
        let db = if store_wide == Durability::Buffered {
            db.flush().unwrap();
            db
        } else {
            db.close().unwrap();
            open(&sim)
        };
        drop(db);
        assert_eq!(contents(&open(&sim.crash(power, 3))).len(), 3, "{store_wide:?}");
    }
}

/// Volatile writes whose flush had no room are in no table: a clean close flushes them once there
/// is room.
#[test]
fn a_close_retries_a_flush_that_had_no_space() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let sim = SimEnv::new(4);
    let db = open(&sim);
    db.put_opt(db.default_column_family(), b"volatile", b"1", &WriteOptions::volatile()).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::Create]).path(".ksst").sticky());
    fails(db.flush(), ErrorKind::NoSpace);
    sim.clear_faults();
    sim.advance_ns(1_000_000_000);
    db.close().unwrap();
    assert_eq!(open(&sim).get(b"volatile").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Many random changes against a model, with flushes and compactions in between.
#[test]
fn random_changes_agree_with_a_model() {
    for seed in 0..4 {
        let sim = SimEnv::new(seed);
        let mut rng = lavastore_lavakv::io::Rng::new(seed);
        let mut model = Model::new();
        for session in 0..3 {
            let db = open(&sim);
            for step in 0..1500 {
                let k = key(rng.below(400));
                match rng.below(20) {
                    0..=2 => {
                        db.delete(&k).unwrap();
                        model.remove(&k);
                    }
                    3 => {
                        let end = key(rng.below(400));
                        let (low, high) = if k < end { (k, end) } else { (end, k) };
                        db.delete_range(&low, &high).unwrap();
                        model.retain(|k, _| !(&low..&high).contains(&k));
                    }
                    4 if step % 100 == 0 => db.flush().unwrap(),
                    5 if step % 300 == 0 => {
                        db.compact_range(db.default_column_family(), Some(&k), None).unwrap();
                    }
                    _ => {
                        let v = value(step, rng.below(1000));
                        db.put(&k, &v).unwrap();
                        model.insert(k, v);
                    }
                }
                let k = key(rng.below(400));
                assert_eq!(db.get(&k).unwrap().as_deref(), model.get(&k).map(|v| &v[..]));
            }
            assert!(contents(&db) == model, "seed {seed}, session {session}");
        }
    }
}

#[test]
fn contains_key_answers_as_get_does_and_reads_no_value() {
    let sim = SimEnv::new(1);
    let mut options = Options { cache_bytes: 0, ..small() };
    (options.family.min_blob_size, options.family.expert.vsst_bytes) = (100, 16 << 10);
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    for i in 0..400 {
        // Inline, separated, and in a segment.
        let len = [10, 300, 40_000][usize::from(i % 3 == 1) + usize::from(i % 50 == 7)];
        db.put(&key(i), &vec![7; len]).unwrap();
        if i == 300 {
            db.flush().unwrap();
        }
    }
    db.delete(&key(100)).unwrap();
    db.delete_range(&key(200), &key(250)).unwrap();
    let snapshot = db.snapshot();
    db.delete(&key(4)).unwrap();
    settle(&db);
    let family = db.default_column_family();
    for options in [ReadOptions::default(), ReadOptions { snapshot: Some(snapshot), ..Default::default() }] {
        for i in 0..405 {
            let at = options.at();
            let read = |s: Statistics| s.get_value_reads + s.get_vsst_index_reads;
            let before = read(db.stats());
            let found = db.contains_key_at(family, &key(i), at).unwrap();
            assert_eq!(read(db.stats()), before, "key {i}: a value was read");
            assert_eq!(found, db.get_at(family, &key(i), at).unwrap().is_some(), "key {i}");
        }
    }
    assert!(db.stats().get_value_reads > 50, "the values of get are read: {:?}", db.stats());
}

#[test]
fn range_deletions_have_any_bounds() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let all = || -> Vec<Vec<u8>> {
        let longest = vec![0xff; lavastore_lavakv::limits::KEY_LEN_MAX];
        let short = [&b"a"[..], b"a\0", b"b", b"c", b"\xff", b"\xff\xff"];
        short.iter().map(|key| key.to_vec()).chain([longest]).collect()
    };
    let ends: Vec<Vec<u8>> = all().into_iter().chain([b"bb".to_vec()]).collect();
    let bounds = ends.iter().flat_map(|key| [Included(&key[..]), Excluded(&key[..])]).chain([Unbounded]);
    let bounds: Vec<_> = bounds.collect();
    let sim = SimEnv::new(5);
    let db = Db::open_in(env(&sim), DIR, Options { memtable_bytes: 4 << 20, ..Options::default() }).unwrap();
    let family = db.default_column_family();
    let mut rounds = 0;
    for (&start, &end) in bounds.iter().flat_map(|start| bounds.iter().map(move |end| (start, end))) {
        all().iter().for_each(|key| db.put(key, b"1").unwrap());
        let mut batch = WriteBatch::new();
        batch.delete_bounds_cf(family, (start, end));
        let in_batch = rounds % 2 == 0;
        rounds += 1;
        let deleted = match in_batch {
            true => db.write(&batch),
            false => db.delete_bounds_opt(family, (start, end), &WriteOptions::default()),
        };
        let starts = |key: &[u8]| match start {
            Included(start) => start <= key,
            Excluded(start) => start < key,
            Unbounded => true,
        };
        let ends = |key: &[u8]| match end {
            Included(end) => key <= end,
            Excluded(end) => key < end,
            Unbounded => true,
        };
        // A reversed range is refused, or empty.
        let mut wanted = all();
        match deleted {
            Ok(()) => wanted.retain(|key| !(starts(key) && ends(key))),
            Err(e) => assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}"),
        }
        if rounds % 50 == 0 {
            db.flush().unwrap();
        }
        let found: Vec<_> = contents(&db).into_keys().collect();
        assert!(found == wanted, "round {rounds}, in a batch: {in_batch}");
    }
}
