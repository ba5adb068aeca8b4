//! The scheduler of all background work.
//!
//! Work is a [`Job`]. It advances in steps of a few milliseconds (an output block run, a batch). So
//! urgent work can run between the steps of long work, and a seed can interleave jobs in
//! simulation. One place decides which job may start ([`Work::next`]), by class: the log first
//! (writers wait for it), then flush, clean-up, L0, deeper levels, garbage collection, the scrub.
//! All engines use the same classes, because their jobs compete for the same threads. An engine
//! without levels uses only some of them.
//!
//! * With threads, the workers run the jobs ([`super::workers`]).
//! * In simulation there are no threads: [`Scheduler::run_one`] advances one job, chosen by the
//!   seed, by one step. A waiting call invokes it ([`crate::context::Signals`]).

use super::EngineWork;
use super::requested::{Checkpointer, Requested};
use super::workers::Workers;
use crate::context::{Context, Driver};
use crate::pacing::{Traffic, during};
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, Result};
use io::Rng;
use std::sync::{Arc, Weak};

/// Classes of work, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobClass {
    /// Write-out and preparation of log groups.
    Log,
    /// Flush of memtables.
    Flush,
    /// Removal of files and names, roll of the manifest: short, and it frees space.
    Cleanup,
    /// Writing the metrics file. Ranked here so that it runs even if the workers are never idle.
    Metrics,
    /// Compaction of level 0: writers wait when it piles up.
    L0,
    /// Garbage collection when space is short.
    UrgentGc,
    /// Other compaction.
    Compaction,
    /// Garbage collection.
    Gc,
    /// Moves of files between the disks.
    Move,
    /// Rereading all data to find damage.
    Scrub,
    /// No work.
    Idle,
}

impl JobClass {
    /// Returns the purpose of the class's I/O. `None`: foreground, for the log.
    fn traffic(self) -> Option<Traffic> {
        match self {
            JobClass::Log => None,
            JobClass::Flush => Some(Traffic::Flush),
            JobClass::L0 | JobClass::Compaction => Some(Traffic::Compaction),
            JobClass::UrgentGc | JobClass::Gc => Some(Traffic::Collection),
            JobClass::Cleanup | JobClass::Metrics | JobClass::Move | JobClass::Scrub | JobClass::Idle => {
                Some(Traffic::Other)
            }
        }
    }

    /// Returns true if the class obeys the rate limit. Writers wait for the other classes, or these
    /// are short.
    fn keeps_to_budget(self) -> bool {
        !matches!(self, JobClass::Log | JobClass::Flush | JobClass::Cleanup | JobClass::Metrics)
    }
}

/// The classes of work that a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// All classes (simulation).
    All,
    /// Only the log.
    Log,
    /// All but the log.
    AllButLog,
}

