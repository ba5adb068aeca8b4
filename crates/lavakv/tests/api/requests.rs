//! Asynchronous requests in simulation: against a model, with crashes, faults and schedules.
//!
//! Model: writes of one handle are applied in the order of submission. So at any time the store is
//! in the state after some prefix of them, also after a power loss. Writes reported durable are in
//! that prefix.

use crate::common::*;
use lavastore_lavakv::io::sim::threads::Plan;
use lavastore_lavakv::io::{Priority, Rng};
use lavastore_lavakv::{
    Db, Durability, ErrorKind, FamilyOptions, Options, Outcome, ReadOptions, Request, RequestOptions,
    RequestQueue, Requests, Value, WriteBatch, WriteOptions, WriteRequest,
    sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv},
};
use std::time::Duration;

const KEYS: u64 = 24;

/// The changes of a write by key.
type Change = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A submitted write, and its known state.
struct Written {
    change: Change,
    request: Option<WriteRequest>,
    is_durable: bool,
    /// `None`: unknown; false: refused.
    visible: Option<bool>,
    durable: bool,
}

/// A submitted read: its keys, the number of writes visible then, and its future.
struct Reading {
    keys: Vec<Vec<u8>>,
    from: usize,
    request: Reads,
}

enum Reads {
    One(Request<Option<Value>>),
    Several(Request<Vec<Option<Value>>>),
    Page(Request<Vec<(Vec<u8>, Vec<u8>)>>),
}

struct Life {
    db: Db,
    requests: Requests,
    rng: Rng,
    writes: Vec<Written>,
    reads: Vec<Reading>,
    flushes: Vec<Request<()>>,
    /// Answers in the order of arrival.
    order: Vec<usize>,
}

fn options(rng: &mut Rng) -> Options {
    let family = FamilyOptions { min_blob_size: 64, ..small_family() };
    Options { family, ..small() }.expert(|expert| expert.async_threads = 1 + rng.below(3) as usize)
}

impl Life {
    fn new(sim: &SimEnv, seed: u64) -> Life {
        let mut rng = Rng::new(seed);
        let db = Db::open_in(sim.env(), DIR, options(&mut rng)).unwrap();
        let depth = [4, 64, 1024][rng.below(3) as usize];
        let requests = db.requests(&RequestOptions { depth, ..Default::default() }).unwrap();
        let (writes, reads, flushes, order) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Life { db, requests, rng, writes, reads, flushes, order }
    }

    fn value(&mut self) -> Vec<u8> {
        // Some get a file of their own, and some fill the memory.
        let len = match self.rng.below(20) {
            0 => self.rng.range(20_000, 60_000),
            1..=6 => self.rng.range(500, 8000),
            _ => self.rng.below(100),
        };
        let stamp = self.writes.len() as u64;
        let mut value = stamp.to_le_bytes().to_vec();
        value.resize(8 + len as usize, stamp as u8);
        value
    }

