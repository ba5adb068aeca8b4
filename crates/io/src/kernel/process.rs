//! Child processes: detection by a cell that the kernel clears, and release of inherited locks.
//!
//! **The cell** of [`base::process`] is on a page of its own with `MADV_WIPEONFORK`: a child finds
//! zeros there, whether it was made by `fork`, `_Fork` or the bare system call. `vfork` and
//! `posix_spawn` share the memory of the parent until their `exec`, so they clear nothing, and must
//! not. Where the kernel does not know the advice (before 4.14), the handler below clears the cell,
//! which covers only `fork`.
//!
//! **Locks.** `flock` belongs to the open file description, which a child shares. A child that kept
//! the descriptor would keep the store locked after the death of its parent. So a handler of `fork`
//! closes the descriptors of locks in the child. Closing does not unlock: the parent has its own
//! descriptor. The handler does nothing else: between `fork` and `exec` only async-signal-safe
//! calls are allowed, and `close` is one.
//!
//! Invariants: a slot holds the descriptor of a lock only while it is open: it is entered after the
//! open and removed before the close. So any descriptor that a child finds in a slot was open, and
//! a lock's, at the instant of the fork.

use super::calls;
use crate::buf::PAGE;
use base::process::{has_cell, set_cell};
use base::sync::statistic::AtomicU64;
use rustix::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Locks that a child releases. It keeps any further ones until it ends.
const SLOTS: usize = 1024;
const NONE: RawFd = -1;

static LOCKS: [AtomicI32; SLOTS] = [const { AtomicI32::new(NONE) }; SLOTS];

/// Sets up the detection of children. To be called before anything is opened; it takes effect once.
pub(super) fn watch() {
    if has_cell() {
        return;
    }
    // If the cell fails, only the handler detects a child. If both fail, a child keeps the locks.
    let cell = wiped_cell().unwrap_or(&PLAIN);
    let _ = calls::at_fork(in_child);
    // If another thread was faster its page stays, and this one is never used. The handler may run
    // twice.
    set_cell(cell);
}

/// The cell where the kernel does not clear one.
static PLAIN: AtomicU64 = AtomicU64::new(0);

fn wiped_cell() -> Option<&'static AtomicU64> {
    let page = calls::map_private(PAGE).ok()?;
    // SAFETY: the mapping was just made, and is never given back.
    let wiped = unsafe { calls::wipe_on_fork(page, PAGE) };
    // SAFETY: the mapping begins at a page, which is aligned for any type. It lives as long as the
    // program, and holds zeros, which are a valid value. Nothing else refers to it. A page without
    // the advice is leaked: this happens once.
    wiped.ok().map(|()| unsafe { &*page.cast_const().cast::<AtomicU64>() })
}

/// Runs in a child, before `fork` returns there.
extern "C" fn in_child() {
    PLAIN.store(0, Ordering::Relaxed);
    for slot in &LOCKS {
        let fd = slot.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // SAFETY: by the invariant it was open at the fork. Its owner in this process is a copy
            // of the parent's lock, which does nothing in a child (`lock::KernelLock`).
            unsafe { calls::close(fd) };
        }
    }
}

/// A descriptor that a child releases, until this is dropped, which must happen before the
/// descriptor is closed.
#[derive(Debug)]
pub(super) struct GivenUp(Option<&'static AtomicI32>);

impl GivenUp {
    pub(super) fn new(fd: RawFd) -> GivenUp {
        let enter =
            |slot: &&AtomicI32| slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        GivenUp(LOCKS.iter().find(enter))
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(NONE, Ordering::Relaxed);
        }
    }
}

/// A value per process: a child begins with a new one, whatever the state of its parent's.
pub(super) struct PerProcess<T: 'static>(AtomicPtr<Made<T>>);

struct Made<T> {
    of: base::process::Process,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(super) const fn new() -> Self {
        PerProcess(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of the calling process.
    pub(super) fn get(&self) -> &'static T {
        loop {
            let found = self.0.load(Ordering::Acquire);
            // SAFETY: null, or from `Box::into_raw` below, published with `Release` and never
            // freed.
            if let Some(made) = unsafe { found.as_ref() }.filter(|made| made.of.is_here()) {
                return &made.value;
            }
            // The parent's value is leaked: a lock of it may be held forever.
            let new =
                Box::into_raw(Box::new(Made { of: base::process::Process::here(), value: T::default() }));
            if self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: this thread has just made the box and has not shared it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}
