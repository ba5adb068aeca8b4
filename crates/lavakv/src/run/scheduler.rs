//! One scheduler for all background work.
//!
//! Work is a [`Job`]: it advances in steps of a few milliseconds (an output block run, a batch), so that urgent work can
//! run between the steps of long work, and so that a seed can interleave jobs in simulation. Which job may start is
//! decided in one place ([`crate::work::jobs::next_job`]), by class: the log first (writers wait for it), then flush, then
//! clean-up, L0, deeper levels, garbage collection, the scrub.
//!
//! * With threads: each worker keeps a stack of jobs. Between two steps it looks for a job of a more urgent class than
//!   the one it runs, and runs that first. So a flush waits for one step of a compaction, not for the compaction, and
//!   no worker has to be reserved for it.
//! * A worker without work sleeps, for twice as long each time it looks in vain, up to a second. What becomes due in a store
//!   where nothing happens (the watermark of the log, another try after a refusal, the work of a quiet store) is due some time
//!   after something did, and is met before that time has passed once more. Whoever writes wakes those that sleep long
//!   ([`Scheduler::wake_dozing`]).
//! * One thread beside the workers does the log's work and nothing else: writers wait for it soonest, and a step of anything else
//!   may be longer than the log has room for.
//! * In simulation there are no threads: [`Scheduler::run_one`] advances one job, chosen by the seed, by one step.
//!   Whoever has to wait calls it ([`Scheduler::wait_until`]).

use crate::engine::Engine;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, lock, rank, wait_timeout};
use base::{Error, Result, SeqNo};
use io::{Priority, Rng, ThreadHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Classes of work, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobClass {
    /// Write-out and preparation of log groups.
    Log,
    /// Memtable to L0.
    Flush,
    /// Removal of files and names, roll of the manifest: short, and it frees space.
    Cleanup,
    /// L0 to the level below.
    L0,
    /// Garbage collection of vSSTs where room is scarce.
    UrgentGc,
    /// Deeper levels.
    Compaction,
    /// Garbage collection of vSSTs.
    Gc,
    /// Reading everything again, to find what is damaged.
    Scrub,
    /// No work.
    Idle,
}

/// Which classes of work somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// All (simulation).
    All,
    /// The log.
    Log,
    /// Everything else.
    AllButLog,
}

