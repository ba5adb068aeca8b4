//! The process that a handle belongs to, and the refusal of its use in a child process.
//!
//! `fork` copies the memory of a process, but not its threads. In the child the locks of vanished
//! threads stay locked forever, and no thread does background work. A write to a file that both
//! processes have open damages the store of the parent. So a child must not use anything that its
//! parent opened. Every entry point calls [`Process::check`] before it takes a lock, and kernel
//! files call it again before each modifying call.
//!
//! **Detection of a child.** One memory cell holds a mark, which is never 0 while a handle exists.
//! The kernel clears the cell in the memory of a child (`io::kernel::process` sets that up). A
//! handle keeps the mark of its creation; another mark means another process. A child that opens
//! its own store gets a mark that none of its ancestors has had. So the check is one load and one
//! comparison, without a system call.
//!
//! `vfork` and `posix_spawn` share memory with the parent and clear nothing. The check treats their
//! child as the parent, which is right, since the parent sees all writes of the child.
//!
//! Invariants: the cell is replaced only while it holds 0, hence before the first handle of a
//! process and never under a handle. Marks only rise along a chain of processes.

use crate::{Error, ErrorKind, Result};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
// Not those of `sync`: a mark orders nothing, and changes only at a fork.
use crate::sync::statistic::{AtomicU64, Ordering};
use std::sync::atomic::AtomicPtr;

/// The mark where nothing clears it: in tests without the kernel, and in simulation.
static PLAIN: AtomicU64 = AtomicU64::new(0);
/// The cell that the kernel clears, once there is one.
static CLEARED: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The last mark assigned in this process or an ancestor.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns true once [`set_cell`] has succeeded in this process or an ancestor.
pub fn has_cell() -> bool {
    !CLEARED.load(Ordering::Acquire).is_null()
}

/// Sets the cell that the kernel clears in a child. Returns false if there already is one, which
/// stays.
pub fn set_cell(cell: &'static AtomicU64) -> bool {
    let cell = ptr::from_ref(cell).cast_mut();
    CLEARED.compare_exchange(ptr::null_mut(), cell, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Returns the cell in use.
fn cell() -> &'static AtomicU64 {
    let cell = CLEARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from a reference that lives as long as the program
    // (`set_cell`).
    unsafe { cell.cast_const().as_ref() }.unwrap_or(&PLAIN)
}

/// The process that made a handle. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    cell: &'static AtomicU64,
    mark: u64,
}

impl Process {
    /// Returns the calling process.
    pub fn here() -> Process {
        let cell = cell();
        loop {
            let mark = cell.load(Ordering::Relaxed);
            if mark != 0 {
                return Process { cell, mark };
            }
            let mark = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            // Another thread may be faster; then its mark counts.
            let _ = cell.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns true in the process in which this was made, false in a child of it.
    #[inline]
    pub fn is_here(self) -> bool {
        self.cell.load(Ordering::Relaxed) == self.mark
    }

    /// Fails in a child of the process.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(forked()) }
    }
}

/// Returns the error of every call in a child process.
#[cold]
pub fn forked() -> Error {
    let why = "the handle was made before fork(), by a parent process: open the store after the last fork, or start the child with posix_spawn or exec";
    Error::new(ErrorKind::Forked, why)
}

/// A value that is dropped by the process that made it, and leaked by a child.
///
/// A drop releases resources: it joins threads, takes locks, removes files. In a child the threads
/// do not exist, the locks may be held forever, and the files belong to the parent. The leak
/// consists of the child's copies of memory pages, which its end releases.
pub struct Owned<T> {
    process: Process,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    /// Returns a value of the calling process.
    pub fn new(value: T) -> Owned<T> {
        Owned { process: Process::here(), value: ManuallyDrop::new(value) }
    }

    /// Returns the process that made it.
    #[inline]
    pub fn process(this: &Self) -> Process {
        this.process
    }

    /// Returns the value, to be dropped by the caller.
    pub fn into_inner(this: Self) -> T {
        let mut this = ManuallyDrop::new(this);
        // SAFETY: `this` is not dropped and not used again, so the value is taken once.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Clone> Clone for Owned<T> {
    fn clone(&self) -> Self {
        Owned { process: self.process, value: self.value.clone() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: the value is dropped only here; `into_inner` forgets the whole instead.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
