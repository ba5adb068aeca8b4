//! The threads of background work.
//!
//! * Each worker keeps a stack of jobs. Between two steps it looks for a job of a more urgent class
//!   than the one it runs, and runs that first. So a flush waits for one step of a compaction, not
//!   for the compaction, and no thread has to be reserved.
//! * A worker without work sleeps, each time twice as long, up to a second. Some work becomes due
//!   without a notification (the log's watermark, a retry after a refusal, the work of an idle
//!   store), some time after other activity. The worker finds it before the same time has passed
//!   once more. A write wakes the workers that sleep long ([`crate::context::Signals`]).
//! * One more thread only does the log's work. Writers wait for it soonest, and a step of any other
//!   job may take longer than the log has room for.
//!
//! [`Workers`] is the place for one elastic pool of requests and background work: a worker knows a
//! source of jobs ([`Work`]) and a role, and no engine. Today the threads of requests are the
//! reactor's own.

use super::scheduler::{Job, JobClass, Progress, Work, WorkerRole, step};
use crate::context::Context;
use base::sync::{Mutex, lock, rank};
use base::{Error, Result};
use io::{Priority, ThreadHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// First sleep of a worker without work, before it checks for work without notification: a full
/// tail buffer, scarce space.
const IDLE_POLL: Duration = Duration::from_millis(10);
const DOZE_MAX: Duration = Duration::from_secs(1);

/// The background threads of a store.
pub(super) struct Workers {
    context: Arc<Context>,
    /// Number of threads besides the log thread.
    count: usize,
    /// The threads, while they are started or joined.
    threads: Mutex<Vec<Box<dyn ThreadHandle>>, rank::Workers>,
}

impl Workers {
    /// Creates workers that are not started. `count`: threads besides the log thread.
    pub fn new(context: &Arc<Context>, count: usize) -> Workers {
        Workers { context: context.clone(), count, threads: Mutex::default() }
    }

    /// Returns the number of threads besides the log thread.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Starts the threads (none in simulation).
    ///
    /// # Errors
    /// Errors of creating threads.
    pub fn start(&self, work: &Arc<dyn Work>) -> Result<()> {
        let Some(spawner) = self.context.env.spawner.clone() else { return Ok(()) };
        let body = |duty| {
            let worker = Worker::new(&self.context, work, duty);
            Box::new(move || worker.run()) as Box<dyn FnOnce() + Send>
        };
        for n in 0..self.count {
            let name = format!("lava-bg-{n}");
            let thread = spawner.spawn(&name, Priority::Background, body(WorkerRole::AllButLog))?;
            lock(&self.threads).push(thread);
        }
        // Foreground priority, because writers wait for it. It is mostly asleep.
        let log = spawner.spawn("lava-log", Priority::Foreground, body(WorkerRole::Log))?;
        lock(&self.threads).push(log);
        Ok(())
    }

    /// Waits for the end of all threads. The signals must say stop.
    pub fn join(&self) {
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            thread.join();
        }
    }
}

/// Runs work, and returns a panic of it (a bug) as an error, which poisons the store instead of
/// ending the process.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_default();
        let why = format!("a background job panicked, a fault of the engine (report it): {text}");
        Err(Error::new(base::ErrorKind::Poisoned, why))
    })
}

/// A background thread: a stack of jobs, the most urgent on top.
struct Worker {
    context: Arc<Context>,
    work: Arc<dyn Work>,
    duty: WorkerRole,
    stack: Vec<Box<dyn Job>>,
    seen: u64,
    /// Number of idle sleeps in a row.
    naps: u32,
    /// The last write at the start of its last sleep.
    slept_at: u64,
}

/// Returns the length of the next sleep after `naps` idle ones.
fn nap(naps: u32) -> Duration {
    IDLE_POLL.saturating_mul(1 << naps.min(16)).min(DOZE_MAX)
}

impl Worker {
    fn new(context: &Arc<Context>, work: &Arc<dyn Work>, duty: WorkerRole) -> Self {
        let (context, work) = (context.clone(), work.clone());
        Worker { context, work, duty, stack: Vec::new(), seen: 0, naps: 0, slept_at: 0 }
    }

    fn run(mut self) {
        while !self.context.signals.is_stopping() {
            let epoch = self.context.signals.work_epoch();
            if epoch != self.seen || self.stack.is_empty() || self.work.is_due() {
                let below = self.stack.last().map_or(JobClass::Idle, |job| job.class());
                match self.work.clone().next(self.duty, below) {
                    Some(job) => self.stack.push(job),
                    None => self.seen = epoch,
                }
            }
            match self.stack.pop() {
                Some(job) => {
                    self.naps = 0;
                    self.advance(job);
                }
                None => self.park(),
            }
        }
        for mut job in self.stack.drain(..).rev() {
            job.abandon();
        }
    }

    fn advance(&mut self, mut job: Box<dyn Job>) {
        match guarded(|| step(&self.context, &mut job)) {
            Ok(Progress::More) => self.stack.push(job),
            Ok(Progress::Wait(ns)) => {
                self.stack.push(job);
                // New work may be more urgent.
                self.context.signals.sleep(self.seen, Duration::from_nanos(ns), false);
                // Checks for work without notification, as after a sleep.
                self.seen = 0;
            }
            Ok(Progress::Done) => {
                drop(job);
                self.context.signals.notify_progress();
                self.context.signals.notify_work();
            }
            Err(e) => {
                self.work.failed(e, &job.inputs());
                job.abandon();
            }
        }
    }

    fn park(&mut self) {
        let last_write = self.work.last_write();
        if last_write != std::mem::replace(&mut self.slept_at, last_write) {
            self.naps = 0;
        }
        let nap = nap(self.naps);
        self.context.signals.sleep(self.seen, nap, nap > IDLE_POLL);
        let woken = self.context.signals.work_epoch() != self.seen;
        self.naps = if woken { 0 } else { self.naps.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_worker_backs_off_up_to_a_second() {
        assert_eq!(nap(0), IDLE_POLL);
        assert!((0..40).all(|naps| nap(naps + 1) == (nap(naps) * 2).min(DOZE_MAX)));
        // Work due after a second of rest is found before another second has passed.
        let slept: Duration = (0..7).map(nap).sum();
        assert!(slept > DOZE_MAX && slept < 2 * DOZE_MAX, "{slept:?}");
    }

    /// A job that panics.
    struct Faulty;

    impl Job for Faulty {
        fn class(&self) -> JobClass {
            JobClass::Flush
        }
        fn step(&mut self) -> Result<Progress> {
            panic!("an index out of bounds")
        }
        fn abandon(&mut self) {}
    }

    #[test]
    fn a_panicking_job_is_an_error_with_its_message() {
        let mut job: Box<dyn Job> = Box::new(Faulty);
        let e = guarded(|| job.step()).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::Poisoned);
        assert!(
            e.message().contains("panicked, a fault of the engine (report it): an index out of bounds"),
            "{e}"
        );
    }
}
