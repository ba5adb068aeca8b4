//! The client: the process that makes a request.

use super::directory;
use super::format::{self, LEN_MAX};
use super::names::{Id, RequestFile};
use super::server::{remove, write};
use crate::names::{CURRENT, CURRENT_COPY, LOCK};
use base::{Error, ErrorKind, Result};
use io::{Env, FileLock};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between two checks for the answer, nanoseconds.
const POLL_NS: u64 = 50_000_000;
/// Interval between two checks whether a process has the store open, nanoseconds.
const PROBE_NS: u64 = 1_000_000_000;
/// Attempts to begin a request, if the directory disappears meanwhile.
const BEGIN_MAX: usize = 8;

/// Shows how far a requested checkpoint has come, for a display: `Db::request_checkpoint_in` passes
/// it to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointRequest {
    /// The process that has the store open has not found the request yet; it looks about once a
    /// second.
    Waiting,
    /// That process makes this checkpoint, or an earlier requested one. Making it has no time
    /// limit.
    Taken,
}

/// Requests a checkpoint in the directory `target` from the process that has `store` open, and
/// waits for it. `take_within` bounds the time until that process takes the request, not the
/// checkpoint itself. `tell` gets the progress from time to time.
///
/// # Errors
/// Errors of the checkpoint. `InvalidArgument` for a relative target. `NotFound` without a store.
/// `Locked` if no process takes the request in time. `Closed` if no process has the store open, or
/// it ended before it answered. File system errors.
pub fn request_checkpoint(
    env: &Env,
    store: &Path,
    target: &Path,
    take_within: Duration,
    tell: &mut dyn FnMut(CheckpointRequest),
) -> Result<()> {
    check_target(target)?;
    let has = |name: &str| env.fs.exists(&io::fs::join(store, name));
    if !has(CURRENT)? && !has(CURRENT_COPY)? {
        return Err(Error::not_found(
            "there is no store in this directory: name the directory of the store to checkpoint",
        )
        .at_file(store));
    }
    let asked = Asked::begin(env, store, target)?;
    asked.wait(take_within, tell)
}

/// Refuses a relative path, which means another directory in another process.
pub(super) fn check_target(target: &Path) -> Result<()> {
    match target.is_absolute() {
        true => Ok(()),
        false => {
            let why = "the path of a requested checkpoint must be absolute: another process \
                       makes the checkpoint";
            Err(Error::invalid(why).at_file(target))
        }
    }
}

/// A request in progress. The drop withdraws it as far as possible.
struct Asked<'a> {
    env: &'a Env,
    store: &'a Path,
    dir: PathBuf,
    id: Id,
    /// Held while the client waits for an answer.
    lock: Option<Box<dyn FileLock>>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        remove(self.env, &self.dir, self.id);
        self.lock = None;
        // Fails if other requests are there.
        let _ = self.env.fs.remove_dir(&self.dir);
    }
}

impl<'a> Asked<'a> {
    fn begin(env: &'a Env, store: &'a Path, target: &Path) -> Result<Asked<'a>> {
        let dir = directory(store);
        let text = format::request(target);
        let mut tries = 0..BEGIN_MAX;
        loop {
            match Asked::make(env, store, &dir, &text) {
                // Meanwhile the last client or the server removed the directory, or the server
                // probed the lock.
                Err(e)
                    if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Locked)
                        && tries.next().is_some() =>
                {
                    env.clock.sleep_ns(POLL_NS);
                }
                made => return made,
            }
        }
    }

    fn make(env: &'a Env, store: &'a Path, dir: &Path, text: &str) -> Result<Asked<'a>> {
        let id = Id(env.entropy.next_u64());
        env.fs.create_dir_all(dir)?;
        let lock =
            env.fs.lock(&io::fs::join(dir, &id.name(RequestFile::Lock)), "a request for a checkpoint")?;
        let asked = Asked { env, store, dir: dir.to_owned(), id, lock: Some(lock) };
        write(env, dir, (&id.name(RequestFile::RequestTemp), &id.name(RequestFile::Request)), text)?;
        Ok(asked)
    }

    fn wait(&self, take_within: Duration, tell: &mut dyn FnMut(CheckpointRequest)) -> Result<()> {
        let now_ns = || self.env.clock.now_ns();
        let take_within_ns = u64::try_from(take_within.as_nanos()).unwrap_or(u64::MAX);
        let take_until_ns = now_ns().saturating_add(take_within_ns);
        let mut probe_ns = now_ns().saturating_add(PROBE_NS);
        let mut missed = 0;
        loop {
            if let Some(outcome) = self.outcome()? {
                return outcome;
            }
            let state = self.state()?;
            missed = if state.is_none() { missed + 1 } else { 0 };
            if missed > 1 {
                // Between the two checks the server was renaming its files. It writes the answer
                // before it removes the taken request.
                return self.outcome()?.unwrap_or_else(|| Err(self.gone()));
            }
            if state == Some(CheckpointRequest::Waiting) && now_ns() >= take_until_ns && self.withdraws()? {
                return Err(self.not_taken(take_within));
            }
            if now_ns() >= probe_ns {
                if self.is_closed() {
                    return self.outcome()?.unwrap_or_else(|| Err(self.closed()));
                }
                probe_ns = now_ns().saturating_add(PROBE_NS);
            }
            tell(state.unwrap_or(CheckpointRequest::Taken));
            self.env.clock.sleep_ns(POLL_NS);
        }
    }

    /// Returns the answer, if it is there.
    fn outcome(&self) -> Result<Option<Result<()>>> {
        let path = self.path(RequestFile::Answer);
        match self.env.fs.read_all(&path, LEN_MAX) {
            Ok(bytes) => Ok(Some(format::outcome(&bytes))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn state(&self) -> Result<Option<CheckpointRequest>> {
        if self.env.fs.exists(&self.path(RequestFile::Taken))? {
            return Ok(Some(CheckpointRequest::Taken));
        }
        Ok(self.env.fs.exists(&self.path(RequestFile::Request))?.then_some(CheckpointRequest::Waiting))
    }

    /// Withdraws the request. Returns false if the server took it first.
    fn withdraws(&self) -> Result<bool> {
        match self.env.fs.remove(&self.path(RequestFile::Request)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns true if no process has the store open.
    fn is_closed(&self) -> bool {
        self.env.fs.lock_to_read(&io::fs::join(self.store, LOCK)).is_ok()
    }

    fn path(&self, part: RequestFile) -> PathBuf {
        io::fs::join(&self.dir, &self.id.name(part))
    }

    fn not_taken(&self, take_within: Duration) -> Error {
        let seconds = take_within.as_secs();
        let why = format!(
            "the process that holds the store did not take the request for a checkpoint within {seconds} s: it is of an earlier \
             release, has the option checkpoint_requests off, is stopped, or is a command that does not serve the store; take the \
             checkpoint in that process, or end it"
        );
        Error::new(ErrorKind::Locked, why).at_file(self.store)
    }

    fn closed(&self) -> Error {
        let why = "the store was closed before the requested checkpoint was reported: open the \
                   store and take it";
        Error::new(ErrorKind::Closed, why).at_file(self.store)
    }

    fn gone(&self) -> Error {
        let why = "the request for a checkpoint was removed without an answer (no space, or by \
                   hand): if the copy is no store, request it again";
        Error::new(ErrorKind::Closed, why).at_file(self.store)
    }
}
