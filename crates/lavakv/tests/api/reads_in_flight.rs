//! Asynchronous point reads against a model, while files are replaced, closed and evicted, while
//! reads fail, and during a close.

use crate::common::*;
use lavastore_lavakv::io::sim::threads::Plan;
use lavastore_lavakv::io::{Access, Env, Priority, Rng};
use lavastore_lavakv::{
    Db, ErrorKind, FamilyOptions, Options, Request, RequestOptions, Requests, Value,
    sim::{FaultEffect, FaultPlan, OpKind, SimEnv},
};

const KEYS: u64 = 300;

fn options(cache_bytes: usize, open_files_max: usize) -> Options {
    let family = FamilyOptions { min_blob_size: 64, ..small_family() };
    Options { family, cache_bytes, open_files_max, ..small() }
}

/// Short values, separated ones, and sometimes one with a file of its own.
fn value(i: u64, round: u64) -> Vec<u8> {
    let len = match (i + round) % 40 {
        0 => 40_000,
        n if n % 3 == 0 => 10,
        n => 100 + n as usize * 60,
    };
    let mut value = format!("{i:05}/{round:05}/").into_bytes();
    value.resize(value.len() + len, i as u8);
    value
}

fn change(db: &Db, model: &mut Model, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let i = rng.below(KEYS);
        if rng.one_in(6) {
            db.delete(&key(i)).unwrap();
            model.remove(&key(i));
        } else {
            let value = value(i, rng.below(1000));
            db.put(&key(i), &value).unwrap();
            model.insert(key(i), value);
        }
    }
}

pub(crate) fn requests(db: &Db) -> Requests {
    db.requests(&RequestOptions { depth: 5000, ..Default::default() }).unwrap()
}

/// A read of some keys, and their values at its submission.
struct Asked {
    expected: Vec<Option<Vec<u8>>>,
    reads: Reads,
}

enum Reads {
    One(Request<Option<Value>>),
    Several(Request<Vec<Option<Value>>>),
}

impl Asked {
    fn new(db: &Db, requests: &Requests, model: &Model, rng: &mut Rng) -> Asked {
        let count = if rng.one_in(3) { rng.range(1, 40) } else { 1 };
        // Neighboring, duplicate and missing keys.
        let from = rng.below(KEYS);
        let keys: Vec<Vec<u8>> = (0..count).map(|_| key(from + rng.below(count * 2))).collect();
        let expected = keys.iter().map(|key| model.get(key).cloned()).collect();
        let family = db.default_column_family();
        let reads = match &keys[..] {
            [key] if rng.one_in(2) => Reads::One(requests.get(family, key.clone()).unwrap()),
            _ => Reads::Several(requests.multi_get(family, keys).unwrap()),
        };
        Asked { expected, reads }
    }

    /// `None`: not answered yet.
    fn take(&mut self) -> Option<Result<Vec<Option<Value>>, lavastore_lavakv::Error>> {
        match &mut self.reads {
            Reads::One(one) => one.take().map(|answer| answer.map(|value| vec![value])),
            Reads::Several(several) => several.take(),
        }
    }

    /// True if it is answered; the answer is checked.
    fn is_answered(&mut self, may_fail: bool) -> bool {
        match self.take() {
            None => false,
            Some(Ok(found)) => {
                let found: Vec<Option<&[u8]>> = found.iter().map(|value| value.as_deref()).collect();
                let expected: Vec<Option<&[u8]>> = self.expected.iter().map(|v| v.as_deref()).collect();
                assert!(found == expected, "{} values", found.len());
                true
            }
            Some(Err(e)) => {
                assert!(may_fail, "{e}");
                assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Corruption), "{e}");
                true
            }
        }
    }
}

pub(crate) fn go_on(db: &Db, steps: u64) {
    for _ in 0..steps {
        if !db.run_background_step() {
            break;
        }
    }
}

