//! Time.

use std::fmt;

/// A source of time. In simulation it moves only when somebody sleeps or an operation is charged for.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Monotonic nanoseconds since some fixed point.
    fn now_ns(&self) -> u64;
    /// Wall-clock seconds since 1970 (for expiry and file properties; may jump).
    fn unix_seconds(&self) -> u64;
    /// Waits. In simulation it advances the clock and returns at once.
    fn sleep_ns(&self, ns: u64);
}
