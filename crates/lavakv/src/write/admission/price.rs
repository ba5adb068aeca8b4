//! Throttle charges: the allowed write rate follows the measured rates of flush, compaction and
//! collection.
//!
//! On-off stalls (full speed until a limit, then none until it clears) cause the long tail
//! latencies of LSM trees. Here each write is charged a delay in proportion to its bytes. The
//! charge rises smoothly with the compaction debt, so writers approach a limit and in the normal
//! case never reach it. For the whole store:
//!
//! * **memory**: the active memtable must not fill before the frozen ones are flushed. With `room`
//!   bytes left in the budget, `backlog` bytes still to flush and a measured flush rate `f`, the
//!   allowed rate is `f / 2 * room / backlog`. The half allows for a flush that is slower than
//!   those before it, since a flush releases its memory only at its end. `f` is the rate of the
//!   running flush if that is lower.
//! * **space**: with a part `x` of the margin below the space limit left, the allowed rate is
//!   `x^2 / (1 - x)` times the rate of collection. There is no limit at the border of the margin,
//!   that rate at 0.62 of it, and nothing at the limit.
//!
//! For one family:
//!
//! * **L0** ([`Level0`]): from the slowdown depth on, the level must not reach its stop before the
//!   compactions that drain it have ended. With room for `r` more memtables until the stop, `l`
//!   tables of these compactions still to do and a measured drain rate `d`, the allowed rate is at
//!   most `d * r / l`. If a part `x` of the way from the stop to the slowdown depth is left, it is
//!   also at most `x / (1 - x)` times `d`. Compactions that take the whole level are exempt. The
//!   total debt of all writers for it is at most the stall budget: the stop bounds the level if the
//!   rate does not.
//! * **levels**: writes slow down from [`EXCESS_SLOW_PERCENT`] percent of the store over the
//!   targets of its levels on. With `e` percent more, the allowed rate is the absorption rate of
//!   the tree times [`EXCESS_BALANCE_PERCENT`]` / e`, and much less far above. So the bytes over
//!   target come to rest.
//! * **garbage**: writes slow down from a bound for garbage in value files on. With `g` percent
//!   above it, the allowed rate is the rate at which collection frees bytes, times
//!   [`GARBAGE_BALANCE_PERCENT`]` / g`, and much less far above. The limit has no step, so writers
//!   do not rush ahead and wait in turns, and space stays bounded however fast they are.
//!
//! The store has a rate limiter ([`crate::context::write_rate_limiter::WriteRateLimiter`]) for its
//! lowest rate, and each family has one for its own. A write pays at the limiters of the store and
//! of its families, for all of its bytes. It pays in pieces, each at the rate of its moment. So a
//! batch of a thousand puts pays as much as the puts alone, and the rest of a charge lapses with
//! its limit. A write sleeps before it takes the writer's lock, so its debt delays no other write.
//! The functions here are pure; the write path sleeps. No rate falls below a quarter of
//! [`RATE_FLOOR`], and a charge is computed at [`RATE_FLOOR`] or more. A limit that begins or ends
//! with an event must raise the epoch of the store at that event
//! ([`store::context::Signals::state_changed`]). Otherwise the kept verdict hides it for up to 64
//! KiB of writes.
//!
//! **Why the charge of level 0 has no step.** Let `x` be the part of the way from the stop to the
//! slowdown depth that is left. The rate `d * x / (1 - x)` has no limit at the slowdown depth, is
//! `d` in the middle, and `d / 3` at a quarter. The depth rests where writers add as much as
//! compactions drain. With a correct `d` that is the middle. If the level really drains at `d / 2`,
//! it is at two thirds of the way: an error of two moves the rest by a sixth, and not over an edge.
//! Three points make this hold:
//!
//! * The progress of running compactions counts as done, as the number of tables by which level 0
//!   becomes less deep. Otherwise the rate would fall during each job and jump at its end.
//! * `d` is what left level 0, divided by all the time of work on it (`context::drain::level_0`).
//!   Averages of single jobs would give twice the real rate, and the depth would rest next to the
//!   stop.
//! * Near the stop the rate approaches zero. The bound on the total debt then limits the wait of
//!   each write, and the stop bounds the level.
//!
//! After vLSM (admission control instead of stops).

use crate::context::drain::level_0::Draining;
use crate::context::event::StallCause;
use crate::context::write_rate_limiter::RATE_FLOOR;
use crate::context::write_throttle::{CREDIT_BYTES_MAX, CREDIT_PARTS, ChargedKind};
use crate::tree::compaction_debt::EXCESS_SLOW_PERCENT;

/// The pressure on writes: of the whole store, or of one family. A field at its default sets no
/// limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WritePressure {
    /// Bytes of all memtables.
    pub memory_used: u64,
    /// Their budget.
    pub memory_max: u64,
    /// Bytes of frozen memtables not yet flushed.
    pub backlog: u64,
    /// Measured bytes of memtable flushed per second.
    pub flush_bytes_per_s: u64,
    /// Level 0, if it is deeper than the slowdown depth.
    pub l0: Option<Level0>,
    /// Bytes of tables over the targets of their levels, in percent of the family's bytes.
    pub excess_percent: u64,
    /// Measured bytes that the tree absorbs per second, if that is known.
    pub absorbed_bytes_per_s: Option<u64>,
    /// Garbage above the slowdown threshold, in percent of the live data.
    pub garbage_over_percent: u64,
    /// Measured bytes of garbage freed per second.
    pub gc_bytes_per_s: u64,
    /// Bytes left below the space limit, as long as they are less than `space_margin`.
    pub space_room: u64,
    /// Room below which writes are slowed down; 0: there is no limit, or enough room.
    pub space_margin: u64,
}

