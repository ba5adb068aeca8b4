//! Admission of writes: the write rate follows the drain rate of the chain behind it.
//!
//! On-off stalls (full speed until a limit, then nothing until it clears) are what makes tail latencies of LSM trees
//! bad. Here each write is charged a delay in proportion to its bytes, and the price rises smoothly with how far the
//! chain is behind, so that a limit is approached but in the normal case never hit. Of all families:
//!
//! * **memory**: the active memtable must not fill before the frozen ones are flushed. With `room` bytes left in the
//!   budget, `backlog` bytes still to flush and a measured flush rate `f`, the allowed rate is `f / 2 * room / backlog`: a flush gives its memory
//!   back at its end, and may be slower than those before it. The rate is that of the flush under way if that is lower.
//! * **space**: with a part `x` of the margin below the space limit left, the allowed rate is `x^2 / (1 - x)` times the
//!   rate of collection: no limit at the border of the margin, that rate at 0.62 of it, and nothing at the limit.
//!
//! Of one family:
//!
//! * **L0** ([`Level0`]): from the slow-down depth on the level must not reach its stop before the compactions that drain it have ended. With room for
//!   `r` more memtables until then, `l` that they have still to do and a measured rate `d` of draining, the allowed rate is `d * r / l` at most. With a
//!   part `x` of the way from the stop to the slow-down depth left it is `x / (1 - x)` times `d`, but where one compaction takes all there is.
//! * **levels**: from [`EXCESS_SLOW_PERCENT`] percent of the store in tables above the targets of their levels on, writers come to
//!   the rate at which the tree absorbs what is flushed: with `e` percent more the allowed rate is that rate times
//!   [`EXCESS_BALANCE_PERCENT`]` / e`, and far above less.
//! * **garbage**: above a bound for garbage in vSSTs writers come to the rate at which collection frees bytes: with `g`
//!   percent above the bound the allowed rate is that rate times [`GARBAGE_BALANCE_PERCENT`]` / g`, and far above less. It
//!   has no step, so writers do not rush ahead and wait in turns, and space stays bounded however fast they are.
//!
//! The lowest rate of what is the store's is charged to the store's [`crate::context::pacer::Pacer`], that of a family to the family's. A write pays at
//! those that it has to do with, for all of its bytes, in pieces, and looks
//! anew after each what the price is: so a batch of a thousand puts pays what they would have paid one by one, nobody pays a
//! price that is not asked any more, and what is left when there is no limit any more is forgiven. Writers sleep
//! before they take the writer's lock, so that nobody else waits for what one of them owes. The functions here are pure; the write path
//! sleeps. After vLSM (admission control rather than stops).

use crate::context::drain::level_0::Draining;
use crate::context::event::StallCause;
use crate::context::pacer::RATE_FLOOR;
use crate::context::verdict::{CREDIT_BYTES_MAX, CREDIT_PARTS, Payer};
use crate::tree::chain::EXCESS_SLOW_PERCENT;

/// Where the chain stands, as the write path sees it: what all families share, or what is one family's. Nothing else is asked of what is left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Bytes of all memtables.
    pub memory_used: u64,
    /// Their budget.
    pub memory_max: u64,
    /// Bytes of frozen memtables not yet flushed.
    pub backlog: u64,
    /// Measured bytes of memtable flushed per second.
    pub flush_bytes_per_s: u64,
    /// Level 0, if it is deeper than where slowing starts.
    pub l0: Option<Level0>,
    /// Tables above the targets of their levels, in percent of what the family keeps.
    pub excess_percent: u64,
    /// Measured bytes that the tree absorbs per second, if that is known.
    pub absorbed_bytes_per_s: Option<u64>,
    /// How far exposed garbage lies above where slowing starts, in percent of what lives.
    pub garbage_over_percent: u64,
    /// Measured bytes of garbage freed per second.
    pub gc_bytes_per_s: u64,
    /// Bytes left below the space limit, as long as they are less than `space_margin`.
    pub space_room: u64,
    /// From so little room on writers are slowed down; 0: there is no limit, or room enough.
    pub space_margin: u64,
}

/// A level 0 that is deeper than where slowing starts. In tables, which are memtables that were flushed; parts of them count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level0 {
    /// How deep it is, with what is in memtables and comes there next.
    pub depth: f64,
    /// Where slowing starts.
    pub slowdown: f64,
    /// Where writes stop.
    pub stop: f64,
    /// What drains it.
    pub draining: Draining,
    /// Measured bytes of it compacted away per second; 0: not known.
    pub bytes_per_s: u64,
}

