#![allow(clippy::disallowed_methods, reason = "tests stage files and run threads")]

use super::*;
use crate::kernel::{IoEngine, KernelOptions};
use crate::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use crate::{Access, CreateOptions, SyncKind};
use base::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LEN: u64 = 300_000;

/// A directory of the machine that is removed at the end.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Temp {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("lavastore-queue-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Temp(path.canonicalize().unwrap())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

type Files = Vec<(Arc<dyn ReadFile>, Vec<u8>)>;

fn files(env: &Env, dir: &Path, access: Access) -> Files {
    env.fs.create_dir_all(dir).unwrap();
    (0..3)
        .map(|seed| {
            let path = dir.join(format!("{seed}"));
            if !env.fs.exists(&path).unwrap() {
                let mut file = env.fs.create(&path, &CreateOptions::default()).unwrap();
                file.append(&content(seed)).unwrap();
                file.sync(SyncKind::Full).unwrap();
            }
            (env.fs.open(&path, access).unwrap(), content(seed))
        })
        .collect()
}

/// Submits reads, some beyond the end, and compares the results. Returns the tokens in the order of
/// completion.
fn read_all(reads: &mut ReadQueue, files: &Files, rng: &mut Rng, count: u64) -> Vec<u64> {
    let mut asked = Vec::new();
    let mut order = Vec::new();
    while (order.len() as u64) < count {
        while (asked.len() as u64) < count && !rng.one_in(30) {
            let (file, content) = &files[rng.below(3) as usize];
            let len = [1, 100, 1000, 4096, 16_000][rng.below(5) as usize];
            let offset = match rng.below(3) {
                0 => rng.below(LEN / 4096) * 4096,
                _ => rng.below(LEN + 100),
            };
            let token = asked.len() as u64;
            reads.submit(file, offset, len, token);
            asked.push((offset, len, content));
        }
        for Completed { token, read } in reads.complete(rng.one_in(2)) {
            let (offset, len, content) = asked[token as usize];
            let expected = content.get(offset as usize..offset as usize + len);
            match read {
                Ok(bytes) => assert_eq!(Some(&bytes[..]), expected, "{offset} {len}"),
                Err(e) => {
                    assert!(expected.is_none() && e.kind() == ErrorKind::Corruption, "{offset} {len}: {e}");
                }
            }
            order.push(token);
        }
    }
    assert_eq!(reads.in_flight(), 0);
    assert!(reads.complete(true).is_empty(), "nobody waits for nothing");
    let mut all = order.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..count), "each once");
    order
}

fn engines() -> Vec<Env> {
    [IoEngine::Portable, IoEngine::IoUring].map(|engine| Env::kernel_with(KernelOptions { engine })).into()
}

#[test]
fn hundreds_of_reads_in_flight_return_the_file_contents() {
    for env in engines() {
        let dir = Temp::new();
        for access in [Access::Buffered, Access::Direct] {
            let files = files(&env, &dir.0, access);
            let mut reads = ReadQueue::new(&env);
            for seed in 0..6 {
                read_all(&mut reads, &files, &mut Rng::new(seed), 700);
            }
        }
    }
}

#[test]
fn a_wake_up_ends_the_wait_for_completions() {
    for env in engines() {
        let dir = Temp::new();
        let files = files(&env, &dir.0, Access::Buffered);
        let mut reads = ReadQueue::new(&env);
        let waker = reads.waker();
        waker.wake();
        // Before any completion, and before there is a ring.
        reads.submit(&files[0].0, 0, 100, 1);
        while reads.in_flight() > 0 {
            reads.complete(true);
        }
        for round in 0..200 {
            reads.submit(&files[0].0, round, 100, round);
            let waker = waker.clone();
            let thread = std::thread::spawn(move || {
                if round % 3 == 0 {
                    std::thread::sleep(Duration::from_micros(round));
                }
                waker.wake();
            });
            while reads.in_flight() > 0 {
                reads.complete(true);
            }
            thread.join().unwrap();
        }
    }
}

#[test]
fn dropping_a_queue_waits_for_reads_in_flight() {
    for env in engines() {
        let dir = Temp::new();
        let files = files(&env, &dir.0, Access::Direct);
        for asks in [true, false] {
            let mut reads = ReadQueue::new(&env);
            (0..400).for_each(|n| reads.submit(&files[n as usize % 3].0, n * 100, 5000, n));
            if asks {
                reads.complete(true);
            }
        }
    }
}

