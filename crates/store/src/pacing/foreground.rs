//! How long reads in the foreground take, beside how long they take on an idle device.
//!
//! What a read usually takes is learnt from those that were alone with the device: no piece of background work was there when they
//! began, and none had come when they ended; and from those that were quicker still. It falls quickly and rises slowly, since a device is busy for some time after what it was
//! asked for has ended. Reads are judged by the window, so that a slow one alone changes nothing.
//!
//! Its numbers are estimates: a read that is lost between two windows is missed by nobody.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// A window has so many reads, and lasts at least so long; or it lasts for long.
const WINDOW_READS: u64 = 32;
const WINDOW_NS: u64 = 10_000_000;
const WINDOW_NS_MAX: u64 = 500_000_000;
/// A read is slow that takes so many times what it takes alone, and so much longer: what is found in a cache is no worse for
/// waiting a little.
const SLOW_FACTOR: u64 = 3;
const SLOW_MARGIN_NS: u64 = 100_000;
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
    /// What a read takes that is alone with the device, nanoseconds; 0: not known.
    usual_ns: AtomicU64,
    /// When the window began and the last read ended, in clock nanoseconds. 0: there was none.
    window_ns: AtomicU64,
    last_ns: AtomicU64,
    /// Reads of the window, and slow ones.
    reads: AtomicU64,
    slow: AtomicU64,
}

impl Foreground {
    /// What a read takes that is alone with the device, nanoseconds; 0: not known.
    pub fn usual_ns(&self) -> u64 {
        self.usual_ns.load(Relaxed)
    }

    /// True if somebody has read a moment ago.
    pub fn is_reading(&self, now_ns: u64) -> bool {
        let last_ns = self.last_ns.load(Relaxed);
        last_ns > 0 && now_ns.saturating_sub(last_ns) < IDLE_NS
    }

    /// A read took so long. What is to be said of the window if it was the last one in it.
    pub fn took(&self, ns: u64, now_ns: u64, was_alone: bool) -> Option<Judgement> {
        let was_idle = !self.is_reading(now_ns);
        self.last_ns.store(now_ns.max(1), Relaxed);
        let usual_ns = self.usual_ns();
        // One that was quick beside others would have been no slower alone.
        if was_alone || usual_ns == 0 || ns < usual_ns {
            self.usual_ns.store(learnt(usual_ns, ns), Relaxed);
        }
        if was_idle {
            self.window_ns.store(now_ns, Relaxed);
            (self.reads.store(0, Relaxed), self.slow.store(0, Relaxed));
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
        (self.reads.store(0, Relaxed), self.slow.store(0, Relaxed));
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
        usual if ns < usual => usual - (usual - ns) / 8,
        usual => usual + (ns - usual).min(usual) / 64,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_falls_quickly_and_rises_slowly() {
        assert_eq!(learnt(0, 80_000), 80_000);
        assert_eq!(learnt(80_000, 40_000), 75_000);
        assert_eq!(
            learnt(64_000, 100_000_000),
            65_000,
            "one that took forever is no more than one that took twice as long"
        );
        assert_eq!(learnt(80_000, 80_000), 80_000);
    }

    /// The judgement of windows in each of which `slow` of 32 reads take a millisecond.
    fn judged(slow: u64) -> Vec<Judgement> {
        let (reads, mut now_ns) = (Foreground::default(), 1_000_000_000);
        let first = reads.took(80_000, now_ns, true);
        assert_eq!((first, reads.usual_ns()), (None, 80_000));
        let mut told = Vec::new();
        for i in 1..WINDOW_READS * 4 {
            now_ns += 1_000_000;
            let ns = if i % WINDOW_READS < slow { 1_000_000 } else { 80_000 };
            told.extend(reads.took(ns, now_ns, false));
        }
        assert_eq!(reads.usual_ns(), 80_000, "what was not alone says nothing of an idle device");
        told
    }

    #[test]
    fn a_window_is_judged_by_its_slow_reads() {
        assert_eq!(judged(0), [Judgement::Fine; 4]);
        assert_eq!(judged(1)[1..], [Judgement::Fine; 3]);
        assert_eq!(judged(2)[1..], [Judgement::Between; 3]);
        assert_eq!(judged(3)[1..], [Judgement::Slow; 3]);
    }

    #[test]
    fn few_reads_are_judged_too_and_after_a_rest_a_window_begins_anew() {
        let reads = Foreground::default();
        let mut told = Vec::new();
        for i in 0..30 {
            told.extend(reads.took(if i == 0 { 80_000 } else { 400_000 }, 1 + i * 90_000_000, i == 0));
        }
        assert_eq!(told, [Judgement::Slow; 4]);
        let now_ns = 30 * 90_000_000;
        assert!(reads.is_reading(now_ns) && !reads.is_reading(now_ns + IDLE_NS));
        assert_eq!(reads.took(400_000, 100_000_000_000, false), None);
    }

    #[test]
    fn what_comes_from_a_cache_may_be_late() {
        let reads = Foreground::default();
        let told = (0..40)
            .find_map(|i| reads.took(if i == 0 { 2_000 } else { 90_000 }, (i + 1) * 1_000_000, i == 0));
        assert_eq!(told, Some(Judgement::Fine));
    }
}
