//! Transactions with row locks.

use crate::store;
use lavastore_transactions::lavakv::{ColumnFamily, Db, ErrorKind, LockMode, ReadOptions, Result};
use lavastore_transactions::{ForUpdate, Isolation, LockOptions, Transaction, TransactionOptions};
use std::time::Duration;

/// Options of a transaction that waits for no lock.
fn options(isolation: Isolation) -> TransactionOptions {
    let locks = LockOptions { wait_at_most: Duration::ZERO, ..LockOptions::default() };
    TransactionOptions { isolation, locks: Some(locks), ..TransactionOptions::default() }
}

fn begin(db: &Db) -> Transaction {
    Transaction::begin(db, options(Isolation::Snapshot))
}

fn serializable(db: &Db) -> Transaction {
    Transaction::begin(db, options(Isolation::Serializable))
}

fn kind<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

fn lock(transaction: &mut Transaction, family: &ColumnFamily, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let value = transaction.get_for_update(family, key, ForUpdate::default())?;
    Ok(value.map(|value| value.to_vec()))
}

#[test]
fn a_locked_row_is_of_one_transaction_until_its_end() {
    let db = store(1);
    let family = db.default_column_family();
    for ends_by_commit in [true, false] {
        let (mut one, mut other) = (begin(&db), begin(&db));
        one.put(family, b"key", b"one").unwrap();
        assert_eq!(kind(lock(&mut other, family, b"key")), ErrorKind::Busy);
        assert_eq!(kind(other.delete_untracked(family, b"key")), ErrorKind::Busy);
        other.put(family, b"other", b"").unwrap();
        match ends_by_commit {
            true => one.commit().unwrap(),
            false => drop(one),
        }
        assert_eq!(lock(&mut other, family, b"key").unwrap().as_deref(), Some(&b"one"[..]));
    }
}

