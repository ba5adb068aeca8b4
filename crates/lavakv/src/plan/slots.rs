//! How many threads compaction and garbage collection may use.
//!
//! **By pressure** (Scavenger+, equations 4 to 6). What compaction can change is how far the trees of the tables are
//! from their ideal shape, what collection can change is how far exposed garbage is above what its threshold leaves:
//!
//! ```text
//! P_index = S_index - (1 + sum T^-i, i = 1 .. L-1)       S_index: bytes of all levels / bytes of the last
//! P_value = G_E / D - R_G / (1 - R_G)                    G_E: exposed garbage, D: live records, R_G: threshold
//! Max_GC  = N * P_value / (P_index + P_value)
//! ```
//!
//! The paper leaves open what happens at the ends. Here a pressure is never below zero; each class keeps a thread as
//! long as it has work, so that neither can starve the other (collection frees only what compaction has exposed); and
//! a share must differ from the number of threads it would change by more than [`HYSTERESIS`], or two pressures that
//! are nearly alike would move a thread to and fro. Bytes of trees are compensated ones, as everywhere where the shape
//! of a tree is judged.
//!
//! **By fill** (LavaKV, figure 9 of LavaStore). Up to [`FILL_LAZY_PERCENT`] of the space that the store may use the
//! pressures alone decide. From there on collection is given more threads whatever they say, and from
//! [`FILL_URGENT_PERCENT`] on all of them: then it also goes before deeper compactions, but for one thread, because a
//! compaction needs room first and frees it later.
//!
//! **By the log.** While it is written much, one job less runs than there are threads, whatever the others say (`log_load`).
//!
//! These are bounds, not pools: a thread for which one class has no work serves the other (see `jobs::next_job`), and
//! flush and the compaction of level 0 ask nobody.

use crate::tree::summary::Pressure;

/// How full the space of the store may be before it matters to garbage collection, in percent.
pub(crate) const FILL_LAZY_PERCENT: u64 = 75;
/// From here on everything runs that frees space.
pub(crate) const FILL_URGENT_PERCENT: u64 = 90;
/// A class gains or loses a thread when its share differs by more than so many threads.
const HYSTERESIS: f64 = 0.75;

/// Bounds on what runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Compactions below level 0.
    pub compactions: usize,
    /// Collections.
    pub collections: usize,
    /// Of the collections: those that go before compactions below level 0.
    pub urgent: usize,
    /// What `collections` was by the pressures alone: what [`Slots::of`] wants to know the next time.
    pub by_pressure: usize,
}

impl Slots {
    /// The same at all times: collection may use every thread, since everything else goes before it between two of its
    /// steps; compaction leaves one, if there is another.
    pub fn fixed(threads: usize) -> Slots {
        let compactions = all_but_one(threads);
        Slots { compactions, collections: threads, urgent: 0, by_pressure: threads }
    }

    /// By pressure and fill. `before`: [`Slots::by_pressure`] of the last time.
    pub fn of(pressure: &Pressure, threads: usize, fill_percent: u64, before: usize) -> Slots {
        let most = all_but_one(threads);
        let due = threads as f64 * pressure.gc_share();
        let moved = (due - before as f64).abs() > HYSTERESIS;
        let by_pressure = (if moved { due.round() as usize } else { before }).clamp(1, most);
        let span = FILL_URGENT_PERCENT - FILL_LAZY_PERCENT;
        let over = fill_percent.saturating_sub(FILL_LAZY_PERCENT).min(span);
        let by_fill = 1 + (threads - 1) * over as usize / span as usize;
        let urgent = if fill_percent >= FILL_URGENT_PERCENT { most } else { 0 };
        Slots {
            // What fill gives to collection it does not take from compaction, which exposes what is to be collected.
            compactions: (threads - by_pressure.min(threads)).clamp(1, most),
            collections: by_pressure.max(by_fill),
            urgent,
            by_pressure,
        }
    }

    /// With at most so many compactions, where somebody said so (0: nobody did). Where nothing presses, just as many.
    pub fn limited(self, threads: usize, compactions_max: usize) -> Slots {
        let compactions = match compactions_max {
            0 => self.compactions,
            max if self.compactions == all_but_one(threads) => max,
            max => max.min(self.compactions),
        };
        Slots { compactions, ..self }
    }
}

/// All threads but one, so that flush and level 0 find one; at least one.
pub(super) fn all_but_one(threads: usize) -> usize {
    threads.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests;
