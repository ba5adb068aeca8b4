//! Row `threads`: real threads on the real disk, for races that a single-threaded simulation cannot
//! show.
//!
//! Every key belongs to one writer, which writes ascending versions to two families in one batch.
//! The writer publishes the version as *begun* before the write, and as *done* after it. A read
//! must return a version between the one done before it and the one begun after it. No reader may
//! see a version decrease. In a snapshot both families are equal. Meanwhile a thread flushes,
//! compacts and takes checkpoints. At the end everything is compared, also after a reopen.
//!
//! A variant runs on LavaFS in an image file.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::driver::scan;
use crate::files::check_at_rest;
use crate::place::Place;
use crate::plan::{self, pick};
use crate::state::Entries;
use crate::tally;
use io::Rng;
use lavastore::{Db, Durability, Env, Family, Options, Snapshot, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const RUN_NS: u64 = 1_500_000_000;
const WRITERS: usize = 3;
const KEYS: usize = 200;
/// One in this many versions of a key is a deletion.
const DELETE_EVERY: u64 = 7;

/// The image also holds checkpoints and files that are not collected yet.
const IMAGE_LEN: u64 = 2 << 30;

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    on(context, Place { dir: context.dir.join(format!("threads-{seed}")), on_lavafs: false, seed }, seed)
}

pub(crate) fn case_on_lavafs(context: &Context, seed: u64) -> Outcome {
    on(
        context,
        Place { dir: context.dir.join(format!("threads-on-lavafs-{seed}")), on_lavafs: true, seed },
        seed,
    )
}

fn on(context: &Context, place: Place, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let made = place.make(IMAGE_LEN).and_then(|()| place.open());
    let ran =
        made.and_then(|(env, dir)| run(&env, &dir, seed, &mut outcome)).and_then(|()| place.check(false));
    if ran.is_ok() {
        let _ = std::fs::remove_dir_all(&place.dir);
        let _ = std::fs::remove_dir(&context.dir);
    }
    outcome.take(ran);
    outcome
}

/// State shared by the threads of a run.
struct SharedState {
    db: Db,
    mirror: Family,
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    stop: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    padding: u64,
}

fn run(env: &Env, dir: &Path, seed: u64, outcome: &mut Outcome) -> Check {
    let mut rng = Rng::new(seed ^ 0x0074_6872_6561_6473);
    let options = options(&mut rng);
    let db = Db::open_in(env, dir.join("db"), &options).doing(|| "open".into())?;
    let mirror = db.create_family("mirror", &plan::family_options(&mut rng)).doing(|| "create".into())?;
    let counters = || (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let shared = SharedState {
        db,
        mirror,
        begun: counters(),
        done: counters(),
        stop: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        padding: pick(&mut rng, &[0, 100, 1000, 4000]),
    };
    let clock = Env::kernel().clock;
    let results: Vec<Check> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut start = |body: Box<dyn FnOnce(&SharedState) -> Check + Send>| {
            let shared = &shared;
            threads.push(scope.spawn(move || {
                let result = guarded(|| body(shared)).and_then(|r| r);
                if result.is_err() {
                    shared.stop.store(true, SeqCst);
                }
                result
            }));
        };
        for writer in 0..WRITERS {
            let rng = rng.fork();
            start(Box::new(move |shared| write(shared, writer, rng)));
        }
        for _ in 0..2 {
            let (one, two) = (rng.fork(), rng.fork());
            start(Box::new(move |shared| read(shared, one)));
            start(Box::new(move |shared| scan_snapshots(shared, two)));
        }
        let (upkeep_rng, copies) = (rng.fork(), dir.to_owned());
        start(Box::new(move |shared| upkeep(shared, upkeep_rng, env, &copies)));
        let end_ns = clock.now_ns() + RUN_NS;
        while clock.now_ns() < end_ns && !shared.stop.load(SeqCst) {
            clock.sleep_ns(10_000_000);
        }
        shared.stop.store(true, SeqCst);
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    results.into_iter().collect::<Check<Vec<()>>>()?;
    outcome.note("writes", shared.writes.load(SeqCst));
    outcome.note("reads", shared.reads.load(SeqCst));
    check_end(shared, env, &dir.join("db"), &mut rng)
}

fn options(rng: &mut Rng) -> Options {
    let memtable_bytes = pick(rng, &[32 << 10, 256 << 10, 1 << 20]);
    let background_threads = pick(rng, &[1, 2, 4]);
    let rest = plan::roomy(plan::options(rng));
    let options = Options { memtable_bytes, background_threads, io_budget: 0, ..rest };
    Options { memory_bytes: memtable_bytes * 3 + options.waiting_log_bytes(), ..options }
}

impl SharedState {
    fn running(&self) -> bool {
        !self.stop.load(SeqCst)
    }
}

fn key(slot: usize) -> Vec<u8> {
    format!("{:03}/{}", slot % KEYS, slot / KEYS).into_bytes()
}

fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(DELETE_EVERY)
}

