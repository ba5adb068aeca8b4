//! Windows under schedules: with read-ahead threads, on files with unreadable parts, the results
//! are those without threads, for any timing and any end of the walk; and no thread is left behind.

use super::*;
use base::Error;
use base::sync::{Mutex, lock, rank};
use io::sim::SimEnv;
use io::sim::threads::{Plan, Stuck, with_few};
use io::{Access, Env, Rng};
use std::path::Path;
use std::thread::ThreadId;

/// Seeds of a regular run.
const SEEDS: u64 = 2_000;
const EIO: i32 = 5;
const EACCES: i32 = 13;

/// A file that records how far it was read, with unreadable parts, each with its error.
#[derive(Debug)]
pub(crate) struct Flawed {
    pub file: Arc<dyn InPlaceFile>,
    pub bad: Vec<(Range<u64>, i32)>,
    /// A read on any other thread panics.
    pub reads_for: Option<ThreadId>,
    pub reached: Mutex<u64, rank::Noted>,
}

impl Flawed {
    pub fn new(file: Arc<dyn InPlaceFile>, bad: Vec<(Range<u64>, i32)>) -> Flawed {
        Flawed { file, bad, reads_for: None, reached: Mutex::default() }
    }

    /// Returns a file with random unreadable parts, usually none.
    pub fn any(file: Arc<dyn InPlaceFile>, rng: &mut Rng) -> Flawed {
        let len = file.len();
        let part = |rng: &mut Rng| {
            let start = rng.below(len) / 512 * 512;
            let end = start + [512, PAGE as u64, 3 * READ_LEN as u64][rng.below(3) as usize];
            (start..end, [EIO, EIO, EACCES][rng.below(3) as usize])
        };
        let count = [0, 0, 1, 3][rng.below(4) as usize];
        let bad = (0..count).map(|_| part(rng)).collect();
        Flawed::new(file, bad)
    }
}

impl InPlaceFile for Flawed {
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn block_len(&self) -> usize {
        self.file.block_len()
    }
    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_at(data, offset)
    }
    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_durable(data, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        assert!(self.reads_for.is_none_or(|only| only == std::thread::current().id()), "on purpose");
        let end = offset + buf.len() as u64;
        let mut reached = lock(&self.reached);
        *reached = end.max(*reached);
        drop(reached);
        let bad = self.bad.iter().find(|(bad, _)| bad.start < end && offset < bad.end);
        match bad {
            Some((_, why)) => {
                Err(Error::from_io("read", self.path(), std::io::Error::from_raw_os_error(*why)))
            }
            None => self.file.read_at(buf, offset),
        }
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Creates a file of `pages` pages, no two alike.
fn filled(env: &Env, rng: &mut Rng, pages: u64) -> Arc<dyn InPlaceFile> {
    let file = env.fs.create_in_place("/file".as_ref(), pages * PAGE as u64, Access::Direct).unwrap();
    let mut buf = AlignedBuf::zeroed((pages * PAGE as u64) as usize);
    rng.fill(buf.as_mut_slice());
    file.write_at(&buf, 0).unwrap();
    file
}

/// Results of a walk: for each offset the bytes and the error.
fn seen(mut walk: Walk<'_>, len: u64, mut rng: Rng, env: &Env) -> Vec<(u64, Vec<u8>, Option<String>)> {
    let stops_at = if rng.one_in(3) { rng.below(len) } else { len };
    let sleeps = rng.one_in(2);
    let mut seen = Vec::new();
    let mut offset = 0;
    while offset < stops_at {
        let failed = walk.move_to(offset).err().map(|e| format!("{e:?}"));
        seen.push((offset, walk.page(offset).to_vec(), failed));
        offset += 512 * rng.range(1, 9);
        if sleeps && rng.one_in(4) {
            env.clock.sleep_ns(rng.below(1_000_000));
        }
    }
    seen
}

/// Compares walks with threads and without, over the same files. Returns true if a part was
/// unreadable.
fn compared(seed: u64) -> Result<bool, Stuck> {
    let sim = SimEnv::new(seed);
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let mut rng = Rng::new(seed);
        let (threads, unit) = (rng.below(4), [512, PAGE][rng.below(2) as usize]);
        let (few, mut failed) = (with_few(env, threads), false);
        let mut readers = Readers::new(&few);
        for _ in 0..rng.range(1, 4) {
            let pages = rng.range(1, 40);
            let file = Arc::new(Flawed::any(filled(env, &mut rng, pages), &mut rng)) as Arc<dyn InPlaceFile>;
            let (len, look) = (file.len(), rng.fork());
            let expected = seen(Walk::new(&*file, unit, 0..len), len, look.clone(), env);
            let walk = Walk::ahead(&mut readers, &file, unit, 0..len);
            let started = walk.ahead.is_some();
            assert_eq!(started, threads > 0 && walk.windows.count() >= ahead::WINDOWS_MAX, "seed {seed}");
            let found = seen(walk, len, look, env);
            assert!(found == expected, "seed {seed}: {pages} pages, {threads} threads");
            assert_eq!(Arc::strong_count(&file), 1, "seed {seed}: a thread has the file still");
            failed |= started && expected.iter().any(|(.., failed)| failed.is_some());
            env.fs.remove("/file".as_ref()).unwrap();
        }
        failed
    });
    let ran = ran?;
    // One walking thread, and two that read ahead.
    assert!(ran.threads <= 1 + ahead::READERS, "seed {seed}: {} threads", ran.threads);
    Ok(ran.value)
}

