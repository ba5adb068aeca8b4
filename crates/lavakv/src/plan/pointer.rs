//! The number of levels on the fast tier, where placement is automatic: a pure function of
//! measurements.
//!
//! The *pointer* counts levels from level 0 on, in thousandths, so it can stand inside a level.
//! Part of that level's tables then belongs on the fast tier, selected by file number
//! ([`crate::tree::fast_tier_tables::belongs`]). The pointer starts at zero, with only the log on
//! the fast tier, and moves in steps with a dwell time between them.
//!
//! **The comparison** estimates how long the same work waits on either tier. Each sample contains,
//! per tier, the time that background work waited for its bytes and the foreground for its reads.
//! That yields a *price* per byte and per read on each tier, including the interference of the log
//! and of other table work. The gain of moving up is the waiting time of capacity-tier work minus
//! its time at fast-tier prices, minus the additional wait of the log. The gain of moving down is
//! the waiting time of fast-tier work minus its time at capacity-tier prices, plus the time that
//! the log loses to interference. The pointer moves if the gain exceeds a part of the total waiting
//! time. So it rests where one more byte takes equally long on both tiers, which is where both
//! deliver their full throughput. No device speed is configured: a slow device, or one with other
//! users, has a higher price.
//!
//! **An unknown price** is measured by a trial step of the pointer. If the step was wrong, the
//! pointer returns at once, and the next trial comes later.
//!
//! **Room** has priority: if tables leave too little room for the log, the pointer goes down at
//! once. It goes up only if room remains beside the log's reservation.
//!
//! Invariants: the pointer is between 0 and the allowed maximum. Except after a trial or for lack
//! of room, it reverses only after [`TURN`] samples, and after more for each fruitless reversal.
//! Short or nearly idle samples move nothing.

use crate::context::event::FastTierChangeReason;
use crate::tree::fast_tier_tables::{FastTierRoom, LEVEL};
use store::pacing::DiskLoad as Used;

/// Step size in the first two levels, which are small, and inside deeper ones. The step is a whole
/// level if nine tenths of the total waiting time would be saved.
const STEPS: [u32; 2] = [LEVEL / 2, LEVEL / 4];
/// Dwell time before a reversal, in samples.
const TURN: u64 = 4;
/// Maximum dwell time before a reversal, in samples.
const TURN_MAX: u64 = 128;
/// Number of samples between trials; it doubles after each trial.
const TRY: u64 = 64;
const TRY_MAX: u64 = 1024;
/// Divisor: a gain must exceed this part of the total waiting time.
const MARGIN_PART: i128 = 12;
/// Divisor: a gain must exceed this part of the elapsed time.
const IDLE_PART: i128 = 20;
/// Minimum work from which a price is learned.
const BYTES_MIN: u64 = 256 << 10;
const READS_MIN: u64 = 16;
/// Number of samples after which an unused price expires.
const FORGOTTEN: u64 = 60;

/// A sample for the pointer. Loads are relative to the previous sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TierWindow {
    pub now_ns: u64,
    pub speed: Used,
    pub capacity: Used,
    pub room: FastTierRoom,
    /// Upper bound of the pointer: the allowed maximum, and the number of levels.
    pub most: u32,
    /// Bit mask of non-empty levels. The pointer does not stop in empty ones.
    pub filled: u32,
}

/// The price of one unit of work on a tier: nanoseconds of waiting per mebibyte or per thousand
/// reads.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    ns: u64,
    /// The last sample that updated the price; 0: never.
    at: u64,
    /// Work since then, and its waiting time: too little to update the price.
    units: u64,
    waited_ns: u64,
}

impl Price {
    fn learn(&mut self, look: u64, units: u64, waited_ns: u64, per: u64, least: u64) {
        (self.units, self.waited_ns) =
            (self.units.saturating_add(units), self.waited_ns.saturating_add(waited_ns));
        if self.units < least {
            return;
        }
        let ns = u128::from(self.waited_ns) * u128::from(per) / u128::from(self.units);
        let ns = ns.try_into().unwrap_or(u64::MAX);
        (self.units, self.waited_ns) = (0, 0);
        // Averages with the previous price, so that one outlier reverses nothing.
        self.ns = if self.is_known(look) { self.ns / 2 + ns / 2 } else { ns }.max(1);
        self.at = look;
    }

    fn is_known(&self, look: u64) -> bool {
        self.at > 0 && look.saturating_sub(self.at) < FORGOTTEN
    }
}

/// Prices of one tier.
#[derive(Clone, Copy, Debug, Default)]
struct Prices {
    byte: Price,
    read: Price,
}

impl Prices {
    fn learn(&mut self, look: u64, used: &Used) {
        self.byte.learn(look, used.bytes, used.bytes_ns, 1 << 20, BYTES_MIN);
        self.read.learn(look, used.reads, used.reads_ns, 1000, READS_MIN);
    }
}

/// Estimated waiting time of one tier's work on the other tier, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Elsewhere {
    /// Actual waiting time of work with both prices known, and its estimate on the other tier.
    here_ns: i128,
    there_ns: i128,
    /// Waiting time of work without a known price on the other tier.
    unknown_ns: i128,
}

impl Elsewhere {
    fn of(look: u64, used: &Used, here: &Prices, there: &Prices) -> Elsewhere {
        let mut all = Elsewhere::default();
        for (waited_ns, here, there) in
            [(used.bytes_ns, here.byte, there.byte), (used.reads_ns, here.read, there.read)]
        {
            let waited_ns = i128::from(waited_ns);
            if !there.is_known(look) {
                all.unknown_ns += waited_ns;
            } else if here.is_known(look) {
                all.here_ns += waited_ns;
                all.there_ns += waited_ns * i128::from(there.ns) / i128::from(here.ns.max(1));
            }
        }
        all
    }

