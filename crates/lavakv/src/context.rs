//! What everything else is given: environment, options, events, statistics, health, signals.
//!
//! * `options`, `ablation`: what a user asks for, checked.
//! * `event`, `stats`: what is told and counted.
//! * `health`: whether the store still takes writes. `signals`: who waits for what.
//!
//! It knows of no file and no key, and everything may know it.

pub(crate) mod ablation;
pub(crate) mod event;
pub(crate) mod health;
pub(crate) mod options;
pub(crate) mod signals;
pub(crate) mod stats;

use base::{Error, ErrorKind};
use event::{Event, StallCause};
use health::Health;
use io::Env;
use options::Options;
use signals::Signals;
use stats::Stats;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// See the module.
pub(crate) struct Context {
    pub env: Env,
    /// The store's directory.
    pub dir: PathBuf,
    pub options: Options,
    pub stats: Stats,
    pub health: Health,
    pub signals: Signals,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({})", self.dir.display())
    }
}

impl Context {
    pub fn new(env: Env, dir: &Path, options: Options) -> Context {
        Context {
            env,
            dir: dir.to_owned(),
            options,
            stats: Stats::default(),
            health: Health::default(),
            signals: Signals::default(),
        }
    }

    /// The path of a file of the store.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }

    /// The clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.env.clock.now_ns()
    }

    /// Tells the listener; its panics are its own.
    pub fn tell(&self, event: &Event) {
        let Some(listener) = &self.options.listener else { return };
        if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
            self.stats.listener_panics.add(1);
        }
    }

    /// Waits for background work until `ready` returns something, and books the wait of a writer.
    pub fn stall<T>(&self, cause: StallCause, ready: impl FnMut() -> Option<T>) -> T {
        let start_ns = self.now_ns();
        self.signals.notify_work();
        let out = self.signals.wait_until(&self.env, ready);
        self.record_stall(cause, self.now_ns() - start_ns);
        out
    }

    /// Books a wait of a writer.
    pub fn record_stall(&self, cause: StallCause, ns: u64) {
        self.stats.stalls.add(1);
        self.stats.stall_ns.add(ns);
        self.stats.stall_ns_max.max(ns);
        match cause {
            StallCause::Memory => self.stats.stall_memory_ns.add(ns),
            StallCause::L0 => self.stats.stall_l0_ns.add(ns),
            StallCause::Log => self.stats.stall_log_ns.add(ns),
            StallCause::Garbage => self.stats.stall_garbage_ns.add(ns),
            StallCause::Space => self.stats.stall_space_ns.add(ns),
        }
        self.tell(&Event::Stall { cause, wait_ns: ns });
    }
}

/// An error as the standard library's streams tell it.
pub(crate) fn into_io(e: Error) -> std::io::Error {
    let kind = match e.kind() {
        ErrorKind::NoSpace => std::io::ErrorKind::StorageFull,
        ErrorKind::TooLarge => std::io::ErrorKind::FileTooLarge,
        ErrorKind::InvalidArgument => std::io::ErrorKind::InvalidInput,
        ErrorKind::Corruption => std::io::ErrorKind::InvalidData,
        _ => std::io::ErrorKind::Other,
    };
    std::io::Error::new(kind, e)
}
