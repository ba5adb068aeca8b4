//! The space contract, seen from outside: does a store keep its limit, and what does that cost?
//!
//! Two stores, one after the other, of the same keys and values, their files looked at from outside all the time.
//!
//! * **At work.** The limit is what `--space-limit` says, 1.5 times the live data unless told otherwise. Values are
//!   overwritten at random for `--seconds`, as fast as the store takes them. The same work is done without a limit first,
//!   for a fifth of the time: what the limit costs is the ratio.
//! * **Full.** The limit leaves a ninth of the live data besides it. The store is filled and overwritten until it has no
//!   room: writes may make slow progress or fail with `NoSpace`. Then a third of the keys are deleted, which must always
//!   succeed, and writes must resume by themselves.

use crate::args::{BenchArgs, Workload};
use crate::engine::{Engine, EngineSettings, Opener};
use crate::host::{now_ns, wait_until};
use crate::limit::{SpaceLimit, Watch};
use crate::record::Kind;
use crate::space;
use crate::workload::{Role, Space, Stream};
use crate::{Error, Result, run};
use lavastore::ErrorKind;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keys, unless told otherwise.
const KEYS: u64 = 65_536;
/// Bytes of a value, unless told otherwise.
const VALUE_LEN: u64 = 16_000;
/// The limit, in live bytes, unless told otherwise.
const TIMES: f64 = 1.5;
/// Seconds of work at the limit, unless told otherwise.
const SECONDS: f64 = 600.0;
/// The work without a limit takes this part of the time.
const UNLIMITED_PART: f64 = 5.0;
/// What lives, in percent of the limit of the store that is full.
const FULL_PERCENT: u64 = 90;
/// Every so many keys one is deleted.
const DELETE_EVERY: u64 = 3;
/// After deletes, writes have so long to resume.
const RESUME_NS: u64 = 60_000_000_000;
/// Writes have resumed when so many in a row were taken.
const RESUMED_WRITES: u64 = 1000;
/// After a write that found no room the next is tried so much later.
const RETRY_NS: u64 = 10_000_000;

/// What was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The limit of the store at work.
    pub limit_bytes: u64,
    /// The most that it occupied.
    pub peak_bytes: u64,
    /// Looks at both stores.
    pub limit_samples: u64,
    /// Looks at which one was above its limit.
    pub limit_breaches: u64,
    /// The longest that a write of the store at work took.
    pub longest_wait_ms: f64,
    /// What it took in at the limit.
    pub mb_per_s: f64,
    /// What it took in without one.
    pub unlimited_mb_per_s: f64,
    /// The limit of the store that is full.
    pub full_limit_bytes: u64,
    /// The most that it occupied.
    pub full_peak_bytes: u64,
    /// Writes that it took while it was full.
    pub full_writes: u64,
    /// Writes that it refused for want of space.
    pub enospc: u64,
    /// The longest that a write of it took, refused or not.
    pub full_longest_wait_ms: f64,
    /// True if deletes succeeded, and writes went on after them.
    pub resumed: bool,
    /// How long after the deletes that was.
    pub resumed_after_ms: f64,
    /// The options of the run.
    pub options: BenchArgs,
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        format!(
            "at the limit   {:.1} MB/s, {:.2} of the {:.1} MB/s without one; longest write {:.1} ms; \
             peak {:.0} of {:.0} MB\n\
             full           {} writes taken, {} refused for want of space; longest {:.1} ms; peak {:.0} of {:.0} MB\n\
             after deletes  {}\n\
             above a limit  {} of {} looks\n",
            self.mb_per_s,
            self.mb_per_s / self.unlimited_mb_per_s.max(f64::MIN_POSITIVE),
            self.unlimited_mb_per_s,
            self.longest_wait_ms,
            mb(self.peak_bytes),
            mb(self.limit_bytes),
            self.full_writes,
            self.enospc,
            self.full_longest_wait_ms,
            mb(self.full_peak_bytes),
            mb(self.full_limit_bytes),
            match self.resumed {
                true => format!("writes resumed after {:.1} ms", self.resumed_after_ms),
                false => "writes did NOT resume".to_owned(),
            },
            self.limit_breaches,
            self.limit_samples,
        )
    }
}

/// The options with what the contract takes where nothing is said.
pub fn with_defaults(args: &BenchArgs) -> BenchArgs {
    let seconds = args.seconds.unwrap_or(SECONDS);
    let plain = args.values.is_none() && args.value_size.is_none();
    BenchArgs {
        workload: Workload::Overwrite,
        num: Some(args.num.unwrap_or(KEYS)),
        value_size: if plain { Some(VALUE_LEN) } else { args.value_size },
        space_limit: Some(args.space_limit.unwrap_or(SpaceLimit::Times(TIMES))),
        seconds: Some(seconds),
        // More than any store takes in that time.
        updates: Some(args.updates.unwrap_or((seconds * 2e6) as u64)),
        ..args.clone()
    }
}

