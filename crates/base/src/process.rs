//! The process that a handle belongs to, and the refusal of its use in a child process.
//!
//! `fork` copies the memory of a process, but not its threads. In the child the locks of vanished threads stay locked for
//! ever, nobody does background work, and a write to a file that both processes have open damages the store of the
//! parent. So a child must not use anything that its parent opened: every entry point asks [`Process::check`] before it
//! takes a lock, and the files of the kernel ask it once more before each call that changes something.
//!
//! **How a child is recognized.** One cell of memory holds a mark, which is never 0 while a handle exists. The kernel
//! clears the cell in the memory of a child (`io::kernel::process` sets that up). A handle remembers the mark at its
//! creation; another mark means another process. A child that opens a store of its own gets a mark that no process above
//! it has had. So the check is one load and one comparison, without a system call.
//!
//! `vfork` and `posix_spawn` share memory with the parent and clear nothing: to the check their child is the parent, which
//! is what it must be, since whatever it wrote would be seen by the parent.
//!
//! Invariants: the cell is replaced only while it holds 0, hence before the first handle of a process and never under one. Marks only rise along a
//! chain of processes.

use crate::{Error, ErrorKind, Result};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
// Not those of `sync`: nothing is ordered by a mark, which changes at a fork and nowhere else.
use crate::sync::statistic::{AtomicU64, Ordering};
use std::sync::atomic::AtomicPtr;

/// The mark where nothing clears it: in tests that never call the kernel, and in simulation.
static PLAIN: AtomicU64 = AtomicU64::new(0);
/// The cell that the kernel clears, once there is one.
static CLEARED: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The last mark that was given out in this process or one above.
static LAST: AtomicU64 = AtomicU64::new(0);

/// True once [`set_cell`] has succeeded in this process or one above.
pub fn has_cell() -> bool {
    !CLEARED.load(Ordering::Acquire).is_null()
}

/// Names the cell that the kernel clears in a child. False if there is one already, which stays.
pub fn set_cell(cell: &'static AtomicU64) -> bool {
    let cell = ptr::from_ref(cell).cast_mut();
    CLEARED.compare_exchange(ptr::null_mut(), cell, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The cell in use.
fn cell() -> &'static AtomicU64 {
    let cell = CLEARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from a reference that lives as long as the program (`set_cell`).
    unsafe { cell.cast_const().as_ref() }.unwrap_or(&PLAIN)
}

/// The process in which a handle was made. Cheap to copy.
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
            // Another thread may be faster; its mark counts.
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

/// The error of every call in a child process.
#[cold]
pub fn forked() -> Error {
    let why = "the handle was made before fork(), by a parent process: open the store after the last fork, or start the child with posix_spawn or exec";
    Error::new(ErrorKind::Forked, why)
}

/// A value that is dropped by the process that made it, and leaked by a child.
///
/// A drop gives things back: it joins threads, takes locks, removes files. In a child the threads do not exist, the locks may be held for
/// ever, and the files are the parent's. What is leaked are the child's copies of the parent's pages, which its end gives back.
pub struct Owned<T> {
    process: Process,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    /// A value of the calling process.
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
            // SAFETY: the value is dropped here alone; `into_inner` forgets the whole instead.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