    /// Returns the time saved; negative: the time added.
    fn gain_ns(&self) -> i128 {
        self.here_ns - self.there_ns
    }
}

/// Returns the waiting time for one tier, except that of the log.
fn waited_ns(used: &Used) -> i128 {
    i128::from(used.bytes_ns) + i128::from(used.reads_ns)
}

/// Trial steps, which measure unknown prices of the other tier.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// The last step was a trial.
    is_one: bool,
    /// The earliest sample of the next trial, and the pause after that trial.
    next: u64,
    pause: u64,
}

impl Tries {
    fn may(&self, look: u64) -> bool {
        look >= self.next
    }

    fn begin(&mut self, look: u64) {
        let pause = self.pause.max(TRY);
        let (next, longer) = (look.saturating_add(pause), (2 * pause).min(TRY_MAX));
        *self = Tries { is_one: true, next, pause: longer };
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pointer {
    at: u32,
    /// Number of samples, and time of the last one.
    looks: u64,
    seen_ns: u64,
    /// The sample of the last move, and its direction; 0: never moved.
    moved_at: u64,
    went_up: bool,
    /// Dwell time before a reversal, in samples; 0: [`TURN`].
    turn: u64,
    tries: Tries,
    speed: Prices,
    capacity: Prices,
}

impl Pointer {
    /// Returns the levels on the fast tier, in thousandths.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// Evaluates a sample, and moves the pointer if that pays off.
    pub fn see(&mut self, window: &TierWindow) -> Option<FastTierChangeReason> {
        self.looks += 1;
        let (look, took_ns) = (self.looks, window.now_ns.saturating_sub(self.seen_ns));
        self.seen_ns = window.now_ns;
        self.at = self.at.min(window.most);
        self.speed.learn(look, &window.speed);
        self.capacity.learn(look, &window.capacity);
        if window.room == FastTierRoom::Short && self.at > 0 {
            self.go(window, false, false);
            return Some(FastTierChangeReason::NoRoom);
        }
        if look == 1 {
            return None;
        }
        let up = Elsewhere::of(look, &window.capacity, &self.capacity, &self.speed);
        let down = Elsewhere::of(look, &window.speed, &self.speed, &self.capacity);
        let late_ns = if self.at > 0 { i128::from(window.speed.log_late_ns) } else { 0 };
        let there_ns = waited_ns(&window.speed);
        // Additional work delays the log in proportion to the current work there.
        let up_ns = up.gain_ns() - late_ns * up.there_ns / there_ns.max(1);
        let down_ns = down.gain_ns() + late_ns;
        let all_ns = there_ns + waited_ns(&window.capacity) + late_ns;
        let least_ns = (all_ns / MARGIN_PART).max(i128::from(took_ns) / IDLE_PART);
        let rises = window.room == FastTierRoom::Plenty && self.at < window.most && self.may_go(true);
        let falls = self.at > 0 && self.may_go(false);
        // A trial measures the price of the other tier if it is unknown.
        let may_try = self.tries.may(look);
        let tries_up = may_try && down_ns <= least_ns && up.unknown_ns > least_ns;
        let tries_down =
            may_try && up_ns.max(up.unknown_ns) <= least_ns && down.unknown_ns > i128::from(took_ns) / 2;
        let (up, is_try) = match (up_ns > least_ns, down_ns > least_ns) {
            (true, _) if rises => (true, false),
            (_, true) if falls => (false, false),
            _ if rises && tries_up => (true, true),
            _ if falls && tries_down => (false, true),
            _ => return None,
        };
        let by_level = up_ns.max(down_ns) > all_ns / 10 * 9;
        self.go(window, up, by_level);
        self.tries.is_one = false;
        if is_try {
            self.tries.begin(look);
        }
        Some(if up { FastTierChangeReason::CapacityIsBusy } else { FastTierChangeReason::SpeedIsBusy })
    }

    /// Returns whether the pointer may move in this direction: the previous one, back from a trial,
    /// or any after the dwell time.
    fn may_go(&self, up: bool) -> bool {
        self.moved_at == 0
            || up == self.went_up
            || self.tries.is_one
            || self.looks.saturating_sub(self.moved_at) >= self.turn.max(TURN)
    }

    /// Moves one step. A reversal doubles the dwell time, and a step in the same direction halves
    /// it.
    fn go(&mut self, window: &TierWindow, up: bool, by_level: bool) {
        let turns = self.moved_at > 0 && up != self.went_up;
        let wait = self.turn.max(TURN);
        self.turn = if turns { (wait * 2).min(TURN_MAX) } else { (wait / 2).max(TURN) };
        // Level 0 receives all flushes.
        let is_empty = |level: u32| level > 0 && window.filled.checked_shr(level).unwrap_or(0) & 1 == 0;
        let step = |level: u32| if by_level { LEVEL } else { STEPS[usize::from(level >= 2)] };
        let mut at = self.at;
        if up {
            while at < window.most && is_empty(at / LEVEL) {
                at = (at / LEVEL + 1) * LEVEL;
            }
            self.at = at.saturating_add(step(at / LEVEL)).min(window.most);
        } else {
            while at > 0 && is_empty((at - 1) / LEVEL) {
                at = (at - 1) / LEVEL * LEVEL;
            }
            self.at = at.saturating_sub(step(at.saturating_sub(1) / LEVEL));
        }
        (self.moved_at, self.went_up) = (self.looks, up);
    }

    /// Returns whether the pointer has been stable for a while, so that tables may follow it.
    pub fn is_settled(&self) -> bool {
        self.looks.saturating_sub(self.moved_at) >= TURN
    }
}

#[cfg(test)]
mod tests;
