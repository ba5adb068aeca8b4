//! The atomics of this crate: the standard ones, or loom's in the model of the memory order.

#[cfg(not(all(loom, test)))]
pub use std::sync::atomic::{AtomicPtr, AtomicUsize};

#[cfg(all(loom, test))]
pub use loom::sync::atomic::{AtomicPtr, AtomicUsize};

pub use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
