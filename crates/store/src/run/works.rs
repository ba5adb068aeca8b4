//! The work of two engines that share the threads of one store.
//!
//! Urgent work comes first for both engines: the log and flushes, the primary engine's before the
//! secondary engine's. All other work follows in the same order. So a secondary engine with groups
//! to retain does not wait behind the primary engine's compactions, and neither engine has threads
//! of its own.
//!
//! Invariant: the engine that started a job judges its failure. Jobs do not name their engine, so
//! jobs of the secondary engine are wrapped, and the wrapper reports the failure to the secondary
//! engine.
//!
//! The secondary engine joins once, when it begins to serve, before there are workers. A concurrent
//! query finds the work of the primary engine alone or of both, and later queries find that of
//! both.
//!
//! Requests of other processes come before the work of either engine, but not on the log thread.
//! They are checked at most once a second.

use super::requested::Requested;
use super::{Job, JobClass, Progress, Work, WorkerRole};
use base::sync::OnceLock;
use base::{Error, Result};
use std::sync::Arc;

/// The work of a store's engines: see the module.
pub struct EngineWork {
    host: Arc<dyn Work>,
    secondary: OnceLock<Arc<dyn Work>>,
    requested: OnceLock<Arc<Requested>>,
}

/// The first class of work that is not urgent.
const NOT_URGENT: JobClass = JobClass::Cleanup;

impl EngineWork {
    /// Creates the work of a store without a secondary engine.
    pub fn of(host: Arc<dyn Work>) -> EngineWork {
        EngineWork { host, secondary: OnceLock::new(), requested: OnceLock::new() }
    }

    /// Adds the work of a secondary engine. Call it once, before the workers start.
    pub fn join(&self, secondary: Arc<dyn Work>) {
        self.secondary.set(secondary).unwrap_or_else(|_| unreachable!("a store has one guest"));
    }

    /// Adds the requests of other processes. Once.
    pub(super) fn serve(&self, requested: Arc<Requested>) {
        let _ = self.requested.set(requested);
    }

    /// Returns the job that serves requests, if a check is due and finds any.
    fn of_others(&self, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        let serves = duty != WorkerRole::Log && JobClass::Metrics < below;
        self.requested.get().filter(|_| serves)?.next()
    }

    fn of_secondary(&self, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        let work = self.secondary.get()?;
        let job = work.clone().next(duty, below)?;
        Some(Box::new(GuestJob { work: work.clone(), job }))
    }
}

impl std::fmt::Debug for EngineWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Works({})", if self.secondary.get().is_some() { "host and guest" } else { "host" })
    }
}

impl Work for EngineWork {
    fn next(self: Arc<Self>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        if let Some(job) = self.of_others(duty, below) {
            return Some(job);
        }
        if self.secondary.get().is_none() {
            return self.host.clone().next(duty, below);
        }
        let urgent = below.min(NOT_URGENT);
        let job = self.host.clone().next(duty, urgent).or_else(|| self.of_secondary(duty, urgent));
        if duty == WorkerRole::Log || below <= NOT_URGENT {
            return job;
        }
        job.or_else(|| self.host.clone().next(duty, below)).or_else(|| self.of_secondary(duty, below))
    }

    fn failed(&self, error: Error, inputs: &[u64]) {
        self.host.failed(error, inputs);
    }

    fn can_free(&self) -> bool {
        self.host.can_free() || self.secondary.get().is_some_and(|secondary| secondary.can_free())
    }

    fn is_due(&self) -> bool {
        self.requested.get().is_some_and(|requested| requested.is_due())
    }

    fn last_write(&self) -> u64 {
        self.host.last_write() + self.secondary.get().map_or(0, |secondary| secondary.last_write())
    }
}

struct GuestJob {
    work: Arc<dyn Work>,
    job: Box<dyn Job>,
}

impl Job for GuestJob {
    fn class(&self) -> JobClass {
        self.job.class()
    }

    fn step(&mut self) -> Result<Progress> {
        self.job.step().or_else(|e| {
            self.work.failed(e, &self.job.inputs());
            self.job.abandon();
            Ok(Progress::Done)
        })
    }

    fn inputs(&self) -> Vec<u64> {
        self.job.inputs()
    }

    fn rests(&self) -> bool {
        self.job.rests()
    }

    fn abandon(&mut self) {
        self.job.abandon();
    }
}