    fn write(&mut self) {
        let count = if self.rng.one_in(4) { self.rng.below(4) } else { 1 };
        let mut change = Change::new();
        for _ in 0..count {
            let key = key(self.rng.below(KEYS));
            let value = (!self.rng.one_in(4)).then(|| self.value());
            change.push((key, value));
        }
        let is_durable = self.rng.one_in(2);
        let durability = if is_durable { Durability::Durable } else { Durability::Buffered };
        let wait_at_most = match self.rng.below(8) {
            0 => Some(Duration::ZERO),
            1 => Some(Duration::from_micros(self.rng.range(1, 20_000))),
            _ => None,
        };
        let options = WriteOptions { durability: Some(durability), wait_at_most };
        let requests = self.requests.writing(&options);
        let family = self.db.default_column_family();
        let submitted = match &change[..] {
            [(key, Some(value))] => requests.put(family, key.clone(), value.clone()),
            [(key, None)] => requests.delete(family, key.clone()),
            several => {
                let mut batch = WriteBatch::new();
                for (key, value) in several {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    }
                }
                requests.write(batch)
            }
        };
        match submitted {
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
            Ok(request) => {
                // The outcome of a write that may be refused later must be observed.
                let dropped = wait_at_most.is_none() && self.rng.one_in(5);
                let request = (!dropped).then_some(request);
                self.writes.push(Written { change, request, is_durable, visible: None, durable: false });
            }
        }
    }

    fn read(&mut self) {
        let family = self.db.default_column_family();
        let count = self.rng.range(1, 6);
        let keys: Vec<_> = (0..count).map(|_| key(self.rng.below(KEYS))).collect();
        let submitted = match self.rng.below(3) {
            0 => self.requests.multi_get(family, keys.clone()).map(Reads::Several),
            1 => {
                let options = ReadOptions { lower_bound: Some(keys[0].clone()), ..Default::default() };
                self.requests.scan(family, options, 5).map(Reads::Page)
            }
            _ => self.requests.get(family, keys[0].clone()).map(Reads::One),
        };
        match submitted {
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
            Ok(request) => {
                let from =
                    self.writes.iter().rposition(|write| write.visible == Some(true)).map_or(0, |n| n + 1);
                self.reads.push(Reading { keys, from, request });
            }
        }
    }

    /// Takes the known outcomes.
    fn listen(&mut self) {
        for (n, write) in self.writes.iter_mut().enumerate() {
            let Some(request) = &mut write.request else { continue };
            if write.visible.is_none()
                && let Some(outcome) = request.visible().take()
            {
                if let Err(e) = &outcome {
                    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                }
                write.visible = Some(outcome.is_ok());
                self.order.push(n);
            }
            if write.is_durable
                && !write.durable
                && let Some(outcome) = request.durable().take()
            {
                assert_eq!(write.visible, Some(outcome.is_ok()), "visible before it is durable");
                write.durable = outcome.is_ok();
                self.order.push(n + 10_000);
            }
        }
        let mut reads = std::mem::take(&mut self.reads);
        reads.retain_mut(|read| !self.judge(read));
        self.reads = reads;
        self.flushes.retain_mut(|flush| match flush.take() {
            Some(outcome) => {
                outcome.unwrap();
                false
            }
            None => true,
        });
    }

    /// True if the read is answered, with a state after some of the writes.
    fn judge(&self, read: &mut Reading) -> bool {
        let (found, keys): (Vec<Option<Vec<u8>>>, _) = match &mut read.request {
            Reads::One(request) => match request.take() {
                None => return false,
                Some(found) => (vec![found.unwrap().map(Value::into_vec)], &read.keys[..1]),
            },
            Reads::Several(request) => match request.take() {
                None => return false,
                Some(found) => (
                    found.unwrap().into_iter().map(|value| value.map(Value::into_vec)).collect(),
                    &read.keys[..],
                ),
            },
            Reads::Page(request) => match request.take() {
                None => return false,
                Some(page) => {
                    let (page, from) = (page.unwrap(), &read.keys[0]);
                    let fits = |state: &Model| {
                        state
                            .range(from.clone()..)
                            .take(5)
                            .map(|(k, v)| (k.clone(), v.clone()))
                            .eq(page.iter().cloned())
                    };
                    assert!(self.states(read.from).any(|state| fits(&state)), "a page that never was");
                    return true;
                }
            },
        };
        let fits =
            |state: &Model| keys.iter().zip(&found).all(|(key, found)| state.get(key) == found.as_ref());
        assert!(self.states(read.from).any(|state| fits(&state)), "{found:?} never was");
        true
    }

    /// Returns the state after the first `from` writes, and after each later one.
    fn states(&self, from: usize) -> impl Iterator<Item = Model> + '_ {
        let mut state = Model::new();
        (0..=self.writes.len()).filter_map(move |n| {
            if let Some(write) = n.checked_sub(1).map(|n| &self.writes[n])
                && write.visible != Some(false)
            {
                for (key, value) in &write.change {
                    match value {
                        Some(value) => drop(state.insert(key.clone(), value.clone())),
                        None => drop(state.remove(key)),
                    }
                }
            }
            (n >= from).then(|| state.clone())
        })
    }

    fn act(&mut self) {
        match self.rng.below(20) {
            0..=8 => self.write(),
            9..=12 => self.read(),
            13 => {
                if let Ok(flush) = self.requests.flush() {
                    self.flushes.push(flush);
                }
            }
            14..=15 => self.listen(),
            _ => {
                for _ in 0..self.rng.below(12) {
                    if !self.db.run_background_step() {
                        break;
                    }
                }
            }
        }
    }

    /// Returns the length of the prefix of writes that the store must have.
    fn must_have(&self, kind: CrashKind) -> usize {
        let told = |write: &Written| match kind {
            // A write to be durable is promised nothing before that, and an empty buffered batch is
            // not logged.
            CrashKind::ProcessKill => {
                let is_logged = !write.is_durable && !write.change.is_empty();
                write.durable || write.visible == Some(true) && is_logged
            }
            _ => write.durable,
        };
        self.writes.iter().rposition(told).map_or(0, |n| n + 1)
    }
}

