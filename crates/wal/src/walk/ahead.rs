//! Threads that read windows of a file ahead of the replay.
//!
//! A replay has one set of threads ([`Readers`]), for one group after another. Group files are
//! replayed in turn, so one is read at a time. The threads are started with the first file that is
//! long enough.
//!
//! Each thread claims the lowest unclaimed window, reads it without a lock and puts it on the
//! shelf. The replay takes the windows in order. It waits for a window that is on the shelf or
//! being read. It reads a window itself if no thread has claimed it, or if the thread failed to
//! deliver it. So the replay never depends on a thread that has not begun, and it works without
//! threads.
//!
//! The result of reading a window is reported only when the replay takes the window. Errors behind
//! the place where replay ends are never reported, as if the window had not been read.
//!
//! Invariants: each window is claimed once. At most [`WINDOWS_MAX`] windows are claimed and not
//! taken. A thread that has claimed a window always puts a result on the shelf, also if it panics.
//! No read and no wait happens under the lock. When an [`Ahead`] is dropped, no thread holds its
//! file any more, and nothing of it is on the shelf. When the [`Readers`] are dropped, their
//! threads have ended.

use super::Windows;
use base::Result;
use base::sync::{Condvar, Mutex, lock, rank, wait};
use io::{AlignedBuf, Env, InPlaceFile, Priority, ThreadHandle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Threads of a replay. They mostly wait for the device, so there may be more of them than cores.
pub(super) const READERS: usize = 2;
/// Most windows that are read and not taken; also the fewest windows of a file that justify
/// threads.
pub(super) const WINDOWS_MAX: u64 = 4;

/// Contents of a window, and the result of reading it. `None`: the thread that read it has
/// panicked.
type Read = Option<(AlignedBuf, Result<()>)>;

/// The file to read, and its windows.
struct Source {
    file: Arc<dyn InPlaceFile>,
    windows: Windows,
}

#[derive(Default)]
struct Shelf {
    /// The present file.
    source: Option<Arc<Source>>,
    /// The lowest unclaimed window.
    next: u64,
    /// The windows below were taken.
    taken: u64,
    /// Windows that are claimed and not on the shelf.
    claimed: u64,
    /// Windows that are read and not taken.
    ready: BTreeMap<u64, Read>,
    /// Buffers for reuse.
    spare: Vec<AlignedBuf>,
    /// There are no more files.
    is_over: bool,
}

#[derive(Default)]
struct SharedShelf {
    /// Claimed, read and taken windows. Held for a moment, never while a window is read.
    shelf: Mutex<Shelf, rank::LogAhead>,
    /// Signals the replay: a window came on the shelf.
    came: Condvar,
    /// Signals the threads: a window was taken, a file has come, or the replay is over.
    went: Condvar,
}

/// A claimed window. Its result comes on the shelf when this is dropped, in any case.
struct Claim<'s> {
    shared: &'s SharedShelf,
    source: Option<Arc<Source>>,
    window: u64,
    read: Read,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Dropped before the signal, so that no thread holds the file afterwards.
        self.source = None;
        let mut shelf = lock(&self.shared.shelf);
        shelf.claimed -= 1;
        shelf.ready.insert(self.window, self.read.take());
        self.shared.came.notify_one();
    }
}

impl SharedShelf {
    /// Waits for room and claims a window. `None`: the replay is over.
    fn claim(&self) -> Option<(Claim<'_>, AlignedBuf)> {
        let mut shelf = lock(&self.shelf);
        let source = loop {
            if shelf.is_over {
                return None;
            }
            let is_next = |source: &&Arc<Source>| {
                shelf.next < source.windows.count() && shelf.next < shelf.taken + WINDOWS_MAX
            };
            if let Some(source) = shelf.source.as_ref().filter(is_next) {
                break source.clone();
            }
            shelf = wait(&self.went, shelf);
        };
        let claim = Claim { shared: self, source: Some(source), window: shelf.next, read: None };
        (shelf.next, shelf.claimed) = (shelf.next + 1, shelf.claimed + 1);
        Some((claim, shelf.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(0))))
    }

    fn run(&self) {
        while let Some((mut claim, mut buf)) = self.claim() {
            let Some(source) = &claim.source else { return };
            let read = source.windows.read(&*source.file, claim.window, &mut buf);
            claim.read = Some((buf, read));
        }
    }
}

/// The threads of a replay; see the module.
pub(crate) struct Readers<'e> {
    env: &'e Env,
    shared: Arc<SharedShelf>,
    threads: Vec<Box<dyn ThreadHandle>>,
}

impl<'e> Readers<'e> {
    /// Returns a set without threads.
    pub fn new(env: &'e Env) -> Readers<'e> {
        Readers { env, shared: Arc::default(), threads: Vec::new() }
    }

    /// Starts to read a file ahead, the only one until the result is dropped. `None`: there are no
    /// threads, or the file is too short.
    pub(super) fn begin(&mut self, file: &Arc<dyn InPlaceFile>, windows: Windows) -> Option<Ahead> {
        let spawner = self.env.spawner.as_ref().filter(|_| windows.count() >= WINDOWS_MAX)?;
        let start = |n: usize| {
            let shared = self.shared.clone();
            let body = Box::new(move || shared.run());
            // With fewer threads the replay is slower, and nothing else.
            spawner.spawn(&format!("lava-replay-{n}"), Priority::Foreground, body).ok()
        };
        self.threads.extend((self.threads.len()..READERS).map_while(start));
        if self.threads.is_empty() {
            return None;
        }
        let source = Arc::new(Source { file: file.clone(), windows });
        let mut shelf = lock(&self.shared.shelf);
        debug_assert!(shelf.source.is_none(), "files are looked at in turn");
        (shelf.source, shelf.next, shelf.taken) = (Some(source.clone()), 0, 0);
        drop(shelf);
        self.shared.went.notify_all();
        Some(Ahead { shared: self.shared.clone(), source })
    }
}

impl Drop for Readers<'_> {
    fn drop(&mut self) {
        lock(&self.shared.shelf).is_over = true;
        self.shared.went.notify_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

/// A file that is read ahead.
pub(super) struct Ahead {
    shared: Arc<SharedShelf>,
    source: Arc<Source>,
}

impl Ahead {
    /// Takes a window, which must be the one after the last taken. The buffer holds that one until
    /// then.
    ///
    /// # Errors
    /// Those of reading the window.
    pub fn take(&self, window: u64, buf: &mut AlignedBuf) -> Result<()> {
        let SharedShelf { shelf, came, went } = &*self.shared;
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
        there.unwrap_or_else(|| self.source.windows.read(&*self.source.file, window, buf))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut shelf = lock(&self.shared.shelf);
        shelf.source = None;
        while shelf.claimed > 0 {
            shelf = wait(&self.shared.came, shelf);
        }
        let left = std::mem::take(&mut shelf.ready).into_values().flatten();
        shelf.spare.extend(left.map(|(buf, _)| buf));
    }
}