#[test]
fn simulated_completion_order_depends_on_the_seed() {
    let order = |seed| {
        let sim = SimEnv::new(seed);
        let files = files(&sim.env(), Path::new("/files"), Access::Direct);
        read_all(&mut ReadQueue::new(&sim.env()), &files, &mut Rng::new(7), 100)
    };
    assert_eq!(order(1), order(1), "a function of the seed");
    assert_ne!(order(1), order(2));
    assert!(!order(1).is_sorted());
}

#[test]
fn a_failure_affects_only_its_read() {
    let sim = SimEnv::new(1);
    let files = files(&sim.env(), Path::new("/files"), Access::Direct);
    let mut reads = ReadQueue::new(&sim.env());
    (0..50).for_each(|n| reads.submit(&files[0].0, n, 10, n));
    sim.inject(FaultPlan::nth(20, FaultEffect::Eio).kinds(&[OpKind::Read]));
    let mut failed = 0;
    while reads.in_flight() > 0 {
        for Completed { token, read } in reads.complete(true) {
            match read {
                Ok(bytes) => assert_eq!(&bytes[..], &files[0].1[token as usize..][..10]),
                Err(e) => failed += u32::from(e.kind() == ErrorKind::Io),
            }
        }
    }
    assert_eq!(failed, 1);
}

/// Submits batches with some reads beyond the end, and compares the results.
fn read_batches(reads: &mut ReadQueue, files: &Files, rng: &mut Rng, batches: u64) {
    let (mut asked, mut told) = (Vec::new(), 0);
    for _ in 0..batches {
        let mut batch: Vec<_> = (0..1 + rng.below(80))
            .map(|_| {
                let len = [1, 100, 4096, 40_000][rng.below(4) as usize];
                let beyond = if rng.one_in(40) { 100 } else { 0 };
                (rng.below(3) as usize, rng.below(LEN + beyond - len as u64), len)
            })
            .collect();
        batch.sort_unstable();
        let wanted: Vec<Wanted<'_>> =
            batch.iter().map(|&(n, offset, len)| (&files[n].0, offset, len)).collect();
        assert!(reads.submit_all(&wanted, asked.len() as u64), "nothing paces them");
        asked.extend(batch);
        if rng.one_in(2) {
            told += read_some(reads, files, &asked, rng.one_in(2));
        }
    }
    while reads.in_flight() > 0 {
        told += read_some(reads, files, &asked, true);
    }
    assert_eq!(told, asked.len(), "each once");
}

fn read_some(reads: &mut ReadQueue, files: &Files, asked: &[(usize, u64, usize)], wait: bool) -> usize {
    let done = reads.complete(wait);
    for Completed { token, read } in &done {
        let (n, offset, len) = asked[*token as usize];
        let expected = files[n].1.get(offset as usize..offset as usize + len);
        match read {
            Ok(bytes) => assert_eq!(Some(&bytes[..]), expected, "{offset} {len}"),
            Err(e) => assert!(expected.is_none() && e.kind() == ErrorKind::Corruption, "{offset} {len}: {e}"),
        }
    }
    done.len()
}

#[test]
fn background_batches_return_the_file_contents() {
    for env in engines() {
        let dir = Temp::new();
        for access in [Access::Buffered, Access::Direct] {
            let files = files(&env, &dir.0, access);
            for seed in 0..3 {
                let mut reads = ReadQueue::of_background(&env);
                read_batches(&mut reads, &files, &mut Rng::new(seed), 20);
                assert!(reads.threads.len() <= THREADS_OF_BACKGROUND_MAX);
                // Dropped with reads in flight.
                reads.submit_all(&[(&files[0].0, 5, 100_000), (&files[1].0, 5, 100_000)], 0);
            }
        }
    }
    let sim = SimEnv::new(3);
    let files = files(&sim.env(), Path::new("/files"), Access::Direct);
    read_batches(&mut ReadQueue::of_background(&sim.env()), &files, &mut Rng::new(7), 20);
}