/// Runs random operations by this seed, and checks the state after a crash. Returns the order of
/// the answers.
fn run(seed: u64, kind: CrashKind) -> Vec<usize> {
    let sim = SimEnv::new(seed);
    let mut life = Life::new(&sim, seed);
    for _ in 0..life.rng.range(20, 200) {
        life.act();
    }
    life.listen();
    if seed.is_multiple_of(3) {
        // All requests complete, and none is left in flight.
        let requests = life.requests.clone();
        life.db.block_on(std::future::poll_fn(|_| match requests.in_flight() {
            0 => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }));
        life.listen();
        assert!(life.reads.is_empty() && life.flushes.is_empty());
        let stats = life.db.stats();
        assert_eq!((stats.requests, stats.requests_in_flight), (stats.requests_completed, 0));
    }
    let must = life.must_have(kind);
    let after = sim.crash(kind, seed);
    let db = Db::open_in(after.env(), DIR, options(&mut Rng::new(seed))).unwrap();
    let found = contents(&db);
    let fits = life.states(must).any(|state| state == found);
    assert!(fits, "{kind:?}: after {must} of {} writes it never was like this", life.writes.len());
    life.order
}

fn kind(seed: u64) -> CrashKind {
    if seed.is_multiple_of(4) { CrashKind::ProcessKill } else { CrashKind::PowerLoss }
}

#[test]
fn requests_agree_with_a_model_and_survive_crashes() {
    let mut answered = 0;
    for seed in 0..400 {
        let order = std::panic::catch_unwind(|| run(seed, kind(seed)));
        answered += order.unwrap_or_else(|_| panic!("seed {seed}")).len();
    }
    assert!(answered > 10_000, "{answered}");
}

#[test]
fn completion_order_depends_on_the_seed() {
    for seed in 0..5 {
        assert_eq!(run(seed, kind(seed)), run(seed, kind(seed)), "seed {seed}");
    }
}

fn durable(db: &Db) -> Requests {
    db.requests(&RequestOptions { write: WriteOptions::durable(), ..Default::default() }).unwrap()
}

/// The device fails while durable writes are in flight: no failed write is acknowledged, all
/// complete, and the store refuses further ones.
#[test]
fn a_failed_sync_reaches_all_in_flight() {
    let mut failed = 0;
    for seed in 0..100 {
        let sim = SimEnv::new(seed);
        let family = FamilyOptions { min_blob_size: 64, ..small_family() };
        let db = Db::open_in(sim.env(), DIR, Options { family, ..small() }).unwrap();
        let (requests, default) = (durable(&db), db.default_column_family());
        let kinds = [OpKind::WriteDurable, OpKind::SyncData, OpKind::Sync];
        sim.inject(FaultPlan::nth(seed % 5, FaultEffect::Eio).kinds(&kinds));
        let mut puts = Vec::new();
        for i in 0..60 {
            match requests.put(default, key(i), vec![i as u8; 200]) {
                Ok(put) => puts.push(put),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Poisoned, "{e}"),
            }
            if seed % 3 == 0 {
                db.run_background_step();
            }
        }
        let mut last = 0;
        for (i, put) in puts.into_iter().enumerate() {
            match db.block_on(put) {
                Ok(()) => last = i,
                // It may be in the log, or was refused after that.
                Err(e) => {
                    assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{e:?}");
                    failed += 1;
                }
            }
        }
        assert_eq!(requests.in_flight(), 0);
        drop(requests);
        if db.put(b"k", b"v").is_err() {
            assert!(db.close().is_err());
        }
        let db = Db::open_in(sim.crash(CrashKind::PowerLoss, seed).env(), DIR, small()).unwrap();
        for i in 0..last as u64 {
            assert!(db.get(&key(i)).unwrap().is_some(), "seed {seed}: key {i} was lost");
        }
    }
    assert!(failed > 500, "{failed}");
}

