//! Handles, snapshots and iterators in the wrong place.

use crate::common::*;
use lavastore_lavakv::{Db, ErrorKind, ReadOptions, WriteBatch, WriteOptions, sim::SimEnv};

fn two_stores() -> (Db, Db) {
    let sim = SimEnv::new(1);
    (open(&sim), Db::open_in(env(&sim), "/other", small()).unwrap())
}

#[test]
fn a_family_handle_of_another_store_is_refused() {
    let (db, other) = two_stores();
    other.put(b"k", b"theirs").unwrap();
    for family in
        [other.default_column_family().clone(), other.create_column_family("family", small_family()).unwrap()]
    {
        fails(db.put_cf(&family, b"k", b"v"), ErrorKind::InvalidArgument);
        fails(db.delete_cf(&family, b"k"), ErrorKind::InvalidArgument);
        fails(db.delete_range_cf(&family, b"a", b"z"), ErrorKind::InvalidArgument);
        fails(db.get_cf(&family, b"k"), ErrorKind::InvalidArgument);
        fails(db.iter_cf(&family, ReadOptions::default()), ErrorKind::InvalidArgument);
        fails(db.compact_range(&family, None, None), ErrorKind::InvalidArgument);
        fails(db.drop_column_family(&family), ErrorKind::InvalidArgument);
    }
    assert!(contents(&db).is_empty());
    assert_eq!(other.column_families(), ["default", "family"]);
}

#[test]
fn a_snapshot_of_another_store_is_refused() {
    let (db, other) = two_stores();
    let options = || ReadOptions { snapshot: Some(other.snapshot()), ..Default::default() };
    fails(db.iter(options()), ErrorKind::InvalidArgument);
    fails(db.get_opt(db.default_column_family(), b"k", &options()), ErrorKind::InvalidArgument);
}

#[test]
fn a_dropped_family_is_refused() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let family = db.create_column_family("gone", small_family()).unwrap();
    let clone = db.column_family("gone").unwrap();
    db.put_cf(&family, b"k", b"v").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_cf(&family, b"k", b"w");
    batch.put(b"k", b"w");
    db.drop_column_family(&family).unwrap();
    for family in [&family, &clone] {
        fails(db.put_cf(family, b"k", b"v"), ErrorKind::NotFound);
        fails(db.get_cf(family, b"k"), ErrorKind::NotFound);
        fails(db.iter_cf(family, ReadOptions::default()), ErrorKind::NotFound);
        fails(db.compact_range(family, None, None), ErrorKind::NotFound);
        fails(db.drop_column_family(family), ErrorKind::NotFound);
    }
    fails(db.write(&batch), ErrorKind::NotFound);
    assert!(db.get(b"k").unwrap().is_none(), "nothing of the batch is there");
    // A new family of the same name is another one.
    let again = db.create_column_family("gone", small_family()).unwrap();
    assert_ne!(again.id(), family.id());
    fails(db.put_cf(&family, b"k", b"v"), ErrorKind::NotFound);
    assert!(db.get_cf(&again, b"k").unwrap().is_none());
    fails(db.drop_column_family(db.default_column_family()), ErrorKind::InvalidArgument);
}

#[test]
fn an_unpositioned_iterator_is_invalid() {
    let sim = SimEnv::new(3);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..3, 0);
    let mut i = db.iter(ReadOptions::default()).unwrap();
    assert!(!i.valid() && i.key().is_empty() && i.value().unwrap().is_empty());
    fails(i.next(), ErrorKind::InvalidArgument);
    fails(i.prev(), ErrorKind::InvalidArgument);
    i.seek_to_last().unwrap();
    i.next().unwrap();
    assert!(!i.valid() && i.key().is_empty());
    fails(i.next(), ErrorKind::InvalidArgument);
    fails(i.prev(), ErrorKind::InvalidArgument);
    i.seek_to_first().unwrap();
    assert_eq!(i.key(), key(0));
    i.prev().unwrap();
    assert!(!i.valid());
    i.seek(b"zzz").unwrap();
    assert!(!i.valid());
    i.seek_for_prev(b"a").unwrap();
    assert!(!i.valid());
    i.seek(b"").unwrap();
    assert_eq!(i.key(), key(0));
    i.seek_for_prev(&[0xff; 100_000]).unwrap();
    assert_eq!(i.key(), key(2));
}

#[test]
fn reversed_ranges_are_refused_and_empty_ones_delete_nothing() {
    let sim = SimEnv::new(4);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..5, 0);
    fails(db.delete_range(&key(3), &key(1)), ErrorKind::InvalidArgument);
    db.delete_range(&key(3), &key(3)).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&key(3), &key(1));
    fails(db.write(&batch), ErrorKind::InvalidArgument);
    batch.clear();
    batch.delete_range(&key(3), &key(3));
    batch.put(b"x", b"y");
    db.write(&batch).unwrap();
    model.insert(b"x".to_vec(), b"y".to_vec());
    let family = db.default_column_family();
    fails(db.compact_range(family, Some(&key(3)), Some(&key(1))), ErrorKind::InvalidArgument);
    assert!(contents(&db) == model);
    db.flush().unwrap();
    assert!(contents(&db) == model);
    drop(db);
    assert!(contents(&open(&sim)) == model);
}

/// A handle that outlives its store fails, also in the store that is opened next.
#[test]
fn handles_are_refused_after_close() {
    let sim = SimEnv::new(5);
    let db = open(&sim);
    let family = db.create_column_family("f", small_family()).unwrap();
    db.put_cf(&family, b"k", b"v").unwrap();
    let snapshot = db.snapshot();
    db.close().unwrap();
    assert_eq!((family.name(), family.options()), ("f", small_family().derived()));
    let db = open(&sim);
    fails(db.get_cf(&family, b"k"), ErrorKind::InvalidArgument);
    fails(db.put_opt(&family, b"k", b"v", &WriteOptions::volatile()), ErrorKind::InvalidArgument);
    let options = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
    fails(db.iter(options), ErrorKind::InvalidArgument);
    let family = db.column_family("f").unwrap();
    assert_eq!(db.get_cf(&family, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_checkpoint_into_an_existing_directory_is_refused() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(6);
    let db = open(&sim);
    db.put(b"k", b"v").unwrap();
    sim.write_file("/taken", b"").unwrap();
    fails(db.checkpoint("/taken"), ErrorKind::AlreadyExists);
    fails(db.checkpoint(DIR), ErrorKind::AlreadyExists);
    db.checkpoint("/copy").unwrap();
    fails(db.checkpoint("/copy"), ErrorKind::AlreadyExists);
    // A refused checkpoint does not block later operations.
    db.put(b"k", b"w").unwrap();
    db.flush().unwrap();
}

#[test]
fn unsupported_iterator_calls_are_refused() {
    let sim = SimEnv::new(7);
    let db = open(&sim);
    let other = db.create_column_family("other", small_family()).unwrap();
    db.put(b"k", b"v").unwrap();
    let mut iter = db.iter(ReadOptions::default()).unwrap();
    let e = iter.beside(&other, ReadOptions::default()).map(drop).unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (
            ErrorKind::InvalidArgument,
            "the iterator is of another column family: pass the family of the iterator"
        )
    );
    drop(iter.beside(db.default_column_family(), ReadOptions::default()).unwrap());
    iter.seek_to_first().unwrap();
    let e = iter.skip_damaged().unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (ErrorKind::InvalidArgument, "the iterator is not at damage, so there is none to skip: seek first")
    );
    assert_eq!(iter.key(), b"k", "it stays where it is");
}
