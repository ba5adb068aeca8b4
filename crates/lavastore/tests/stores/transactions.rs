//! Transactions and indexed batches of the facade: misuse, and the end of a store.

use lavastore::testing::SimEnv;
use lavastore::{Db, ErrorKind, Options, WriteOptions};

fn store() -> Db {
    store_on(1)
}

/// Opens a store on a machine with this seed, which decides its identity.
fn store_on(seed: u64) -> Db {
    Db::open_in(&SimEnv::new(seed).env(), "/store", &Options::default()).unwrap()
}

#[test]
fn a_family_of_another_store_is_refused() {
    let (db, other) = (store_on(1), store_on(2));
    let family = other.family("f").unwrap();
    let refused = db.transaction().family(&family).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let refused = db.indexed_batch(true).in_family(&family).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let requests = db.requests(&Default::default()).unwrap();
    let refused = requests.commit(other.transaction()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.message().contains("the transaction is of another store than the requests"), "{refused}");
}

#[test]
fn a_commit_after_a_drop_or_a_close_fails() {
    let db = store();
    let family = db.family("f").unwrap();
    let mut transaction = db.transaction();
    transaction.family(&family).unwrap().put("key", "value").unwrap();
    db.drop_family(&family).unwrap();
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::NotFound);

    let mut transaction = db.transaction();
    transaction.put("key", "value").unwrap();
    let batch = db.indexed_batch(false);
    db.close().unwrap();
    assert_eq!(transaction.get("other").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(batch.get_over("key").unwrap_err().kind(), ErrorKind::Closed);
}

/// Of two transactions that read each other's key and change their own, one conflicts only if they
/// are serializable.
#[test]
fn write_skew_is_prevented_by_serializable_transactions() {
    use lavastore::{Isolation, TransactionOptions};
    for (isolation, prevented) in [(Isolation::Snapshot, false), (Isolation::Serializable, true)] {
        let db = store();
        let options = TransactionOptions { isolation, write: WriteOptions::durable(), ..Default::default() };
        let mut both = [db.transaction_with(&options), db.transaction_with(&options)];
        for (transaction, own, other) in
            both.iter_mut().zip([("a", "b"), ("b", "a")]).map(|(t, (a, b))| (t, a, b))
        {
            assert!(transaction.get(other).unwrap().is_none());
            transaction.put(own, "on call").unwrap();
        }
        let [first, second] = both;
        first.commit().unwrap();
        assert_eq!(second.commit().is_err_and(|e| e.kind() == ErrorKind::Conflict), prevented);
    }
}
