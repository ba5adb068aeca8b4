//! How many levels have their tables on the speed disk, where that moves by itself: a pure function of what was measured.
//!
//! The *pointer* counts levels, from level 0 on, in thousandths, so that it can stand inside a level: then a part of that level's tables belongs there, chosen by
//! their numbers ([`crate::tree::speed_tables::belongs`]). It begins at nothing, with the log alone on the disk, and moves in steps with a time to dwell between them.
//!
//! **What is compared** is how long the same work waits on either disk. For each disk it is known what background work waited for its bytes, and the
//! foreground for its reads, in the last second. From that follows a *price* on each disk, of a byte and of a read, with all that is in the way there: the log and the table
//! work that is there already. What the work on the capacity disk would have waited less at the prices of the speed disk is what is gained by going up, but for what
//! the log would wait longer for it there. What the work on the speed disk would have waited less at the prices of the other, and what the log waited longer than it does
//! alone, is what is gained by going down. The pointer moves where that comes to a part of all that was waited. So it rests where a byte more takes as long on
//! either disk, which is where both give what they can. Nobody has to know how fast a disk is: one that is slow, or that others use as well, has a higher price.
//!
//! **A price that is not known** is found out: the pointer moves a step. If that was wrong it comes back at once, and the next try comes later.
//!
//! **Room** goes before all else: where there is none beside what the log needs the pointer goes down at once, and it goes up only where
//! some is left after that.
//!
//! Invariants: it is between 0 and what is allowed; it turns only after [`TURN`] looks, and after more each time it turns in vain; what is measured over a short time, or
//! with little done in it, moves nothing.

use crate::context::event::SpeedMove;
use crate::tree::speed_tables::{LEVEL, Room};
use store::pacing::DiskLoad as Used;

/// It moves by so much in the first two levels, which are small, and inside the deeper ones; by a whole level where nine tenths of
/// all that is waited for would be spared.
const STEPS: [u32; 2] = [LEVEL / 2, LEVEL / 4];
/// Time is counted in looks. Where it has moved the other way before, it waits for so many at least.
const TURN: u64 = 4;
/// It never waits for more.
const TURN_MAX: u64 = 128;
/// After a try it does not try again for so many, twice as many after each one.
const TRY: u64 = 64;
const TRY_MAX: u64 = 1024;
/// One side must outweigh the other by such a part of all that was waited for.
const MARGIN_PART: i128 = 12;
/// What waited for less than such a part of the time is not worth a move.
const IDLE_PART: i128 = 20;
/// A price is learnt from so much at least.
const BYTES_MIN: u64 = 256 << 10;
const READS_MIN: u64 = 16;
/// A price that was not paid for so many is not known any more.
const FORGOTTEN: u64 = 60;

/// What is known when the pointer is looked at. The loads are what was done since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub now_ns: u64,
    pub speed: Used,
    pub capacity: Used,
    pub room: Room,
    /// The most that it may be: what is allowed, and the levels that there are.
    pub most: u32,
    /// A bit for each level in which there is something. It makes no stop in others.
    pub filled: u32,
}

/// What one unit of work costs on a disk, in nanoseconds of waiting for a mebibyte or a thousand reads.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    ns: u64,
    /// When it was paid the last time; 0: never.
    at: u64,
    /// What was done since, and waited for it: too little so far to say anything.
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
        // Half of it is what was before, so that one odd second turns nothing.
        self.ns = if self.is_known(look) { self.ns / 2 + ns / 2 } else { ns }.max(1);
        self.at = look;
    }

    fn is_known(&self, look: u64) -> bool {
        self.at > 0 && look.saturating_sub(self.at) < FORGOTTEN
    }
}

/// Prices of one disk.
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

/// What the work of one disk would have waited on the other, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Elsewhere {
    /// What it waited, as far as both prices are known, and what it would have waited.
    here_ns: i128,
    there_ns: i128,
    /// What was waited for what has no price there.
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

    /// What would not have been waited; below nothing: what would have been in addition.
    fn gain_ns(&self) -> i128 {
        self.here_ns - self.there_ns
    }
}

/// What was waited for one disk, but by the log.
fn waited_ns(used: &Used) -> i128 {
    i128::from(used.bytes_ns) + i128::from(used.reads_ns)
}

/// Steps that were made to find out what is on the other disk.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// The last step was one.
    is_one: bool,
    /// The next one may be made then, and the one after it so much later.
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
    /// How often it was looked at, and when the last time.
    looks: u64,
    seen_ns: u64,
    /// At which look it moved last, and which way; 0: at none.
    moved_at: u64,
    went_up: bool,
    /// How long it waits before it turns; 0: [`TURN`].
    turn: u64,
    tries: Tries,
    speed: Prices,
    capacity: Prices,
}

impl Pointer {
    /// Levels on the speed disk, in thousandths.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// Takes in what was done since it was looked at last, and moves if it should.
    pub fn see(&mut self, window: &Window) -> Option<SpeedMove> {
        self.looks += 1;
        let (look, took_ns) = (self.looks, window.now_ns.saturating_sub(self.seen_ns));
        self.seen_ns = window.now_ns;
        self.at = self.at.min(window.most);
        self.speed.learn(look, &window.speed);
        self.capacity.learn(look, &window.capacity);
        if window.room == Room::Short && self.at > 0 {
            self.go(window, false, false);
            return Some(SpeedMove::NoRoom);
        }
        if look == 1 {
            return None;
        }
        let up = Elsewhere::of(look, &window.capacity, &self.capacity, &self.speed);
        let down = Elsewhere::of(look, &window.speed, &self.speed, &self.capacity);
        let late_ns = if self.at > 0 { i128::from(window.speed.log_late_ns) } else { 0 };
        let there_ns = waited_ns(&window.speed);
        // What comes makes the log wait as much longer as what is there does.
        let up_ns = up.gain_ns() - late_ns * up.there_ns / there_ns.max(1);
        let down_ns = down.gain_ns() + late_ns;
        let all_ns = there_ns + waited_ns(&window.capacity) + late_ns;
        let least_ns = (all_ns / MARGIN_PART).max(i128::from(took_ns) / IDLE_PART);
        let rises = window.room == Room::Plenty && self.at < window.most && self.may_go(true);
        let falls = self.at > 0 && self.may_go(false);
        // Where nobody knows whether the other disk is better it is tried.
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
        Some(if up { SpeedMove::CapacityIsBusy } else { SpeedMove::SpeedIsBusy })
    }

    /// On the way that it went before at each look, and back at once from a try; else the other way when it has stayed long enough.
    fn may_go(&self, up: bool) -> bool {
        self.moved_at == 0
            || up == self.went_up
            || self.tries.is_one
            || self.looks.saturating_sub(self.moved_at) >= self.turn.max(TURN)
    }

    /// A step. Each turn makes the next one wait longer, and each step on the same way makes it wait less long.
    fn go(&mut self, window: &Window, up: bool, by_level: bool) {
        let turns = self.moved_at > 0 && up != self.went_up;
        let wait = self.turn.max(TURN);
        self.turn = if turns { (wait * 2).min(TURN_MAX) } else { (wait / 2).max(TURN) };
        // Level 0 gets whatever is flushed.
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

    /// True if it has stayed for a while: then what is there may follow it.
    pub fn is_settled(&self) -> bool {
        self.looks.saturating_sub(self.moved_at) >= TURN
    }
}

#[cfg(test)]
mod tests;
