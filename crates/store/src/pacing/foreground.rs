//! Latency of foreground reads compared with their latency on an idle device.
//!
//! The usual latency is learned from reads that were alone at the device: no background work for a
//! while before their start, and none before their end. It is their 90th percentile. So background
//! work is not blamed if other programs slow the device down: reads beside it may be as slow as
//! undisturbed reads. Reads are judged in windows, so that a single slow read changes nothing.
//!
//! The numbers are estimates: a read lost between two windows does not matter.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// Minimum reads and duration of a window, and its maximum duration.
const WINDOW_READS: u64 = 32;
const WINDOW_NS: u64 = 10_000_000;
const WINDOW_NS_MAX: u64 = 500_000_000;
/// A read is slow if it exceeds the usual latency by this factor and this margin. So a short wait
/// does not make a cache hit slow.
const SLOW_FACTOR: u64 = 2;
const SLOW_MARGIN_NS: u64 = 100_000;
/// Step of the usual latency: up by this fraction after a longer read, down by a ninth of it after
/// a shorter one, which makes it the 90th percentile.
const LEARN_PART: u64 = 16;
/// Maximum share of slow reads in a window, one in this number. At half that share the window is
/// fine.
const SLOW_ONE_IN: u64 = 16;
/// Without a read for this time, there are no foreground readers.
const IDLE_NS: u64 = 100_000_000;

/// The judgment of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Too many reads were slow.
    Slow,
    /// Some reads were slow.
    Between,
    /// Hardly any read was slow.
    Fine,
}

/// Latency of foreground reads: see the module.
#[derive(Debug, Default)]
pub struct ReadLatency {
    /// 90th percentile latency of undisturbed reads, nanoseconds; 0: unknown.
    usual_ns: AtomicU64,
    /// Start of the window and end of the last read, clock nanoseconds. 0: none.
    window_ns: AtomicU64,
    last_ns: AtomicU64,
    reads: AtomicU64,
    slow: AtomicU64,
}

impl ReadLatency {
    /// Returns the 90th percentile latency of undisturbed reads, nanoseconds; 0: unknown.
    pub fn usual_ns(&self) -> u64 {
        self.usual_ns.load(Relaxed)
    }

    /// Returns true if there was a foreground read a moment ago.
    pub fn is_reading(&self, now_ns: u64) -> bool {
        let last_ns = self.last_ns.load(Relaxed);
        last_ns > 0 && now_ns.saturating_sub(last_ns) < IDLE_NS
    }

    fn begin_window(&self) {
        self.reads.store(0, Relaxed);
        self.slow.store(0, Relaxed);
    }

    /// Records the latency of a read. Returns the judgment of the window if the read ends it.
    pub fn took(&self, ns: u64, now_ns: u64, was_alone: bool) -> Option<Judgement> {
        let was_idle = !self.is_reading(now_ns);
        self.last_ns.store(now_ns.max(1), Relaxed);
        let usual_ns = self.usual_ns();
        // Initially a disturbed read is better than no estimate.
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

/// Returns the usual latency after another undisturbed read.
fn learnt(usual_ns: u64, ns: u64) -> u64 {
    match usual_ns {
        0 => ns.max(1),
        usual if ns > usual => usual.saturating_add((usual / LEARN_PART).max(1)),
        usual => usual.saturating_sub(usual / (9 * LEARN_PART)).max(ns).max(1),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
