//! Row `log-kill`: a process whose threads append to a store of logs on the real disk is killed
//! with SIGKILL repeatedly.
//!
//! Each thread of the child owns a log and continues from its last record. It makes durable appends
//! derived from its seed, one record or a batch, with trims behind. It reports each acknowledgement
//! through a pipe, and a trim before making it. The parent kills the child at a random moment,
//! opens the store, and reads. All acknowledged and untrimmed records are there, and otherwise at
//! most the appends in flight, batches as a whole. Then the next child continues. Meanwhile the
//! child's background seals and collects log groups.
//!
//! A variant runs on LavaFS in an image file, where `fsck` must find no damage before the mount and
//! after the end.

use super::{options, seen};
use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::kill::{killed, report};
use crate::place::Place;
use io::Rng;
use lavalog::{Durability, LogBatch, LogHandle, LogStore, Lsn};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Hidden row: the child.
pub(crate) const CHILD: &str = "log-kill-child";
/// The same on LavaFS.
pub(crate) const CHILD_ON_LAVAFS: &str = "log-kill-child-on-lavafs";

const IMAGE_LEN: u64 = 96 << 20;
/// Kills per store.
const ROUNDS: u64 = 5;
/// Maximum lifetime of a child in nanoseconds, long enough to fill some log groups.
const LIFE_NS_MAX: u64 = 150_000_000;
/// Number of appending threads, each with its own log.
const THREADS: u64 = 4;
/// Maximum number of records per batch.
const BATCH_MAX: u64 = 3;

/// A report of the child in one number: kind, thread, and an LSN or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildReport {
    /// All records up to this LSN are durable.
    Durable(u64, Lsn),
    /// All records below this LSN are about to be trimmed.
    Trims(u64, Lsn),
    /// Number of groups sealed since the child began.
    Sealed(u64),
    /// Number of collected files.
    Collected(u64),
}

const NUMBER_BITS: u32 = 48;

impl ChildReport {
    fn encode(self) -> u64 {
        let (kind, thread, number) = match self {
            ChildReport::Durable(thread, lsn) => (1, thread, lsn),
            ChildReport::Trims(thread, lsn) => (2, thread, lsn),
            ChildReport::Sealed(count) => (3, 0, count),
            ChildReport::Collected(count) => (4, 0, count),
        };
        (kind << 8 | thread) << NUMBER_BITS | number
    }

    /// `None`: the store is open.
    fn decode(word: u64) -> Option<ChildReport> {
        let (number, head) = (word & ((1 << NUMBER_BITS) - 1), word >> NUMBER_BITS);
        match (head >> 8, head & 0xff) {
            (1, thread) => Some(ChildReport::Durable(thread, number)),
            (2, thread) => Some(ChildReport::Trims(thread, number)),
            (3, _) => Some(ChildReport::Sealed(number)),
            (4, _) => Some(ChildReport::Collected(number)),
            _ => None,
        }
    }
}

/// Expected state of a thread's log.
#[derive(Clone, Copy, Debug, Default)]
struct ExpectedLog {
    /// The last record that must be there.
    durable: Lsn,
    /// The highest trim that began.
    trims: Lsn,
}

fn name(thread: u64) -> String {
    format!("thread {thread}")
}

/// Returns a record, whose length depends on its number.
fn record(seed: u64, thread: u64, lsn: Lsn) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ thread << 56 ^ lsn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let len = if rng.one_in(10) { rng.below(60_000) } else { rng.below(3_000) };
    let mut out = vec![0; len as usize];
    rng.fill(&mut out);
    out
}

/// Returns the number of records in the batch that begins with a record.
fn batch_len(seed: u64, thread: u64, first: Lsn) -> u64 {
    let mut rng = Rng::new(seed ^ 0x6261_7463_6800 ^ thread << 56 ^ first);
    if rng.one_in(3) { rng.range(1, BATCH_MAX + 1) } else { 1 }
}

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    kill(context, Place { dir: context.dir.join(format!("log-kill-{seed}")), on_lavafs: false, seed }, seed)
}

pub(crate) fn case_on_lavafs(context: &Context, seed: u64) -> Outcome {
    kill(
        context,
        Place { dir: context.dir.join(format!("log-kill-on-lavafs-{seed}")), on_lavafs: true, seed },
        seed,
    )
}

fn kill(context: &Context, place: Place, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut run = LogKillRun {
        known: [ExpectedLog::default(); THREADS as usize],
        rng: Rng::new(seed),
        counts: BTreeMap::new(),
    };
    let made = place.make(IMAGE_LEN);
    if made.is_err() {
        outcome.take(made);
        return outcome;
    }
    for round in 0..ROUNDS {
        let checked = run.round(&place, seed, round).map_err(|why| format!("round {round}: {why}"));
        let failed = checked.is_err();
        outcome.take(checked);
        if failed {
            // The store stays for inspection.
            return outcome;
        }
    }
    outcome.notes.extend(run.counts);
    outcome.note(seen::ACKNOWLEDGED, run.known.iter().map(|known| known.durable).sum());
    let _ = std::fs::remove_dir_all(&place.dir);
    let _ = std::fs::remove_dir(&context.dir);
    outcome
}

struct LogKillRun {
    known: [ExpectedLog; THREADS as usize],
    rng: Rng,
    counts: BTreeMap<&'static str, u64>,
}