#[test]
fn windows_read_ahead_equal_synchronous_reads() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let mut failed = 0;
    for seed in first.unwrap_or(1)..first.unwrap_or(1) + count.unwrap_or(SEEDS) {
        failed += u64::from(compared(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
    assert!(count.is_some() || failed > SEEDS / 20, "{failed} files could not be read in part");
}

/// However long the walk stays in a window, the number of windows read ahead is bounded. Usually
/// the bound is reached, since each window taken makes room for another.
#[test]
fn read_ahead_windows_are_bounded() {
    for seed in 1..=100 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let inner = filled(env, &mut Rng::new(seed), 60);
            let flawed = Arc::new(Flawed::new(inner, Vec::new()));
            let file = flawed.clone() as Arc<dyn InPlaceFile>;
            let mut readers = Readers::new(env);
            let mut walk = Walk::ahead(&mut readers, &file, PAGE, 0..file.len());
            let mut filled = 0;
            for window in 0..walk.windows.count() {
                walk.move_to(window * STEP).unwrap();
                env.clock.sleep_ns(10_000_000);
                let last = (window + ahead::WINDOWS_MAX).min(walk.windows.count() - 1);
                let end = (walk.windows.start_of(last) + READ_LEN as u64).min(file.len());
                let reached = *lock(&flawed.reached);
                assert!(reached <= end, "seed {seed}, window {window}");
                filled += u64::from(reached == end);
            }
            filled * 2 > walk.windows.count()
        });
        assert!(ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value);
    }
}

/// A thread that panics leaves its window to the walk, and no waiter behind.
#[test]
fn windows_of_a_panicking_thread_are_read_by_the_walk() {
    let sim = SimEnv::new(1);
    let env = Env { spawner: Env::kernel().spawner, ..sim.env() };
    let inner = filled(&env, &mut Rng::new(1), 40);
    let reads_for = Some(std::thread::current().id());
    let file = Arc::new(Flawed { reads_for, ..Flawed::new(inner.clone(), Vec::new()) });
    let file = file as Arc<dyn InPlaceFile>;
    let mut readers = Readers::new(&env);
    let mut walk = Walk::ahead(&mut readers, &file, PAGE, 0..file.len());
    assert!(walk.ahead.is_some());
    for offset in (0..file.len()).step_by(PAGE) {
        let mut expected = [0; PAGE];
        inner.read_at(&mut expected, offset).unwrap();
        walk.move_to(offset).unwrap();
        assert!(walk.page(offset) == expected, "{offset}");
    }
}
