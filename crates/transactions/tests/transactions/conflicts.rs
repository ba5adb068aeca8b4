//! A commit fails if, and only if, a tracked key was changed: in a memtable, in a table, by a
//! range deletion.

use crate::store;
use lavastore_transactions::lavakv::{ColumnFamily, Db, ErrorKind, ReadAt, ReadOptions, io::Rng};
use lavastore_transactions::{Isolation, Transaction, TransactionOptions};

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    Transaction::begin(db, TransactionOptions { isolation, ..Default::default() })
}

/// The tree after the other write: its memtable is active, flushed, or merged.
fn move_down(db: &Db, depth: u64) {
    if depth > 0 {
        db.flush().unwrap();
    }
    if depth > 1 {
        db.compact_range(db.default_column_family(), None, None).unwrap();
    }
}

fn conflicts(outcome: lavastore_transactions::lavakv::Result<()>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
            true
        }
    }
}

type Other = fn(&Db, &ColumnFamily);

#[test]
fn a_change_of_a_tracked_key_is_found_at_any_depth() {
    let others: [(&str, Other, bool); 5] = [
        ("put", |db, _| db.put(b"b", b"new").unwrap(), true),
        ("delete", |db, _| db.delete(b"b").unwrap(), true),
        ("range", |db, f| db.delete_range_opt(f, b"a", b"c", &Default::default()).unwrap(), true),
        ("another key", |db, _| db.put(b"bb", b"new").unwrap(), false),
        ("a range beside", |db, f| db.delete_range_opt(f, b"c", b"d", &Default::default()).unwrap(), false),
    ];
    for (name, other, changes) in others {
        for depth in 0..3 {
            let db = store(depth);
            let family = db.default_column_family();
            (0..50u8).for_each(|n| db.put(&[b'a' + n % 4, n], &[n; 300]).unwrap());
            db.put(b"b", b"old").unwrap();
            move_down(&db, depth);
            let mut reader = begin(&db, Isolation::Snapshot);
            assert_eq!(
                reader.get_for_update(family, b"b", Default::default()).unwrap().as_deref(),
                Some(&b"old"[..])
            );
            reader.put(family, b"z", b"").unwrap();
            let mut writer = begin(&db, Isolation::Snapshot);
            writer.put(family, b"b", b"mine").unwrap();
            other(&db, family);
            move_down(&db, depth);
            assert_eq!(conflicts(reader.commit()), changes, "{name} at depth {depth}");
            assert_eq!(db.get(b"z").unwrap().is_some(), !changes, "{name} at depth {depth}");
            assert_eq!(conflicts(writer.commit()), changes, "{name} at depth {depth}");
        }
    }
}

#[test]
fn only_tracked_keys_conflict() {
    let db = store(1);
    let family = db.default_column_family();
    let mut plain = begin(&db, Isolation::Snapshot);
    let mut strict = begin(&db, Isolation::Serializable);
    for transaction in [&mut plain, &mut strict] {
        assert_eq!(transaction.get(family, b"read").unwrap(), None);
        transaction.put_untracked(family, b"untracked", b"").unwrap();
        transaction.delete_untracked(family, b"gone").unwrap();
    }
    for key in [b"read", &b"untracked"[..], b"gone"] {
        db.put(key, b"other").unwrap();
    }
    assert!(!conflicts(plain.commit()), "write skew is allowed");
    assert_eq!((db.get(b"untracked").unwrap().unwrap().len(), db.get(b"gone").unwrap()), (0, None));
    assert!(conflicts(strict.commit()));
}

/// A transaction without changes is checked as well.
#[test]
fn a_commit_without_changes_is_checked() {
    let db = store(1);
    let mut reader = begin(&db, Isolation::Serializable);
    reader.get(db.default_column_family(), b"a").unwrap();
    db.put(b"a", b"").unwrap();
    assert!(conflicts(reader.commit()));
}