/// In a batch that a thread reads together, exactly the failed reads are reported.
#[test]
fn a_failure_in_a_batch_affects_only_its_reads() {
    let sim = SimEnv::new(1);
    let files = files(&sim.env(), Path::new("/files"), Access::Direct);
    let at = |offset| QueuedRead::new((&files[0].0, offset, 10), offset);
    let done = read_together([1, LEN, 2, LEN - 5, 3].map(at).into(), read_by_file);
    let told: Vec<_> = done.iter().map(|done| (done.token, done.read.is_ok())).collect();
    assert_eq!(told, [(1, true), (LEN, false), (2, true), (LEN - 5, false), (3, true)]);
    assert_eq!(done[2].read.as_deref().unwrap(), &files[0].1[2..12]);
}

/// Short, interrupted and refused calls change nothing; a failing device is reported for the reads
/// that it fails.
#[cfg(feature = "faults")]
#[test]
fn kernel_refusals_are_handled() {
    use crate::kernel::calls::Call;
    use crate::kernel::calls::watch::{Fault, Form, Watch};
    let env = Env::kernel_with(KernelOptions { engine: IoEngine::IoUring });
    if crate::kernel::probe_io_uring().is_err() {
        return println!("skipped: no io_uring here");
    }
    let dir = Temp::new();
    for access in [Access::Buffered, Access::Direct] {
        let files = files(&env, &dir.0, access);
        for form in Form::ALL.into_iter().filter(|form| form.is_transient()) {
            for (nth, sticky) in [(0, false), (3, false), (17, false), (0, true), (5, true)] {
                for only in [Call::RingRead, Call::RingSubmit] {
                    let watch =
                        Watch::new(&dir.0, Some(Fault { nth, form, sticky, only: Some(only) }), false);
                    read_all(&mut ReadQueue::new(&env), &files, &mut Rng::new(nth), 400);
                    drop(watch);
                }
            }
        }
        // The second attempt is a plain read, so the device must fail twice.
        let fault = Fault { nth: 10, form: Form::FAILURE, sticky: true, only: None };
        let watch = Watch::new(&dir.0, Some(fault), false);
        let mut reads = ReadQueue::new(&env);
        (0..100).for_each(|n| reads.submit(&files[1].0, n * 7, 10, n));
        let mut failed = Vec::new();
        while reads.in_flight() > 0 {
            for Completed { token, read } in reads.complete(true) {
                match read {
                    Ok(bytes) => assert_eq!(&bytes[..], &files[1].1[token as usize * 7..][..10]),
                    Err(e) => failed.push(e),
                }
            }
        }
        let told = |e: &base::Error| e.kind() == ErrorKind::Io && e.file().is_some();
        assert!(failed.len() > 50 && failed.iter().all(told), "{failed:?}");
        drop(watch);
        read_all(&mut ReadQueue::new(&env), &files, &mut Rng::new(1), 100);
    }
}

/// Completed bytes are reported to the limiter of their own disk.
#[test]
fn each_batch_is_counted_by_its_own_disk() {
    let sim = SimEnv::new(3);
    let env = sim.env();
    let file = |name: &str| {
        sim.write_file(name, &[7; 100]).unwrap();
        env.fs.open(name.as_ref(), Access::Buffered).unwrap()
    };
    let (one, other) = (file("/one"), file("/other"));
    let mut batches = super::batches::Batches::default();
    batches.add(5..5, one.clone());
    assert!(batches.is_empty());
    batches.add(5..8, one.clone());
    batches.add(8..10, other.clone());
    let done = |tokens: &[u64]| -> Vec<Completed> {
        tokens.iter().map(|&token| Completed { token, read: Ok(vec![0; token as usize].into()) }).collect()
    };
    let mut ended = |done: &[Completed]| -> Vec<(String, u64)> {
        let came = batches.end(done);
        came.iter().map(|(file, bytes)| (file.path().display().to_string(), *bytes)).collect()
    };
    let of = |name: &str, bytes: u64| (name.to_owned(), bytes);
    assert_eq!(ended(&done(&[6])), [of("/one", 6)], "not of that which was submitted last");
    assert_eq!(ended(&done(&[9, 5])), [of("/one", 5), of("/other", 9)]);
    let failed = Completed { token: 7, read: Err(base::Error::new(base::ErrorKind::Io, "a test")) };
    assert_eq!(ended(&[failed]), [of("/one", 0)]);
    assert_eq!(ended(&done(&[7, 8])), [of("/other", 8)], "the first batch has ended");
    assert_eq!(ended(&done(&[8])), []);
    assert!(batches.is_empty());
}
