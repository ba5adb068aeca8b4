//! What every part of a store is given: the machine, the place, health, signals.
//!
//! * `health`: whether the store still takes writes. `gate`: which calls a close waits for. `signals`: who waits for what. `counter`: what is counted.
//!
//! What users are told and what options they have is for each engine to say: an engine wraps this in a context of its own.

mod counter;
mod gate;
mod health;
mod signals;

pub use counter::Counter;
pub use health::Health;
pub use signals::{Driver, Signals};

use crate::pacing::Pace;
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

/// See the module.
pub struct Context {
    /// The machine. Its file system is that of the store's directory, and counts what is made there.
    pub env: Env,
    /// The store's directory.
    pub dir: PathBuf,
    /// Where files are.
    pub volumes: Volumes,
    /// Whether the store still takes writes.
    pub health: Arc<Health>,
    /// Who waits for what.
    pub signals: Signals,
    /// The process that opened the store.
    pub process: Process,
    gate: Gate,
}

/// A call in the store: a close waits until it is dropped.
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
    /// Of a store in one directory.
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

    /// A call that may change the store, or reads it at length, begins.
    ///
    /// # Errors
    /// `Forked`; `Closed`.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.check_process()?;
        if self.gate.enter() { Ok(Entered(self)) } else { Err(closed()) }
    }

    /// Fails in a store that is closed, or that is being closed.
    ///
    /// # Errors
    /// `Forked`; `Closed`.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.gate.is_shut() { Err(closed()) } else { Ok(()) }
    }

    /// Fails once a long call is to end: its store is being closed, or it is cancelled.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check_call(&self, cancel: Option<&Cancel>) -> Result<()> {
        self.check_open().and_then(|()| io::cancel::check(cancel))
    }

    /// Refuses calls from now on, and waits until those that have begun are over. Long ones end early ([`Context::check_call`]).
    pub fn shut(&self) {
        self.gate.shut();
        self.signals.notify_work();
        self.signals.notify_progress();
        self.wait_until(|| self.gate.is_empty().then_some(()));
    }

    /// Fails in a child of the process that opened the store. Every call into an engine asks before it takes a lock: one that
    /// is held by a thread of the parent is held in the child for ever.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// The path of a file in the store's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }

    /// The directory on the disk that had no room, as far as the refusal says which: errors about it name that one.
    pub fn full_dir(&self, refusal: Option<&Error>) -> PathBuf {
        let log_dir = self.volumes.log_dir();
        match refusal.and_then(Error::file) {
            Some(path) if path.starts_with(&log_dir) => log_dir,
            _ => self.dir.clone(),
        }
    }

    /// Opens a file where the manifest says that it is.
    ///
    /// # Errors
    /// `Unsupported` if that volume is not here; those of the file system.
    pub fn open(&self, volume: Volume, name: &str, access: Access) -> Result<Arc<dyn ReadFile>> {
        let location = self.volumes.at(volume)?;
        location.descriptors.with_one(|| location.fs.open(&location.path(name), access))
    }

    /// How much of the device background work may use.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.volumes.directory().pace
    }

    /// The clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.env.clock.now_ns()
    }

    /// Waits until `ready` returns something. In simulation the caller does the work it waits for.
    pub fn wait_until<T>(&self, ready: impl FnMut() -> Option<T>) -> T {
        self.signals.wait_until(&self.env, ready)
    }

    /// Waits until background work has made `is_ready` true, or until `until_ns` in clock nanoseconds.
    pub fn wait_before(&self, until_ns: u64, is_ready: impl FnMut() -> bool) {
        self.signals.wait_before(&self.env, until_ns, is_ready);
    }
}