/// Threads submit through one handle, one takes completions from its queue, and one closes: under
/// schedules.
#[test]
fn every_request_completes_under_every_schedule() {
    for seed in 0..200 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let options = Options { background_threads: 1, ..small() }
                .expert(|expert| expert.async_threads = 1 + (seed % 3) as usize);
            let db = Db::open_in(env.clone(), DIR, options).unwrap();
            for i in 0..8 {
                db.put(&key(100 + i), &[7; 300]).unwrap();
            }
            db.flush().unwrap();
            let options = RequestOptions { depth: 6, write: WriteOptions::durable(), ..Default::default() };
            let requests = db.requests(&options).unwrap();
            let spawner = env.spawner.clone().unwrap();
            let threads: Vec<_> = (0..2)
                .map(|thread| {
                    let (db, requests) = (db.clone(), requests.clone());
                    let body = Box::new(move || submit(&db, &requests, thread));
                    spawner.spawn("submits", Priority::Foreground, body).unwrap()
                })
                .collect();
            assert!(threads.into_iter().all(|thread| thread.join()), "one of them panicked");
            assert_eq!(requests.in_flight(), 0);
            for i in 0..8 {
                assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&[i as u8; 200][..]));
            }
            // Closes with some in flight.
            let mut queue = requests.queue();
            let default = db.default_column_family();
            for i in 0..3 {
                let (visible, durable) = requests.put(default, key(50 + i), vec![1; 100]).unwrap().split();
                queue.submit(visible, 20 + i);
                queue.submit(durable, i);
                queue.submit(requests.get(default, key(100 + i)).unwrap(), 10 + i);
            }
            let family = default.clone();
            db.close().unwrap();
            let mut done = std::collections::BTreeMap::new();
            for _ in 0..9 {
                let (token, outcome) = queue.wait(None).expect("each is told");
                let closed = |e: &lavastore_lavakv::Error| e.kind() == ErrorKind::Closed;
                assert!(outcome.as_ref().map_or_else(closed, |_| true), "{token}: {outcome:?}");
                done.insert(token, outcome.is_ok());
            }
            assert!(
                (0..3).all(|i| done[&i] == done[&(20 + i)]),
                "what is logged is durable when it is closed"
            );
            for refused in
                [requests.get(&family, key(0)).map(drop), requests.delete(&family, key(0)).map(drop)]
            {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
            }
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
}

/// Puts four keys and reads others, with as many concurrent requests as allowed.
fn submit(db: &Db, requests: &Requests, thread: u64) {
    let default = db.default_column_family();
    let mut queue: RequestQueue = requests.queue();
    let mut over = 0;
    for i in thread * 4..thread * 4 + 4 {
        loop {
            match requests.put(default, key(i), vec![i as u8; 200]) {
                Ok(put) => break queue.submit(put, i),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
            }
            over += u64::from(wait(&mut queue));
        }
        match requests.get(default, key(100 + i)) {
            Ok(get) => queue.submit(get, 100 + i),
            Err(_) => over += 1,
        }
    }
    while wait(&mut queue) {
        over += 1;
    }
    assert!(over == 8 && queue.is_empty(), "{over}");
}

fn wait(queue: &mut RequestQueue) -> bool {
    match queue.wait(None) {
        None => false,
        Some((100.., outcome)) => {
            assert!(matches!(outcome.unwrap(), Outcome::Value(Some(value)) if value.len() == 300));
            true
        }
        Some((_, outcome)) => {
            assert_eq!(outcome.unwrap(), Outcome::Done);
            true
        }
    }
}
