//! The space contract, measured from outside: does a store keep its limit, and at what cost?
//!
//! Three stores run one after the other with the same keys and values, while their files are
//! sampled from outside.
//!
//! * **At work.** The limit is `--space-limit`, 1.5 times the live data by default. Values are
//!   overwritten at random for `--seconds` at full speed. The same work runs first without a limit
//!   for a fifth of the time: the ratio is the cost of the limit.
//! * **Full.** The limit leaves a ninth of the live data as free space. The store is filled and
//!   overwritten for a fifth of the time: writes may be slow or fail with `NoSpace`. Then a third
//!   of the keys are deleted, which must always succeed. Writes must resume on their own, and no
//!   data may be lost ([`crate::full`]).
//!
//! * **Changed.** The limit falls and rises for a fifth of the time while keys are overwritten
//!   ([`crate::changed`]).
//!
//! With `--volume`, the same runs on two more stores on a volume that fills up ([`crate::volume`]).

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

/// Default number of keys.
const KEYS: u64 = 65_536;
/// Default length of a value in bytes.
const VALUE_LEN: u64 = 16_000;
/// Default limit as a multiple of the live bytes.
const TIMES: f64 = 1.5;
/// Default seconds of work at the limit.
const SECONDS: f64 = 600.0;
/// Divisor of the time for the work without a limit.
const UNLIMITED_PART: f64 = 5.0;
/// Live data in percent of the limit of the full store.
const FULL_PERCENT: u64 = 90;
/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContractReport {
    /// Limit of the store at work.
    pub limit_bytes: u64,
    /// Its maximum size.
    pub peak_bytes: u64,
    /// Samples of both stores.
    pub limit_samples: u64,
    /// Samples above the limit.
    pub limit_breaches: u64,
    /// Longest write of the store at work.
    pub longest_wait_ms: f64,
    /// Its write rate at the limit.
    pub mb_per_s: f64,
    /// Its write rate without a limit.
    pub unlimited_mb_per_s: f64,
    /// Limit of the full store.
    pub full_limit_bytes: u64,
    /// Its maximum size.
    pub full_peak_bytes: u64,
    /// Writes that it refused for lack of space.
    pub enospc: u64,
    /// True if deletes succeeded and writes resumed after them.
    pub resumed: bool,
    /// Details of the full store.
    pub full: Full,
    /// Counts of the store whose limit changed; `None`: the engine cannot change it.
    pub changed: Option<Changed>,
    /// Stores on the volume, without a limit and with one above its size; empty without `--volume`.
    pub volume: Vec<OnVolume>,
    /// The options of the run.
    pub options: BenchArgs,
}

impl ContractReport {
    /// Returns true if all guarantees were kept.
    pub fn is_kept(&self) -> bool {
        let changed = self.changed.as_ref().is_none_or(Changed::is_kept);
        self.limit_breaches == 0
            && self.full.is_kept()
            && changed
            && self.volume.iter().all(|on| on.full.is_kept())
    }

    /// Formats the report as text.
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

/// Returns the options with the contract's defaults.
pub fn with_defaults(args: &BenchArgs) -> BenchArgs {
    let seconds = args.seconds.unwrap_or(SECONDS);
    BenchArgs {
        workload: Workload::Overwrite,
        num: Some(args.num.unwrap_or(KEYS)),
        value_size: value_size(args),
        space_limit: Some(args.space_limit.unwrap_or(SpaceLimit::Times(TIMES))),
        seconds: Some(seconds),
        // More than any store can write in that time.
        updates: Some(args.updates.unwrap_or((seconds * 2e6) as u64)),
        ..args.clone()
    }
}

fn value_size(args: &BenchArgs) -> Option<u64> {
    let plain = args.values.is_none() && args.value_size.is_none();
    if plain { Some(VALUE_LEN) } else { args.value_size }
}

/// Runs the contract below `dir`, which the caller removes.
pub fn contract(told: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<ContractReport> {
    let args = with_defaults(told);
    args.check()?;
    let seconds = args.seconds.map(|seconds| seconds / UNLIMITED_PART);
    let free = BenchArgs { space_limit: None, seconds, ..args.clone() };
    let unlimited = alone(&dir.join("unlimited"), |dir| run(&free, opener, dir))?;
    let limited = alone(&dir.join("limited"), |dir| run(&args, opener, dir))?;
    let kept = limited
        .limit
        .as_ref()
        .ok_or("the run with a space limit did not report how the limit was kept: report it")?;
    let fill_seconds = args.seconds.unwrap_or(SECONDS) / UNLIMITED_PART;
    let (full, watch) = alone(&dir.join("full"), |dir| full_at(&args, opener, dir, fill_seconds))?;
    let changed = |dir: &Path| Changed::run(&args, opener, dir, kept.limit_bytes, fill_seconds);
    let changed = alone(&dir.join("changed"), changed)?;
    // The number of keys on a volume follows its size unless the user set it.
    let own = BenchArgs { value_size: value_size(told), ..told.clone() };
    let volume =
        args.volume.as_deref().map(|volume| on_volume(&own, opener, volume, fill_seconds)).transpose()?;
    Ok(ContractReport {
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

/// Runs the full store and watches its space.
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