/// Runs until all requests are complete.
pub(crate) fn finish(db: &Db, requests: &Requests) {
    db.block_on(std::future::poll_fn(|_| match requests.in_flight() {
        0 => std::task::Poll::Ready(()),
        _ => std::task::Poll::Pending,
    }));
}

/// Runs random operations. Returns the order of the answers.
fn life(seed: u64) -> Vec<usize> {
    let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
    let cache_bytes = [0, 8 << 10, 1 << 20][rng.below(3) as usize];
    let options = options(cache_bytes, [16, 1000][rng.below(2) as usize]);
    let db = Db::open_in(sim.env(), DIR, options).unwrap();
    let (requests, mut model, mut order) = (requests(&db), Model::new(), Vec::new());
    let mut asked: Vec<(usize, Asked)> = Vec::new();
    // The state for reads at a snapshot.
    let mut held: Option<(Requests, Model)> = None;
    for turn in 0..150 {
        match rng.below(12) {
            0..=1 => change(&db, &mut model, &mut rng, 60),
            2 => db.flush().unwrap(),
            // Removes the files of pending reads.
            3 if rng.one_in(2) => {
                held = Some((requests.reading_at(&db.snapshot()), model.clone()));
            }
            3 => db.compact_range(db.default_column_family(), None, None).unwrap(),
            4..=8 => {
                for _ in 0..rng.below(30) {
                    let now = (&requests, &model);
                    let (requests, model) = match &held {
                        Some((requests, model)) if rng.one_in(3) => (requests, model),
                        _ => now,
                    };
                    asked.push((turn * 100 + asked.len(), Asked::new(&db, requests, model, &mut rng)));
                }
                // Drops some futures.
                if rng.one_in(4) {
                    asked.truncate(asked.len() / 2);
                }
            }
            _ => {
                let steps = rng.below(60);
                go_on(&db, steps);
                asked.retain_mut(|(number, one)| {
                    let answered = one.is_answered(false);
                    order.extend(answered.then_some(*number));
                    !answered
                });
            }
        }
    }
    finish(&db, &requests);
    assert!(asked.iter_mut().all(|(_, one)| one.is_answered(false)), "no more is in flight");
    let stats = db.stats();
    assert_eq!((stats.requests, stats.requests_in_flight), (stats.requests_completed, 0));
    db.close().unwrap();
    order
}

#[test]
fn asynchronous_reads_see_the_state_at_submission() {
    let mut answered = 0;
    for seed in 0..30 {
        answered += life(seed).len();
    }
    assert!(answered > 5_000, "{answered}");
    assert_eq!(life(3), life(3), "a function of the seed");
}

/// A store with tables and value files without cached data, and its contents.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
    let db = Db::open_in(sim.env(), DIR, options(0, 1000)).unwrap();
    let mut model = Model::new();
    change(&db, &mut model, &mut rng, 1500);
    db.flush().unwrap();
    settle(&db);
    db.close().unwrap();
    (sim, model)
}

#[test]
fn a_failed_read_fails_only_the_requests_that_need_it() {
    let (sim, model) = store(1);
    let (mut failed, mut answered) = (0, 0);
    for seed in 0..60 {
        let machine = sim.fork(seed);
        let mut rng = Rng::new(seed);
        let cache_bytes = if seed % 2 == 0 { 0 } else { 1 << 20 };
        let db = Db::open_in(machine.env(), DIR, options(cache_bytes, 1000)).unwrap();
        let requests = requests(&db);
        let effect = [FaultEffect::Eio, FaultEffect::FlippedRead][seed as usize % 2];
        let plan = FaultPlan::nth(rng.below(200), effect).kinds(&[OpKind::Read]);
        machine.inject(if seed % 5 == 0 { plan.sticky() } else { plan });
        let mut asked: Vec<Asked> = (0..120).map(|_| Asked::new(&db, &requests, &model, &mut rng)).collect();
        finish(&db, &requests);
        for one in &mut asked {
            match one.take() {
                Some(Err(e)) => {
                    assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Corruption), "{e}");
                    failed += 1;
                }
                Some(Ok(found)) => {
                    assert!(found.iter().zip(&one.expected).all(|(f, e)| f.as_deref() == e.as_deref()));
                    answered += 1;
                }
                None => panic!("one is not told"),
            }
        }
        // The device failed; the failure leaves no trace.
        machine.clear_faults();
        let mut asked: Vec<Asked> = (0..30).map(|_| Asked::new(&db, &requests, &model, &mut rng)).collect();
        finish(&db, &requests);
        assert!(asked.iter_mut().all(|one| one.is_answered(false)));
        db.close().unwrap();
    }
    assert!(failed > 60 && answered > 4000, "{failed} failed, {answered} answered");
}

