//! Features of the facade for logs: handles that keep the store open, ranges, defaults, checks of
//! misuse.

#![allow(clippy::disallowed_methods, reason = "tests run threads")]

use lavastore::testing::{CrashKind, Policy, SimEnv, log_store};
use lavastore::{Durability, ErrorKind, Log, LogBatch, LogOptions, LogStore, Lsn, Result, WriteOptions};
use std::time::Duration;

fn options() -> LogOptions {
    LogOptions { group_bytes: Some(1 << 20), ..Default::default() }
}

fn lsns(log: &Log, range: impl std::ops::RangeBounds<Lsn>) -> Vec<Lsn> {
    log.scan(range).map(|record| record.unwrap().0).collect()
}

#[test]
fn log_store_handles_keep_it_open() {
    let env = SimEnv::new(1).env();
    let open = || LogStore::open_in(&env, "/logs", &options());
    type Made = Box<dyn std::any::Any>;
    let makers: [fn(&LogStore) -> Made; 4] = [
        |store| Box::new(store.clone()),
        |store| Box::new(store.log("a").unwrap()),
        |store| Box::new(store.log("a").unwrap().scan(..)),
        |store| Box::new((store.log("a").unwrap(), store.log("b").unwrap())),
    ];
    for (at, maker) in makers.into_iter().enumerate() {
        let store = open().unwrap();
        store.log("a").unwrap().append(at as u64 + 1, "x").unwrap();
        let made = maker(&store);
        drop(store);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Locked);
        drop(made);
        // The last handle has closed the store.
        let store = open().unwrap();
        assert_eq!(store.open_log("a").unwrap().last_lsn().unwrap(), Some(at as u64 + 1));
        let made = maker(&store);
        store.close().unwrap();
        let next = open().unwrap();
        drop(made);
        next.close().unwrap();
    }
    // A batch does not keep the store open.
    let store = open().unwrap();
    let mut batch = LogBatch::new();
    batch.append(&store.log("a").unwrap(), 100, "x");
    store.close().unwrap();
    assert_eq!(batch.len(), 1);
    // Two concurrent closes both return after the store is closed.
    let store = open().unwrap();
    let twin = store.clone();
    let other = std::thread::spawn(move || twin.close());
    store.close().unwrap();
    open().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn appends_default_to_durable_and_trims_do_not() {
    let machine = SimEnv::new(2);
    let open = |machine: &SimEnv| LogStore::open_in(&machine.env(), "/logs", &options()).unwrap();
    let store = open(&machine);
    let log = store.log("a").unwrap();
    let (buffered, durable) = (WriteOptions::buffered(), WriteOptions::durable());
    // The seed decides whether each non-durable write survives: count the states that have the
    // record.
    let states = 12;
    let kept_in = |lsn| {
        let lose = |seed| machine.crash(CrashKind::PowerLossWith(Policy::Dropped), seed);
        let is_there = |seed| open(&lose(seed)).open_log("a").unwrap().read(lsn).unwrap().is_some();
        (0..states).filter(|seed| is_there(*seed)).count() as u64
    };
    log.append(1, "x").unwrap();
    log.writing(&buffered).append(2, "x").unwrap();
    assert_eq!(kept_in(1), states);
    assert!(kept_in(2) < states);
    // Each durable call also makes earlier buffered writes durable.
    type Call<'a> = &'a dyn Fn(&Log) -> Result<()>;
    let calls: [Call<'_>; 8] = [
        &|log| log.append(1000, "y"),
        &|log| log.set_metadata("y"),
        &|log| log.truncate_after(2000),
        &|log| log.writing(&durable).append(1001, "y"),
        &|log| log.writing(&durable).trim(1),
        &|log| log.writing(&durable).set_metadata("z"),
        &|_| store.write(LogBatch::new().append(&log, 1002, "y")),
        &|_| store.sync(),
    ];
    for (at, call) in calls.iter().enumerate() {
        let lsn = at as Lsn + 10;
        log.writing(&buffered).append(lsn, "buffered").unwrap();
        call(&log).unwrap();
        assert_eq!(kept_in(lsn), states, "call {at}");
    }
    let quiet: [Call<'_>; 4] = [
        &|log| log.trim(2),
        &|log| log.writing(&WriteOptions::default()).trim(2),
        &|log| log.writing(&buffered).set_metadata("w"),
        &|_| store.write_with(LogBatch::new().append(&log, 1003, "y"), &buffered),
    ];
    for (at, call) in quiet.iter().enumerate() {
        let lsn = at as Lsn + 100;
        log.writing(&buffered).append(lsn, "buffered").unwrap();
        call(&log).unwrap();
        assert!(kept_in(lsn) < states, "call {at}");
        store.sync().unwrap();
    }
    for refused in [
        log.writing(&WriteOptions::volatile()).append(5000, "x"),
        log.writing(&WriteOptions::volatile()).trim(5000),
        store.write_with(LogBatch::new().append(&log, 5000, "x"), &WriteOptions::volatile()),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    // The default durability is an option.
    let env = SimEnv::new(3);
    let options = LogOptions { durability: Durability::Buffered, ..options() };
    let store = LogStore::open_in(&env.env(), "/logs", &options).unwrap();
    store.log("a").unwrap().append(1, "x").unwrap();
    let lost = |seed| open(&env.crash(CrashKind::PowerLossWith(Policy::Dropped), seed)).log("a").unwrap();
    assert!((0..states).any(|seed| lsns(&lost(seed), ..).is_empty()));
}

#[test]
fn ranges_agree_with_standard_collections() {
    let store = log_store();
    let log = store.log("a").unwrap();
    let model: std::collections::BTreeSet<Lsn> = [1, 2, 5, 6, 7, 40].into();
    for &lsn in &model {
        log.append(lsn, "x").unwrap();
    }
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let ends = [0, 1, 4, 7, 41, Lsn::MAX];
    for bounds in ends.iter().flat_map(|&a| ends.iter().map(move |&b| (a, b))).filter(|(a, b)| a < b) {
        let (a, b) = bounds;
        for range in [
            (Included(a), Included(b)),
            (Included(a), Excluded(b)),
            (Excluded(a), Included(b)),
            (Excluded(a), Unbounded),
            (Unbounded, Excluded(b)),
            (Unbounded, Unbounded),
        ] {
            assert_eq!(lsns(&log, range), model.range(range).copied().collect::<Vec<_>>(), "{range:?}");
        }
    }
    #[allow(clippy::reversed_empty_ranges, reason = "no range is empty, and no panic")]
    let none =
        (lsns(&log, 7..2), log.gaps(7..2, 9).unwrap(), log.gaps((Excluded(Lsn::MAX), Unbounded), 9).unwrap());
    assert_eq!(none, (Vec::new(), Vec::new(), Vec::new()));
    assert_eq!(log.gaps(1.., 10).unwrap(), [3..=4, 8..=39]);
    assert_eq!(log.gaps(1.., 1).unwrap(), [3..=4]);
    assert_eq!(log.gaps(39..43, 10).unwrap(), [39..=39, 41..=42]);
    assert_eq!(store.log("empty").unwrap().gaps(.., 10).unwrap(), []);
    store.delete_log("a").unwrap();
    #[allow(clippy::reversed_empty_ranges, reason = "no range is empty, and no panic")]
    let deleted = log.gaps(7..2, 10);
    assert_eq!(deleted.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn log_handles_of_another_store_are_refused() {
    let one = log_store();
    let two = LogStore::open_in(&SimEnv::new(2).env(), "/logs", &options()).unwrap();
    let (mine, other) = (one.log("a").unwrap(), two.log("a").unwrap());
    let mut batch = LogBatch::new();
    batch.append(&other, 1, "x");
    assert_eq!(one.write(&batch).unwrap_err().kind(), ErrorKind::InvalidArgument);
    two.write(&batch).unwrap();
    batch.append(&mine, 1, "x");
    for store in [&one, &two] {
        assert_eq!(store.write(&batch).unwrap_err().kind(), ErrorKind::InvalidArgument, "of both");
    }
    one.write(&LogBatch::new()).unwrap();
    assert_eq!((mine.name().unwrap(), mine.id()), ("a".to_string(), other.id()));
    one.delete_log("a").unwrap();
    assert_eq!(mine.name().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_tail_is_woken_by_an_append_of_another_thread() {
    let dir = std::env::temp_dir().join(format!("lavastore-tail-{}", std::process::id()));
    let options = LogOptions { group_bytes: Some(1 << 20), ..Default::default() };
    let store = LogStore::open_with(&dir, &options).unwrap();
    let log = store.log("a").unwrap();
    let mut tail = log.scan(..);
    let reader = std::thread::spawn(move || {
        (0..100)
            .map(|_| tail.wait_next(Duration::from_secs(60)).unwrap().expect("in time").0)
            .collect::<Vec<_>>()
    });
    for lsn in 0..100 {
        log.append(lsn, "x").unwrap();
    }
    assert_eq!(reader.join().unwrap(), (0..100).collect::<Vec<_>>());
    drop(log);
    store.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A minimal runtime: it polls a task whenever the task is woken.
struct Task(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.send(()).ok();
    }
}

fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    let (sender, woken) = std::sync::mpsc::channel();
    let waker = std::task::Waker::from(std::sync::Arc::new(Task(sender)));
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(out) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker))
        {
            return out;
        }
        // The task is polled only when woken.
        woken.recv_timeout(Duration::from_secs(60)).expect("the task is woken");
    }
}

#[test]
fn asynchronous_appends_become_durable_and_wake_the_task() {
    let dir = std::env::temp_dir().join(format!("lavastore-async-{}", std::process::id()));
    let store = LogStore::open_with(&dir, &options()).unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let log = store.log(&format!("log {task}")).unwrap();
            std::thread::spawn(move || {
                block_on(async move {
                    let mut before = None;
                    for lsn in 0..200 {
                        let this = log.append_async(lsn, "x")?;
                        // Two appends in flight; some completions are dropped.
                        match before.replace(this) {
                            Some(before) if lsn % 7 != 0 => before.await?,
                            _ => {}
                        }
                    }
                    before.expect("the last one").await
                })
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap().unwrap());
    assert_eq!(store.stats().appends, 800);
    store.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_completion_resolves_only_once_durable() {
    let machine = SimEnv::new(4);
    let open = |machine: &SimEnv| LogStore::open_in(&machine.env(), "/logs", &options()).unwrap();
    let store = open(&machine);
    let log = store.log("a").unwrap();
    let lost_in = |lsn| {
        let after = |seed| open(&machine.crash(CrashKind::PowerLossWith(Policy::Dropped), seed));
        (0..12).filter(|seed| after(*seed).open_log("a").unwrap().read(lsn).unwrap().is_none()).count()
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut is_done = |completion: &mut lavastore::Completion| {
        std::future::Future::poll(std::pin::Pin::new(completion), &mut context).is_ready()
    };
    let mut one = log.append_async(1, "x").unwrap();
    let mut two = log.append_async(2, "x").unwrap();
    assert!(log.read(1).unwrap().is_some(), "it is seen at once");
    assert!(!is_done(&mut one) && lost_in(1) > 0);
    // Making the second record durable makes the first one durable.
    log.append(3, "x").unwrap();
    assert!(is_done(&mut one) && is_done(&mut two));
    assert_eq!(lost_in(1) + lost_in(2), 0);
    // Waiting makes a record durable; a dropped completion does no harm; an already durable record
    // completes at once.
    let dropped = log.append_async(4, "x").unwrap();
    drop(dropped);
    store.write_async(LogBatch::new().append(&log, 5, "x")).unwrap().wait().unwrap();
    assert_eq!(lost_in(4) + lost_in(5), 0);
    assert!(is_done(&mut log.append_async(5, "x").unwrap()));
    assert!(is_done(&mut store.write_async(&LogBatch::new()).unwrap()));
    // Refused appends fail at once.
    assert_eq!(log.append_async(5, "y").unwrap_err().kind(), ErrorKind::AlreadyExists);
    // A closing store resolves all completions.
    let mut last = log.append_async(6, "x").unwrap();
    drop(log);
    store.close().unwrap();
    assert!(is_done(&mut last));
    assert_eq!(lost_in(6), 0);
}

#[test]
fn a_completion_reports_a_device_failure() {
    use lavastore::testing::{FaultEffect, FaultPlan, OpKind};
    let machine = SimEnv::new(5);
    let store = LogStore::open_in(&machine.env(), "/logs", &options()).unwrap();
    let log = store.log("a").unwrap();
    let waiting = [1, 2].map(|lsn| log.append_async(lsn, "x").unwrap());
    machine.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::WriteDurable, OpKind::SyncData]));
    let told = waiting.map(|completion| completion.wait().unwrap_err().kind());
    assert_eq!(told, [ErrorKind::Io, ErrorKind::Poisoned]);
    assert_eq!(log.append_async(3, "x").unwrap_err().kind(), ErrorKind::Poisoned);
}
