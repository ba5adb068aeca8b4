//! Prepared transactions, beside crashes and other transactions.

use crate::{small, store};
use lavastore_transactions::lavakv::sim::{CrashKind, SimEnv};
use lavastore_transactions::lavakv::{
    ColumnFamily, Db, Durability, ErrorKind, ReadOptions, Result, WriteOptions,
};
use lavastore_transactions::prepared::FAMILY;
use lavastore_transactions::{
    Isolation, LockOptions, PreparedTransaction, PreparedTransactions, Transaction, TransactionOptions,
};
use std::sync::Arc;
use std::time::Duration;

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    let locks = LockOptions { wait_at_most: Duration::ZERO, ..LockOptions::default() };
    Transaction::begin(db, TransactionOptions { isolation, locks: Some(locks), ..Default::default() })
}

fn kind<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

/// Prepares a transaction that sets `key`.
fn prepare(db: &Db, all: &Arc<PreparedTransactions>, name: &[u8]) -> Result<PreparedTransaction> {
    let mut transaction = begin(db, Isolation::Snapshot);
    transaction.put(db.default_column_family(), b"key", name)?;
    all.prepare(transaction, name)
}

fn is_locked(db: &Db, family: &ColumnFamily) -> bool {
    let put = begin(db, Isolation::Snapshot).put(family, b"key", b"");
    put.is_err_and(|e| e.kind() == ErrorKind::Busy)
}

#[test]
fn a_prepared_transaction_survives_crashes_until_it_is_decided() {
    let options = WriteOptions::default();
    for commits in [true, false] {
        let mut sim = SimEnv::new(1);
        let db = Db::open_in(sim.env(), "/store", small()).unwrap();
        let all = PreparedTransactions::recover(&db);
        assert!(all.names(&db).unwrap().is_empty());
        let prepared = prepare(&db, &all, b"one").unwrap();
        for life in 0..3 {
            sim = sim.crash(CrashKind::PowerLoss, life);
            let db = Db::open_in(sim.env(), "/store", small()).unwrap();
            let (all, family) = (PreparedTransactions::recover(&db), db.default_column_family());
            assert_eq!(all.names(&db).unwrap(), [b"one"]);
            assert!(is_locked(&db, family) && db.get(b"key").unwrap().is_none());
            let taken = all.take(&db, b"one").unwrap().unwrap();
            assert!(all.names(&db).unwrap().is_empty() && all.take(&db, b"one").unwrap().is_none());
            drop(taken);
            assert_eq!(all.names(&db).unwrap(), [b"one"], "the drop leaves it prepared");
            db.flush().unwrap();
        }
        drop((prepared, db));
        let db = Db::open_in(sim.env(), "/store", small()).unwrap();
        let (all, family) = (PreparedTransactions::recover(&db), db.default_column_family());
        let taken = all.take(&db, b"one").unwrap().unwrap();
        match commits {
            true => taken.commit(&options).unwrap(),
            false => taken.roll_back(&options).unwrap(),
        }
        assert!(!is_locked(&db, family));
        assert_eq!(db.get(b"key").unwrap().as_deref(), commits.then_some(&b"one"[..]));
        let records = db.column_family(FAMILY).unwrap();
        let mut records = db.iter_cf(&records, ReadOptions::default()).unwrap();
        records.seek_to_first().unwrap();
        assert!(!records.valid(), "the record is gone");
    }
}

#[test]
fn what_cannot_be_prepared_is_refused_and_releases_its_locks() {
    let db = store(1);
    let (all, family) = (PreparedTransactions::recover(&db), db.default_column_family());
    let mut optimistic = Transaction::begin(&db, TransactionOptions::default());
    optimistic.put(family, b"key", b"").unwrap();
    assert_eq!(kind(all.prepare(optimistic, b"name")), ErrorKind::InvalidArgument);
    let mut of_range = begin(&db, Isolation::Serializable);
    of_range.put(family, b"key", b"").unwrap();
    assert_eq!(of_range.scan(family, ReadOptions::default()).unwrap().count(), 1);
    assert_eq!(kind(all.prepare(of_range, b"name")), ErrorKind::InvalidArgument);
    for name in [vec![], vec![b'n'; 1025]] {
        assert_eq!(kind(prepare(&db, &all, &name)), ErrorKind::InvalidArgument);
    }
    let mut late = Transaction::begin(
        &db,
        TransactionOptions {
            locks: Some(LockOptions { expires_after: Some(Duration::ZERO), ..Default::default() }),
            ..Default::default()
        },
    );
    assert_eq!(kind(late.put(family, b"key", b"")), ErrorKind::Conflict);
    assert!(!is_locked(&db, family));
    let first = prepare(&db, &all, b"name").unwrap();
    let mut second = begin(&db, Isolation::Snapshot);
    second.put(family, b"other", b"").unwrap();
    assert_eq!(kind(all.prepare(second, b"name")), ErrorKind::AlreadyExists);
    first.commit(&WriteOptions::default()).unwrap();
    assert!(prepare(&db, &all, b"name").is_ok());
}

