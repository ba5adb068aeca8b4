//! The space contract, seen from outside: does a store keep its limit, and what does that cost?
//!
//! Three stores, one after the other, of the same keys and values, their files looked at from outside all the time.
//!
//! * **At work.** The limit is what `--space-limit` says, 1.5 times the live data unless told otherwise. Values are
//!   overwritten at random for `--seconds`, as fast as the store takes them. The same work is done without a limit first,
//!   for a fifth of the time: what the limit costs is the ratio.
//! * **Full.** The limit leaves a ninth of the live data besides it. The store is filled and overwritten for a fifth of the
//!   time: writes may make slow progress or fail with `NoSpace`. Then a third of the keys are deleted, which must always
//!   succeed, writes must resume by themselves, and nothing may be lost ([`crate::full`]).
//!
//! * **Changed.** The limit falls and rises for a fifth of the time while keys are overwritten ([`crate::changed`]).
//!
//! With `--volume`, the same happens to two more stores on a volume that really fills up ([`crate::volume`]).

use crate::args::{BenchArgs, Workload};
use crate::changed::Changed;
use crate::engine::Opener;
use crate::full::Full;
use crate::host::{StopOnDrop, alone};
use crate::limit::{SpaceLimit, Watch};
use crate::space;
use crate::volume::{OnVolume, on_volume};
use crate::{Result, run};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;

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
    /// Writes that it refused for want of space.
    pub enospc: u64,
    /// True if deletes succeeded, and writes went on after them.
    pub resumed: bool,
    /// All that was seen of it.
    pub full: Full,
    /// Counts of the store whose limit changed; `None`: the engine cannot change it.
    pub changed: Option<Changed>,
    /// The stores on the volume, without a limit and with one that it cannot hold; none without `--volume`.
    pub volume: Vec<OnVolume>,
    /// The options of the run.
    pub options: BenchArgs,
}

impl Report {
    /// True if nothing happened that must not.
    pub fn is_kept(&self) -> bool {
        let changed = self.changed.as_ref().is_none_or(Changed::is_kept);
        self.limit_breaches == 0
            && self.full.is_kept()
            && changed
            && self.volume.iter().all(|on| on.full.is_kept())
    }

    /// For people.
    pub fn text(&self) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let mut text = format!(
            "at the limit   {:.1} MB/s, {:.2} of the {:.1} MB/s without one; longest write {:.1} ms; \
             peak {:.0} of {:.0} MB\n\
             full           peak {:.0} of {:.0} MB; {}",
            self.mb_per_s,
            self.mb_per_s / self.unlimited_mb_per_s.max(f64::MIN_POSITIVE),
            self.unlimited_mb_per_s,
            self.longest_wait_ms,
            mb(self.peak_bytes),
            mb(self.limit_bytes),
            mb(self.full_peak_bytes),
            mb(self.full_limit_bytes),
            self.full.text(),
        );
        self.changed.iter().for_each(|changed| text.push_str(&changed.text()));
        self.volume.iter().for_each(|on| text.push_str(&on.text()));
        let (breaches, looks) = (self.limit_breaches, self.limit_samples);
        text + &format!("above a limit  {breaches} of {looks} looks\n")
    }
}

/// The options with what the contract takes where nothing is said.
pub fn with_defaults(args: &BenchArgs) -> BenchArgs {
    let seconds = args.seconds.unwrap_or(SECONDS);
    BenchArgs {
        workload: Workload::Overwrite,
        num: Some(args.num.unwrap_or(KEYS)),
        value_size: value_size(args),
        space_limit: Some(args.space_limit.unwrap_or(SpaceLimit::Times(TIMES))),
        seconds: Some(seconds),
        // More than any store takes in that time.
        updates: Some(args.updates.unwrap_or((seconds * 2e6) as u64)),
        ..args.clone()
    }
}

fn value_size(args: &BenchArgs) -> Option<u64> {
    let plain = args.values.is_none() && args.value_size.is_none();
    if plain { Some(VALUE_LEN) } else { args.value_size }
}

/// Makes the run below `dir`, which is the caller's to remove.
pub fn contract(told: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<Report> {
    let args = with_defaults(told);
    args.check()?;
    let seconds = args.seconds.map(|seconds| seconds / UNLIMITED_PART);
    let free = BenchArgs { space_limit: None, seconds, ..args.clone() };
    let unlimited = alone(&dir.join("unlimited"), |dir| run(&free, opener, dir))?;
    let limited = alone(&dir.join("limited"), |dir| run(&args, opener, dir))?;
    let kept = limited.limit.as_ref().ok_or("a run with a limit tells how it was kept")?;
    let fill_seconds = args.seconds.unwrap_or(SECONDS) / UNLIMITED_PART;
    let (full, watch) = alone(&dir.join("full"), |dir| full_at(&args, opener, dir, fill_seconds))?;
    let changed = |dir: &Path| Changed::run(&args, opener, dir, kept.limit_bytes, fill_seconds);
    let changed = alone(&dir.join("changed"), changed)?;
    // How many keys a volume gets is its own affair, unless the user said it.
    let own = BenchArgs { value_size: value_size(told), ..told.clone() };
    let volume =
        args.volume.as_deref().map(|volume| on_volume(&own, opener, volume, fill_seconds)).transpose()?;
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
        enospc: full.enospc,
        resumed: full.resumed,
        full,
        changed,
        volume: volume.unwrap_or_default(),
        options: args.resolved(),
    })
}

/// The store that is full, and what was seen of its space.
fn full_at(args: &BenchArgs, opener: &dyn Opener, dir: &Path, seconds: f64) -> Result<(Full, Watch)> {
    let limit_bytes = args.live_bytes() * 100 / FULL_PERCENT;
    let args = BenchArgs { space_limit: Some(SpaceLimit::Bytes(limit_bytes)), ..args.clone() };
    let (watch, stop) = (Watch::new(limit_bytes), AtomicBool::new(false));
    let full = std::thread::scope(|scope| {
        scope.spawn(|| space::watch(dir, &watch, &stop));
        let _stop = StopOnDrop(&stop);
        Full::run(&args, opener, dir, seconds)
    });
    Ok((full?, watch))
}

#[cfg(test)]
mod tests;
