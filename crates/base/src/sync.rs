//! Synchronization types: locks that ignore poisoning, conditions, cells, and atomics.
//!
//! A panic in one thread must not cause panics in all others. Where a panic could leave
//! inconsistent state behind, the owner of that state poisons the engine explicitly (see
//! `ErrorKind::Poisoned`).
//!
//! The crates above take these types only from here (a test refuses those of `std::sync`). So a
//! schedule can be imposed on all of them in one place (feature `sched`, for campaigns; without it
//! the types are the standard library's). There are four kinds:
//!
//! * the types of this module and of [`atomic`]: for waits of one thread for another, and for
//!   values that one thread writes and another acts on;
//! * [`model`]: the same, for modules small enough that loom explores all their schedules;
//! * [`statistic`]: counters and estimates. A slightly old value is fine, so their order has no
//!   meaning, and no schedule controls them;
//! * [`leaf`]: locks under which a thread waits for nothing, neither a lock nor a file nor a
//!   condition. Their order adds no interleavings to those of the calls around them.

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

/// Atomics whose values threads act on.
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
