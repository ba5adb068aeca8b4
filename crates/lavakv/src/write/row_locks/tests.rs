//! Plain writes and owners of locks, blocking and asynchronous.

use super::*;
use crate::context::options::WriteOptions;
use crate::{Conditions, Db, Options, RequestOptions, WriteBatch};
use io::sim::SimEnv;

fn store() -> Db {
    Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap()
}

fn owner(db: &Db, key: &[u8]) -> LockOwner {
    let owner = db.lock_owner(None).unwrap();
    owner.lock(db.default_column_family(), key, LockMode::Exclusive, Duration::ZERO).unwrap();
    owner
}

fn kind(outcome: Result<()>) -> Option<ErrorKind> {
    outcome.err().map(|e| e.kind())
}

#[test]
fn a_plain_write_of_a_locked_row_waits_for_a_second() {
    let db = store();
    let context = &db.engine().context;
    let (family, owner) = (db.default_column_family(), owner(&db, b"key"));
    let mut batch = WriteBatch::new();
    batch.put(b"other", b"");
    batch.delete(b"key");
    type Call<'a> = &'a dyn Fn() -> Result<()>;
    let calls: [Call<'_>; 4] =
        [&|| db.put(b"key", b"plain"), &|| db.write(&batch), &|| db.delete_range(b"a", b"z"), &|| {
            db.put(b"key", &vec![0; 6 << 20])
        }];
    for call in calls {
        let begun_ns = context.now_ns();
        assert_eq!(kind(call()), Some(ErrorKind::Busy));
        let waited = Duration::from_nanos(context.now_ns() - begun_ns);
        assert!(waited >= WRITE_WAIT && waited < 2 * WRITE_WAIT, "{waited:?}");
    }
    let stats = db.stats();
    assert_eq!((stats.row_locks, stats.row_lock_waits, stats.row_lock_timeouts), (1, 4, 4));
    assert_eq!(stats.stalls, 0, "a row lock is no stall");
    // The writer's own deadline, and other rows.
    let later = WriteOptions { wait_at_most: Some(3 * WRITE_WAIT), ..WriteOptions::default() };
    let begun_ns = context.now_ns();
    assert_eq!(kind(db.put_opt(family, b"key", b"plain", &later)), Some(ErrorKind::Busy));
    assert!(Duration::from_nanos(context.now_ns() - begun_ns) >= 3 * WRITE_WAIT);
    db.put(b"kez", b"").unwrap();
    db.delete_range(b"key\0", b"z").unwrap();
    let at_once = WriteOptions { wait_at_most: Some(Duration::ZERO), ..WriteOptions::default() };
    let begun_ns = context.now_ns();
    assert_eq!(kind(db.put_opt(family, b"key", b"plain", &at_once)), Some(ErrorKind::Busy));
    assert!(context.now_ns() - begun_ns < 1_000_000);
    drop(owner);
    db.put(b"key", b"plain").unwrap();
    assert_eq!(db.stats().row_locks, 0);
    assert_eq!(db.get(b"other").unwrap(), None, "a refused batch left nothing");
}

#[test]
fn an_owner_writes_its_rows_and_releases_them() {
    let db = store();
    let (family, owner) = (db.default_column_family().clone(), owner(&db, b"key"));
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"mine");
    let conditions = Conditions { reads: None, owner: Some(owner) };
    db.write_if(&batch, &conditions, &WriteOptions::default()).unwrap();
    db.put(b"key", b"plain").unwrap();
    let again = db.write_if(&batch, &conditions, &WriteOptions::default());
    assert_eq!(kind(again), Some(ErrorKind::Conflict), "its locks are gone");
    let other = db.lock_owner(None).unwrap();
    other.lock(&family, b"key", LockMode::Exclusive, Duration::ZERO).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"plain"[..]));
}

#[test]
fn a_write_of_an_expired_owner_conflicts_and_others_go_on() {
    let db = store();
    let (family, clock) = (db.default_column_family(), &db.engine().context.env.clock);
    for kept in [false, true] {
        let owner = db.lock_owner(Some(Duration::from_millis(5))).unwrap();
        owner.lock(family, b"key", LockMode::Exclusive, Duration::ZERO).unwrap();
        if kept {
            owner.keep().unwrap();
        }
        clock.sleep_ns(5_000_000);
        let at_once = WriteOptions { wait_at_most: Some(Duration::ZERO), ..WriteOptions::default() };
        let plain = db.put_opt(family, b"key", b"plain", &at_once);
        assert_eq!(kind(plain), kept.then_some(ErrorKind::Busy));
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"mine");
        let conditions = Conditions { reads: None, owner: Some(owner) };
        let written = db.write_if(&batch, &conditions, &WriteOptions::default());
        assert_eq!(kind(written), (!kept).then_some(ErrorKind::Conflict));
    }
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_plain_write_goes_on_when_the_owner_expires() {
    let db = store();
    let family = db.default_column_family();
    let owner = db.lock_owner(Some(Duration::from_millis(300))).unwrap();
    owner.lock(family, b"key", LockMode::Shared, Duration::ZERO).unwrap();
    let begun_ns = db.engine().context.now_ns();
    db.put(b"key", b"plain").unwrap();
    let waited = Duration::from_nanos(db.engine().context.now_ns() - begun_ns);
    assert!(waited >= Duration::from_millis(290) && waited < Duration::from_millis(400), "{waited:?}");
}

#[test]
fn an_asynchronous_write_waits_without_a_thread() {
    let db = store();
    let family = db.default_column_family();
    let requests = db.requests(&RequestOptions::default()).unwrap();
    for ends in [false, true] {
        let owner = owner(&db, b"key");
        let write = requests.put(family, b"key".to_vec(), b"async".to_vec()).unwrap();
        for _ in 0..20 {
            db.run_background_step();
            db.engine().context.env.clock.sleep_ns(1_000_000);
        }
        assert_eq!(db.get(b"key").unwrap(), None, "it waits");
        if ends {
            drop(owner);
            db.block_on(write).unwrap();
        } else {
            assert_eq!(kind(db.block_on(write)), Some(ErrorKind::Busy));
        }
    }
    assert!(db.get(b"key").unwrap().is_some());
}

#[test]
fn a_lock_shows_a_write_that_was_admitted_before_it() {
    let db = store();
    let (writes, family) = (&db.engine().writes, db.default_column_family());
    let in_flight = {
        let mut writer = writes.memtables.lock();
        writer.next_seq += 1;
        writes.memtables.order.begin(writer.next_seq - 1)
    };
    let owner = db.lock_owner(None).unwrap();
    std::thread::scope(|scope| {
        let lock = scope.spawn(|| {
            owner.lock(family, b"key", LockMode::Exclusive, Duration::ZERO).unwrap();
            writes.tree.snapshots.visible()
        });
        io::Env::kernel().clock.sleep_ns(50_000_000);
        assert!(!lock.is_finished(), "it waits for the insert");
        in_flight.done();
        assert_eq!(lock.join().unwrap(), 1);
    });
}
