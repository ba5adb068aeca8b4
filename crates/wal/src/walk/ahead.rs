//! Threads that read the windows of a file before the one who looks at them asks.
//!
//! There is one set of them for a replay ([`Readers`]), which turns to one group after another; the files of groups are looked at in
//! turn, so that one is read at a time. They are started when the first file comes that is worth them.
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
//! window always puts something on the shelf, also if it panics. Nothing is read, and nobody waits, under the lock. When an
//! [`Ahead`] is dropped no thread has its file any more, and nothing of it is on the shelf; when the [`Readers`] are, their threads have
//! ended.

use super::Windows;
use base::Result;
use base::sync::{Condvar, Mutex, lock, rank, wait};
use io::{AlignedBuf, Env, InPlaceFile, Priority, ThreadHandle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Threads of a replay. What they do is to wait for the device, so there may be more of them than cores.
pub(super) const READERS: usize = 2;
/// Windows that are read and were not taken yet; also those that a file must have to be worth threads.
pub(super) const WINDOWS_MAX: u64 = 4;

/// A window that was read, and how that went. `None`: the thread that read it has panicked.
type Read = Option<(AlignedBuf, Result<()>)>;

/// What is read.
struct Source {
    file: Arc<dyn InPlaceFile>,
    windows: Windows,
}

#[derive(Default)]
struct Shelf {
    /// The file that is looked at.
    source: Option<Arc<Source>>,
    /// The lowest window that nobody has claimed.
    next: u64,
    /// Those below were taken.
    taken: u64,
    /// How many are claimed and not on the shelf.
    claimed: u64,
    /// Read and not taken.
    ready: BTreeMap<u64, Read>,
    /// Buffers to be used again.
    spare: Vec<AlignedBuf>,
    /// There are no more files.
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    /// Which windows are claimed, read and taken. Held for a moment, never while a window is read.
    shelf: Mutex<Shelf, rank::LogAhead>,
    /// A window came on the shelf: for who takes them.
    came: Condvar,
    /// One was taken, a file has come, or it is over: for the threads.
    went: Condvar,
}

/// A claimed window. It comes on the shelf when this ends, however it ends.
struct Claim<'s> {
    shared: &'s Shared,
    source: Option<Arc<Source>>,
    window: u64,
    read: Read,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Before it is told: nobody has the file then.
        self.source = None;
        let mut shelf = lock(&self.shared.shelf);
        shelf.claimed -= 1;
        shelf.ready.insert(self.window, self.read.take());
        self.shared.came.notify_one();
    }
}

impl Shared {
    /// Claims a window as soon as there is room for one. `None`: there is no more to do.
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

/// The threads of a replay. See the module.
pub(crate) struct Readers<'e> {
    env: &'e Env,
    shared: Arc<Shared>,
    threads: Vec<Box<dyn ThreadHandle>>,
}

impl<'e> Readers<'e> {
    /// None yet.
    pub fn new(env: &'e Env) -> Readers<'e> {
        Readers { env, shared: Arc::default(), threads: Vec::new() }
    }

    /// Has them read a file, the only one until what is returned is dropped. `None`: there are none to be had, or the file is too short.
    pub(super) fn begin(&mut self, file: &Arc<dyn InPlaceFile>, windows: Windows) -> Option<Ahead> {
        let spawner = self.env.spawner.as_ref().filter(|_| windows.count() >= WINDOWS_MAX)?;
        let start = |n: usize| {
            let shared = self.shared.clone();
            let body = Box::new(move || shared.run());
            // One less is slower, and nothing else.
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
    shared: Arc<Shared>,
    source: Arc<Source>,
}

impl Ahead {
    /// Takes a window, which must be the one behind the last that was taken. The buffer has that one until then.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn take(&self, window: u64, buf: &mut AlignedBuf) -> Result<()> {
        let Shared { shelf, came, went } = &*self.shared;
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