#[test]
fn locked_reads_show_the_newest_value_and_never_conflict() {
    let db = store(1);
    let family = db.default_column_family();
    let mut transaction = begin(&db);
    for n in 0..3u8 {
        // Between the locks, others write rows that are not locked yet.
        db.put(&[n], &[n, n]).unwrap();
        assert_eq!(lock(&mut transaction, family, &[n]).unwrap(), Some(vec![n, n]));
    }
    transaction.put(family, &[0], b"mine").unwrap();
    assert_eq!(lock(&mut transaction, family, &[0]).unwrap().as_deref(), Some(&b"mine"[..]));
    transaction.commit().unwrap();
    assert_eq!(db.get(&[0]).unwrap().as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_read_without_a_lock_fixes_the_moment() {
    let db = store(1);
    let family = db.default_column_family();
    (0..4u8).for_each(|n| db.put(&[n], b"old").unwrap());
    let mut transaction = begin(&db);
    assert!(transaction.get(family, &[0]).unwrap().is_some());
    db.put(&[1], b"new").unwrap();
    assert_eq!(transaction.get(family, &[1]).unwrap().as_deref(), Some(&b"old"[..]));
    // A change of it would be lost, or it would be of another moment.
    assert_eq!(kind(lock(&mut transaction, family, &[1])), ErrorKind::Conflict);
    assert_eq!(kind(transaction.put(family, &[1], b"")), ErrorKind::Conflict);
    let newest = ForUpdate { validate: false, ..ForUpdate::default() };
    let read = transaction.get_for_update(family, &[1], newest).unwrap();
    assert_eq!(read.as_deref(), Some(&b"new"[..]));
    assert_eq!(lock(&mut transaction, family, &[2]).unwrap().as_deref(), Some(&b"old"[..]));
    transaction.set_snapshot().unwrap();
    assert_eq!(transaction.get(family, &[1]).unwrap().as_deref(), Some(&b"new"[..]));
    transaction.put(family, &[1], b"mine").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.get(&[1]).unwrap().as_deref(), Some(&b"mine"[..]));
}

#[test]
fn set_snapshot_conflicts_if_the_commit_would() {
    let db = store(1);
    let family = db.default_column_family();
    for changes in [false, true] {
        let mut optimistic = Transaction::begin(&db, TransactionOptions::default());
        optimistic.get_for_update(family, b"key", ForUpdate::default()).unwrap();
        db.put(if changes { b"key" } else { b"kez" }, b"new").unwrap();
        let moved = optimistic.set_snapshot();
        assert_eq!(moved.is_err_and(|e| e.kind() == ErrorKind::Conflict), changes);
        if !changes {
            // Changes after the new snapshot count as well.
            assert!(optimistic.get(family, b"kez").unwrap().is_some());
            db.put(b"key", b"newer").unwrap();
        }
        optimistic.put(family, b"result", b"").unwrap();
        assert_eq!(kind(optimistic.commit()), ErrorKind::Conflict);
    }
}

#[test]
fn shared_locks_allow_readers_and_no_writer() {
    let db = store(1);
    let family = db.default_column_family();
    let shared = ForUpdate { lock: LockMode::Shared, ..ForUpdate::default() };
    let (mut one, mut other) = (begin(&db), begin(&db));
    one.get_for_update(family, b"key", shared).unwrap();
    other.get_for_update(family, b"key", shared).unwrap();
    assert_eq!(kind(one.put(family, b"key", b"")), ErrorKind::Busy);
    drop(other);
    one.put(family, b"key", b"").unwrap();
    one.commit().unwrap();
}

#[test]
fn serializable_reads_lock_and_ranges_are_checked_at_the_commit() {
    let db = store(1);
    let family = db.default_column_family();
    db.put(b"a", b"1").unwrap();
    let (mut one, mut other) = (serializable(&db), serializable(&db));
    assert!(one.get(family, b"a").unwrap().is_some() && other.get(family, b"a").unwrap().is_some());
    assert_eq!(kind(one.put(family, b"a", b"2")), ErrorKind::Busy, "write skew");
    drop(other);
    for phantom in [false, true] {
        let mut counter = serializable(&db);
        let range = ReadOptions { lower_bound: Some(b"n/".to_vec()), ..ReadOptions::default() };
        let count = counter.scan(family, range).unwrap().count();
        counter.put(family, b"count", &[count as u8]).unwrap();
        if phantom {
            db.put(b"n/1", b"").unwrap();
        }
        let committed = counter.commit();
        assert_eq!(committed.is_err_and(|e| e.kind() == ErrorKind::Conflict), phantom);
    }
}

#[test]
fn several_rows_are_locked_in_one_order_and_read_in_another() {
    let db = store(1);
    let family = db.default_column_family();
    db.put(b"b", b"2").unwrap();
    let (mut one, mut other) = (begin(&db), begin(&db));
    one.put(family, b"c", b"3").unwrap();
    let keys: [&[u8]; 4] = [b"c", b"a", b"b", b"c"];
    let found = one.multi_get_for_update(family, &keys, ForUpdate::default()).unwrap();
    let found: Vec<_> = found.iter().map(Option::as_deref).collect();
    assert_eq!(found, [Some(&b"3"[..]), None, Some(b"2"), Some(b"3")]);
    for key in keys {
        assert_eq!(kind(lock(&mut other, family, key)), ErrorKind::Busy);
    }
}

#[test]
fn an_expired_transaction_writes_nothing() {
    let db = store(1);
    let family = db.default_column_family();
    let mut terms = options(Isolation::Snapshot);
    terms.locks =
        Some(LockOptions { expires_after: Some(Duration::from_millis(1)), ..LockOptions::default() });
    let mut late = Transaction::begin(&db, terms);
    late.put(family, b"key", b"late").unwrap();
    // It waits until the other has expired.
    let mut other =
        Transaction::begin(&db, TransactionOptions { locks: Some(LockOptions::default()), ..terms });
    other.put(family, b"key", b"other").unwrap();
    other.commit().unwrap();
    assert_eq!(kind(late.put(family, b"more", b"")), ErrorKind::Conflict);
    assert_eq!(kind(late.commit()), ErrorKind::Conflict);
    // A commit without changes rests on the locks as well.
    let mut reader = Transaction::begin(&db, terms);
    lock(&mut reader, family, b"key").unwrap();
    db.put(b"key", b"other").unwrap();
    assert_eq!(kind(reader.commit()), ErrorKind::Conflict);
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"other"[..]));
}

#[test]
fn atomic_updates_wait_for_the_end_of_a_lock() {
    use lavastore_transactions::atomic::put_if_absent;
    let db = store(1);
    let family = db.default_column_family();
    let mut transaction = begin(&db);
    transaction.put(family, b"key", b"").unwrap();
    assert_eq!(kind(put_if_absent(&db, family, b"key", b"", &Default::default())), ErrorKind::Busy);
    transaction.commit().unwrap();
    assert!(!put_if_absent(&db, family, b"key", b"", &Default::default()).unwrap());
}

#[test]
fn a_commit_of_large_values_keeps_its_locks_until_the_end() {
    let db = store(1);
    let family = db.default_column_family();
    let mut transaction = begin(&db);
    let value = vec![7; 9 << 20];
    transaction.put(family, b"key", &value).unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&value[..]));
    assert_eq!(db.stats().row_locks, 0);
}