/// A poisoned store still reads, and a close completes the requests in flight.
#[test]
fn a_close_completes_every_request_in_flight() {
    let (sim, model) = store(2);
    let (mut closed, mut answered) = (0, 0);
    for seed in 0..40 {
        let machine = sim.fork(seed);
        let mut rng = Rng::new(seed);
        let db = Db::open_in(machine.env(), DIR, options(0, 16)).unwrap();
        let requests = requests(&db);
        let mut asked: Vec<Asked> = (0..80).map(|_| Asked::new(&db, &requests, &model, &mut rng)).collect();
        let steps = rng.below(300);
        go_on(&db, steps);
        db.close().unwrap();
        assert_eq!(requests.in_flight(), 0);
        for one in &mut asked {
            match one.take().expect("each is told") {
                Ok(found) => {
                    assert!(found.iter().zip(&one.expected).all(|(f, e)| f.as_deref() == e.as_deref()));
                    answered += 1;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                    closed += 1;
                }
            }
        }
        drop(requests);
        // No request keeps it open.
        Db::open_in(machine.env(), DIR, options(0, 16)).unwrap().close().unwrap();
    }
    assert!(closed > 400 && answered > 400, "{closed} closed, {answered} answered");
}

/// The same key many times, in one request and in many concurrent ones: the device reads each block
/// once.
#[test]
fn concurrent_reads_of_a_block_share_one_device_read() {
    let (sim, model) = store(3);
    let db = Db::open_in(sim.env(), DIR, options(4 << 20, 1000)).unwrap();
    let uncached = db.requests(&RequestOptions { fill_cache: false, ..Default::default() }).unwrap();
    let family = db.default_column_family();
    let (i, expected) = (0..KEYS)
        .find_map(|i| model.get(&key(i)).filter(|v| v.len() == 17 + 100 + 60).map(|v| (i, v)))
        .or_else(|| {
            (0..KEYS)
                .find_map(|i| model.get(&key(i)).filter(|v| (200..9000).contains(&v.len())).map(|v| (i, v)))
        })
        .unwrap();
    // From here on the indexes are cached, the value is not.
    db.block_on(uncached.get(family, key(i)).unwrap()).unwrap();
    let before = db.stats();
    let several = uncached.multi_get(family, vec![key(i); 50]).unwrap();
    let alone: Vec<_> = (0..50).map(|_| uncached.get(family, key(i)).unwrap()).collect();
    let found = db.block_on(several).unwrap();
    assert!(found.iter().all(|value| value.as_deref() == Some(expected)));
    for get in alone {
        assert_eq!(db.block_on(get).unwrap().as_deref(), Some(&expected[..]));
    }
    let after = db.stats();
    assert_eq!(after.get_value_reads - before.get_value_reads, 1);
    assert_eq!(after.get_device_reads - before.get_device_reads, 1);
    assert_eq!(after.gets - before.gets, 100);
}

