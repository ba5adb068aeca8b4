//! Asynchronous requests with real threads: polled by tokio, by smol and by a parking loop, and
//! taken from a completion queue.

use lavastore::testing::SimEnv;
use lavastore::{
    Db, Env, ErrorKind, Options, Outcome, RequestOptions, Requests, Result, WriteBatch, WriteOptions,
};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// A directory that is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("lavastore-async-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        Dir(dir)
    }

    fn open(&self) -> Db {
        // Small, so that a few thousand keys are flushed and read from tables.
        let options = Options {
            memtable_bytes: 64 << 10,
            memory_bytes: 256 << 10,
            cache_bytes: 0,
            ..Default::default()
        }
        .expert(|expert| {
            expert.log_group_bytes = 256 << 10;
            expert.wal_bytes_max = 4 << 20;
        });
        Db::open_with(&self.0, &options).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn key(i: u32) -> Vec<u8> {
    format!("key/{i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 100 + (i % 7) as usize * 150]
}

/// The work for every executor: each of many tasks writes, reads and deletes its own keys.
async fn one_of_many(requests: Requests, task: u32) -> Result<()> {
    for i in task * 100..task * 100 + 50 {
        let mut put = requests.put(key(i), value(i))?;
        put.visible().await?;
        assert_eq!(requests.get(key(i))?.await?.as_deref(), Some(&value(i)[..]));
        put.await?;
    }
    let many: Vec<u32> = (task * 100..task * 100 + 60).collect();
    let found = requests.multi_get(many.iter().map(|i| key(*i)))?.await?;
    for (i, found) in many.iter().zip(found) {
        assert_eq!(found.as_deref(), (*i < task * 100 + 50).then(|| value(*i)).as_deref());
    }
    requests.delete(key(task * 100))?.await?;
    let page = requests.scan(key(task * 100)..key(task * 100 + 100), 10)?.await?;
    assert_eq!((page.len(), &page[0].0), (10, &key(task * 100 + 1)));
    let mut batch = WriteBatch::new();
    batch.put(key(task * 100), "again");
    requests.write(batch)?.await
}

fn durable(db: &Db) -> Requests {
    db.requests(&RequestOptions { write: WriteOptions::durable(), ..Default::default() }).unwrap()
}

fn check(db: Db, dir: &Dir, tasks: u32) {
    db.close().unwrap();
    let db = dir.open();
    for task in 0..tasks {
        assert_eq!(db.get(key(task * 100)).unwrap().as_deref(), Some(&b"again"[..]));
        assert_eq!(db.get(key(task * 100 + 49)).unwrap().as_deref(), Some(&value(task * 100 + 49)[..]));
    }
}

#[test]
fn tokio_polls_requests() {
    let dir = Dir::new("tokio");
    let db = dir.open();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let requests = durable(&db);
        let tasks: Vec<_> = (0..32).map(|task| tokio::spawn(one_of_many(requests.clone(), task))).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        requests.flush().unwrap().await.unwrap();
        assert_eq!(requests.in_flight(), 0);
    });
    drop(runtime);
    check(db, &dir, 32);
}

#[test]
fn smol_polls_requests() {
    let dir = Dir::new("smol");
    let db = dir.open();
    smol::block_on(async {
        let requests = durable(&db);
        let executor = smol::LocalExecutor::new();
        let tasks: Vec<_> = (0..32).map(|task| executor.spawn(one_of_many(requests.clone(), task))).collect();
        executor
            .run(async {
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
    });
    check(db, &dir, 32);
}

/// A waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_parking_executor_polls_requests() {
    let dir = Dir::new("park");
    let db = dir.open();
    let requests = durable(&db);
    std::thread::scope(|scope| {
        for task in 0..4 {
            let requests = requests.clone();
            scope.spawn(move || block_on(one_of_many(requests, task)).unwrap());
        }
    });
    drop(requests);
    check(db, &dir, 4);
}

/// One thread takes many requests from a queue. A request beyond the bound is refused, and accepted
/// again after one answer.
#[test]
fn an_event_loop_takes_completions_from_a_queue() {
    let dir = Dir::new("queue");
    let db = dir.open();
    let options = RequestOptions { depth: 64, write: WriteOptions::durable(), ..Default::default() };
    let requests = db.requests(&options).unwrap();
    let mut queue = requests.queue();
    let (mut written, mut next, mut busy) = (0, 0u32, 0);
    while written < 3000 {
        while next < 3000 {
            match requests.put(key(next), value(next)) {
                Ok(put) => queue.submit(put, u64::from(next)),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                    busy += 1;
                    break;
                }
            }
            next += 1;
        }
        let (_, outcome) = queue.wait(None).expect("some are in flight");
        assert_eq!(outcome.unwrap(), Outcome::Done);
        written += 1;
    }
    assert!(queue.is_empty() && queue.wait(None).is_none() && queue.poll().is_none());
    assert!(busy > 0 && db.stats().requests_busy == busy, "{busy}");
    let (mut read, mut found) = (0u32, 0);
    while found < 3000 {
        while read < 3000 && requests.in_flight() < 64 {
            queue.submit(requests.get(key(read)).unwrap(), u64::from(read));
            read += 1;
        }
        let (token, outcome) = queue.wait(Some(Duration::from_secs(60))).expect("some are in flight");
        let Outcome::Value(Some(found_there)) = outcome.unwrap() else { panic!("of key {token}") };
        assert_eq!(found_there, value(token as u32));
        found += 1;
    }
    let stats = db.stats();
    assert_eq!((stats.requests, stats.requests_completed, stats.requests_in_flight), (6000, 6000, 0));
    assert!(db.metrics().unwrap().contains("lavastore_requests_in_flight{"));
}