impl Duty {
    /// True if work of this class is done.
    pub fn includes(self, class: JobClass) -> bool {
        match self {
            Duty::All => true,
            Duty::Log => class == JobClass::Log,
            Duty::AllButLog => class != JobClass::Log,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    More,
    /// There is more to do, but not before so many nanoseconds (rate limit).
    Wait(u64),
    /// The job is finished.
    Done,
}

/// A piece of background work.
pub(crate) trait Job: Send {
    /// How urgent it is.
    fn class(&self) -> JobClass;
    /// Advances by a bounded amount.
    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress>;
    /// The numbers of the files it reads, in case that it fails by one of them without saying which.
    fn inputs(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Called once when the job is given up, after an error or at shutdown: removes what it created, releases what it
    /// claimed.
    fn abandon(&mut self, engine: &Arc<Engine>);
}

/// The queue's state: jobs themselves are found by [`crate::work::jobs::next_job`] when a worker is free.
pub(crate) struct Scheduler {
    /// Raised whenever there may be new work; workers compare it before they look.
    work_epoch: AtomicU64,
    /// Raised whenever a waiting foreground call should look again.
    progress_epoch: AtomicU64,
    parked: Mutex<(), rank::Parked>,
    work: Condvar,
    progress: Condvar,
    waiters: AtomicU64,
    /// Some worker sleeps longer than [`IDLE_POLL`].
    dozing: AtomicBool,
    stopping: AtomicBool,
    threads: Mutex<Vec<Box<dyn ThreadHandle>>, rank::Workers>,
    /// Simulation only: the jobs under way and the generator that picks among them.
    simulated: Mutex<(Vec<Simulated>, Rng), rank::SimulatedJobs>,
}

/// A job under way in simulation.
struct Simulated {
    job: Box<dyn Job>,
    /// It waits until then.
    ready_ns: u64,
}

/// How long a worker sleeps that has just found no work, before it looks for what nobody tells it of: the log's buffer that
/// fills, room that becomes short.
const IDLE_POLL: Duration = Duration::from_millis(10);
/// How long it sleeps at most while nothing happens.
const DOZE_MAX: Duration = Duration::from_secs(1);
/// Steps of simulated idleness after which a wait is declared a deadlock.
const IDLE_ROUNDS_MAX: u64 = 100_000;

impl Scheduler {
    pub fn new(rng: Rng) -> Self {
        Scheduler {
            work_epoch: AtomicU64::new(1),
            progress_epoch: AtomicU64::new(0),
            parked: Mutex::new(()),
            work: Condvar::new(),
            progress: Condvar::new(),
            waiters: AtomicU64::new(0),
            dozing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
            simulated: Mutex::new((Vec::new(), rng)),
        }
    }

    /// Starts the workers (none in simulation).
    pub fn start(&self, engine: &Arc<Engine>) -> Result<()> {
        let Some(spawner) = engine.env.spawner.clone() else { return Ok(()) };
        for n in 0..engine.options.background_threads {
            let engine = engine.clone();
            let body = Box::new(move || Worker::new(Duty::AllButLog).run(&engine));
            lock(&self.threads).push(spawner.spawn(&format!("lava-bg-{n}"), Priority::Background, body)?);
        }
        let log = engine.clone();
        let body = Box::new(move || Worker::new(Duty::Log).run(&log));
        // Writers wait for it, and at a low priority it would wait for their neighbours. It is mostly asleep.
        lock(&self.threads).push(spawner.spawn("lava-log", Priority::Foreground, body)?);
        Ok(())
    }

    /// There may be new work.
    pub fn notify_work(&self) {
        self.work_epoch.fetch_add(1, Ordering::Release);
        drop(lock(&self.parked));
        self.work.notify_all();
    }

    /// Something was written. Workers that look for work often enough are not told.
    ///
    /// A worker that falls asleep in the same moment may be missed: then it sleeps on for [`DOZE_MAX`] at most, as if that
    /// write had brought no work, and the next write wakes it.
    pub fn wake_dozing(&self) {
        if self.dozing.load(Ordering::Relaxed) && self.dozing.swap(false, Ordering::AcqRel) {
            self.notify_work();
        }
    }

    /// Something that foreground calls wait for may have happened.
    pub fn notify_progress(&self) {
        self.progress_epoch.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.parked));
            self.progress.notify_all();
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until `ready` returns something. In simulation the caller does the work it waits for.
    pub fn wait_until<T>(&self, engine: &Arc<Engine>, mut ready: impl FnMut() -> Option<T>) -> T {
        if engine.env.is_simulated() {
            for _ in 0..IDLE_ROUNDS_MAX {
                if let Some(out) = ready() {
                    return out;
                }
                if !self.run_one(engine) {
                    engine.env.clock.sleep_ns(1_000_000);
                }
            }
            panic!("simulated deadlock: a foreground call waits for work that no job will do");
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let out = loop {
            let seen = self.progress_epoch.load(Ordering::SeqCst);
            if let Some(out) = ready() {
                break out;
            }
            let guard = lock(&self.parked);
            if self.progress_epoch.load(Ordering::SeqCst) == seen {
                drop(wait_timeout(&self.progress, guard, Duration::from_millis(50)));
            }
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        out
    }

    /// In simulation: jobs that are between two of their steps.
    pub fn under_way(&self) -> usize {
        lock(&self.simulated).0.len()
    }

    /// Simulation: starts a job or advances one by a step. False if there is nothing to do now.
    pub fn run_one(&self, engine: &Arc<Engine>) -> bool {
        let mut job = {
            let mut sim = lock(&self.simulated);
            let (jobs, rng) = &mut *sim;
            let now_ns = engine.env.clock.now_ns();
            let ready: Vec<usize> = (0..jobs.len()).filter(|&i| jobs[i].ready_ns <= now_ns).collect();
            let limit = engine.options.background_threads + 1;
            // On top of jobs that wait another may be started, as with threads.
            let fresh = if ready.is_empty() || (jobs.len() < limit && rng.one_in(2)) {
                crate::work::jobs::next_job(engine, Duty::All, JobClass::Idle)
            } else {
                None
            };
            match fresh {
                Some(job) => job,
                None if jobs.is_empty() => return false,
                None if ready.is_empty() => {
                    let next_ns = jobs.iter().map(|job| job.ready_ns).min().unwrap_or(now_ns);
                    engine.env.clock.sleep_ns(next_ns - now_ns);
                    return true;
                }
                None => {
                    let i = ready[rng.below(ready.len() as u64) as usize];
                    jobs.swap_remove(i).job
                }
            }
        };
        match step_guarded(&mut job, engine) {
            Ok(Progress::Done) => self.notify_progress(),
            Ok(Progress::More) => lock(&self.simulated).0.push(Simulated { job, ready_ns: 0 }),
            Ok(Progress::Wait(ns)) => {
                // Others go on meanwhile, as they would with threads.
                let ready_ns = engine.env.clock.now_ns().saturating_add(ns);
                lock(&self.simulated).0.push(Simulated { job, ready_ns });
            }
            Err(e) => {
                // First the verdict: a job must keep its files if nobody knows whether its edit is durable.
                crate::files::damaged::job_failed(engine, e, &job.inputs());
                job.abandon(engine);
            }
        }
        true
    }

    /// Ends all background work: running jobs are abandoned at their next step.
    pub fn stop(&self, engine: &Arc<Engine>) {
        self.stopping.store(true, Ordering::Release);
        self.notify_work();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            thread.join();
        }
        let jobs = std::mem::take(&mut lock(&self.simulated).0);
        for mut simulated in jobs {
            simulated.job.abandon(engine);
        }
        self.notify_progress();
    }
}

/// Runs a step; a panic (a bug) becomes an error that poisons the engine instead of taking the process down.
fn step_guarded(job: &mut Box<dyn Job>, engine: &Arc<Engine>) -> Result<Progress> {
    if engine.env.is_simulated() {
        return job.step(engine);
    }
    catch_unwind(AssertUnwindSafe(|| job.step(engine))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_default();
        Err(Error::new(
            base::ErrorKind::Poisoned,
            format!("a background job panicked: {text}; reopen the store"),
        ))
    })
}

/// One background thread: a stack of jobs, the most urgent on top.
struct Worker {
    duty: Duty,
    stack: Vec<Box<dyn Job>>,
    seen: u64,
    /// How often in a row it has slept while nothing happened.
    naps: u32,
    /// The last sequence when it last went to sleep.
    slept_at_seq: SeqNo,
}

/// How long a worker sleeps that has slept `naps` times already while nothing happened.
fn nap(naps: u32) -> Duration {
    IDLE_POLL.saturating_mul(1 << naps.min(16)).min(DOZE_MAX)
}

impl Worker {
    fn new(duty: Duty) -> Self {
        Worker { duty, stack: Vec::new(), seen: 0, naps: 0, slept_at_seq: 0 }
    }

    fn run(&mut self, engine: &Arc<Engine>) {
        let scheduler = &engine.scheduler;
        while !scheduler.is_stopping() {
            let epoch = scheduler.work_epoch.load(Ordering::Acquire);
            if epoch != self.seen || self.stack.is_empty() {
                let below = self.stack.last().map_or(JobClass::Idle, |job| job.class());
                match crate::work::jobs::next_job(engine, self.duty, below) {
                    Some(job) => self.stack.push(job),
                    None => self.seen = epoch,
                }
            }
            match self.stack.pop() {
                Some(job) => {
                    self.naps = 0;
                    self.advance(job, engine);
                }
                None => self.park(engine),
            }
        }
        for mut job in self.stack.drain(..).rev() {
            job.abandon(engine);
        }
    }

    fn advance(&mut self, mut job: Box<dyn Job>, engine: &Arc<Engine>) {
        match step_guarded(&mut job, engine) {
            Ok(Progress::More) => self.stack.push(job),
            Ok(Progress::Wait(ns)) => {
                self.stack.push(job);
                let scheduler = &engine.scheduler;
                let guard = lock(&scheduler.parked);
                // Work that came since it looked may be more urgent.
                if scheduler.work_epoch.load(Ordering::Acquire) == self.seen {
                    drop(wait_timeout(&scheduler.work, guard, Duration::from_nanos(ns)));
                }
                // What nobody tells of is looked for as if it had slept.
                self.seen = 0;
            }
            Ok(Progress::Done) => {
                drop(job);
                engine.scheduler.notify_progress();
                engine.scheduler.notify_work();
            }
            Err(e) => {
                // First the verdict: a job must keep its files if nobody knows whether its edit is durable.
                crate::files::damaged::job_failed(engine, e, &job.inputs());
                job.abandon(engine);
            }
        }
    }

    fn park(&mut self, engine: &Engine) {
        let scheduler = &engine.scheduler;
        // Where somebody writes all the time nobody sleeps long, and so nobody has to be woken.
        let seq = engine.snapshots.visible();
        if seq != std::mem::replace(&mut self.slept_at_seq, seq) {
            self.naps = 0;
        }
        let guard = lock(&scheduler.parked);
        if scheduler.work_epoch.load(Ordering::Acquire) == self.seen && !scheduler.is_stopping() {
            let nap = nap(self.naps);
            if nap > IDLE_POLL {
                scheduler.dozing.store(true, Ordering::Release);
            }
            drop(wait_timeout(&scheduler.work, guard, nap));
        }
        let woken = scheduler.work_epoch.load(Ordering::Acquire) != self.seen;
        self.naps = if woken { 0 } else { self.naps.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_work_sleeps_ever_longer_up_to_a_second() {
        assert_eq!(nap(0), IDLE_POLL);
        assert!((0..40).all(|naps| nap(naps + 1) == (nap(naps) * 2).min(DOZE_MAX)));
        // What is due after a second of rest is met before another one has passed.
        let slept: Duration = (0..7).map(nap).sum();
        assert!(slept > DOZE_MAX && slept < 2 * DOZE_MAX, "{slept:?}");
    }

    #[test]
    fn a_write_wakes_those_that_sleep_long_and_does_so_once() {
        let scheduler = Scheduler::new(Rng::new(1));
        let epoch = || scheduler.work_epoch.load(Ordering::Acquire);
        let before = epoch();
        scheduler.wake_dozing();
        assert_eq!(epoch(), before, "nobody sleeps long");
        scheduler.dozing.store(true, Ordering::Release);
        scheduler.wake_dozing();
        scheduler.wake_dozing();
        assert_eq!(epoch(), before + 1);
    }
}
