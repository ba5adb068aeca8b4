//! What everything else in LavaKV is given: what the store gives (environment, health, signals: [`store::context`]), and
//! options, events, statistics.
//!
//! * `options`, `family_options`, `expert`, `range`, `ablation`: what a user asks for, checked.
//! * `explain`: the derived ones of them, with reasons.
//! * `sizes`: how long the pieces of a store with these options are. `fit`: what of it is too much for a small volume.
//! * `event`, `stats`, `times`: events, counters and times. `drain`: how fast the bytes of writers are drained. `pacer`: the debts of writers. `verdict`: the rate that they are allowed.
//!
//! It knows of no file and no key, and everything may know it.

pub(crate) mod ablation;
pub(crate) mod drain;
pub(crate) mod event;
pub(crate) mod expert;
pub(crate) mod explain;
pub(crate) mod family_options;
pub(crate) mod fit;
pub(crate) mod options;
pub(crate) mod pacer;
mod range;
pub(crate) mod sizes;
pub(crate) mod stats;
pub(crate) mod times;
pub(crate) mod verdict;

use base::{Error, ErrorKind};
use event::{Event, StallCause};
use fit::Fit;
use io::{Env, ReadQueues};
use options::Options;
use stats::Stats;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use store::descriptors::open_max;
use store::volumes::Location;
use times::Times;

/// Scans that have reads in flight at the same time, counted for each of their tables' streams, and once for their values.
const READ_QUEUES_MAX: usize = 64;

/// See the module.
pub(crate) struct Context {
    store: Arc<store::context::Context>,
    pub options: Options,
    /// What memtables may take, all together, as it follows from these: each write asks for it.
    pub memtables_bytes_max: u64,
    /// Files of data that stay open, if no other store is open in the process.
    pub open_files_max: usize,
    /// Engines that share the store.
    pub engines: u64,
    /// How much smaller than they were given the options are.
    pub fit: Fit,
    pub stats: Stats,
    pub times: Times,
    /// For iterators that have reads in flight.
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
    /// `options` as they were given, `fit` as the volume wants it, `engines` the number of those that share the store.
    pub fn new(env: &Env, location: Location, options: Options, fit: Fit, engines: u64) -> Context {
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

    /// What of it is the store's.
    pub fn store(&self) -> &Arc<store::context::Context> {
        &self.store
    }

    /// Tells the listener; its panics are its own.
    pub fn tell(&self, event: &Event) {
        let Some(listener) = &self.options.listener else { return };
        if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
            self.stats.listener_panics.add(1);
        }
    }

    /// Files of data that stay open beside the stores that are open now.
    pub fn open_files_allowed(&self) -> usize {
        self.open_files_max.min(self.volumes.directory().descriptors.part(self.engines))
    }

    /// Tells the listener if fewer than `asked` files may be open.
    pub fn tell_open_files(&self, asked: usize) {
        let (allowed, limit) = (self.open_files_allowed(), self.env.fs.open_files_limit());
        if let Some(limit) = limit.filter(|_| allowed < asked) {
            self.tell(&Event::OpenFilesBounded { asked, allowed, limit });
        }
    }

    /// Waits for background work until `is_ready`, or until `until_ns` in clock nanoseconds, and books the wait of a writer.
    pub fn stall_before(&self, until_ns: u64, cause: StallCause, is_ready: impl FnMut() -> bool) {
        let start_ns = self.now_ns();
        self.signals.notify_work();
        self.wait_before(until_ns, is_ready);
        self.record_stall(cause, self.now_ns() - start_ns);
    }

    /// Books that an operation has waited longer than the budget, for what longest, and tells it.
    pub fn record_over_budget(&self, cause: StallCause, wait_ns: u64) {
        self.stats.stalls_over_budget.add(1);
        self.stats.of_stall(cause).over_budget.add(1);
        self.tell(&Event::StallOverBudget { cause, wait_ns });
    }

    /// Books a wait of a writer. A throttle charge that was paid in pieces is one wait, for the cause of its last piece.
    pub fn record_stall(&self, cause: StallCause, ns: u64) {
        self.pace().writers_wait();
        self.stats.stalls.add(1);
        self.stats.stall_ns.add(ns);
        self.stats.stall_ns_max.max(ns);
        self.times.waited(cause, ns);
        self.stats.of_stall(cause).ns.add(ns);
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