impl WorkerRole {
    /// Returns true if work of this class is included.
    pub fn includes(self, class: JobClass) -> bool {
        match self {
            WorkerRole::All => true,
            WorkerRole::Log => class == JobClass::Log,
            WorkerRole::AllButLog => class != JobClass::Log,
        }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The job is not finished.
    More,
    /// The job is not finished, and must wait for this time, nanoseconds.
    Wait(u64),
    /// The job is finished.
    Done,
}

/// A background job. It owns its resources.
pub trait Job: Send {
    /// Returns the urgency.
    fn class(&self) -> JobClass;
    /// Advances by a bounded amount.
    ///
    /// # Errors
    /// Any error of the work: [`Work::failed`] judges it.
    fn step(&mut self) -> Result<Progress>;
    /// Returns the numbers of the files that the job reads, for errors that do not name a file.
    fn inputs(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Returns true if the job uses at most half of the device: an idle store is in no hurry.
    fn rests(&self) -> bool {
        false
    }
    /// Removes the files that the job created. Called once before the job is dropped, after an
    /// error or at shutdown. The drop releases its claims.
    fn abandon(&mut self);
}

/// A source of jobs. It has no queue: it examines the state of the store whenever a worker is free.
pub trait Work: Send + Sync {
    /// Returns the most urgent job of a class in `duty` and above `below` that may start now. Its
    /// inputs are claimed.
    fn next(self: Arc<Self>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>>;
    /// Judges the failure of a job with these input files. Called before the job is abandoned: the
    /// job must keep its files if it is unknown whether its edit is durable.
    fn failed(&self, error: Error, inputs: &[u64]);
    /// Returns true if a job runs or could start that may free space.
    fn can_free(&self) -> bool;
    /// Returns true if a check without notification is due, also beside long jobs.
    fn is_due(&self) -> bool {
        false
    }
    /// Returns a number that rises with every write: workers do not sleep long under constant
    /// writes.
    fn last_write(&self) -> u64;
}

/// Work for asynchronous requests. It has its own threads; in simulation a waiting call also runs
/// its steps.
pub trait AsyncRequests: Send + Sync {
    /// Returns true if there is something to do now.
    fn is_ready(&self) -> bool;
    /// Runs one step of a request chosen by the seed. Returns false if there is nothing to do now.
    fn step(&self) -> bool;
}

/// Runs jobs on threads, or in simulation.
pub struct Scheduler {
    context: Arc<Context>,
    work: Arc<EngineWork>,
    requested: Arc<Requested>,
    workers: Workers,
    /// Simulation only: the jobs in progress and the generator that picks among them.
    simulated: Mutex<(Vec<Simulated>, Rng), rank::SimulatedJobs>,
    /// Simulation only.
    foreground: OnceLock<Weak<dyn AsyncRequests>>,
}

/// A job in progress in simulation.
struct Simulated {
    job: Box<dyn Job>,
    /// Time of its next step.
    ready_ns: u64,
}

impl Scheduler {
    /// Creates the scheduler of a store, and registers it with the signals of `context`.
    /// `thread_count`: workers besides the log thread.
    pub fn new(context: &Arc<Context>, thread_count: usize, work: Arc<dyn Work>) -> Arc<Scheduler> {
        let simulated = Mutex::new((Vec::new(), context.env.rng()));
        let scheduler = Arc::new(Scheduler {
            context: context.clone(),
            work: Arc::new(EngineWork::of(work)),
            requested: Arc::new(Requested::new(context)),
            workers: Workers::new(context, thread_count),
            simulated,
            foreground: OnceLock::new(),
        });
        let driver: Arc<dyn Driver> = scheduler.clone();
        context.signals.set_driver(Arc::downgrade(&driver));
        scheduler.work.serve(scheduler.requested.clone());
        scheduler
    }

    /// Adds the work of a secondary engine. Call it once, before the workers start.
    pub fn join(&self, secondary: Arc<dyn Work>) {
        self.work.join(secondary);
    }

    /// Sets the engine that serves requested checkpoints. Without one they are not served. Once.
    pub fn serve_requests(&self, checkpointer: Weak<dyn Checkpointer>) {
        self.requested.serve_by(checkpointer);
    }

    /// Sets the work for asynchronous requests. Once.
    pub fn set_foreground(&self, foreground: Weak<dyn AsyncRequests>) {
        let _ = self.foreground.set(foreground);
    }

    /// Starts the workers (none in simulation).
    ///
    /// # Errors
    /// Errors of creating threads.
    pub fn start(&self) -> Result<()> {
        self.workers.start(&(self.work.clone() as Arc<dyn Work>))
    }

    /// Simulation: returns the number of jobs between two steps.
    pub fn under_way(&self) -> usize {
        lock(&self.simulated).0.len()
    }

    /// Simulation: starts a job or advances one by a step, or runs a step for an asynchronous
    /// request. Returns false if there is nothing to do now.
    pub fn run_one(&self) -> bool {
        let foreground = self.foreground.get().and_then(Weak::upgrade);
        let Some(foreground) = foreground.filter(|foreground| foreground.is_ready()) else {
            return self.run_job();
        };
        let is_first = lock(&self.simulated).1.one_in(2);
        is_first && foreground.step() || self.run_job() || foreground.step()
    }

    fn run_job(&self) -> bool {
        let clock = &self.context.env.clock;
        let mut job = {
            let mut sim = lock(&self.simulated);
            let (jobs, rng) = &mut *sim;
            let now_ns = clock.now_ns();
            let ready: Vec<usize> = (0..jobs.len()).filter(|&i| jobs[i].ready_ns <= now_ns).collect();
            let limit = self.workers.count() + 1;
            // As with threads, another job may start beside waiting ones.
            let fresh = if ready.is_empty() || (jobs.len() < limit && rng.one_in(2)) {
                self.work.clone().next(WorkerRole::All, JobClass::Idle)
            } else {
                None
            };
            match fresh {
                Some(job) => job,
                None if jobs.is_empty() => return false,
                None if ready.is_empty() => {
                    let next_ns = jobs.iter().map(|job| job.ready_ns).min().unwrap_or(now_ns);
                    clock.sleep_ns(next_ns - now_ns);
                    return true;
                }
                None => {
                    let i = ready[rng.below(ready.len() as u64) as usize];
                    jobs.swap_remove(i).job
                }
            }
        };
        // The job runs without the lock: it may wait, and then other jobs run.
        match step(&self.context, &mut job) {
            Ok(Progress::Done) => {
                drop(job);
                self.context.signals.notify_progress();
            }
            Ok(Progress::More) => lock(&self.simulated).0.push(Simulated { job, ready_ns: 0 }),
            Ok(Progress::Wait(ns)) => {
                // Other jobs run meanwhile, as with threads.
                let ready_ns = clock.now_ns().saturating_add(ns);
                lock(&self.simulated).0.push(Simulated { job, ready_ns });
            }
            Err(e) => {
                self.work.failed(e, &job.inputs());
                job.abandon();
            }
        }
        true
    }

