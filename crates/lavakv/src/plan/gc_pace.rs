//! The pace of garbage collection: what it may read and write in a second while flushes suffer from it.
//!
//! Collection moves many times the bytes of a flush, and writers wait for flushes, not for it. So its bytes are bounded
//! as a sender's are in a network (additive increase, multiplicative decrease), with the latency of flush as the sign of
//! congestion. (Scavenger+, "background bandwidth limit", has the same sign, but a fixed step down and none up.)
//!
//! * **Down.** A flush is slow when it took more than [`SLOW_PERCENT`] of the time that its bytes take at the best rate
//!   seen lately. It is a sign of congestion if another memtable waits for it already (a slow flush that nobody waits for
//!   does no harm) and collection moved at least an eighth of its bytes meanwhile (otherwise something else is to blame).
//!   Then the bound is [`DECREASE_PERCENT`] of what it was, or of what collection did if that is less.
//! * **Up.** The bound rises by half of the best flush rate each second. From twice that rate on there is none, as before
//!   the first sign.
//! * **Space goes first.** The bound has a floor that rises with garbage pressure (see `plan::collection`): from nothing at half to
//!   twice the best flush rate at the full garbage pressure, where writers begin to be slowed down or the disk is nearly full.
//!   There collection is not held back at all: what writers would gain from quick flushes they would lose by waiting for
//!   space.
//!
//! Reads are charged like writes: they compete for the same device.

use base::sync::{Mutex, lock, rank};

/// A flush that takes more of the shortest time is slow.
const SLOW_PERCENT: u64 = 150;
/// What is left of the bound after a sign of congestion.
const DECREASE_PERCENT: u64 = 80;
/// The bound is never lower, bytes per second.
const PACE_MIN: u64 = 1 << 20;
/// The best rate is forgotten by this part with every flush: a device may become slower for good.
const FORGET_PART: u64 = 64;
/// Collection that moves less than this part of what flush moves is not to blame.
const BLAME_PART: u64 = 8;
/// The longest wait at once: garbage pressure may lift the bound at any time.
const WAIT_NS_MAX: u64 = 20_000_000;
/// Strain from which the bound has a floor, and from which it does not hold.
const STRAIN_HALF: u64 = 50;
const GARBAGE_PRESSURE_FULL: u64 = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GcPace(Mutex<State, rank::GcPace>);

#[derive(Debug, Default)]
struct State {
    /// The best rate of flush lately, bytes per second; 0: none was measured.
    best: u64,
    /// The bound when it was last lowered, and when that was.
    lowered: Option<(u64, u64)>,
    /// Bytes charged that have not had their time, as of `drained_ns`.
    debt: u64,
    drained_ns: u64,
    /// Bytes charged since `counted_ns`, the end of the last flush.
    counted: u64,
    counted_ns: u64,
}

/// A flush that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    /// Bytes of its memtables.
    pub bytes: u64,
    /// How long it took.
    pub ns: u64,
    /// True if a memtable waited for it.
    pub waited_for: bool,
}

fn per_second(bytes: u64, ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).min(u128::from(u64::MAX)) as u64
}

impl State {
    /// The bound without regard to garbage pressure; `None`: there is none.
    fn bound(&self, now_ns: u64) -> Option<u64> {
        let (bound, since_ns) = self.lowered?;
        let seconds = now_ns.saturating_sub(since_ns) as f64 / 1e9;
        let risen = bound as f64 + self.best as f64 / 2.0 * seconds;
        (risen < 2.0 * self.best as f64).then_some(risen as u64)
    }

    /// The bound that holds under so much garbage pressure.
    fn pace(&self, now_ns: u64, garbage_pressure_percent: u64) -> Option<u64> {
        let bound = self.bound(now_ns).filter(|_| garbage_pressure_percent < GARBAGE_PRESSURE_FULL)?;
        let over = garbage_pressure_percent.saturating_sub(STRAIN_HALF);
        let floor = (2 * u128::from(self.best) * u128::from(over)
            / u128::from(GARBAGE_PRESSURE_FULL - STRAIN_HALF)) as u64;
        Some(bound.max(floor).max(PACE_MIN))
    }

    fn flushed(&mut self, now_ns: u64, flush: Flushed) {
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
    /// Takes note of a flush.
    pub fn flushed(&self, now_ns: u64, flush: Flushed) {
        lock(&self.0).flushed(now_ns, flush);
    }

    /// Charges bytes that a collection read or wrote.
    pub fn charge(&self, bytes: u64) {
        let mut state = lock(&self.0);
        state.debt = state.debt.saturating_add(bytes);
        state.counted = state.counted.saturating_add(bytes);
    }

    /// How long a collection should wait before it goes on.
    pub fn wait_ns(&self, now_ns: u64, garbage_pressure_percent: u64) -> u64 {
        let mut state = lock(&self.0);
        let Some(pace) = state.pace(now_ns, garbage_pressure_percent) else {
            (state.debt, state.drained_ns) = (0, now_ns);
            return 0;
        };
        let since_ns = now_ns.saturating_sub(state.drained_ns);
        let paid = u128::from(pace) * u128::from(since_ns) / 1_000_000_000;
        // Time that does not pay for a byte yet is kept.
        if paid > 0 || state.debt == 0 {
            state.debt = u128::from(state.debt).saturating_sub(paid) as u64;
            state.drained_ns = now_ns;
        }
        let wait_ns = (u128::from(state.debt) * 1_000_000_000).div_ceil(u128::from(pace));
        wait_ns.min(u128::from(WAIT_NS_MAX)) as u64
    }

    /// What collections may read and write in a second; `None`: they are not bounded.
    pub fn bytes_per_s(&self, now_ns: u64, garbage_pressure_percent: u64) -> Option<u64> {
        lock(&self.0).pace(now_ns, garbage_pressure_percent)
    }
}

#[cfg(test)]
mod tests;
