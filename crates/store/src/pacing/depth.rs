//! How many pieces of background work may be at the device at once.
//!
//! More as long as reads in the foreground take what they take on an idle device, half as many whenever more than a few of them take
//! much longer (as a sender of packets does who does not know the line). One may always be there, so that background work goes on.
//!
//! * Flush waits for nothing, and is counted by nobody else: writers wait for it. What it has at the device keeps to the depth.
//! * Where writers wait, whatever for, all background work is theirs: for a moment nothing is cut and nothing held back ([`Depth::is_hurried`]).
//!   What is held back then is paid for by them.

use super::foreground::{Foreground, Judgement};
use super::traffic::Traffic;
use base::sync::model::{Mutex, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use io::ReadBegun;

/// The most pieces at once.
pub const DEPTH_MAX: u32 = 16;
/// As many are there at first, before anything is known.
const DEPTH_FIRST: u32 = DEPTH_MAX / 4;
/// Depths are counted in thousandths of a piece.
pub const ONE: u32 = 1000;
/// The least.
const DEPTH_MIN: u32 = ONE;
/// There is a hurry while writers wait, and for so long after.
const HURRY_NS: u64 = 100_000_000;
/// A read is alone with the device if background work has not begun anything for so long: what is written behind it goes on meanwhile.
const QUIET_NS: u64 = 5_000_000;
/// Who finds no place looks again after so long.
const LOOK_AGAIN_NS: u64 = 50_000;

#[derive(Debug)]
struct State {
    /// Thousandths of a piece.
    depth: u32,
    /// What it was when reads were slow the last time; 0: they never were.
    slow_at: u32,
    /// Pieces at the device, without those of flush.
    in_flight: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Depth {
    /// The depth, and who uses it.
    state: Mutex<State, rank::Depth>,
    /// Pieces that have begun, and those of them that have ended, flush included: whether a read was alone with the device.
    begun: AtomicU64,
    ended: AtomicU64,
    /// When background work was last seen to read or write, whether it was held back or not, in clock nanoseconds.
    worked_ns: AtomicU64,
    /// Until when there is a hurry, in clock nanoseconds.
    hurry_until_ns: AtomicU64,
    /// How long reads in the foreground take.
    pub foreground: Foreground,
    /// How long writes of the log take, on the disk that carries it beside other things.
    pub log: Foreground,
}

impl Depth {
    pub fn new() -> Depth {
        Depth {
            state: Mutex::new(State { depth: DEPTH_FIRST * ONE, slow_at: 0, in_flight: 0 }),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            worked_ns: AtomicU64::new(0),
            hurry_until_ns: AtomicU64::new(0),
            foreground: Foreground::default(),
            log: Foreground::default(),
        }
    }

    /// Thousandths of a piece.
    pub fn get(&self) -> u32 {
        lock(&self.state).depth
    }

    /// True if a writer waited for background work a moment ago.
    pub fn is_hurried(&self, now_ns: u64) -> bool {
        now_ns < self.hurry_until_ns.load(Relaxed)
    }

    /// Pieces begin, at most as many as `wanted` (at least one): how many of them, or how long to wait
    /// before asking again, nanoseconds.
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

    /// Background work reads or writes.
    pub fn works(&self, now_ns: u64) {
        self.worked_ns.store(now_ns, Relaxed);
    }

    /// A writer waits for background work.
    pub fn writers_wait(&self, now_ns: u64) {
        self.hurry_until_ns.store(now_ns.saturating_add(HURRY_NS), Relaxed);
    }

    /// Pieces that began have ended.
    pub fn end(&self, traffic: Traffic, pieces: u32) {
        self.ended.fetch_add(pieces.into(), Relaxed);
        if traffic != Traffic::Flush {
            let mut state = lock(&self.state);
            state.in_flight = state.in_flight.saturating_sub(pieces);
        }
    }

    /// A read in the foreground begins.
    pub fn read_begins(&self, now_ns: u64) -> ReadBegun {
        let worked_ns = self.worked_ns.load(Relaxed);
        let is_idle = self.begun.load(Relaxed) == self.ended.load(Relaxed)
            && (worked_ns == 0 || now_ns.saturating_sub(worked_ns) >= QUIET_NS);
        ReadBegun { at_ns: now_ns, idle: is_idle.then_some(worked_ns) }
    }

    /// It has ended.
    pub fn read_ends(&self, read: ReadBegun, now_ns: u64) {
        self.ends(&self.foreground, read, now_ns);
    }

    /// A write of the log has ended, which began as a read does. By how much it was later than one that is alone, nanoseconds.
    pub fn log_ends(&self, write: ReadBegun, now_ns: u64) -> u64 {
        let (usual_ns, took_ns) = (self.log.usual_ns(), now_ns.saturating_sub(write.at_ns));
        self.ends(&self.log, write, now_ns);
        if usual_ns == 0 { 0 } else { took_ns.saturating_sub(usual_ns) }
    }

    fn ends(&self, of: &Foreground, begun: ReadBegun, now_ns: u64) {
        let was_alone = begun.idle == Some(self.worked_ns.load(Relaxed));
        if let Some(judgement) = of.took(now_ns.saturating_sub(begun.at_ns), now_ns, was_alone) {
            self.follow(judgement);
        }
    }

    /// As after a window of slow reads.
    #[cfg(all(test, not(loom)))]
    pub fn judge_slow(&self) {
        self.follow(Judgement::Slow);
    }

    /// True if nothing is at the device.
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
            // Slowly to where it was too much the last time, so that it is too much seldom; beyond that quickly.
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

    /// Never more pieces at once than the depth says, and each that ends makes room for another, also while the depth changes.
    #[test]
    fn loom_no_place_is_taken_twice_or_lost() {
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

    /// The depth follows each judgement, whoever makes it.
    #[test]
    fn loom_no_judgement_is_lost() {
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