    /// Ends all background work: running jobs are abandoned at their next step.
    pub fn stop(&self) {
        self.context.signals.stop();
        self.workers.join();
        self.requested.stop();
        let jobs = std::mem::take(&mut lock(&self.simulated).0);
        for mut simulated in jobs {
            simulated.job.abandon();
        }
        self.context.signals.notify_progress();
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scheduler({} threads)", self.workers.count())
    }
}

impl Driver for Scheduler {
    fn step(&self) -> bool {
        self.run_one()
    }

    fn can_free(&self) -> bool {
        self.work.can_free()
    }
}

/// Runs a step, if the rate limit allows it.
pub(super) fn step(context: &Context, job: &mut Box<dyn Job>) -> Result<Progress> {
    let class = job.class();
    let wait_ns = if class.keeps_to_budget() { context.pace().budget.wait_ns(context.now_ns()) } else { 0 };
    let rests = job.rests();
    if wait_ns > 0 {
        return Ok(Progress::Wait(if rests { wait_ns.saturating_mul(2) } else { wait_ns }));
    }
    let begun_ns = context.now_ns();
    let _during = during(class.traffic());
    let stepped = job.step();
    context.signals.state_changed();
    match stepped {
        // The job rests for as long as it worked. With a rate limit it waits twice as long instead.
        Ok(Progress::More) if rests && context.pace().budget.get() == 0 => {
            Ok(Progress::Wait(context.now_ns().saturating_sub(begun_ns)))
        }
        stepped => stepped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let env = io::sim::SimEnv::new(1).env();
        Context::new(&env, crate::volumes::Location::metered(&env, std::path::Path::new("/store")))
    }

    /// A job that never ends.
    struct Busy(JobClass);

    impl Job for Busy {
        fn class(&self) -> JobClass {
            self.0
        }
        fn step(&mut self) -> Result<Progress> {
            Ok(Progress::More)
        }
        fn abandon(&mut self) {}
    }

    /// A flush is charged and does not wait. The other jobs wait for its bytes too, and keep the
    /// limit over any second.
    #[test]
    fn one_io_budget_covers_all_jobs_except_flush() {
        let context = context();
        let (clock, budget) = (&context.env.clock, &context.pace().budget);
        budget.set(8 << 20);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let classes = [JobClass::L0, JobClass::UrgentGc, JobClass::Compaction, JobClass::Gc, JobClass::Scrub];
        let mut jobs: Vec<Box<dyn Job>> =
            classes.into_iter().map(|class| Box::new(Busy(class)) as Box<dyn Job>).collect();
        while clock.now_ns() < 5_000_000_000 {
            for job in &mut jobs {
                match step(&context, job).unwrap() {
                    Progress::Wait(ns) => clock.sleep_ns(ns.min(10_000_000)),
                    _ => {
                        budget.charge(clock.now_ns(), 1 << 18);
                        taken.push((clock.now_ns(), 1 << 18));
                    }
                }
            }
            let mut urgent: [Box<dyn Job>; 2] =
                [Box::new(Busy(JobClass::Flush)), Box::new(Busy(JobClass::Log))];
            assert!(urgent.iter_mut().all(|job| step(&context, job).unwrap() == Progress::More));
            if taken.len().is_multiple_of(4) {
                budget.charge(clock.now_ns(), 1 << 18);
                taken.push((clock.now_ns(), 1 << 18));
            }
        }
        for from_ns in (0..4_000_000_000).step_by(50_000_000) {
            let within = taken.iter().filter(|(ns, _)| (from_ns..from_ns + 1_000_000_000).contains(ns));
            let bytes: u64 = within.map(|(_, bytes)| bytes).sum();
            assert!((7 << 20..=9 << 20).contains(&bytes), "{bytes} from {from_ns}");
        }
    }
}
