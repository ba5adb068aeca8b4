//! The server: finds requests, takes them, and answers them one after another.

use super::format::{self, LEN_MAX};
use super::names::{self, Id, RequestFile};
use super::{LOOK_NS, directory};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use io::{CreateOptions, Env};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Pause after a slow scan, as a multiple of its duration.
const PAUSE_TIMES: u64 = 50;
/// Maximum number of waiting requests; further ones are refused.
const WAITING_MAX: usize = 16;
/// Maximum number of requests that one scan considers.
const SEEN_MAX: usize = 256;

/// The requests to a store.
pub struct Mailbox {
    env: Env,
    dir: PathBuf,
    /// Time of the next scan; `u64::MAX`: a scan is running.
    next_look_ns: AtomicU64,
    /// The requests that this process has taken.
    taken: Mutex<Taken, rank::Requested>,
}

#[derive(Default)]
struct Taken {
    waiting: VecDeque<Id>,
    current: Option<Id>,
    /// A thread serves until no request waits.
    is_served: bool,
}

impl Mailbox {
    /// Creates the mailbox of a store, when the store is opened.
    pub fn new(env: &Env, store: &Path) -> Mailbox {
        let next_look_ns = AtomicU64::new(env.clock.now_ns().saturating_add(LOOK_NS));
        Mailbox { env: env.clone(), dir: directory(store), next_look_ns, taken: Mutex::default() }
    }

    /// Returns true if a scan is due.
    pub fn is_due(&self) -> bool {
        self.env.clock.now_ns() >= self.next_look_ns.load(Ordering::Relaxed)
    }

    /// Scans for requests and takes them. Returns true if the caller must serve them.
    ///
    /// Errors are ignored: the next scan finds a request that cannot be taken now.
    pub fn look(&self) -> bool {
        let begun_ns = self.env.clock.now_ns();
        let due_ns = self.next_look_ns.load(Ordering::Relaxed);
        let looks = begun_ns >= due_ns
            && self
                .next_look_ns
                .compare_exchange(due_ns, u64::MAX, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !looks {
            return false;
        }
        let _ = self.take_all();
        let now_ns = self.env.clock.now_ns();
        let pause_ns = now_ns.saturating_sub(begun_ns).saturating_mul(PAUSE_TIMES).max(LOOK_NS);
        self.next_look_ns.store(now_ns.saturating_add(pause_ns), Ordering::Relaxed);
        let mut taken = lock(&self.taken);
        let begins = !taken.is_served && !taken.waiting.is_empty();
        taken.is_served |= begins;
        begins
    }

    /// Serves requests until none waits.
    pub fn serve(&self, checkpoint: &dyn Fn(&Path) -> Result<()>) {
        while let Some(id) = self.next() {
            let outcome = self.target(id).and_then(|target| checkpoint(&target));
            self.answer(id, &outcome);
        }
    }

    fn next(&self) -> Option<Id> {
        let mut taken = lock(&self.taken);
        taken.current = taken.waiting.pop_front();
        taken.is_served = taken.current.is_some();
        taken.current
    }

    fn take_all(&self) -> Result<()> {
        let fs = &self.env.fs;
        if !fs.exists(&self.dir)? {
            return Ok(());
        }
        let mut requests: BTreeMap<Id, BTreeSet<RequestFile>> = BTreeMap::new();
        for (id, part) in fs.list(&self.dir)?.iter().filter_map(|entry| names::parse(&entry.name)) {
            if requests.len() < SEEN_MAX || requests.contains_key(&id) {
                requests.entry(id).or_default().insert(part);
            }
        }
        let mut left = false;
        for (id, parts) in requests {
            left |= self.is_own(id) || self.take(id, &parts);
        }
        if !left {
            // Fails if a client has begun a request meanwhile.
            let _ = fs.remove_dir(&self.dir);
        }
        Ok(())
    }

    fn is_own(&self, id: Id) -> bool {
        let taken = lock(&self.taken);
        taken.current == Some(id) || taken.waiting.contains(&id)
    }

    /// Takes a request, if it is one. Returns false if nothing of it is left.
    fn take(&self, id: Id, parts: &BTreeSet<RequestFile>) -> bool {
        if !self.is_awaited(id) {
            self.remove(id);
            return false;
        }
        if parts.contains(&RequestFile::Answer) {
            return true;
        }
        if parts.contains(&RequestFile::Taken) {
            let why = "the process that took the request ended before it answered: if the copy \
                       is no store, request it again";
            self.answer(id, &Err(Error::new(ErrorKind::Closed, why)));
        } else if parts.contains(&RequestFile::Request)
            && self
                .env
                .fs
                .rename(&self.path(id, RequestFile::Request), &self.path(id, RequestFile::Taken))
                .is_ok()
        {
            let is_full = {
                let mut taken = lock(&self.taken);
                let is_full = taken.waiting.len() >= WAITING_MAX;
                if !is_full {
                    taken.waiting.push_back(id);
                }
                is_full
            };
            if is_full {
                let why = "too many requests for checkpoints are waiting (at most 16), and this one was \
                           dropped: try again later";
                self.answer(id, &Err(Error::new(ErrorKind::Busy, why)));
            }
        }
        true
    }

    /// Returns true if the client waits, or may wait: it holds its lock for as long.
    fn is_awaited(&self, id: Id) -> bool {
        match self.env.fs.lock_to_read(&self.path(id, RequestFile::Lock)) {
            Ok(_) => false,
            Err(e) => e.kind() != ErrorKind::NotFound,
        }
    }

    fn target(&self, id: Id) -> Result<PathBuf> {
        format::target(&self.env.fs.read_all(&self.path(id, RequestFile::Taken), LEN_MAX)?)
    }

    /// Answers a request. Without space for the answer the client sees that its request is gone.
    fn answer(&self, id: Id, outcome: &Result<()>) {
        let _ = self.write_answer(id, &format::answer(outcome));
        let _ = self.env.fs.remove(&self.path(id, RequestFile::Taken));
        if !self.is_awaited(id) {
            self.remove(id);
        }
    }

    fn write_answer(&self, id: Id, text: &str) -> Result<()> {
        write(&self.env, &self.dir, (&id.name(RequestFile::AnswerTemp), &id.name(RequestFile::Answer)), text)
    }

    /// Removes the files of a request. The next scan finds the files that cannot be removed.
    fn remove(&self, id: Id) {
        remove(&self.env, &self.dir, id);
    }

    fn path(&self, id: Id, part: RequestFile) -> PathBuf {
        io::fs::join(&self.dir, &id.name(part))
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mailbox({})", self.dir.display())
    }
}

/// Writes a small file under a temporary name and renames it.
pub(super) fn write(env: &Env, dir: &Path, (temp, name): (&str, &str), text: &str) -> Result<()> {
    let temp = io::fs::join(dir, temp);
    let mut file = env.fs.create(&temp, &CreateOptions::default())?;
    file.append(text.as_bytes()).and_then(|()| file.flush())?;
    drop(file);
    env.fs.rename(&temp, &io::fs::join(dir, name))
}

/// Removes the files of a request, the lock last.
pub(super) fn remove(env: &Env, dir: &Path, id: Id) {
    for part in RequestFile::ALL {
        let _ = env.fs.remove(&io::fs::join(dir, &id.name(part)));
    }
}