/// A level 0 deeper than the slowdown depth. Depths are in flushed memtables, and may be fractions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level0 {
    /// Its depth, with the memtables that come there next.
    pub depth: f64,
    /// The depth from which on writes are slowed down.
    pub slowdown: f64,
    /// The depth at which writes stop.
    pub stop: f64,
    /// The compactions that drain it.
    pub draining: Draining,
    /// Measured drain rate, bytes per second; 0: unknown.
    pub bytes_per_s: u64,
}

impl Level0 {
    /// Returns the allowed rate. Where one compaction takes all of level 0, the level is half as
    /// deep as its stop at the end of that compaction. Otherwise it is the rate of draining times
    /// [`Self::balanced`], and low enough that the level stays below its stop until the running
    /// compactions have ended.
    ///
    /// Before the first measurement, a quarter of the flush rate stands in.
    fn allowed_rate(&self, flush_bytes_per_s: u64) -> u64 {
        let known = Some(self.bytes_per_s).filter(|rate| *rate > 0);
        let rate = known.unwrap_or(flush_bytes_per_s / 4).max(RATE_FLOOR) as f64;
        let Draining { takes, left, takes_all, .. } = self.draining;
        // Counts one table more than is left: otherwise the room would end before the work.
        let evenly = |rest: f64, left: f64| (rest.min(self.stop) - self.depth).max(0.0) / (left + 1.0);
        let part = match takes_all {
            // The next compaction has to do all of it.
            true if takes == 0.0 => evenly(self.stop / 2.0 + self.depth, self.depth),
            true => evenly(self.stop / 2.0 + takes, left),
            false => evenly(self.stop, left).min(self.balanced()),
        };
        ((rate * part) as u64).max(RATE_FLOOR / 4)
    }

    /// Returns x / (1 - x) for the part x of the way from the stop to the slowdown. The depth comes
    /// to rest in the middle if the measured drain rate is right, and at two thirds if the real one
    /// is half of that. There is no step. The progress of running compactions counts as done;
    /// otherwise the charge would rise while they run, and fall at each end.
    fn balanced(&self) -> f64 {
        let depth = self.depth - self.draining.fallen;
        let x = (self.stop - depth) / (self.stop - self.slowdown).max(1.0);
        if x < 1.0 { x.max(0.0) / (1.0 - x) } else { f64::INFINITY }
    }
}

/// Garbage comes to rest at most this far above its bound, in percent of the live data.
const GARBAGE_BALANCE_PERCENT: u64 = 5;

/// Bytes over target come to rest at most this far above [`EXCESS_SLOW_PERCENT`].
const EXCESS_BALANCE_PERCENT: u64 = 10;

/// Returns the allowed part of a rate for a quantity `over_percent` above its bound. At
/// `balance_percent` above the bound it is the whole rate, so that the quantity comes to rest
/// there. Below that point it is more, above it is less, and far above much less.
fn balanced(rate: f64, over_percent: u64, balance_percent: u64) -> u64 {
    let scarce = balance_percent as f64 / over_percent.max(1) as f64;
    ((rate * scarce * scarce.min(0.5) * 2.0) as u64).max(RATE_FLOOR / 4)
}

impl WritePressure {
    /// Returns the rate at which collection frees bytes. Before the first collection, an eighth of
    /// the flush rate stands in.
    fn collected_per_s(&self) -> f64 {
        self.gc_bytes_per_s.max(self.flush_bytes_per_s / 8).max(RATE_FLOOR) as f64
    }

    /// Returns the rate at which the tree absorbs flushed tables. Before the first measurement, a
    /// quarter of the flush rate stands in.
    fn absorbed_per_s(&self) -> f64 {
        self.absorbed_bytes_per_s.unwrap_or(self.flush_bytes_per_s / 4).max(RATE_FLOOR) as f64
    }

    /// Returns true if the bytes over the targets of the levels slow writers down.
    pub fn is_slow_for_levels(&self) -> bool {
        self.excess_percent > EXCESS_SLOW_PERCENT
    }

    /// Returns the part that slows this payer down.
    pub fn on(self, payer: ChargedKind) -> WritePressure {
        match payer {
            ChargedKind::Write => self,
            ChargedKind::Deletes => WritePressure { space_room: 0, space_margin: 0, ..self },
            ChargedKind::Segment => WritePressure { backlog: 0, l0: None, excess_percent: 0, ..self },
        }
    }

    /// Returns the bytes of writes for which an evaluation holds: few if little room is left.
    pub fn credit_bytes(&self) -> u64 {
        let memory = (self.memory_max > 0).then(|| self.memory_max.saturating_sub(self.memory_used));
        let space = (self.space_margin > 0).then_some(self.space_room);
        let room = memory.into_iter().chain(space).min().unwrap_or(u64::MAX);
        (room / CREDIT_PARTS).min(CREDIT_BYTES_MAX)
    }

    /// Returns the allowed rate in bytes per second and its cause; `None` if there is no limit.
    pub fn allowed_rate(&self) -> Option<(u64, StallCause)> {
        let memory = (self.backlog > 0).then(|| {
            let room = self.memory_max.saturating_sub(self.memory_used);
            // Half: if a flush is slower than expected, all writers wait at its end at once.
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
