//! Threads that read the windows of a file before the one who looks at them asks.
//!
//! Each thread claims the lowest window that nobody has, reads it without a lock and puts it on the shelf. Who looks at the
//! file takes the windows in their order: one that is on the shelf or under way is waited for, one that nobody has claimed
//! or that a thread failed to bring is read at once. So nobody depends on a thread that has not begun, and where none can be
//! started there is nothing here at all.
//!
//! A window comes with the outcome of reading it, and that is told only when the window is asked for: what is wrong behind
//! the place where replay ends is never heard of, as if it had not been read.
//!
//! Invariants: each window is claimed once. No more than [`WINDOWS_MAX`] are claimed and not taken. A thread that has claimed a
//! window always puts something on the shelf, also if it panics. Nothing is read, and nobody waits, under the lock. When
//! [`Ahead`] is dropped its threads have ended.

use super::Windows;
use base::Result;
use base::sync::{Condvar, Mutex, lock, rank, wait};
use io::{AlignedBuf, Env, InPlaceFile, Priority, ThreadHandle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Threads for one file. What they do is to wait for the device, so there may be more of them than cores.
pub(super) const READERS: usize = 2;
/// Windows that are read and were not taken yet; also those that a file must have to be worth threads.
pub(super) const WINDOWS_MAX: u64 = 4;

/// A window that was read, and how that went. `None`: the thread that read it has panicked.
type Read = Option<(AlignedBuf, Result<()>)>;

#[derive(Default)]
struct Shelf {
    /// The lowest window that nobody has claimed.
    next: u64,
    /// Those below were taken.
    taken: u64,
    /// Read and not taken.
    ready: BTreeMap<u64, Read>,
    /// Buffers to be used again.
    spare: Vec<AlignedBuf>,
    /// Nobody asks any more.
    is_over: bool,
}

struct Shared {
    file: Arc<dyn InPlaceFile>,
    windows: Windows,
    /// Which windows are claimed, read and taken. Held for a moment, never while a window is read.
    shelf: Mutex<Shelf, rank::LogAhead>,
    /// A window came on the shelf: for who takes them.
    came: Condvar,
    /// One was taken, or it is over: for the threads.
    went: Condvar,
}

/// A claimed window. It comes on the shelf when this ends, however it ends.
struct Claim<'s> {
    shared: &'s Shared,
    window: u64,
    read: Read,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.shared.shelf).ready.insert(self.window, self.read.take());
        self.shared.came.notify_one();
    }
}

impl Shared {
    /// Claims a window as soon as there is room for one. `None`: there is no more to do.
    fn claim(&self) -> Option<(Claim<'_>, AlignedBuf)> {
        let mut shelf = lock(&self.shelf);
        loop {
            if shelf.is_over || shelf.next >= self.windows.count() {
                return None;
            }
            if shelf.next < shelf.taken + WINDOWS_MAX {
                break;
            }
            shelf = wait(&self.went, shelf);
        }
        let claim = Claim { shared: self, window: shelf.next, read: None };
        shelf.next += 1;
        Some((claim, shelf.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(0))))
    }

    fn run(&self) {
        while let Some((mut claim, mut buf)) = self.claim() {
            let read = self.windows.read(&*self.file, claim.window, &mut buf);
            claim.read = Some((buf, read));
        }
    }
}

/// Threads that read a file ahead. See the module.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<Box<dyn ThreadHandle>>,
}

impl Ahead {
    /// Starts the threads. `None`: there are none to be had, or the file is too short.
    pub fn start(env: &Env, file: &Arc<dyn InPlaceFile>, windows: Windows) -> Option<Ahead> {
        let spawner = env.spawner.as_ref().filter(|_| windows.count() >= WINDOWS_MAX)?;
        let shared = Arc::new(Shared {
            file: file.clone(),
            windows,
            shelf: Mutex::default(),
            came: Condvar::default(),
            went: Condvar::default(),
        });
        let start = |n: usize| {
            let shared = shared.clone();
            let body = Box::new(move || shared.run());
            // One less is slower, and nothing else.
            spawner.spawn(&format!("lava-replay-{n}"), Priority::Foreground, body).ok()
        };
        let threads: Vec<_> = (0..READERS).map_while(start).collect();
        (!threads.is_empty()).then_some(Ahead { shared, threads })
    }

    /// Takes a window, which must be the one behind the last that was taken. The buffer has that one until then.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn take(&self, window: u64, buf: &mut AlignedBuf) -> Result<()> {
        let Shared { file, windows, shelf, came, went } = &*self.shared;
        let mut shelf = lock(shelf);
        debug_assert_eq!(window, shelf.taken, "windows are taken in their order");
        let mut read = None;
        if window < shelf.next {
            read = loop {
                match shelf.ready.remove(&window) {
                    Some(read) => break read,
                    None => shelf = wait(came, shelf),
                }
            };
        }
        shelf.taken = window + 1;
        shelf.next = shelf.next.max(shelf.taken);
        let there = read.map(|(there, read)| {
            shelf.spare.push(std::mem::replace(buf, there));
            read
        });
        drop(shelf);
        went.notify_one();
        there.unwrap_or_else(|| windows.read(&**file, window, buf))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        lock(&self.shared.shelf).is_over = true;
        self.shared.went.notify_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}