/// Makes the run below `dir`, which is the caller's to remove.
pub fn contract(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<Report> {
    let args = with_defaults(args);
    args.check()?;
    let seconds = args.seconds.map(|seconds| seconds / UNLIMITED_PART);
    let free = BenchArgs { space_limit: None, seconds, ..args.clone() };
    let unlimited = alone(&dir.join("unlimited"), |dir| run(&free, opener, dir))?;
    let limited = alone(&dir.join("limited"), |dir| run(&args, opener, dir))?;
    let kept = limited.limit.as_ref().ok_or("a run with a limit tells how it was kept")?;
    let (full, watch) = alone(&dir.join("full"), |dir| Full::run(&args, opener, dir))?;
    Ok(Report {
        limit_bytes: kept.limit_bytes,
        peak_bytes: limited.space_peak.bytes,
        limit_samples: kept.limit_samples + watch.samples(),
        limit_breaches: kept.limit_breaches + watch.breaches(),
        longest_wait_ms: limited.max_us / 1e3,
        mb_per_s: limited.mb_per_s,
        unlimited_mb_per_s: unlimited.mb_per_s,
        full_limit_bytes: watch.limit_bytes,
        full_peak_bytes: watch.peak_bytes(),
        full_writes: full.taken,
        enospc: full.refused,
        full_longest_wait_ms: full.longest_ns as f64 / 1e6,
        resumed: full.resumed_ns.is_some(),
        resumed_after_ms: full.resumed_ns.unwrap_or(0) as f64 / 1e6,
        options: args.resolved(),
    })
}

/// Makes a run in `dir` and removes the store.
#[allow(clippy::disallowed_methods, reason = "removes the directory of a store that was closed")]
fn alone<T>(dir: &Path, run: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let outcome = run(dir)?;
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(outcome)
}

/// The store that is full.
#[derive(Default)]
struct Full {
    taken: u64,
    refused: u64,
    longest_ns: u64,
    resumed_ns: Option<u64>,
}

impl Full {
    /// The run, and what was seen of its space.
    fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<(Full, Watch)> {
        let limit_bytes = args.live_bytes() * 100 / FULL_PERCENT;
        let args = BenchArgs { space_limit: Some(SpaceLimit::Bytes(limit_bytes)), ..args.clone() };
        let engine = opener.open(dir, &EngineSettings::of(&args)?)?;
        let (mut full, watch, stop) = (Full::default(), Watch::new(limit_bytes), AtomicBool::new(false));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| space::sample(dir, engine.as_ref(), Some(&watch), &stop));
            let outcome = full.phases(&args, engine.as_ref());
            stop.store(true, Ordering::Relaxed);
            outcome
        });
        outcome?;
        engine.close()?;
        Ok((full, watch))
    }

    fn phases(&mut self, args: &BenchArgs, engine: &dyn Engine) -> Result<()> {
        let space = Space::new(args);
        let mut load = Stream::new(&space, Role::Load, Kind::Put, args.keys(), 0, 1);
        while load.advance() {
            // What finds no room now would find none later.
            self.put(engine, &mut load)?;
        }
        let mut updates = Stream::new(&space, Role::Client, Kind::Put, args.ops(), 0, 1);
        let seconds = args.seconds.unwrap_or(SECONDS) / UNLIMITED_PART;
        let end_ns = now_ns() + (seconds * 1e9) as u64;
        while now_ns() < end_ns && updates.advance() {
            if !self.put(engine, &mut updates)? {
                wait_until(now_ns() + RETRY_NS);
            }
        }
        let mut key = Vec::new();
        for index in (0..args.keys()).step_by(DELETE_EVERY as usize) {
            space.keys.write(index, &mut key);
            engine.delete(&key)?;
        }
        let mut value = Vec::new();
        if engine.get(&key, &mut value)? {
            return Err("a key that was deleted is still there".into());
        }
        let (refused, begin_ns, mut in_a_row) = (self.refused, now_ns(), 0);
        while in_a_row < RESUMED_WRITES && now_ns() < begin_ns + RESUME_NS && updates.advance() {
            if self.put(engine, &mut updates)? {
                in_a_row += 1;
            } else {
                in_a_row = 0;
                wait_until(now_ns() + RETRY_NS);
            }
        }
        // Refusals while deletes take effect are no failure of theirs.
        self.refused = refused;
        self.resumed_ns = (in_a_row >= RESUMED_WRITES).then(|| now_ns() - begin_ns);
        Ok(())
    }

    /// One write; false if it found no room.
    fn put(&mut self, engine: &dyn Engine, stream: &mut Stream) -> Result<bool> {
        let begin_ns = now_ns();
        let outcome = engine.put(&stream.key, &stream.value);
        self.longest_ns = self.longest_ns.max(now_ns() - begin_ns);
        match outcome {
            Ok(()) => {
                self.taken += 1;
                Ok(true)
            }
            Err(e) if is_no_space(&e) => {
                self.refused += 1;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

fn is_no_space(e: &Error) -> bool {
    e.downcast_ref::<lavastore::Error>().is_some_and(|e| e.kind() == ErrorKind::NoSpace)
}

#[cfg(test)]
mod tests;
