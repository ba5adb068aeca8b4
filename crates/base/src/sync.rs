//! What threads synchronize by: locks that ignore poisoning, conditions, cells, and the atomics they act on.
//!
//! A panic in one thread must not turn into panics in all others. Where a panic could leave state behind that is not
//! consistent, the owner of that state poisons the engine explicitly (see `ErrorKind::Poisoned`).
//!
//! The crates above take these types from here and nowhere else (a test refuses `std::sync`'s), so that there is one
//! place where a schedule can be imposed on them (feature `sched`, for campaigns; without it the types are the standard
//! library's own). Four kinds:
//!
//! * the types of this module and of [`atomic`]: whatever makes one thread wait for another, or on whose value one thread
//!   acts because another wrote it;
//! * [`model`]: the same, for modules small enough that loom goes through all their schedules;
//! * [`statistic`]: counters and estimates. Any value a moment old will do, so the order in which threads touch
//!   them means nothing, and no schedule looks at them;
//! * [`leaf`]: locks inside which nothing is waited for, neither a lock nor a file nor a condition. Whatever order threads take
//!   them in, there is none to explore that the calls around them do not have.

pub mod leaf;
pub mod model;
#[cfg_attr(feature = "sched", allow(dead_code, unused_imports, reason = "of these, leaves need few"))]
mod plain;
pub mod rank;
mod ranked;
#[cfg(feature = "sched")]
pub mod schedule;
#[cfg(feature = "sched")]
mod scheduled;
#[cfg(feature = "sched")]
mod scheduled_atomic;

#[cfg(not(feature = "sched"))]
use plain as imp;
#[cfg(feature = "sched")]
use scheduled as imp;

pub use ranked::*;

/// Atomics on whose values threads act.
pub mod atomic {
    #[cfg(feature = "sched")]
    pub use super::scheduled_atomic::*;
    #[cfg(not(feature = "sched"))]
    pub use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
}

/// Atomics that only count or estimate. To be used with `Ordering::Relaxed` and nothing stronger.
pub mod statistic {
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}