/// Transfers between accounts, interleaved at random: the sum stays, and some transfers conflict.
#[test]
fn interleaved_transfers_keep_the_sum() {
    const ACCOUNTS: u64 = 8;
    let (mut done, mut refused) = (0, 0);
    for seed in 0..60 {
        let (db, mut rng) = (store(seed), Rng::new(seed));
        let family = db.default_column_family().clone();
        let number = |value: Option<&[u8]>| value.map_or(0, |v| i64::from_le_bytes(v.try_into().unwrap()));
        (0..ACCOUNTS).for_each(|n| db.put(&n.to_be_bytes(), &100i64.to_le_bytes()).unwrap());
        let mut open: Vec<Transaction> = Vec::new();
        for _ in 0..200 {
            if open.len() < 4 || rng.one_in(2) {
                let mut transfer = begin(&db, Isolation::Snapshot);
                let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                let amount = rng.below(20) as i64;
                for (account, change) in [(from, -amount), (to, amount)] {
                    let key = account.to_be_bytes();
                    let old = number(transfer.get(&family, &key).unwrap().as_deref());
                    transfer.put(&family, &key, &(old + change).to_le_bytes()).unwrap();
                }
                // Long values make memtables full between read and commit.
                db.put(b"load", &vec![0; rng.below(4000) as usize]).unwrap();
                open.push(transfer);
            } else {
                let nth = rng.below(open.len() as u64) as usize;
                match conflicts(open.swap_remove(nth).commit()) {
                    true => refused += 1,
                    false => done += 1,
                }
            }
            db.run_background_step();
            if rng.one_in(20) {
                db.flush().unwrap();
            }
            let snapshot = db.snapshot();
            let at = ReadAt { snapshot: Some(&snapshot), fill_cache: true };
            let balance = |n: u64| number(db.get_at(&family, &n.to_be_bytes(), at).unwrap().as_deref());
            assert_eq!((0..ACCOUNTS).map(balance).sum::<i64>(), 100 * ACCOUNTS as i64, "seed {seed}");
        }
    }
    assert!(done > 1_000 && refused > 1_000, "{done} done, {refused} refused");
}

#[test]
fn a_transaction_sees_its_own_changes_at_one_moment() {
    let db = store(1);
    let family = db.default_column_family();
    db.put(b"a", b"1").unwrap();
    let mut transaction = begin(&db, Isolation::Snapshot);
    db.put(b"a", b"2").unwrap();
    assert_eq!(transaction.get(family, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    transaction.put(family, b"b", b"mine").unwrap();
    transaction.set_savepoint();
    transaction.delete(family, b"b").unwrap();
    assert_eq!(transaction.get(family, b"b").unwrap(), None);
    assert!(transaction.roll_back_to_savepoint() && !transaction.roll_back_to_savepoint());
    let mut iter = transaction.iter(family, Default::default()).unwrap();
    iter.seek_to_first().unwrap();
    let mut seen = Vec::new();
    while iter.valid() {
        seen.push((iter.key().to_vec(), iter.value().unwrap().to_vec()));
        iter.next().unwrap();
    }
    assert_eq!(seen, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"mine".to_vec())]);
    transaction.commit().unwrap();
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"mine"[..]));
}

/// A serializable scan depends on the part that it has shown, at any depth of the tree.
#[test]
fn a_change_in_a_scanned_range_is_found_at_any_depth() {
    let others: [(&str, Other, bool); 6] = [
        ("a new key", |db, _| db.put(b"bb", b"new").unwrap(), true),
        ("a changed key", |db, _| db.put(b"b", b"new").unwrap(), true),
        ("a deleted key", |db, _| db.delete(b"b").unwrap(), true),
        ("a range", |db, f| db.delete_range_opt(f, b"a", b"b\0", &Default::default()).unwrap(), true),
        ("a key before", |db, _| db.put(b"a", b"new").unwrap(), false),
        ("a key behind", |db, _| db.put(b"d", b"new").unwrap(), false),
    ];
    for (name, other, changes) in others {
        for depth in 0..3 {
            let db = store(depth);
            let family = db.default_column_family();
            for key in [b"a", b"b", b"c", b"d"] {
                db.put(key, &[1; 300]).unwrap();
            }
            move_down(&db, depth);
            for (isolation, expected) in [(Isolation::Serializable, changes), (Isolation::Snapshot, false)] {
                let mut reader = begin(&db, isolation);
                let options = ReadOptions { lower_bound: Some(b"b".to_vec()), ..Default::default() };
                let seen: Vec<_> =
                    reader.scan(family, options).unwrap().take(2).map(Result::unwrap).collect();
                assert!(seen.len() == 2 && seen[1].0 > b"b".to_vec(), "{seen:?}");
                reader.put(family, b"z", b"").unwrap();
                other(&db, family);
                move_down(&db, depth);
                assert_eq!(conflicts(reader.commit()), expected, "{name} at depth {depth}, {isolation:?}");
                db.delete(b"bb").unwrap();
                db.delete(b"z").unwrap();
                db.put(b"b", &[1; 300]).unwrap();
            }
        }
    }
}

/// A scan to the end of its range depends on the end as well.
#[test]
fn a_key_behind_the_last_one_of_a_scan_is_found() {
    for (upper, conflicting) in [(None, true), (Some(b"y".to_vec()), false)] {
        let db = store(1);
        let family = db.default_column_family();
        db.put(b"a", b"").unwrap();
        let mut reader = begin(&db, Isolation::Serializable);
        let options = ReadOptions { upper_bound: upper, ..Default::default() };
        assert_eq!(reader.scan(family, options).unwrap().count(), 1);
        db.put(b"z", b"").unwrap();
        assert_eq!(conflicts(reader.commit()), conflicting);
    }
}
