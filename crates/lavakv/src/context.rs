//! The context shared by all of LavaKV: the store's environment, health and signals
//! ([`store::context`]), plus options, events and statistics.
//!
//! * `options`, `family_options`, `expert`, `range`, `ablation`: the user's options, with their
//!   checks.
//! * `explain`: derived options, with reasons.
//! * `sizes`: sizes of the files and buffers of a store with these options. `fit`: reductions of
//!   them on a small volume.
//! * `event`, `stats`, `times`: events, counters and times.
//! * `drain`: flush and compaction rates. `write_rate_limiter`: the token bucket. `write_throttle`:
//!   the rate it grants.
//!
//! The context depends on no file and no key, so every other module may depend on it.

pub(crate) mod ablation;
pub(crate) mod drain;
pub(crate) mod event;
pub(crate) mod expert;
pub(crate) mod explain;
pub(crate) mod family_options;
pub(crate) mod fit;
pub(crate) mod options;
mod range;
pub(crate) mod sizes;
pub(crate) mod stats;
pub(crate) mod times;
pub(crate) mod write_rate_limiter;
pub(crate) mod write_throttle;

use base::{Error, ErrorKind};
use event::{Event, StallCause};
use fit::SizeReduction;
use io::{Env, ReadQueues};
use options::Options;
use stats::Stats;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::descriptors::open_max;
use store::volumes::Location;
use times::Times;

/// Maximum number of read queues for scans: one per table stream with reads in flight, and one per
/// scan for values.
const READ_QUEUES_MAX: usize = 64;

/// See the module.
pub(crate) struct Context {
    store: Arc<store::context::Context>,
    pub options: Options,
    /// Total budget for memtables, cached because each write needs it.
    pub memtables_bytes_max: u64,
    /// Data files that stay open, if no other store is open in the process.
    pub open_files_max: usize,
    /// Engines that share the store.
    pub engines: u64,
    /// The reduction of sizes relative to the given options.
    pub fit: SizeReduction,
    pub stats: Stats,
    pub times: Times,
    /// Read queues of iterators.
    pub read_queues: Arc<ReadQueues>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

impl Deref for Context {
    type Target = store::context::Context;
    fn deref(&self) -> &store::context::Context {
        &self.store
    }
}

impl Context {
    /// `options` as given by the caller; `fit`: the reduction for the volume; `engines`: the number
    /// of engines in the store.
    pub fn new(env: &Env, location: Location, options: Options, fit: SizeReduction, engines: u64) -> Context {
        let store = Arc::new(store::context::Context::new(env, location));
        store.pace().budget.set(options.io_budget);
        if !options.expert.ablation.io_pacing {
            store.pace().switch_off();
        }
        if !options.expert.ablation.measured_reads {
            store.pace().ignore_costs();
        }
        options.expert.read_gap_bytes.into_iter().for_each(|bytes| store.pace().give_gap(bytes));
        let times = Times::new(&store.env);
        let read_queues = Arc::new(ReadQueues::new(env, READ_QUEUES_MAX));
        let options = fit.store(&options.derived());
        let memtables_bytes_max = options.memtables_bytes_max() as u64;
        let open_files_max = open_max(&*store.env.fs, options.open_files_max, engines);
        let stats = Stats::default();
        Context {
            store,
            options,
            memtables_bytes_max,
            open_files_max,
            engines,
            fit,
            stats,
            times,
            read_queues,
        }
    }

    /// Returns the part of the context that belongs to the store.
    pub fn store(&self) -> &Arc<store::context::Context> {
        &self.store
    }

    /// Notifies the listener, and catches its panics.
    pub fn notify(&self, event: &Event) {
        let Some(listener) = &self.options.listener else { return };
        if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
            self.stats.listener_panics.add(1);
        }
    }

    /// Returns the number of data files that may stay open, given the stores that are open now.
    pub fn open_files_allowed(&self) -> usize {
        self.open_files_max.min(self.volumes.directory().descriptors.part(self.engines))
    }

    /// Notifies the listener if fewer than `asked` files may be open.
    pub fn tell_open_files(&self, asked: usize) {
        let (allowed, limit) = (self.open_files_allowed(), self.env.fs.open_files_limit());
        if let Some(limit) = limit.filter(|_| allowed < asked) {
            self.notify(&Event::OpenFilesBounded { asked, allowed, limit });
        }
    }

    /// Waits for background work until `is_ready`, or until `until_ns` in clock nanoseconds.
    /// Records the wait as a write stall.
    pub fn stall_before(&self, until_ns: u64, cause: StallCause, is_ready: impl FnMut() -> bool) {
        let start_ns = self.now_ns();
        self.signals.notify_work();
        self.wait_before(until_ns, is_ready);
        self.record_stall(cause, self.now_ns() - start_ns);
    }

    /// Records an operation that waited longer than the stall budget, and notifies the listener.
    /// `cause` is the longest wait.
    pub fn record_over_budget(&self, cause: StallCause, wait_ns: u64) {
        self.stats.stalls_over_budget.add(1);
        self.stats.of_stall(cause).over_budget.add(1);
        self.notify(&Event::StallOverBudget { cause, wait_ns });
    }

    /// Records a write stall. A throttle charge paid in parts is one stall, with the cause of its
    /// last part.
    pub fn record_stall(&self, cause: StallCause, ns: u64) {
        self.pace().writers_wait();
        self.stats.stalls.add(1);
        self.stats.stall_ns.add(ns);
        self.stats.stall_ns_max.max(ns);
        self.times.waited(cause, ns);
        self.stats.of_stall(cause).ns.add(ns);
        self.notify(&Event::Stall { cause, wait_ns: ns });
    }
}

/// Nanoseconds of a duration.
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts an error for the stream traits of the standard library.
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