#[test]
fn an_unreadable_record_is_reported_and_the_store_opens() {
    let db = store(1);
    let all = PreparedTransactions::recover(&db);
    drop(prepare(&db, &all, b"one").unwrap());
    let records = db.column_family(FAMILY).unwrap();
    let good = db.get_opt(&records, b"one", &ReadOptions::default()).unwrap().unwrap();
    drop(all);
    let newer = [&[2][..], &good[1..]].concat();
    for damaged in [&b""[..], &newer, &good[..good.len() - 1], &[&good[..], &[0]].concat()] {
        db.put_cf(&records, b"one", damaged).unwrap();
        let all = PreparedTransactions::recover(&db);
        let e = all.names(&db).unwrap_err();
        assert!(e.kind() == ErrorKind::Corruption && e.to_string().contains("\"one\""), "{e}");
        assert_eq!(kind(prepare(&db, &all, b"two")), ErrorKind::Corruption);
    }
    // A readable one can be ended nevertheless.
    db.put_cf(&records, b"two", &good).unwrap();
    let all = PreparedTransactions::recover(&db);
    assert!(all.names(&db).is_err() && all.take(&db, b"one").is_err());
    all.take(&db, b"two").unwrap().unwrap().roll_back(&WriteOptions::default()).unwrap();
    db.put_cf(&records, b"one", &good).unwrap();
    assert_eq!(PreparedTransactions::recover(&db).names(&db).unwrap(), [b"one"]);
}

/// The record as docs/format/prepared.md has it.
#[test]
fn a_record_has_the_documented_bytes() {
    let db = store(1);
    let (all, family) = (PreparedTransactions::recover(&db), db.default_column_family());
    let mut transaction = begin(&db, Isolation::Snapshot);
    transaction.put(family, b"key", b"value").unwrap();
    transaction.delete(family, b"old").unwrap();
    drop(all.prepare(transaction, b"name").unwrap());
    let records = db.column_family(FAMILY).unwrap();
    let record = db.get_opt(&records, b"name", &ReadOptions::default()).unwrap().unwrap();
    let put = [&[1, 0, 3][..], b"key", &[5], b"value"].concat();
    let delete = [&[0, 0, 3][..], b"old"].concat();
    assert_eq!(*record, [&[1, 2, 0, 0, 0][..], &put, &delete].concat());
}

/// A transaction that could never be committed is refused before its record is written.
#[test]
fn a_transaction_too_large_for_its_commit_is_not_prepared() {
    let db = store(1);
    let (all, family) = (PreparedTransactions::recover(&db), db.default_column_family());
    let mut transaction = begin(&db, Isolation::Snapshot);
    // The transaction counts 128 bytes for each change; the delete of the record needs more.
    let len = lavastore_transactions::lavakv::limits::BATCH_LEN_MAX / 5 - 130;
    for nth in 0..5 {
        transaction.put(family, &[nth], &vec![nth; len]).unwrap();
    }
    assert_eq!(kind(all.prepare(transaction, &[b'n'; 1024])), ErrorKind::TooLarge);
    assert!(all.names(&db).unwrap().is_empty() && !is_locked(&db, family));
}

#[test]
fn a_volatile_commit_of_a_prepared_transaction_survives_the_death_of_the_process() {
    let mut sim = SimEnv::new(1);
    let db = Db::open_in(sim.env(), "/store", small()).unwrap();
    let all = PreparedTransactions::recover(&db);
    let volatile = WriteOptions { durability: Some(Durability::Volatile), ..WriteOptions::default() };
    prepare(&db, &all, b"one").unwrap().commit(&volatile).unwrap();
    db.put(b"key", b"later").unwrap();
    sim = sim.crash(CrashKind::ProcessKill, 1);
    let db = Db::open_in(sim.env(), "/store", small()).unwrap();
    assert!(PreparedTransactions::recover(&db).names(&db).unwrap().is_empty());
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"later"[..]));
}
