use super::*;
use crate::Db;
use crate::write::commit::tests::with_little_memory;
use base::ErrorKind;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use io::sim::SimEnv;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// A store whose memory is nearly full. Only waiting calls run jobs.
fn nearly_full(sim: &SimEnv) -> Db {
    let db = with_little_memory(sim);
    let memory = &db.engine().space.memory;
    let requests = db.requests(&RequestOptions::default()).unwrap();
    for i in 0u64.. {
        if memory.used() > (70 << 10) {
            break;
        }
        db.block_on(
            requests.put(db.default_column_family(), i.to_be_bytes().to_vec(), vec![7; 500]).unwrap(),
        )
        .unwrap();
    }
    assert!(memory.backlog() > 0, "there is something to wait for");
    db
}

#[test]
fn requests_without_waits_complete_in_the_call() {
    let sim = SimEnv::new(1);
    let db = with_little_memory(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let (mut seen, mut put) = requests.put(&family, b"k".to_vec(), b"v".to_vec()).unwrap().split();
    assert!(matches!((seen.take(), put.take()), (Some(Ok(())), Some(Ok(())))));
    let mut get = requests.get(&family, b"k".to_vec()).unwrap();
    assert_eq!(get.take().unwrap().unwrap().as_deref(), Some(&b"v"[..]));
    assert!(get.take().is_none(), "once");
    requests.delete(&family, b"k".to_vec()).unwrap().split().1.take().unwrap().unwrap();
    let mut several = requests.multi_get(&family, vec![b"k".to_vec(), b"k".to_vec()]).unwrap();
    assert_eq!(several.take().unwrap().unwrap(), [None, None]);
    let mut get = requests.get(&family, b"other".to_vec()).unwrap();
    assert_eq!(get.take().unwrap().unwrap(), None, "there are no tables");
    // A read of uncached data completes only after the device read; cached data is known at once.
    db.block_on(requests.put(&family, b"flushed".to_vec(), b"v".to_vec()).unwrap()).unwrap();
    db.block_on(requests.flush().unwrap()).unwrap();
    for is_cached in [false, true] {
        let mut get = requests.get(&family, b"flushed".to_vec()).unwrap();
        let mut several = requests.multi_get(&family, vec![b"flushed".to_vec(), b"k".to_vec()]).unwrap();
        let (known, several_known) = (get.take(), several.take());
        assert_eq!((known.is_some(), several_known.is_some()), (is_cached, is_cached));
        let found = known.unwrap_or_else(|| db.block_on(get)).unwrap();
        assert_eq!(found.as_deref(), Some(&b"v"[..]));
        let found = several_known.unwrap_or_else(|| db.block_on(several)).unwrap();
        assert!(found[0].is_some() && found[1].is_none());
    }
    // Durability comes after visibility.
    let mut durable =
        requests.writing(&WriteOptions::durable()).put(&family, b"d".to_vec(), vec![1]).unwrap();
    assert!(durable.visible().take().unwrap().is_ok() && durable.durable().take().is_none());
    assert!(db.get(b"d").unwrap().is_some());
    db.block_on(durable).unwrap();
    let mut buffered = requests.put(&family, b"b".to_vec(), vec![1]).unwrap();
    assert_eq!(db.block_on(buffered.durable()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.block_on(buffered).unwrap();
}

#[test]
fn queued_writes_keep_order_and_their_deadlines() {
    let sim = SimEnv::new(2);
    let db = nearly_full(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let put = |requests: &Requests, value: &[u8]| requests.put(&family, b"k".to_vec(), value.to_vec());
    let mut long = put(&requests, &[1; 30 << 10]).unwrap();
    let mut behind = put(&requests, b"behind").unwrap();
    assert!(long.visible().take().is_none() && behind.visible().take().is_none());
    let at_once =
        requests.writing(&WriteOptions { wait_at_most: Some(Duration::ZERO), ..Default::default() });
    assert_eq!(put(&at_once, b"never").unwrap_err().kind(), ErrorKind::Busy);
    let while_ = WriteOptions { wait_at_most: Some(Duration::from_millis(3)), ..Default::default() };
    let mut refused = put(&requests.writing(&while_), b"nor this").unwrap();
    let last = put(&requests, b"last").unwrap();
    // No flush runs meanwhile.
    for _ in 0..10 {
        db.engine().context.env.clock.sleep_ns(1_000_000);
        store::run::AsyncRequests::step(&**db.engine().requests.reactor());
    }
    assert!(long.visible().take().is_none() && behind.visible().take().is_none());
    assert_eq!(refused.visible().take().unwrap().unwrap_err().kind(), ErrorKind::Busy);
    db.block_on(long).unwrap();
    db.block_on(last).unwrap();
    assert!(behind.visible().take().unwrap().is_ok(), "in the order of their submission");
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"last"[..]));
    assert!(db.stats().stalls > 0 && db.stats().stall_memory_ns > 0);
    assert_eq!(requests.in_flight(), 0);
}

/// A value with a file of its own is written by a thread, since it waits for the device. The next
/// write could be logged at once, and must not.
#[test]
fn a_write_waiting_for_the_device_is_not_overtaken() {
    let sim = SimEnv::new(5);
    let db = with_little_memory(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let put = |value: &[u8]| requests.put(&family, b"k".to_vec(), value.to_vec()).unwrap();
    let long = vec![1; crate::large::segments::threshold(&db.engine().context.options)];
    let mut long = put(&long);
    let mut behind = put(b"behind");
    assert!(long.visible().take().is_none() && behind.visible().take().is_none());
    db.block_on(long).unwrap();
    db.block_on(behind).unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"behind"[..]), "what was submitted last");
}

/// A step that panics, a bug, does not end the thread: it poisons the store with an explanation.
#[test]
fn a_request_that_panics_poisons_the_store() {
    struct Panics;
    impl ::requests::Operation for Panics {
        fn step(self: Box<Self>) -> ::requests::Next {
            panic!("a bug")
        }
        fn class(&self) -> ::requests::OperationClass {
            ::requests::OperationClass::Write
        }
    }
    let sim = SimEnv::new(6);
    let db = with_little_memory(&sim);
    let requests = db.requests(&RequestOptions::default()).unwrap();
    db.engine().requests.reactor().push(Panics).unwrap();
    assert!(store::run::AsyncRequests::step(&**db.engine().requests.reactor()));
    let e = requests.put(db.default_column_family(), b"k".to_vec(), b"v".to_vec()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Poisoned);
    assert!(e.to_string().contains("an asynchronous request panicked in a background thread"), "{e}");
}

/// A poisoned store fails the asynchronous writes that wait for the log.
#[test]
fn a_poisoned_store_fails_requests_in_flight() {
    let sim = SimEnv::new(3);
    let db = with_little_memory(&sim);
    let requests =
        db.requests(&RequestOptions { write: WriteOptions::durable(), ..Default::default() }).unwrap();
    let family = db.default_column_family();
    let put = requests.put(family, b"k".to_vec(), b"v".to_vec()).unwrap();
    let flush = requests.flush().unwrap();
    db.engine().context.health.poison(&Error::new(ErrorKind::Io, "the manifest, say"));
    let e = db.block_on(put).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io, "it may be in the log: {e}");
    assert_eq!(db.block_on(flush).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(requests.put(family, b"k".to_vec(), b"v".to_vec()).unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(matches!(db.block_on(requests.get(family, b"k".to_vec()).unwrap()), Ok(Some(_))), "reads go on");
}

/// After a panic while a lane is driven, its queued writes fail, and so do later ones.
#[test]
fn a_panic_in_the_write_queue_fails_all_queued_writes() {
    let sim = SimEnv::new(5);
    let db = nearly_full(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let put = |key: &[u8], len: usize| requests.put(&family, key.to_vec(), vec![1; len]);
    let mut waiting = [put(b"long", 30 << 10).unwrap(), put(b"behind", 10).unwrap()];
    let drives = || {
        let _driving = lane::Driving(requests.lane.clone());
        panic!("a bug");
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(drives)).unwrap_err();
    for put in &mut waiting {
        assert_eq!(put.visible().take().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(put(b"later", 10).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(requests.in_flight(), 0);
    let others = db.requests(&RequestOptions::default()).unwrap();
    db.block_on(others.put(&family, b"k".to_vec(), vec![1]).unwrap()).unwrap();
}

/// A close fails the waiting writes, unwritten.
#[test]
fn a_close_fails_queued_writes() {
    let sim = SimEnv::new(4);
    let db = nearly_full(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let put = |key: &[u8], len: usize| requests.put(&family, key.to_vec(), vec![1; len]).unwrap();
    let mut waiting = [put(b"long", 30 << 10), put(b"behind", 10)];
    db.close().unwrap();
    for put in &mut waiting {
        assert_eq!(put.visible().take().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(requests.put(&family, b"k".to_vec(), vec![]).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(requests.in_flight(), 0);
    // It keeps the store's files open, though not the store.
    drop((requests, family));
    let db = with_little_memory(&sim);
    assert!(db.get(b"behind").unwrap().is_none() && db.get(b"long").unwrap().is_none());
}

/// A queued write fails with `NoSpace`. By default the next one is attempted; a lane that stops at
/// failures refuses it.
#[test]
fn writes_behind_a_failure_are_attempted_unless_requests_stop() {
    for stops in [false, true] {
        let sim = SimEnv::new(7);
        let db = nearly_full(&sim);
        let family = db.default_column_family().clone();
        let options = RequestOptions { stop_at_first_failure: stops, ..Default::default() };
        let requests = db.requests(&options).unwrap();
        let put = |key: &[u8], len: usize| requests.put(&family, key.to_vec(), vec![1; len]);
        let (long, behind) = (put(b"long", 30 << 10).unwrap(), put(b"behind", 10).unwrap());
        sim.set_capacity(Some(sim.used()));
        assert_eq!(db.block_on(long).unwrap_err().kind(), ErrorKind::NoSpace);
        let outcomes = [db.block_on(behind), put(b"later", 10).and_then(|put| db.block_on(put))];
        sim.set_capacity(None);
        sim.advance_ns(1_000_000_000);
        for (outcome, key) in outcomes.into_iter().zip([&b"behind"[..], b"later"]) {
            assert_eq!(db.get(key).unwrap().is_some(), !stops, "{outcome:?}");
            let why = "not attempted: the earlier write 1 failed";
            let is_refused = |e: &Error| e.kind() == ErrorKind::Busy && e.message().starts_with(why);
            assert_eq!(outcome.as_ref().is_err_and(is_refused), stops, "{outcome:?}");
            assert_eq!(outcome.is_ok(), !stops, "{outcome:?}");
        }
        assert_eq!(requests.in_flight(), 0);
        requests.resume();
        db.block_on(put(b"resumed", 10).unwrap()).unwrap();
        db.block_on(put(b"long", 30 << 10).unwrap()).unwrap();
    }
}

/// The waker of a completed write. It counts its calls, and those that find the write visible.
struct Observer {
    visible: Mutex<Request<()>, rank::Outside>,
    calls: AtomicU64,
    calls_when_visible: AtomicU64,
}

impl Wake for Observer {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let is_visible = lock(&self.visible).take().is_some();
        self.calls_when_visible.fetch_add(u64::from(is_visible), Ordering::SeqCst);
    }
}

#[test]
fn a_write_is_visible_before_its_completion() {
    let sim = SimEnv::new(11);
    let db = nearly_full(&sim);
    let (requests, family) =
        (db.requests(&RequestOptions::default()).unwrap(), db.default_column_family().clone());
    let put = requests.put(&family, b"k".to_vec(), vec![1; 30 << 10]).unwrap();
    let (visible, mut done) = put.split();
    let (calls, calls_when_visible) = (AtomicU64::new(0), AtomicU64::new(0));
    let observer = Arc::new(Observer { visible: Mutex::new(visible), calls, calls_when_visible });
    let waker = Waker::from(observer.clone());
    assert!(Pin::new(&mut done).poll(&mut Context::from_waker(&waker)).is_pending(), "it waits for memory");
    db.block_on(requests.put(&family, b"later".to_vec(), vec![1]).unwrap()).unwrap();
    assert!(done.take().unwrap().is_ok());
    let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    assert_eq!((of(&observer.calls), of(&observer.calls_when_visible)), (1, 1));
}
