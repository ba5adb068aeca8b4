//! State that every part of a store shares: the environment, the location, health, signals.
//!
//! * `health`: whether the store still takes writes. `gate`: the calls that a close waits for.
//!   `signals`: wake-ups of workers and callers. `counter`: statistics.
//!
//! Events and options belong to each engine, which wraps this context in its own.

mod counter;
mod gate;
mod health;
mod signals;

pub use counter::Counter;
pub use health::Health;
pub use signals::{Driver, Signals};

use crate::pacing::IoLimiter;
use crate::volumes::{Location, Volume, Volumes};
use base::process::Process;
use base::{Error, ErrorKind, Result};
use gate::Gate;
use io::{Access, Cancel, Env, ReadFile};
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the error of a call into a closed store.
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed: open it again")
}

/// The shared state: see the module.
pub struct Context {
    /// The environment. Its file system is that of the store directory, and counts the bytes
    /// written there.
    pub env: Env,
    /// The store directory.
    pub dir: PathBuf,
    /// The volumes of the store's files.
    pub volumes: Volumes,
    /// Whether the store still takes writes.
    pub health: Arc<Health>,
    /// Wake-ups of workers and callers.
    pub signals: Signals,
    /// The process that opened the store.
    pub process: Process,
    gate: Gate,
}

/// A call inside the store: a close waits until this is dropped.
#[derive(Debug)]
#[must_use = "the call is in the store until this is dropped"]
pub struct Entered<'a>(&'a Context);

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.gate.leave() {
            self.0.signals.notify_progress();
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({})", self.dir.display())
    }
}

impl Context {
    /// Creates the context of a store at `location`.
    pub fn new(env: &Env, location: Location) -> Context {
        Context {
            env: location.env(env),
            dir: location.dir.clone(),
            volumes: Volumes::new(location),
            health: Arc::default(),
            signals: Signals::default(),
            process: Process::here(),
            gate: Gate::default(),
        }
    }

    /// Begins a call that may change the store, or reads it at length.
    ///
    /// # Errors
    /// `Forked`; `Closed`.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.check_process()?;
        if self.gate.enter() { Ok(Entered(self)) } else { Err(closed()) }
    }

    /// Fails if the store is closed or being closed.
    ///
    /// # Errors
    /// `Forked`; `Closed`.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.gate.is_shut() { Err(closed()) } else { Ok(()) }
    }

    /// Fails once a long call must end: the store is being closed, or the call is cancelled.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check_call(&self, cancel: Option<&Cancel>) -> Result<()> {
        self.check_open().and_then(|()| io::cancel::check(cancel))
    }

    /// Refuses further calls, and waits for those inside. Long calls end early
    /// ([`Context::check_call`]).
    pub fn shut(&self) {
        self.gate.shut();
        self.signals.notify_work();
        self.signals.notify_progress();
        self.wait_until(|| self.gate.is_empty().then_some(()));
    }

    /// Fails in a child of the process that opened the store. Every call into an engine checks this
    /// before it takes a lock. A lock that a parent's thread held at the fork stays held in the
    /// child for ever.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Returns the path of a file in the store directory.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }

    /// Returns the directory on the full disk, as far as the refusal names it. Errors about the
    /// lack of space name this directory.
    pub fn full_dir(&self, refusal: Option<&Error>) -> PathBuf {
        let log_dir = self.volumes.log_dir();
        match refusal.and_then(Error::file) {
            Some(path) if path.starts_with(&log_dir) => log_dir,
            _ => self.dir.clone(),
        }
    }

    /// Opens a file on the volume that the manifest records.
    ///
    /// # Errors
    /// `Unsupported` if that volume is not here; file system errors.
    pub fn open(&self, volume: Volume, name: &str, access: Access) -> Result<Arc<dyn ReadFile>> {
        let location = self.volumes.at(volume)?;
        location.descriptors.with_one(|| location.fs.open(&location.path(name), access))
    }

    /// Returns the limiter of background device use.
    pub fn pace(&self) -> &Arc<IoLimiter> {
        &self.volumes.directory().pace
    }

    /// Returns the clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.env.clock.now_ns()
    }

    /// Waits until `ready` returns a value. In simulation the caller runs the background work
    /// itself.
    pub fn wait_until<T>(&self, ready: impl FnMut() -> Option<T>) -> T {
        self.signals.wait_until(&self.env, ready)
    }

    /// Waits until background work has made `is_ready` true, or until `until_ns` in clock
    /// nanoseconds.
    pub fn wait_before(&self, until_ns: u64, is_ready: impl FnMut() -> bool) {
        self.signals.wait_before(&self.env, until_ns, is_ready);
    }
}
