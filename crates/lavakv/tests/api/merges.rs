//! Merge operands: every way to read folds them, wherever base and operands lie, and user code that
//! fails or is absent fails only the reads that need it.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{
    ColumnFamily, Db, Error, ErrorKind, FamilyOptions, MergeChoice, MergeOperator, MergeOperators, Options,
    ReadAt, ReadOptions, RequestOptions, Result, Snapshot, WriteBatch, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: u64 = 12;

/// Options of a store whose families append operands, and separate long values.
fn appending() -> Options {
    let merge_operator = Some(MergeChoice::append(b"+"));
    Options { family: FamilyOptions { merge_operator, min_blob_size: 64, ..small_family() }, ..small() }
}

fn appended(value: Option<&Vec<u8>>, operand: &[u8]) -> Vec<u8> {
    value.map_or(operand.to_vec(), |value| [value, &b"+"[..], operand].concat())
}

/// A random change through one of the calls, and the same in the model.
fn change(db: &Db, family: &ColumnFamily, model: &mut Model, rng: &mut Rng) {
    let (key, options) = (key(rng.below(KEYS)), WriteOptions::default());
    let long = rng.one_in(3);
    let bytes = vec![b'a' + rng.below(26) as u8; if long { 100 } else { 1 + rng.below(5) as usize }];
    match rng.below(12) {
        0 => {
            db.put_opt(family, &key, &bytes, &options).unwrap();
            model.insert(key, bytes);
        }
        1 => {
            // A value in a segment of its own.
            let large = vec![b'L'; 40 << 10];
            db.put_opt(family, &key, &large, &options).unwrap();
            model.insert(key, large);
        }
        2 => {
            db.delete_opt(family, &key, &options).unwrap();
            model.remove(&key);
        }
        3 => {
            let end = self::key(rng.below(KEYS));
            if key <= end {
                db.delete_range_opt(family, &key, &end, &options).unwrap();
                model.retain(|own, _| *own < key || *own >= end);
            }
        }
        4 | 5 => {
            let mut batch = WriteBatch::new();
            for _ in 0..1 + rng.below(3) {
                batch.merge_cf(family, &key, &bytes);
                let value = appended(model.get(&key), &bytes);
                model.insert(key.clone(), value);
            }
            db.write(&batch).unwrap();
        }
        _ => {
            db.merge_opt(family, &key, &bytes, &options).unwrap();
            let value = appended(model.get(&key), &bytes);
            model.insert(key, value);
        }
    }
}

/// Compares every way to read with the model.
fn compare(db: &Db, family: &ColumnFamily, model: &Model, snapshot: Option<&Snapshot>) {
    let at = ReadAt { snapshot, fill_cache: true };
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let expected: Vec<Option<Vec<u8>>> = keys.iter().map(|key| model.get(key).cloned()).collect();
    let plain = |value: Result<Option<lavastore_lavakv::Value>>| value.unwrap().map(|value| value.to_vec());
    let gets: Vec<_> = keys.iter().map(|key| plain(db.get_at(family, key, at))).collect();
    assert_eq!(gets, expected);
    let together: Vec<_> = db.multi_get_at(family, &keys, at).into_iter().map(plain).collect();
    assert_eq!(together, expected);
    for key in &keys {
        assert_eq!(db.contains_key_at(family, key, at).unwrap(), model.contains_key(key));
    }
    let options = || ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let forward: Result<Model> = db.iter_cf(family, options()).unwrap().entries().collect();
    assert_eq!(forward.unwrap(), *model);
    let (mut iter, mut backward) = (db.iter_cf(family, options()).unwrap(), Model::new());
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.insert(iter.key().to_vec(), iter.value().unwrap().to_vec());
        iter.prev().unwrap();
    }
    assert_eq!(backward, *model);
    let keys_only = ReadOptions { keys_only: true, ..options() };
    let listed: Result<Vec<_>> = db.iter_cf(family, keys_only).unwrap().entries().collect();
    assert!(listed.unwrap().into_iter().map(|(key, _)| key).eq(model.keys().cloned()));
}