/// On the kernel's file system, buffered and direct: hundreds of reads in flight from one thread.
#[test]
fn hundreds_of_reads_run_on_kernel_files() {
    for (access, open_files_max) in [(Access::Buffered, 1000), (Access::Direct, 1000), (Access::Direct, 16)] {
        let dir = TempDir::new("reads-in-flight");
        let options = Options { access, ..options(64 << 10, open_files_max) };
        let db = Db::open_in(Env::kernel(), dir.path(), options).unwrap();
        let (mut model, mut rng) = (Model::new(), Rng::new(9));
        change(&db, &mut model, &mut rng, 3000);
        db.flush().unwrap();
        let requests = requests(&db);
        for round in 0..6 {
            let asked: Vec<Asked> = (0..800).map(|_| Asked::new(&db, &requests, &model, &mut rng)).collect();
            if round == 3 {
                // While reads are in flight.
                db.compact_range(db.default_column_family(), None, None).unwrap();
            }
            for mut one in asked {
                let found = match one.reads {
                    Reads::One(ref mut get) => vec![block_on(get).unwrap()],
                    Reads::Several(ref mut several) => block_on(several).unwrap(),
                };
                assert!(found.iter().zip(&one.expected).all(|(f, e)| f.as_deref() == e.as_deref()));
            }
        }
        // Closes with hundreds in flight.
        let mut asked: Vec<Asked> = (0..800).map(|_| Asked::new(&db, &requests, &model, &mut rng)).collect();
        db.close().unwrap();
        for one in &mut asked {
            let told = one.take().expect("each is told");
            assert!(told.as_ref().map_or_else(|e| e.kind() == ErrorKind::Closed, |_| true), "{told:?}");
        }
    }
}

/// Waits on this thread, which a waker unparks.
fn block_on<F: std::future::Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(out) => return out,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Threads read through one handle, with files that are closed all the time, while another thread
/// writes and compacts; then a close with reads in flight: under schedules.
#[test]
fn every_request_completes_under_every_schedule() {
    for seed in 0..120 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let options = Options { background_threads: 1, ..options([0, 1 << 20][seed as usize % 2], 16) }
                .expert(|expert| expert.async_threads = 1 + (seed % 2) as usize);
            let db = Db::open_in(env.clone(), DIR, options).unwrap();
            for i in 0..12 {
                db.put(&key(i), &value(i, 0)).unwrap();
            }
            db.flush().unwrap();
            let requests = requests(&db);
            let spawner = env.spawner.clone().unwrap();
            let threads: Vec<_> = (0..2)
                .map(|thread| {
                    let (db, requests) = (db.clone(), requests.clone());
                    let body = Box::new(move || read_all(&db, &requests, thread));
                    spawner.spawn("reads", Priority::Foreground, body).unwrap()
                })
                .collect();
            if seed % 3 == 0 {
                db.put(&key(99), b"v").unwrap();
                db.compact_range(db.default_column_family(), None, None).unwrap();
            }
            assert!(threads.into_iter().all(|thread| thread.join()), "one of them panicked");
            assert_eq!(requests.in_flight(), 0);
            // Closes with some in flight.
            let mut queue = requests.queue();
            for i in 0..4 {
                queue.submit(requests.get(db.default_column_family(), key(i)).unwrap(), i);
            }
            db.close().unwrap();
            for _ in 0..4 {
                let (token, outcome) = queue.wait(None).expect("each is told");
                let closed = |e: &lavastore_lavakv::Error| e.kind() == ErrorKind::Closed;
                assert!(outcome.as_ref().map_or_else(closed, |_| true), "{token}: {outcome:?}");
            }
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
}

fn read_all(db: &Db, requests: &Requests, thread: u64) {
    use lavastore_lavakv::Outcome;
    let (mut queue, family) = (requests.queue(), db.default_column_family());
    for i in 0..4 {
        queue.submit(requests.get(family, key(i * 2 + thread)).unwrap(), i);
    }
    queue.submit(requests.multi_get(family, (0..12).map(key).collect()).unwrap(), 100);
    while let Some((token, outcome)) = queue.wait(None) {
        match (token, outcome.unwrap()) {
            (100, Outcome::Values(values)) => {
                let expected = (0..12).map(|i| Some(value(i, 0)));
                assert!(values.into_iter().map(|v| v.map(Value::into_vec)).eq(expected));
            }
            (i, Outcome::Value(Some(found))) => assert!(*found == value(i * 2 + thread, 0)[..]),
            other => panic!("{other:?}"),
        }
    }
}

