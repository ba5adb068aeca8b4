//! The allowed number of background requests in flight at the device.
//!
//! The depth grows while foreground reads are as fast as on an idle device. It halves whenever more
//! than a few of them are much slower (additive increase, multiplicative decrease, as in TCP). At
//! least one request is always allowed, so that background work makes progress.
//!
//! * A flush never waits, because writers wait for it, and does not count for others. Its own
//!   requests stay within the depth.
//! * While writers wait for any reason, all background work is urgent. For a moment nothing is
//!   split or held back ([`Depth::is_hurried`]), because writers would pay for the delay.

use super::foreground::{Judgement, ReadLatency};
use super::traffic::Traffic;
use base::sync::model::{Mutex, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use io::ReadBegun;

/// Maximum number of pieces in flight.
pub const DEPTH_MAX: u32 = 16;
/// Initial depth, before any measurement.
const DEPTH_FIRST: u32 = DEPTH_MAX / 4;
/// Depths are counted in thousandths of a piece.
pub const ONE: u32 = 1000;
const DEPTH_MIN: u32 = ONE;
/// Work is urgent while writers wait, and for this time after.
const HURRY_NS: u64 = 100_000_000;
/// A read is alone at the device if background work has begun nothing for this time: its buffered
/// writes continue meanwhile.
const QUIET_NS: u64 = 5_000_000;
/// Pause between two attempts to get a slot.
const LOOK_AGAIN_NS: u64 = 50_000;

#[derive(Debug)]
struct State {
    /// The depth, in thousandths of a piece.
    depth: u32,
    /// The depth at the last slow window; 0: there was none.
    slow_at: u32,
    /// Pieces in flight, without those of flushes.
    in_flight: u32,
}

/// The depth: see the module.
#[derive(Debug)]
pub struct Depth {
    /// The depth and its use.
    state: Mutex<State, rank::Depth>,
    /// Pieces begun and ended, flushes included: they show whether a read was alone at the device.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Time of the last background request, held back or not, clock nanoseconds.
    worked_ns: AtomicU64,
    /// End of the urgent period, clock nanoseconds.
    hurry_until_ns: AtomicU64,
    /// Latency of foreground reads.
    pub foreground: ReadLatency,
    /// Latency of log writes, on the disk that carries the log beside other files.
    pub log: ReadLatency,
}

impl Depth {
    pub fn new() -> Depth {
        Depth {
            state: Mutex::new(State { depth: DEPTH_FIRST * ONE, slow_at: 0, in_flight: 0 }),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            worked_ns: AtomicU64::new(0),
            hurry_until_ns: AtomicU64::new(0),
            foreground: ReadLatency::default(),
            log: ReadLatency::default(),
        }
    }

    /// Returns the depth in thousandths of a piece.
    pub fn get(&self) -> u32 {
        lock(&self.state).depth
    }

    /// Returns true if a writer waited for background work a moment ago.
    pub fn is_hurried(&self, now_ns: u64) -> bool {
        now_ns < self.hurry_until_ns.load(Relaxed)
    }

    /// Takes up to `wanted` slots, at least one. Returns their number, or the time to wait before
    /// the next attempt, nanoseconds.
    pub fn begin(&self, traffic: Traffic, wanted: u32) -> Result<u32, u64> {
        let mut state = lock(&self.state);
        let whole = state.depth / ONE;
        let granted = if traffic == Traffic::Flush {
            wanted.min(whole)
        } else {
            let granted = wanted.min(whole.saturating_sub(state.in_flight));
            if granted == 0 {
                return Err(LOOK_AGAIN_NS);
            }
            state.in_flight += granted;
            granted
        };
        self.begun.fetch_add(granted.into(), Relaxed);
        Ok(granted)
    }

    /// Records a background request.
    pub fn works(&self, now_ns: u64) {
        self.worked_ns.store(now_ns, Relaxed);
    }

    /// Records that a writer waits for background work.
    pub fn writers_wait(&self, now_ns: u64) {
        self.hurry_until_ns.store(now_ns.saturating_add(HURRY_NS), Relaxed);
    }

    /// Releases slots.
    pub fn end(&self, traffic: Traffic, pieces: u32) {
        self.ended.fetch_add(pieces.into(), Relaxed);
        if traffic != Traffic::Flush {
            let mut state = lock(&self.state);
            state.in_flight = state.in_flight.saturating_sub(pieces);
        }
    }

    /// Records the begin of a foreground read.
    pub fn read_begins(&self, now_ns: u64) -> ReadBegun {
        let worked_ns = self.worked_ns.load(Relaxed);
        let is_idle = self.begun.load(Relaxed) == self.ended.load(Relaxed)
            && (worked_ns == 0 || now_ns.saturating_sub(worked_ns) >= QUIET_NS);
        ReadBegun { at_ns: now_ns, idle: is_idle.then_some(worked_ns) }
    }

    /// Records the end of a foreground read.
    pub fn read_ends(&self, read: ReadBegun, now_ns: u64) {
        self.ends(&self.foreground, read, now_ns);
    }

    /// Records the end of a log write, begun like a read. Returns its delay compared with an
    /// undisturbed write, nanoseconds.
    pub fn log_ends(&self, write: ReadBegun, now_ns: u64) -> u64 {
        let (usual_ns, took_ns) = (self.log.usual_ns(), now_ns.saturating_sub(write.at_ns));
        self.ends(&self.log, write, now_ns);
        if usual_ns == 0 { 0 } else { took_ns.saturating_sub(usual_ns) }
    }

    fn ends(&self, of: &ReadLatency, begun: ReadBegun, now_ns: u64) {
        let was_alone = begun.idle == Some(self.worked_ns.load(Relaxed));
        if let Some(judgement) = of.took(now_ns.saturating_sub(begun.at_ns), now_ns, was_alone) {
            self.follow(judgement);
        }
    }

    /// Acts as after a window of slow reads.
    #[cfg(all(test, not(loom)))]
    pub fn judge_slow(&self) {
        self.follow(Judgement::Slow);
    }

    /// Returns true if nothing is in flight.
    #[cfg(all(test, not(loom)))]
    pub fn is_unused(&self) -> bool {
        lock(&self.state).in_flight == 0 && self.begun.load(Relaxed) == self.ended.load(Relaxed)
    }

    fn follow(&self, judgement: Judgement) {
        let mut state = lock(&self.state);
        state.depth = match judgement {
            Judgement::Slow => {
                state.slow_at = state.depth;
                state.depth / 2
            }
            // Slowly up to the depth of the last slow window, so that slow windows are rare;
            // quickly beyond.
            Judgement::Fine if state.depth < state.slow_at => state.depth + ONE / 16,
            Judgement::Fine => state.depth + ONE,
            Judgement::Between => state.depth,
        }
        .clamp(DEPTH_MIN, DEPTH_MAX * ONE);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    /// In any schedule there are never more pieces in flight than the depth. Each end frees a slot,
    /// also while the depth changes.
    #[test]
    fn loom_no_depth_slot_is_taken_twice_or_lost() {
        check(3, || {
            let depth = Arc::new(Depth::new());
            (0..4).for_each(|_| depth.follow(Judgement::Slow));
            let piece = |depth: &Depth| match depth.begin(Traffic::Compaction, 1) {
                Ok(pieces) => {
                    assert_eq!((pieces, lock(&depth.state).in_flight), (1, 1));
                    depth.end(Traffic::Compaction, pieces);
                }
                Err(wait_ns) => assert_eq!(wait_ns, LOOK_AGAIN_NS),
            };
            let other = {
                let depth = depth.clone();
                thread::spawn(move || piece(&depth))
            };
            depth.begin(Traffic::Flush, 1).unwrap();
            piece(&depth);
            depth.follow(Judgement::Slow);
            other.join().unwrap();
            assert_eq!(lock(&depth.state).in_flight, 0);
            assert_eq!(depth.begin(Traffic::Compaction, 3), Ok(1));
        });
    }

    /// The depth follows each judgment, from any thread.
    #[test]
    fn loom_no_depth_adjustment_is_lost() {
        check(3, || {
            let depth = Arc::new(Depth::new());
            let other = {
                let depth = depth.clone();
                thread::spawn(move || depth.follow(Judgement::Slow))
            };
            depth.follow(Judgement::Slow);
            other.join().unwrap();
            assert_eq!(depth.get(), DEPTH_MIN);
        });
    }
}