#[test]
fn every_read_folds_operands_wherever_they_lie() {
    for seed in 0..24 {
        let (sim, mut rng, mut model) = (SimEnv::new(seed), Rng::new(seed), Model::new());
        let mut db = Db::open_in(env(&sim), DIR, appending()).unwrap();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for step in 0..120 {
            let family = db.default_column_family().clone();
            change(&db, &family, &mut model, &mut rng);
            match rng.below(12) {
                0 => db.flush().unwrap(),
                1 if rng.one_in(3) => db.compact_range(&family, None, None).unwrap(),
                2 => held.push((db.snapshot(), model.clone())),
                3 => drop(held.pop()),
                4 if rng.one_in(4) => {
                    held.clear();
                    drop(family);
                    db.close().unwrap();
                    db = Db::open_in(env(&sim), DIR, appending()).unwrap();
                    continue;
                }
                _ => drop(db.run_background_step()),
            }
            if step % 10 == 0 {
                compare(&db, &family, &model, None);
                held.iter().for_each(|(snapshot, model)| compare(&db, &family, model, Some(snapshot)));
            }
        }
        held.clear();
        let family = db.default_column_family().clone();
        db.compact_range(&family, None, None).unwrap();
        settle(&db);
        compare(&db, &family, &model, None);
        assert!(db.verify().unwrap().errors.is_empty());
    }
}

#[test]
fn asynchronous_merges_and_reads_agree_with_the_model() {
    for seed in 0..8 {
        let (sim, mut rng, mut model) = (SimEnv::new(seed), Rng::new(seed), Model::new());
        let db = Db::open_in(env(&sim), DIR, appending()).unwrap();
        let family = db.default_column_family().clone();
        let requests = db.requests(&RequestOptions::default()).unwrap();
        for step in 0..100 {
            let (key, operand) = (key(rng.below(KEYS)), vec![b'x'; 1 + rng.below(90) as usize]);
            let value = appended(model.get(&key), &operand);
            model.insert(key.clone(), value);
            db.block_on(requests.merge(&family, key.clone(), operand).unwrap()).unwrap();
            let got = db.block_on(requests.get(&family, key.clone()).unwrap()).unwrap();
            assert_eq!(got.as_deref(), model.get(&key).map(Vec::as_slice));
            if step % 20 == 7 {
                db.flush().unwrap();
                let page = requests.scan(&family, ReadOptions::default(), 100).unwrap();
                let page: Model = db.block_on(page).unwrap().into_iter().collect();
                assert_eq!(page, model);
            }
        }
    }
}

#[test]
fn operands_survive_a_loss_of_power_with_their_order() {
    let sim = SimEnv::new(5);
    let db = Db::open_in(env(&sim), DIR, appending()).unwrap();
    for n in 0..50u8 {
        let options = WriteOptions::durable();
        db.merge_opt(db.default_column_family(), b"list", &[b'a' + n % 26], &options).unwrap();
    }
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let db = Db::open_in(env(&sim), DIR, appending()).unwrap();
    let expected: Vec<u8> = (0..50u8).flat_map(|n| [b'+', b'a' + n % 26]).skip(1).collect();
    assert_eq!(db.get(b"list").unwrap().as_deref(), Some(&expected[..]));
}

/// Appends, unless it is told to fail.
struct Fragile {
    panics: AtomicBool,
}

impl MergeOperator for Fragile {
    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]], out: &mut Vec<u8>) -> Result<()> {
        assert!(!self.panics.load(Ordering::Relaxed), "the bug of a user");
        out.extend_from_slice(base.unwrap_or_default());
        operands.iter().for_each(|operand| out.extend_from_slice(operand));
        Ok(())
    }

    fn check_operand(&self, operand: &[u8]) -> Result<()> {
        match operand {
            b"refused" => Err(Error::invalid("this operand is refused")),
            _ => Ok(()),
        }
    }
}

fn with_operator(operator: Option<Arc<Fragile>>) -> Options {
    small().expert(|expert| {
        if let Some(operator) = operator {
            expert.merge_operators = MergeOperators::default().with("fragile", operator);
        }
    })
}