impl LogKillRun {
    fn round(&mut self, place: &Place, seed: u64, round: u64) -> Check {
        let row = if place.on_lavafs { CHILD_ON_LAVAFS } else { CHILD };
        let reports = killed(row, place, (seed, round), LIFE_NS_MAX, &mut self.rng)?;
        let (mut sealed, mut collected) = (0, 0);
        for report in reports.into_iter().filter_map(ChildReport::decode) {
            match report {
                ChildReport::Durable(thread, lsn) => self.of(thread)?.durable = lsn,
                ChildReport::Trims(thread, lsn) => self.of(thread)?.trims = lsn,
                ChildReport::Sealed(count) => sealed = count,
                ChildReport::Collected(count) => collected = count,
            }
        }
        *self.counts.entry(seen::SEALED).or_default() += sealed;
        *self.counts.entry(seen::COLLECTED).or_default() += collected;
        place.check(true).map_err(|why| format!("after the kill: {why}"))?;
        self.look(place, seed)?;
        place.check(false).map_err(|why| format!("after a clean end: {why}"))
    }

    fn of(&mut self, thread: u64) -> Check<&mut ExpectedLog> {
        self.known.get_mut(thread as usize).ok_or_else(|| format!("a report of thread {thread}"))
    }

    /// Opens the store and reads everything.
    fn look(&mut self, place: &Place, seed: u64) -> Check {
        let (env, dir) = place.open()?;
        let store = LogStore::open(&env, &dir, &options(&mut self.rng)).doing(|| "refused to open".into())?;
        for rest in [false, true] {
            if rest {
                store.wait_idle().doing(|| "settle".into())?;
            }
            for thread in 0..THREADS {
                let known = self.of(thread)?;
                check(&store, seed, thread, known)
                    .map_err(|why| format!("{}, {known:?}, at rest: {rest}: {why}", name(thread)))?;
            }
        }
        store.close().doing(|| "close".into())
    }
}

/// Checks that the log of a thread has its acknowledged records, and the appends in flight as a
/// whole or not at all.
fn check(store: &LogStore, seed: u64, thread: u64, known: &mut ExpectedLog) -> Check {
    let log = match store.open_log(&name(thread)) {
        Err(e) if known.durable == 0 => {
            return if e.kind() == lavastore::ErrorKind::NotFound { Ok(()) } else { Err(e.to_string()) };
        }
        log => log.doing(|| "open".into())?,
    };
    let mut next = None;
    for found in log.scan(0) {
        let (lsn, bytes) = found.doing(|| "scan".into())?;
        ensure!(next.is_none_or(|next| next == lsn), "record {next:?} is missing before {lsn}");
        ensure!(next.is_some() || lsn <= known.trims.max(1), "begins with {lsn}");
        ensure!(bytes == record(seed, thread, lsn), "record {lsn} is another, of {} B", bytes.len());
        let read = log.read(lsn).doing(|| "read".into())?;
        ensure!(read.as_ref() == Some(&bytes), "record {lsn} is read as another");
        next = Some(lsn + 1);
    }
    let last = next.map_or(log.last_lsn().doing(|| "last".into())?.unwrap_or(0), |next| next - 1);
    let under_way = known.durable + batch_len(seed, thread, known.durable + 1);
    ensure!(last == known.durable || last == under_way, "ends with {last}");
    known.durable = last;
    Ok(())
}

/// Main function of the child: its threads append until it is killed.
pub(crate) fn child(dir: PathBuf, on_lavafs: bool, seed: u64, round: u64) -> ExitCode {
    match append_forever(&Place { dir, on_lavafs, seed }, seed, round) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: child of seed {seed}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn append_forever(place: &Place, seed: u64, round: u64) -> Check {
    let mut rng = Rng::new(seed ^ round.wrapping_mul(31));
    let options = options(&mut rng);
    let (env, dir) = place.open()?;
    let store = LogStore::open(&env, &dir, &options).doing(|| "open".into())?;
    report(0)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, rng) = (&store, rng.fork());
                scope.spawn(move || thread_appends(store, seed, thread, rng))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic".to_owned())?)
    })
}

fn thread_appends(store: &LogStore, seed: u64, thread: u64, mut rng: Rng) -> Check {
    let log = store.log(&name(thread)).doing(|| "make a log".into())?;
    let mut next = log.last_lsn().doing(|| "last".into())?.unwrap_or(0) + 1;
    loop {
        next = append(store, &log, seed, thread, next)?;
        report(ChildReport::Durable(thread, next - 1).encode())?;
        // One log keeps its records longer than the others, so that collection has records to copy.
        let kept = if thread == 0 { 60 } else { 5 };
        if rng.one_in(4) && next > kept {
            report(ChildReport::Trims(thread, next - kept).encode())?;
            log.trim(next - kept).doing(|| "trim".into())?;
        }
        if rng.one_in(20) {
            let statistics = store.statistics();
            report(ChildReport::Sealed(statistics.sealed_groups).encode())?;
            report(ChildReport::Collected(statistics.collected_files).encode())?;
        }
    }
}

/// Appends the batch that begins at an LSN; returns the next LSN.
fn append(store: &LogStore, log: &LogHandle, seed: u64, thread: u64, first: Lsn) -> Check<Lsn> {
    let end = first + batch_len(seed, thread, first);
    let records: Vec<Vec<u8>> = (first..end).map(|lsn| record(seed, thread, lsn)).collect();
    let mut batch = LogBatch::new();
    (first..end).zip(&records).for_each(|(lsn, bytes)| _ = batch.append(log, lsn, bytes));
    store.write(&batch, Durability::Durable).doing(|| format!("append of {first} of {}", name(thread)))?;
    Ok(end)
}