/// Damage is reported for each key with the same error as by a blocking get.
#[test]
fn asynchronous_reads_report_damage_like_get() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(5);
    let mut told = [0, 0];
    for (nth, name) in [files_like(&sim, ".ksst"), files_like(&sim, ".vsst")].concat().iter().enumerate() {
        let len = sim.read_file(path(name)).unwrap().len() as u64;
        for round in 0..3 {
            let damaged = sim.fork(round);
            let mut rng = Rng::new(nth as u64 * 100 + round);
            // Also in the footer and close to it.
            let at = if round < 1 { len - 1 - rng.below(300) } else { rng.below(len) };
            damaged.flip_bit(path(name), at, rng.below(8) as u32).unwrap();
            // In a separate store each, so that neither profits from the other's reads.
            let open = |seed| Db::open_in(damaged.fork(seed).env(), DIR, options(64 << 10, 1000));
            let (Ok(one), Ok(other)) = (open(1), open(2)) else { continue };
            let requests = requests(&one);
            let gets: Vec<_> =
                (0..KEYS).map(|i| requests.get(one.default_column_family(), key(i)).unwrap()).collect();
            for (i, get) in (0..KEYS).zip(gets) {
                match (one.block_on(get), other.get(&key(i))) {
                    (Ok(found), Ok(alone)) => {
                        assert_eq!(found.as_deref(), model.get(&key(i)).map(|value| &value[..]));
                        assert_eq!(found.as_deref(), alone.as_deref());
                    }
                    (Err(e), Err(alone)) => {
                        assert_eq!(e.to_string(), alone.to_string());
                        told[usize::from(name.ends_with(".vsst"))] += 1;
                    }
                    (found, alone) => panic!("flip at {at} of {name}: {found:?}, alone {alone:?}"),
                }
            }
        }
    }
    assert!(told.iter().all(|&n| n > 10), "damage was met in tables and in value files: {told:?}");
}

/// Many keys answered from memory do not keep the submitting call long.
#[test]
fn large_multi_gets_from_memory_do_not_block_submission() {
    let sim = SimEnv::new(7);
    let db = Db::open_in(sim.env(), DIR, options(1 << 20, 1000)).unwrap();
    for i in 0..KEYS {
        db.put(&key(i), b"v").unwrap();
    }
    let requests = requests(&db);
    for count in [0, 1, 200, 256, 257, 2000] {
        let keys: Vec<Vec<u8>> = (0..count).map(|i| key(i % (KEYS + 100) + i / 400 * 1000)).collect();
        let expected = keys.iter().map(|key| db.get(key).unwrap().map(Value::into_vec)).collect::<Vec<_>>();
        let mut several = requests.multi_get(db.default_column_family(), keys).unwrap();
        let known = several.take();
        assert_eq!(known.is_some(), count <= 256, "{count}");
        let found = known.unwrap_or_else(|| db.block_on(several)).unwrap();
        assert!(found.into_iter().map(|value| value.map(Value::into_vec)).eq(expected));
    }
}

#[test]
fn a_snapshot_of_another_store_is_refused() {
    let (db, other) = (SimEnv::new(1), SimEnv::new(2));
    let [db, other] = [db, other].map(|sim| Db::open_in(sim.env(), DIR, small()).unwrap());
    let requests = requests(&db).reading_at(&other.snapshot());
    let family = db.default_column_family();
    let refused = [
        requests.get(family, key(1)).map(drop).unwrap_err(),
        requests.multi_get(family, vec![key(1)]).map(drop).unwrap_err(),
        requests.scan(family, Default::default(), 1).map(drop).unwrap_err(),
    ];
    assert!(refused.iter().all(|e| e.kind() == ErrorKind::InvalidArgument), "{refused:?}");
    assert_eq!(requests.in_flight(), 0);
}