#[test]
fn an_operator_that_panics_fails_reads_and_loses_nothing() {
    let (sim, operator) = (SimEnv::new(3), Arc::new(Fragile { panics: AtomicBool::new(false) }));
    let db = Db::open_in(env(&sim), DIR, with_operator(Some(operator.clone()))).unwrap();
    let merge_operator = Some(MergeChoice::custom("fragile"));
    let family = db.create_column_family("own", FamilyOptions { merge_operator, ..small_family() }).unwrap();
    let merge = |operand: &[u8]| db.merge_opt(&family, b"key", operand, &WriteOptions::default());
    db.put_cf(&family, b"key", b"0").unwrap();
    db.flush().unwrap();
    merge(b"1").unwrap();
    fails(merge(b"refused"), ErrorKind::InvalidArgument);
    operator.panics.store(true, Ordering::Relaxed);
    merge(b"2").unwrap();
    db.put_cf(&family, b"other", b"x").unwrap();
    db.compact_range(&family, None, None).unwrap();
    let e = db.get_cf(&family, b"key").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::UserCallback);
    assert!(e.to_string().contains("merge operator on key \"key\""), "{e}");
    assert_eq!(db.get_cf(&family, b"other").unwrap().as_deref(), Some(&b"x"[..]));
    assert!(db.stats().merge_failures > 0);
    // A scan can go on behind the key, in both directions.
    db.put_cf(&family, b"a", b"y").unwrap();
    let mut iter = db.iter_cf(&family, ReadOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    fails(iter.next(), ErrorKind::UserCallback);
    iter.skip_damaged().unwrap();
    assert_eq!(iter.key(), b"other");
    fails(iter.prev(), ErrorKind::UserCallback);
    iter.skip_damaged().unwrap();
    assert_eq!(iter.key(), b"a");
    iter.prev().unwrap();
    assert!(!iter.valid());
    fails(iter.skip_damaged(), ErrorKind::InvalidArgument);
    drop(iter);
    operator.panics.store(false, Ordering::Relaxed);
    assert_eq!(db.get_cf(&family, b"key").unwrap().as_deref(), Some(&b"012"[..]));
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.get_cf(&family, b"key").unwrap().as_deref(), Some(&b"012"[..]));
}

#[test]
fn a_store_opens_without_its_operator() {
    let (sim, operator) = (SimEnv::new(4), Arc::new(Fragile { panics: AtomicBool::new(false) }));
    let with = || with_operator(Some(operator.clone()));
    let db = Db::open_in(env(&sim), DIR, with()).unwrap();
    let merge_operator = Some(MergeChoice::custom("fragile"));
    let family = db.create_column_family("own", FamilyOptions { merge_operator, ..small_family() }).unwrap();
    let options = WriteOptions::default();
    for operand in [b"1", b"2"] {
        db.merge_opt(&family, b"key", operand, &options).unwrap();
        db.flush().unwrap();
    }
    drop(family);
    db.close().unwrap();
    let db = Db::open_in(env(&sim), DIR, with_operator(None)).unwrap();
    let family = db.column_family("own").unwrap();
    fails(db.merge_opt(&family, b"key", b"3", &options), ErrorKind::Unsupported);
    let e = db.get_cf(&family, b"key").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("merge operator \"fragile\""), "{e}");
    assert!(db.contains_key_at(&family, b"key", ReadOptions::default().at()).unwrap());
    db.put_cf(&family, b"other", b"x").unwrap();
    assert_eq!(db.get_cf(&family, b"other").unwrap().as_deref(), Some(&b"x"[..]));
    db.compact_range(&family, None, None).unwrap();
    assert!(db.verify().unwrap().errors.is_empty());
    // A family with an operator that this program does not have is refused.
    let merge_operator = Some(MergeChoice::custom("fragile"));
    fails(
        db.create_column_family("new", FamilyOptions { merge_operator, ..small_family() }),
        ErrorKind::Unsupported,
    );
    drop(family);
    db.close().unwrap();
    let db = Db::open_in(env(&sim), DIR, with()).unwrap();
    let family = db.column_family("own").unwrap();
    assert_eq!(db.get_cf(&family, b"key").unwrap().as_deref(), Some(&b"12"[..]));
}

