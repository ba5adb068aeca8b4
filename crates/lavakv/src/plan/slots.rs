//! The number of threads that compaction and garbage collection may use.
//!
//! **By pressure** (Scavenger+, equations 4 to 6). Compaction reduces the distance of the trees
//! from their ideal shape. Collection reduces exposed garbage to the amount that its threshold
//! leaves:
//!
//! ```text
//! P_index = S_index - (1 + sum T^-i, i = 1 .. L-1)       S_index: bytes of all levels / bytes of the last
//! P_value = G_E / D - R_G / (1 - R_G)                    G_E: exposed garbage, D: live records, R_G: threshold
//! Max_GC  = N * P_value / (P_index + P_value)
//! ```
//!
//! The paper leaves the extremes open. Here a pressure is never negative. Each class keeps a thread
//! while it has work, so that neither starves the other: collection frees only garbage that
//! compaction has exposed. A share must differ from the current number of threads by more than
//! [`HYSTERESIS`], or similar pressures would move a thread back and forth. Tree bytes are
//! compensated sizes, as in all decisions about the shape of a tree.
//!
//! **By fill** (LavaKV, figure 9 of LavaStore). Up to [`FILL_LAZY_PERCENT`] of the available space
//! only the pressures decide. Above that, collection gets more threads regardless of the pressures,
//! and from [`FILL_URGENT_PERCENT`] on all of them. Collection then precedes all deeper compactions
//! but one, because a compaction needs space before it frees any.
//!
//! **By the log.** Beside a busy log, at most one job less than threads runs (`log_load`).
//!
//! These are bounds, not pools: a thread without work in one class serves the other (see
//! `jobs::next_job`). Flush and level 0 are not bounded here.

use crate::tree::summary::Pressure;

/// Fill of the space, in percent, up to which only the pressures decide.
pub(crate) const FILL_LAZY_PERCENT: u64 = 75;
/// Fill from which all work that frees space runs.
pub(crate) const FILL_URGENT_PERCENT: u64 = 90;
/// Difference in threads above which a class gains or loses one.
const HYSTERESIS: f64 = 0.75;

/// Bounds on concurrent jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Compactions below level 0.
    pub compactions: usize,
    /// Collections.
    pub collections: usize,
    /// The subset of `collections` that precedes compactions below level 0.
    pub urgent: usize,
    /// `collections` by the pressures alone, an input of the next [`Slots::of`].
    pub by_pressure: usize,
}

impl Slots {
    /// Returns constant bounds. Collection may use every thread, because all other work preempts it
    /// between steps. Compaction leaves one thread free, if there are several.
    pub fn fixed(threads: usize) -> Slots {
        let compactions = all_but_one(threads);
        Slots { compactions, collections: threads, urgent: 0, by_pressure: threads }
    }

    /// Returns the bounds by pressure and fill. `before`: [`Slots::by_pressure`] of the previous
    /// decision.
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
            // Threads that collection gains by fill are not taken from compaction, which exposes
            // garbage.
            compactions: (threads - by_pressure.min(threads)).clamp(1, most),
            collections: by_pressure.max(by_fill),
            urgent,
            by_pressure,
        }
    }

    /// Applies the configured maximum of compactions (0: none). The maximum replaces the bound if
    /// collection needs only one thread, and caps it otherwise.
    pub fn limited(self, threads: usize, compactions_max: usize) -> Slots {
        let compactions = match compactions_max {
            0 => self.compactions,
            max if self.compactions == all_but_one(threads) => max,
            max => max.min(self.compactions),
        };
        Slots { compactions, ..self }
    }
}

/// Returns all threads but one, which is left to flush and level 0; at least one.
pub(super) fn all_but_one(threads: usize) -> usize {
    threads.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests;
