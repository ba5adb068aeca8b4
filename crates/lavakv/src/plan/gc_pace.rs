//! The pace of garbage collection: a limit on its bytes read and written per second while it slows
//! flushes down.
//!
//! Collection moves many times the bytes of a flush, and writers wait for flushes, not for
//! collection. So its bytes are bounded like those of a sender in a network (additive increase,
//! multiplicative decrease), with the flush latency as the congestion signal. (Scavenger+,
//! "background bandwidth limit", uses the same signal, but with a fixed step down and no increase.)
//!
//! * **Down.** A flush is slow if it takes more than [`SLOW_PERCENT`] of the time that its bytes
//!   take at the best recent rate. A slow flush signals congestion if another memtable already
//!   waits for it and collection meanwhile moved at least an eighth of its bytes. Otherwise the
//!   slow flush is harmless, or has another cause. The new bound is [`DECREASE_PERCENT`] of the
//!   previous bound, or of the actual collection rate if that is less.
//! * **Up.** The bound rises by half of the best flush rate each second. Above twice that rate, and
//!   before the first signal, there is no bound.
//! * **Space goes first.** The bound has a floor that rises with garbage pressure (see
//!   `plan::collection`): from zero at half pressure to twice the best flush rate at full pressure.
//!   At full pressure writers are throttled or the disk is nearly full, so there is no bound:
//!   writers would lose more by waiting for space than they gain from quick flushes.
//!
//! Reads are charged like writes: they compete for the same device.

use base::sync::{Mutex, lock, rank};

/// A flush is slow above this percentage of its shortest possible time.
const SLOW_PERCENT: u64 = 150;
/// Percentage of the bound that remains after a congestion signal.
const DECREASE_PERCENT: u64 = 80;
/// Minimum bound, bytes per second.
const PACE_MIN: u64 = 1 << 20;
/// The best rate decays by this part with every flush, because a device may become slower for good.
const FORGET_PART: u64 = 64;
/// Collection below this part of the flush rate is not to blame.
const BLAME_PART: u64 = 8;
/// Maximum wait per call, because garbage pressure may lift the bound at any time.
const WAIT_NS_MAX: u64 = 20_000_000;
/// Garbage pressure from which the bound has a floor, and from which there is no bound.
const STRAIN_HALF: u64 = 50;
const GARBAGE_PRESSURE_FULL: u64 = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GcPace(Mutex<PaceState, rank::GcPace>);

#[derive(Debug, Default)]
struct PaceState {
    /// Best recent flush rate, bytes per second; 0 before the first measurement.
    best: u64,
    /// The last lowered bound, and the time of lowering.
    lowered: Option<(u64, u64)>,
    /// Bytes charged and not yet paid by elapsed time, as of `drained_ns`.
    debt: u64,
    drained_ns: u64,
    /// Bytes charged since `counted_ns`, the end of the last flush.
    counted: u64,
    counted_ns: u64,
}

/// A completed flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedFlush {
    /// Bytes of the flushed memtables.
    pub bytes: u64,
    /// Duration of the flush.
    pub ns: u64,
    /// True if a memtable waited for the flush.
    pub waited_for: bool,
}

fn per_second(bytes: u64, ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).min(u128::from(u64::MAX)) as u64
}

impl PaceState {
    /// Returns the bound without regard to garbage pressure; `None`: there is none.
    fn bound(&self, now_ns: u64) -> Option<u64> {
        let (bound, since_ns) = self.lowered?;
        let seconds = now_ns.saturating_sub(since_ns) as f64 / 1e9;
        let risen = bound as f64 + self.best as f64 / 2.0 * seconds;
        (risen < 2.0 * self.best as f64).then_some(risen as u64)
    }

    /// Returns the bound under this garbage pressure.
    fn pace(&self, now_ns: u64, garbage_pressure_percent: u64) -> Option<u64> {
        let bound = self.bound(now_ns).filter(|_| garbage_pressure_percent < GARBAGE_PRESSURE_FULL)?;
        let over = garbage_pressure_percent.saturating_sub(STRAIN_HALF);
        let floor = (2 * u128::from(self.best) * u128::from(over)
            / u128::from(GARBAGE_PRESSURE_FULL - STRAIN_HALF)) as u64;
        Some(bound.max(floor).max(PACE_MIN))
    }

    fn flushed(&mut self, now_ns: u64, flush: CompletedFlush) {
        let rate = per_second(flush.bytes, flush.ns);
        self.best = rate.max(self.best - self.best / FORGET_PART);
        let collected = per_second(self.counted, now_ns.saturating_sub(self.counted_ns));
        (self.counted, self.counted_ns) = (0, now_ns);
        let slow = u128::from(rate) * u128::from(SLOW_PERCENT) < u128::from(self.best) * 100;
        if slow && flush.waited_for && collected >= rate / BLAME_PART {
            let from = self.bound(now_ns).unwrap_or(2 * self.best).min(collected);
            let lower = (u128::from(from) * u128::from(DECREASE_PERCENT) / 100) as u64;
            self.lowered = Some((lower.max(PACE_MIN), now_ns));
        }
    }
}

impl GcPace {
    /// Records a completed flush.
    pub fn flushed(&self, now_ns: u64, flush: CompletedFlush) {
        lock(&self.0).flushed(now_ns, flush);
    }

    /// Charges bytes that a collection read or wrote.
    pub fn charge(&self, bytes: u64) {
        let mut state = lock(&self.0);
        state.debt = state.debt.saturating_add(bytes);
        state.counted = state.counted.saturating_add(bytes);
    }

    /// Returns how long a collection should wait before its next step.
    pub fn wait_ns(&self, now_ns: u64, garbage_pressure_percent: u64) -> u64 {
        let mut state = lock(&self.0);
        let Some(pace) = state.pace(now_ns, garbage_pressure_percent) else {
            (state.debt, state.drained_ns) = (0, now_ns);
            return 0;
        };
        let since_ns = now_ns.saturating_sub(state.drained_ns);
        let paid = u128::from(pace) * u128::from(since_ns) / 1_000_000_000;
        // Elapsed time that is worth less than a byte is carried over.
        if paid > 0 || state.debt == 0 {
            state.debt = u128::from(state.debt).saturating_sub(paid) as u64;
            state.drained_ns = now_ns;
        }
        let wait_ns = (u128::from(state.debt) * 1_000_000_000).div_ceil(u128::from(pace));
        wait_ns.min(u128::from(WAIT_NS_MAX)) as u64
    }

    /// Returns the bound of collections, bytes per second; `None`: they are not bounded.
    pub fn bytes_per_s(&self, now_ns: u64, garbage_pressure_percent: u64) -> Option<u64> {
        lock(&self.0).pace(now_ns, garbage_pressure_percent)
    }
}

#[cfg(test)]
mod tests;
