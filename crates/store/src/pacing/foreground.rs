//! How long reads in the foreground take, beside how long they take on an idle device.
//!
//! What a read usually takes is learnt from those that were alone with the device: no background work was seen for a while when they
//! began, and none had come when they ended. It is what nine of ten of them take at most. So a device that others slow down is not
//! blamed on the store: where reads are slow that were alone, those beside background work may be as slow. Reads are judged by the
//! window, so that a slow one alone changes nothing.
//!
//! Its numbers are estimates: a read that is lost between two windows is missed by nobody.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// A window has so many reads, and lasts at least so long; or it lasts for long.
const WINDOW_READS: u64 = 32;
const WINDOW_NS: u64 = 10_000_000;
const WINDOW_NS_MAX: u64 = 500_000_000;
/// A read is slow that takes so many times what is usual, and so much longer: what is found in a cache is no worse for waiting a little.
const SLOW_FACTOR: u64 = 2;
const SLOW_MARGIN_NS: u64 = 100_000;
/// What is usual moves by such a part of itself: this up when a read took longer, and a ninth of it down when one did not.
const LEARN_PART: u64 = 16;
/// One in so many may be slow; where it is one in twice as many, all is fine.
const SLOW_ONE_IN: u64 = 16;
/// After so long without a read nobody reads.
const IDLE_NS: u64 = 100_000_000;

/// What reads of one window say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Too many were slow.
    Slow,
    /// Some were.
    Between,
    /// Hardly any was.
    Fine,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Foreground {
    /// What nine of ten reads take at most that are alone with the device, nanoseconds; 0: not known.
    usual_ns: AtomicU64,
    /// When the window began and the last read ended, in clock nanoseconds. 0: there was none.
    window_ns: AtomicU64,
    last_ns: AtomicU64,
    /// Reads of the window, and slow ones.
    reads: AtomicU64,
    slow: AtomicU64,
}

impl Foreground {
    /// What nine of ten reads take at most that are alone with the device, nanoseconds; 0: not known.
    pub fn usual_ns(&self) -> u64 {
        self.usual_ns.load(Relaxed)
    }

    /// True if somebody has read a moment ago.
    pub fn is_reading(&self, now_ns: u64) -> bool {
        let last_ns = self.last_ns.load(Relaxed);
        last_ns > 0 && now_ns.saturating_sub(last_ns) < IDLE_NS
    }

    fn begin_window(&self) {
        self.reads.store(0, Relaxed);
        self.slow.store(0, Relaxed);
    }

    /// A read took so long. What is to be said of the window if it was the last one in it.
    pub fn took(&self, ns: u64, now_ns: u64, was_alone: bool) -> Option<Judgement> {
        let was_idle = !self.is_reading(now_ns);
        self.last_ns.store(now_ns.max(1), Relaxed);
        let usual_ns = self.usual_ns();
        // Until something is known a read beside others is better than none.
        if was_alone || usual_ns == 0 {
            self.usual_ns.store(learnt(usual_ns, ns), Relaxed);
        }
        if was_idle {
            self.window_ns.store(now_ns, Relaxed);
            self.begin_window();
        }
        let is_slow = usual_ns > 0
            && ns > (usual_ns.saturating_mul(SLOW_FACTOR)).max(usual_ns.saturating_add(SLOW_MARGIN_NS));
        let slow = self.slow.fetch_add(is_slow.into(), Relaxed) + u64::from(is_slow);
        let reads = self.reads.fetch_add(1, Relaxed) + 1;
        let window_ns = self.window_ns.load(Relaxed);
        let lasted_ns = now_ns.saturating_sub(window_ns);
        let is_over = (reads >= WINDOW_READS && lasted_ns >= WINDOW_NS) || lasted_ns >= WINDOW_NS_MAX;
        if !is_over || self.window_ns.compare_exchange(window_ns, now_ns, Relaxed, Relaxed).is_err() {
            return None;
        }
        self.begin_window();
        Some(match slow * SLOW_ONE_IN {
            parts if parts > reads => Judgement::Slow,
            parts if parts * 2 > reads => Judgement::Between,
            _ => Judgement::Fine,
        })
    }
}

/// What a read usually takes, after one more that was alone.
fn learnt(usual_ns: u64, ns: u64) -> u64 {
    match usual_ns {
        0 => ns.max(1),
        usual if ns > usual => usual.saturating_add((usual / LEARN_PART).max(1)),
        usual => usual.saturating_sub(usual / (9 * LEARN_PART)).max(ns).max(1),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