fn value(version: u64, padding: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(8 + (version.wrapping_mul(31) % (padding + 1)) as usize, version as u8);
    value
}

fn write(shared: &SharedState, writer: usize, mut rng: Rng) -> Check {
    let mut batch = WriteBatch::new();
    while shared.running() {
        batch.clear();
        let slots: Vec<usize> = {
            let mut slots: Vec<usize> =
                (0..rng.range(1, 4)).map(|_| writer * KEYS + rng.below(KEYS as u64) as usize).collect();
            slots.sort_unstable();
            slots.dedup();
            slots
        };
        for &slot in &slots {
            let version = shared.begun[slot].fetch_add(1, SeqCst) + 1;
            let (key, family) = (key(slot), shared.db.default_family());
            if is_deletion(version) {
                batch.family(family).delete(&key);
                batch.family(&shared.mirror).delete(&key);
            } else {
                batch.family(family).put(&key, value(version, shared.padding));
                batch.family(&shared.mirror).put(&key, value(version, shared.padding));
            }
        }
        let durability = match rng.below(50) {
            0 => Durability::Durable,
            1 => Durability::Volatile,
            _ => Durability::Buffered,
        };
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        shared.db.writing(&options).write(&batch).doing(|| "write".into())?;
        for &slot in &slots {
            shared.done[slot].fetch_add(1, SeqCst);
        }
        shared.writes.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// Returns the version of a read after checking its bounds; for a deletion, the lowest possible
/// one.
fn version_of(found: Option<&[u8]>, done: u64, begun: u64, slot: usize) -> Check<u64> {
    let Some(bytes) = found else {
        let deleted = (done..=begun).find(|v| *v == 0 || is_deletion(*v));
        return deleted.ok_or_else(|| format!("key {slot}: nothing, between versions {done} and {begun}"));
    };
    let version = bytes.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or("a value of no version")?;
    ensure!((done..=begun).contains(&version), "key {slot}: version {version}, not {done} to {begun}");
    Ok(version)
}

fn read(shared: &SharedState, mut rng: Rng) -> Check {
    let mut seen = vec![0u64; WRITERS * KEYS];
    while shared.running() {
        let slot = rng.below(seen.len() as u64) as usize;
        let done = shared.done[slot].load(SeqCst);
        let family = if rng.one_in(2) { &shared.mirror } else { shared.db.default_family() };
        let found = family.get(key(slot)).doing(|| "get".into())?;
        let begun = shared.begun[slot].load(SeqCst);
        let version = version_of(found.as_deref(), done.max(seen[slot]), begun, slot)?;
        if let Some(bytes) = &found {
            ensure!(**bytes == *value(version, shared.padding), "key {slot}: value of another version");
        }
        seen[slot] = seen[slot].max(version);
        shared.reads.fetch_add(1, SeqCst);
    }
    Ok(())
}

fn contents(family: &Family, snapshot: &Snapshot, backwards: bool) -> Check<Entries> {
    let mut iterator = snapshot.family(family).iter().cursor().doing(|| "iter".into())?;
    let mut entries = Entries::new();
    if backwards { iterator.seek_to_last() } else { iterator.seek_to_first() }.doing(|| "seek".into())?;
    while iterator.valid() {
        entries.insert(iterator.key().to_vec(), iterator.value().doing(|| "value".into())?.to_vec());
        if backwards { iterator.prev() } else { iterator.next() }.doing(|| "step".into())?;
    }
    Ok(entries)
}

fn scan_snapshots(shared: &SharedState, mut rng: Rng) -> Check {
    while shared.running() {
        let done: Vec<u64> = shared.done.iter().map(|v| v.load(SeqCst)).collect();
        let snapshot = shared.db.snapshot();
        let begun: Vec<u64> = shared.begun.iter().map(|v| v.load(SeqCst)).collect();
        let (one, two) = (rng.one_in(2), rng.one_in(2));
        let default = contents(shared.db.default_family(), &snapshot, one)?;
        let mirror = contents(&shared.mirror, &snapshot, two)?;
        ensure!(
            default == mirror,
            "the families differ at a snapshot: {} and {} keys",
            default.len(),
            mirror.len()
        );
        for (slot, (done, begun)) in done.into_iter().zip(begun).enumerate() {
            version_of(default.get(&key(slot)).map(Vec::as_slice), done, begun, slot)?;
        }
        shared.reads.fetch_add(default.len() as u64, SeqCst);
    }
    Ok(())
}

fn upkeep(shared: &SharedState, mut rng: Rng, env: &Env, dir: &Path) -> Check {
    let clock = Env::kernel().clock;
    let mut checkpoints = 0;
    while shared.running() {
        clock.sleep_ns(rng.below(30_000_000));
        match rng.below(6) {
            0..=2 => shared.db.flush().doing(|| "flush".into())?,
            3 => {
                let family = if rng.one_in(2) { &shared.mirror } else { shared.db.default_family() };
                let start = key(rng.below((WRITERS * KEYS) as u64) as usize);
                family.compact_range(&start..).doing(|| "compact_range".into())?;
            }
            4 if checkpoints < 2 => {
                let copy = dir.join(format!("checkpoint{checkpoints}"));
                checkpoints += 1;
                shared.db.checkpoint(&copy).doing(|| "checkpoint".into())?;
                let found = scan(
                    &Db::open_in(env, &copy, &Options::default()).doing(|| "open of a checkpoint".into())?,
                )?;
                ensure!(found[&0] == found[&shared.mirror.id()], "the families of a checkpoint differ");
            }
            _ => {
                shared.db.space().doing(|| "space".into())?;
            }
        }
    }
    Ok(())
}

/// Checks the final state without writers, also after a reopen.
fn check_end(shared: SharedState, env: &Env, dir: &Path, rng: &mut Rng) -> Check {
    let mut expected = Entries::new();
    for (slot, version) in shared.done.iter().map(|v| v.load(SeqCst)).enumerate() {
        if version > 0 && !is_deletion(version) {
            expected.insert(key(slot), value(version, shared.padding));
        }
    }
    let (padding, mirror) = (shared.padding, shared.mirror.id());
    let compare = |db: &Db, when: &str| -> Check {
        let found = scan(db)?;
        for family in [0, mirror] {
            crate::state::difference(&expected, &found[&family])
                .map_err(|why| format!("{when}, family {family}, padding {padding}: {why}"))?;
        }
        let report = db.verify().doing(|| "verify".into())?;
        ensure!(report.errors.is_empty(), "{when}, verify: {}", report.errors[0]);
        Ok(())
    };
    compare(&shared.db, "at the end")?;
    check_at_rest(&shared.db, env, dir, false)?;
    compare(&shared.db, "at rest")?;
    tally::add(&shared.db);
    let SharedState { db, mirror, .. } = shared;
    drop(mirror);
    db.close().doing(|| "close".into())?;
    let db = Db::open_in(env, dir, &options(rng)).doing(|| "reopen".into())?;
    compare(&db, "after a reopen")
}
