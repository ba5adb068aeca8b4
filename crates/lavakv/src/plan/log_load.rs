//! Whether the log device is so busy that background jobs leave one thread unused.
//!
//! Durable log writes wait for the device, and jobs write to the same device, each one piece at a
//! time. So while durable log writes are in flight for [`HEAVY_PERCENT`] of the time, at most one
//! job less than threads runs, but at least one. (SpanDB, section 4.3, takes background workers
//! away from loggers in the same way.) The limit ends when the load falls below [`LIGHT_PERCENT`];
//! between the two bounds nothing changes. Flushes are not counted and never wait. Level 0 never
//! waits. There is no limit while writers wait for background work, or while space is short.
//!
//! The result is a pure function of the total time of durable writes, which is sampled at each
//! search for a job.

/// Share of time with a durable write in flight, in percent, from which the load is heavy.
const HEAVY_PERCENT: u64 = 50;
/// Share below which the load is light again.
const LIGHT_PERCENT: u64 = 20;
/// Minimum length of a measurement.
const WINDOW_NS: u64 = 50_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogLoad {
    /// Start of the window on the clock, and the total time of durable writes at that moment.
    since_ns: u64,
    taken_ns: u64,
    is_heavy: bool,
}

impl LogLoad {
    /// Returns the load at `now_ns`, given the total time of durable writes.
    pub fn seen(self, now_ns: u64, taken_ns: u64) -> LogLoad {
        let window_ns = now_ns.saturating_sub(self.since_ns);
        if window_ns < WINDOW_NS {
            return self;
        }
        // Concurrent durable writes count several times, so the load may exceed 100 percent.
        let percent = taken_ns.saturating_sub(self.taken_ns).saturating_mul(100) / window_ns;
        let bound = if self.is_heavy { LIGHT_PERCENT } else { HEAVY_PERCENT };
        LogLoad { since_ns: now_ns, taken_ns, is_heavy: percent >= bound }
    }

    /// Returns the maximum number of concurrent jobs; `None`: the number of threads.
    pub fn jobs_max(self, threads: usize) -> Option<usize> {
        self.is_heavy.then(|| threads.saturating_sub(1).max(1))
    }
}

#[cfg(test)]
mod tests;