impl Level0 {
    /// What is allowed: all of it where a compaction takes all of level 0, so that the level is half as deep as the stop when that has ended; else what drains it,
    /// times [`Self::balanced`], and no more than what keeps it from the stop until what is under way has ended.
    ///
    /// Before anything was measured, a quarter of the flush rate stands in.
    fn allowed_rate(&self, flush_bytes_per_s: u64) -> u64 {
        let known = Some(self.bytes_per_s).filter(|rate| *rate > 0);
        let rate = known.unwrap_or(flush_bytes_per_s / 4).max(RATE_FLOOR) as f64;
        let Draining { takes, left, takes_all, .. } = self.draining;
        // One is kept in hand at both ends: else the last of the room would be gone before the last of the work.
        let evenly = |rest: f64, left: f64| (rest.min(self.stop) - self.depth).max(0.0) / (left + 1.0);
        let part = match takes_all {
            // The next one has all of it to do.
            true if takes == 0.0 => evenly(self.stop / 2.0 + self.depth, self.depth),
            true => evenly(self.stop / 2.0 + takes, left),
            false => evenly(self.stop, left).min(self.balanced()),
        };
        ((rate * part) as u64).max(RATE_FLOOR / 4)
    }

    /// With a part x of the way from the stop to where slowing starts: x / (1 - x), so it comes to rest in the middle if what drains it was measured well,
    /// at two thirds if that is half of it, and has no step anywhere. What compactions under way have done counts
    /// as if they had ended: else the price would rise while they run, and fall with each that ends.
    fn balanced(&self) -> f64 {
        let depth = self.depth - self.draining.fallen;
        let x = (self.stop - depth) / (self.stop - self.slowdown).max(1.0);
        if x < 1.0 { x.max(0.0) / (1.0 - x) } else { f64::INFINITY }
    }
}

/// How far above its bound garbage may come to rest, in percent of what lives.
const GARBAGE_BALANCE_PERCENT: u64 = 5;

/// How far above [`EXCESS_SLOW_PERCENT`] excess may come to rest.
const EXCESS_BALANCE_PERCENT: u64 = 10;

/// What is left of a rate with something `over` percent above its bound that comes to rest `balance` percent above: all of it there, more
/// below, and far above less and less.
fn balanced(rate: f64, over_percent: u64, balance_percent: u64) -> u64 {
    let scarce = balance_percent as f64 / over_percent.max(1) as f64;
    ((rate * scarce * scarce.min(0.5) * 2.0) as u64).max(RATE_FLOOR / 4)
}

impl Pressure {
    /// The rate at which collection frees bytes. Before anything was collected, an eighth of the flush rate stands in.
    fn collected_per_s(&self) -> f64 {
        self.gc_bytes_per_s.max(self.flush_bytes_per_s / 8).max(RATE_FLOOR) as f64
    }

    /// The rate at which the tree absorbs what is flushed. Before that was measured, a quarter of the flush rate stands in.
    fn absorbed_per_s(&self) -> f64 {
        self.absorbed_bytes_per_s.unwrap_or(self.flush_bytes_per_s / 4).max(RATE_FLOOR) as f64
    }

    /// True if writers are slowed down for what lies above the targets of the levels.
    pub fn is_slow_for_levels(&self) -> bool {
        self.excess_percent > EXCESS_SLOW_PERCENT
    }

    /// The part of it that slows this payer down.
    pub fn on(self, payer: Payer) -> Pressure {
        match payer {
            Payer::Write => self,
            Payer::Deletes => Pressure { space_room: 0, space_margin: 0, ..self },
            Payer::Segment => Pressure { backlog: 0, l0: None, excess_percent: 0, ..self },
        }
    }

    /// Bytes of writes for which a look at it is good: few where little room is left.
    pub fn credit_bytes(&self) -> u64 {
        let memory = (self.memory_max > 0).then(|| self.memory_max.saturating_sub(self.memory_used));
        let space = (self.space_margin > 0).then_some(self.space_room);
        let room = memory.into_iter().chain(space).min().unwrap_or(u64::MAX);
        (room / CREDIT_PARTS).min(CREDIT_BYTES_MAX)
    }

    /// The allowed rate in bytes per second and what limits it; `None` if there is no limit.
    pub fn allowed_rate(&self) -> Option<(u64, StallCause)> {
        let memory = (self.backlog > 0).then(|| {
            let room = self.memory_max.saturating_sub(self.memory_used);
            // Half: what a flush was believed to do and does not is waited for at its end, by all at once.
            let half = self.flush_bytes_per_s.max(RATE_FLOOR) as f64 * 0.5;
            let rate = half * room as f64 / self.backlog as f64;
            ((rate as u64).max(RATE_FLOOR / 4), StallCause::Memory)
        });
        let l0 = self.l0.map(|l0| (l0.allowed_rate(self.flush_bytes_per_s), StallCause::L0));
        let garbage = (self.garbage_over_percent > 0).then(|| {
            let rate = balanced(self.collected_per_s(), self.garbage_over_percent, GARBAGE_BALANCE_PERCENT);
            (rate, StallCause::Garbage)
        });
        let levels = self.is_slow_for_levels().then(|| {
            let over = self.excess_percent - EXCESS_SLOW_PERCENT;
            (balanced(self.absorbed_per_s(), over, EXCESS_BALANCE_PERCENT), StallCause::Levels)
        });
        let space = (self.space_room < self.space_margin).then(|| {
            let x = self.space_room as f64 / self.space_margin as f64;
            let rate = self.collected_per_s() * x * x / (1.0 - x);
            ((rate as u64).max(RATE_FLOOR / 4), StallCause::Space)
        });
        [memory, l0, levels, garbage, space].into_iter().flatten().min_by_key(|(rate, _)| *rate)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
