//! Whether the log is written so much that background work is to leave it a thread.
//!
//! What durable writes of the log wait for is the device, and jobs write there, too: each in pieces, but several jobs have several pieces there at
//! once. So while the log has a durable write under way for [`HEAVY_PERCENT`] of the time, one job less runs than there are threads, and at least one
//! (SpanDB, section 4.3, which takes background workers away from where loggers are). It is over when that falls below [`LIGHT_PERCENT`]:
//! between the two all stays as it is. A flush is not counted and never waits, nor does level 0, and where writers wait for background work, or
//! room is short, nothing is held back at all.
//!
//! It is a pure function of the time that durable writes have taken in all, which is looked at whenever somebody looks for work.

/// The log is written much from so many percent of the time on.
const HEAVY_PERCENT: u64 = 50;
/// And no more from here on.
const LIGHT_PERCENT: u64 = 20;
/// The shortest time that says anything.
const WINDOW_NS: u64 = 50_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogLoad {
    /// When the window began, in clock nanoseconds, and what durable writes had taken by then.
    since_ns: u64,
    taken_ns: u64,
    is_heavy: bool,
}

impl LogLoad {
    /// As it is now, where durable writes have taken so long in all.
    pub fn seen(self, now_ns: u64, taken_ns: u64) -> LogLoad {
        let window_ns = now_ns.saturating_sub(self.since_ns);
        if window_ns < WINDOW_NS {
            return self;
        }
        // Several at once count as one and more: then it is heavy all the more.
        let percent = taken_ns.saturating_sub(self.taken_ns).saturating_mul(100) / window_ns;
        let bound = if self.is_heavy { LIGHT_PERCENT } else { HEAVY_PERCENT };
        LogLoad { since_ns: now_ns, taken_ns, is_heavy: percent >= bound }
    }

    /// Jobs that may run at once beside it; `None`: as many as there are threads for.
    pub fn jobs_max(self, threads: usize) -> Option<usize> {
        self.is_heavy.then(|| threads.saturating_sub(1).max(1))
    }
}

#[cfg(test)]
mod tests;