#[test]
fn a_completion_queue_waits_at_most_its_timeout() {
    let dir = Dir::new("patience");
    let db = dir.open();
    let requests = db.requests(&RequestOptions::default()).unwrap();
    let mut queue = requests.queue();
    let clock = Env::kernel().clock;
    let begun_ns = clock.now_ns();
    assert!(queue.wait(Some(Duration::from_secs(60))).is_none(), "there is nothing to wait for");
    // A flush takes longer than this timeout.
    db.put("key", "value").unwrap();
    queue.submit(requests.flush().unwrap(), 7);
    let first = queue.wait(Some(Duration::from_nanos(1)));
    assert!(clock.now_ns() - begun_ns < 30_000_000_000);
    let token = first.or_else(|| queue.wait(None)).map(|(token, outcome)| outcome.map(|_| token));
    assert_eq!(token.unwrap().unwrap(), 7);
}

/// Dropped futures do not cancel their requests: all are written, and none stays in flight.
#[test]
fn dropped_request_futures_are_still_written() {
    let dir = Dir::new("dropped");
    let db = dir.open();
    let requests = durable(&db);
    for i in 0..2000 {
        while let Err(e) = requests.put(key(i), value(i)).map(drop) {
            assert_eq!(e.kind(), ErrorKind::Busy);
            std::thread::yield_now();
        }
        if i % 10 == 0 {
            requests.get(key(i)).map(drop).or_else(busy_is_fine).unwrap();
            requests.scan(key(0).., 5).map(drop).or_else(busy_is_fine).unwrap();
        }
    }
    while requests.in_flight() > 0 {
        Env::kernel().clock.sleep_ns(1_000_000);
    }
    drop(requests);
    db.close().unwrap();
    let db = dir.open();
    assert!((0..2000).all(|i| db.get(key(i)).unwrap().is_some_and(|found| found == value(i))));
}

fn busy_is_fine(e: lavastore::Error) -> Result<()> {
    if e.kind() == ErrorKind::Busy { Ok(()) } else { Err(e) }
}

/// Closing a store resolves all requests in flight, and acknowledged writes are present.
#[test]
fn closing_a_store_resolves_all_requests() {
    for round in 0..6 {
        let dir = Dir::new("close");
        let db = dir.open();
        let requests = durable(&db);
        let puts: Vec<_> = (0..500).map(|i| requests.put(key(i), value(i)).unwrap()).collect();
        let others = [requests.flush().unwrap()];
        let reads: Vec<_> = (0..round * 30).map(|i| requests.get(key(i)).unwrap()).collect();
        drop(requests);
        db.close().unwrap();
        let written: Vec<bool> = puts.into_iter().map(|put| closed_or(block_on(put)).is_some()).collect();
        others.into_iter().for_each(|flush| _ = closed_or(block_on(flush)));
        reads.into_iter().for_each(|read| drop(closed_or(block_on(read))));
        let db = dir.open();
        for (i, written) in (0..).zip(written) {
            let found = db.get(key(i)).unwrap();
            assert!(!written || found.is_some_and(|found| found == value(i)), "key {i} in round {round}");
        }
    }
}

fn closed_or<T>(outcome: Result<T>) -> Option<T> {
    outcome.map_err(|e| assert_eq!(e.kind(), ErrorKind::Closed, "{e}")).ok()
}

/// All acknowledged writes survive a loss of power.
#[test]
fn requests_run_on_a_simulated_machine() {
    let machine = SimEnv::new(7);
    let db = Db::open_in(&machine.env(), "/store", &Options::default()).unwrap();
    let requests = durable(&db);
    lavastore::testing::block_on(&db, one_of_many(requests.clone(), 1)).unwrap();
    let rebooted =
        machine.crash(lavastore::testing::CrashKind::PowerLossWith(lavastore::testing::Policy::Dropped), 1);
    let db = Db::open_in(&rebooted.env(), "/store", &Options::default()).unwrap();
    assert_eq!(db.get(key(100)).unwrap().as_deref(), Some(&b"again"[..]));
}

#[test]
fn a_store_for_reading_reads_and_refuses_to_write() {
    let env: Env = SimEnv::new(8).env();
    let db = Db::open_in(&env, "/store", &Options::default()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let reader = Db::open_read_only_in(&env, "/store", &Options::default()).unwrap();
    let requests = reader.requests(&RequestOptions::default()).unwrap();
    let found = lavastore::testing::block_on(&reader, requests.get("key").unwrap()).unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    assert_eq!(requests.put("key", "other").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(requests.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    let depth = RequestOptions { depth: 0, ..Default::default() };
    assert_eq!(db.requests(&depth).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
