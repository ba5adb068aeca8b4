//! Time.

use std::fmt;

/// A source of time. In simulation it moves only by sleeps and by the cost of operations.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns monotonic nanoseconds since some fixed point.
    fn now_ns(&self) -> u64;
    /// Returns wall-clock seconds since 1970 (for expiry and file properties; may jump).
    fn unix_seconds(&self) -> u64;
    /// Waits. In simulation it advances the clock and returns at once.
    fn sleep_ns(&self, ns: u64);
}