#[test]
fn families_take_only_operands_that_they_can_fold() {
    let sim = SimEnv::new(6);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    let options = WriteOptions::default();
    let default = db.default_column_family().clone();
    let e = db.merge_opt(&default, b"key", b"1", &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("no merge operator"), "{e}");
    let mut batch = WriteBatch::new();
    batch.put(b"other", b"x");
    batch.merge(b"key", b"1");
    fails(db.write(&batch), ErrorKind::InvalidArgument);
    assert_eq!(db.get(b"other").unwrap(), None, "a refused batch changes nothing");
    // An operator that was chosen stays, also if later options name none.
    let merge_operator = Some(MergeChoice::counter());
    db.set_family_options(&default, FamilyOptions { merge_operator, ..small_family() }).unwrap();
    db.merge_opt(&default, b"key", &7i64.to_le_bytes(), &options).unwrap();
    fails(db.merge_opt(&default, b"key", b"7", &options), ErrorKind::InvalidArgument);
    fails(db.merge_opt(&default, b"key", &vec![0; 64 << 10], &options), ErrorKind::TooLarge);
    drop(default);
    db.close().unwrap();
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    let default = db.default_column_family().clone();
    assert_eq!(default.options().merge_operator, Some(MergeChoice::counter()));
    db.merge_opt(&default, b"key", &1i64.to_le_bytes(), &options).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&8i64.to_le_bytes()[..]));
}

/// Operands on a value in a value file become one value, and the file is collected.
#[test]
fn a_compaction_folds_operands_into_a_separated_value() {
    let sim = SimEnv::new(7);
    let db = Db::open_in(env(&sim), DIR, appending()).unwrap();
    let family = db.default_column_family().clone();
    let long = vec![b'v'; 200];
    db.put_cf(&family, b"key", &long).unwrap();
    db.flush().unwrap();
    for _ in 0..5 {
        db.merge_opt(&family, b"key", b"1", &WriteOptions::default()).unwrap();
        db.flush().unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    let expected = [&long[..], b"+1+1+1+1+1"].concat();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&expected[..]));
    // The entry, its record, and perhaps the record before, which is garbage.
    assert!(db.verify().unwrap().entries <= 3);
}

/// A single delete and its put leave nothing, not even a tombstone.
#[test]
fn single_deletes_vanish_with_their_puts() {
    let sim = SimEnv::new(8);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    let (family, options) = (db.default_column_family().clone(), WriteOptions::default());
    db.put(b"a", b"kept").unwrap();
    db.put(b"b", b"deleted").unwrap();
    // Something below, so that a plain tombstone would stay.
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    for n in 0..50 {
        db.put_cf(&family, &key(n), b"value").unwrap();
        db.single_delete_opt(&family, &key(n), &options).unwrap();
    }
    db.single_delete_opt(&family, b"b", &options).unwrap();
    assert_eq!(db.get(b"b").unwrap(), None);
    db.flush().unwrap();
    assert_eq!(contents(&db), Model::from([(b"a".to_vec(), b"kept".to_vec())]));
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(contents(&db), Model::from([(b"a".to_vec(), b"kept".to_vec())]));
    assert_eq!(db.verify().unwrap().entries, 1);
}

#[test]
fn long_operands_and_long_names_are_refused() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, appending()).unwrap();
    let mut batch = WriteBatch::new();
    batch.merge_cf(db.default_column_family(), b"k", &vec![b'o'; 64 << 10]);
    let e = db.write(&batch).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TooLarge);
    assert!(e.message().contains("merge operand of 65536 bytes is over the limit"), "{e}");
    assert!(db.get(b"k").unwrap().is_none());
    let merge_operator = Some(MergeChoice::custom("o".repeat(300)));
    let e = FamilyOptions { merge_operator, ..small_family() }.validate().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("option bytes of merge_operator = 300 is out of range: 1 to 255"), "{e}");
}
