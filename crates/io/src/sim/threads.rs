//! Real threads on the simulated machine, under a seeded schedule (feature `sched`).
//!
//! [`SimEnv::run_threads`] runs a function in a first thread and gives it an environment with a
//! spawner. Exactly one thread runs at a time: the one that has the *baton*. At every scheduling
//! point the baton may go to another thread, by the seed (`choice`). Points are before each lock,
//! condition, atomic, call of the file system, and at the start and end of a thread (see
//! [`base::sync::schedule`]). The engine is the real one, with all its threads, and the run is a
//! function of the seed.
//!
//! **Time** is the machine's clock. A thread that sleeps, or waits with a timeout, can continue
//! when its time has come. If no thread can run, the clock moves to the next such time at once. Now
//! and then, by the seed, this happens although other threads could run: any wait may end early in
//! relation to the work of the others.
//!
//! **Failures found**, besides the assertions of the caller, are [`Stuck`] runs, with the state of
//! each thread:
//!
//! * *deadlock*: no thread can run and no time will change that;
//! * *lost wake-up*: a thread waits without limit for a condition, while for [`Plan::patience_ns`]
//!   all threads were only waiting for time to pass (background threads poll for work forever, so a
//!   store with a forgotten writer is never quite still);
//! * *livelock*: more than [`Plan::steps_max`] points;
//! * a thread that panicked.
//!
//! **Power failures** do not require stopping a thread. The record of the machine has every state
//! of the disk at every operation, and between two operations the disk does not change. So a crash
//! at any point of the schedule is a crash at the following operation. The acknowledged calls are
//! those that returned before that operation began ([`SimEnv::op_count`] is not a scheduling point,
//! so a call of it right after another call gives the exact moment). So one run gives every crash
//! of its schedule ([`super::Record::crash_at`]).
//!
//! The threads of a stuck run are never resumed, since they may hold any lock. A campaign ends soon
//! after.

use super::SimEnv;
use super::clock::SimClock;
use crate::env::{Priority, Spawner, ThreadHandle};
use crate::{Clock, Env};
use base::Result;
use base::sync::leaf::{Condvar, Mutex, MutexGuard, lock, wait};
use base::sync::rank;
use base::sync::schedule::{self, Act, Resource, Schedule};
use choice::Chooser;
use std::any::Any;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

mod choice;
mod few;
#[cfg(test)]
mod tests;

pub use choice::Choice;
pub use few::with_few;

/// Acts in the report of a stuck run.
const TRACE_MAX: usize = 60;

/// Parameters and limits of a schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Determines the whole run.
    pub seed: u64,
    /// Method of choosing the next thread; `None`: by the seed.
    pub choice: Option<Choice>,
    /// Points after which a run counts as a livelock.
    pub steps_max: u64,
    /// Longest wait for a condition while all threads are idle.
    pub patience_ns: u64,
}

impl Plan {
    /// Returns the usual plan for this seed.
    pub fn new(seed: u64) -> Plan {
        Plan { seed, choice: None, steps_max: 3_000_000, patience_ns: 1_000_000_000 }
    }
}

/// A run that ended.
#[derive(Debug)]
pub struct Ran<T> {
    /// Result of the first thread.
    pub value: T,
    /// Scheduling points passed.
    pub steps: u64,
    /// Times the baton went to another thread.
    pub switches: u64,
    /// Number of threads.
    pub threads: usize,
    /// Hash of the sequence of acts: equal schedules have equal hashes.
    pub hash: u64,
}

/// A run that cannot end, or in which a thread panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck(pub String);

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SimEnv {
    /// Runs `body`, and all threads that it starts, under a schedule; returns when all of them have
    /// ended.
    ///
    /// Only one run at a time may use a machine, and nothing else meanwhile.
    pub fn run_threads<T: Send + 'static>(
        &self,
        plan: &Plan,
        body: impl FnOnce(&Env) -> T + Send + 'static,
    ) -> Result<Ran<T>, Stuck> {
        let baton = Arc::new(Baton {
            state: Mutex::new(BatonState::new(plan)),
            ended: Condvar::new(),
            clock: self.0.clock.clone(),
            patience_ns: plan.patience_ns,
            steps_max: plan.steps_max,
        });
        let env = Env { spawner: Some(Arc::new(ScheduledSpawner(baton.clone()))), ..self.env() };
        let returned = Arc::new(Mutex::<_, rank::SimReturned>::new(None));
        let to = returned.clone();
        let first = baton.start("main", Box::new(move || *lock(&to) = Some(body(&env))));
        first.map_err(|e| Stuck(e.to_string()))?;
        let outcome = baton.run_to_the_end()?;
        let value =
            lock(&returned).take().ok_or_else(|| Stuck("the first thread returned nothing".into()))?;
        Ok(Ran {
            value,
            steps: outcome.steps,
            switches: outcome.switches,
            threads: outcome.threads,
            hash: outcome.hash,
        })
    }
}

/// State shared by the threads of a run.
struct Baton {
    /// All threads, and the holder of the baton.
    state: Mutex<BatonState, rank::SimBaton>,
    /// All threads have ended, or the run is stuck.
    ended: Condvar,
    clock: Arc<SimClock>,
    patience_ns: u64,
    steps_max: u64,
}

struct BatonState {
    threads: Vec<Thread>,
    chooser: Chooser,
    steps: u64,
    switches: u64,
    hash: u64,
    /// Nanoseconds by which the clock was moved because no thread could run.
    idle_ns: u64,
    stuck: Option<String>,
    trace: Vec<(usize, Act, &'static Location<'static>)>,
}

struct Thread {
    name: String,
    gate: Arc<Gate>,
    status: Status,
    /// Its last scheduling point.
    at: Option<&'static Location<'static>>,
    handle: Option<std::thread::JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    Waiting { on: Resource, until_ns: Option<u64>, idle_since_ns: u64 },
    Ended,
}

/// Place where a thread waits for the baton.
#[derive(Default)]
struct Gate {
    /// The thread may run.
    open: Mutex<bool, rank::SimGate>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *lock(&self.open) = true;
        self.opened.notify_one();
    }

    fn pass(&self) {
        let mut open = lock(&self.open);
        while !std::mem::take(&mut *open) {
            open = wait(&self.opened, open);
        }
    }
}

struct RunOutcome {
    steps: u64,
    switches: u64,
    threads: usize,
    hash: u64,
}

impl BatonState {
    fn new(plan: &Plan) -> BatonState {
        BatonState {
            threads: Vec::new(),
            chooser: Chooser::new(plan.seed, plan.choice),
            steps: 0,
            switches: 0,
            hash: 0,
            idle_ns: 0,
            stuck: None,
            trace: Vec::new(),
        }
    }

    fn note(&mut self, me: usize, act: Act, at: &'static Location<'static>) {
        self.steps += 1;
        let word = (me as u64) << 32 | (act as u64) << 24 | u64::from(at.line());
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.threads[me].at = Some(at);
        let slot = (self.steps as usize - 1) % TRACE_MAX;
        match self.trace.get_mut(slot) {
            Some(entry) => *entry = (me, act, at),
            None => self.trace.push((me, act, at)),
        }
    }

    /// Returns the threads that can run: those that wait for nothing, and those whose time has
    /// come.
    fn ready(&self, now_ns: u64) -> Vec<usize> {
        let can = |t: &Thread| match t.status {
            Status::Ready => true,
            Status::Waiting { until_ns, .. } => until_ns.is_some_and(|until_ns| until_ns <= now_ns),
            Status::Ended => false,
        };
        (0..self.threads.len()).filter(|&i| can(&self.threads[i])).collect()
    }

    /// Returns the threads with a future time to continue, each with that time.
    fn sleeping(&self) -> Vec<(usize, u64)> {
        let until = |t: &Thread| match t.status {
            Status::Waiting { until_ns, .. } => until_ns,
            _ => None,
        };
        self.threads.iter().enumerate().filter_map(|(i, t)| until(t).map(|ns| (i, ns))).collect()
    }

    /// Returns true if a thread has waited for a condition although all threads were idle for
    /// `patience_ns`.
    fn forgotten(&self, patience_ns: u64) -> bool {
        self.threads.iter().any(|t| match t.status {
            Status::Waiting { on: (Act::Wait, _), until_ns: None, idle_since_ns } => {
                self.idle_ns - idle_since_ns > patience_ns
            }
            _ => false,
        })
    }

    /// Describes the state of every thread.
    fn report(&self, why: &str, now_ns: u64) -> String {
        let mut text = format!("{why} after {} steps, at {} us\n", self.steps, now_ns / 1000);
        for thread in &self.threads {
            let at = thread.at.map(|at| at.to_string()).unwrap_or_default();
            let _ = match thread.status {
                Status::Ready => writeln!(text, "  {}: could go on, at {at}", thread.name),
                Status::Ended => writeln!(text, "  {}: ended", thread.name),
                Status::Waiting { on, until_ns: None, .. } => {
                    writeln!(text, "  {}: waits ({:?}), at {at}", thread.name, on.0)
                }
                Status::Waiting { on, until_ns: Some(until_ns), .. } => {
                    let left_us = until_ns.saturating_sub(now_ns) / 1000;
                    writeln!(text, "  {}: waits ({:?}) for {left_us} us at most, at {at}", thread.name, on.0)
                }
            };
        }
        text.push_str("the last steps:\n");
        let first = self.steps as usize % TRACE_MAX;
        let (late, early) = self.trace.split_at(first.min(self.trace.len()));
        for (me, act, at) in early.iter().chain(late) {
            let _ = writeln!(text, "  {}: {act:?} at {at}", self.threads[*me].name);
        }
        text
    }
}

impl Baton {
    /// Starts a thread, which waits for the baton.
    fn start(self: &Arc<Self>, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<usize> {
        let gate = Arc::new(Gate::default());
        let id = {
            let mut state = lock(&self.state);
            state.chooser.add();
            let thread = Thread {
                name: name.into(),
                gate: gate.clone(),
                status: Status::Ready,
                at: None,
                handle: None,
            };
            state.threads.push(thread);
            state.threads.len() - 1
        };
        let baton = self.clone();
        let run = move || {
            gate.pass();
            let here = Rc::new(Here { baton: baton.clone(), id });
            let entered = schedule::enter(here);
            let result = catch_unwind(AssertUnwindSafe(body));
            drop(entered);
            baton.end(id, result.err());
        };
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let handle = handle.map_err(|e| base::Error::from_io("start a thread", name, e))?;
        lock(&self.state).threads[id].handle = Some(handle);
        Ok(id)
    }

    /// Gives the first thread the baton, and waits until all have ended.
    fn run_to_the_end(&self) -> Result<RunOutcome, Stuck> {
        lock(&self.state).threads[0].gate.open();
        let mut state = lock(&self.state);
        while state.stuck.is_none() && state.threads.iter().any(|t| t.status != Status::Ended) {
            state = wait(&self.ended, state);
        }
        if let Some(why) = &state.stuck {
            return Err(Stuck(why.clone()));
        }
        let handles: Vec<_> = state.threads.iter_mut().filter_map(|t| t.handle.take()).collect();
        let outcome = RunOutcome {
            steps: state.steps,
            switches: state.switches,
            threads: state.threads.len(),
            hash: state.hash,
        };
        drop(state);
        handles.into_iter().for_each(|handle| drop(handle.join()));
        Ok(outcome)
    }

    /// Ends the run as stuck; the calling thread does not return.
    fn stop(&self, mut state: MutexGuard<'_, BatonState>, why: &str) -> ! {
        if state.stuck.is_none() {
            state.stuck = Some(state.report(why, self.clock.now_ns()));
            self.ended.notify_all();
        }
        drop(state);
        loop {
            std::thread::park();
        }
    }

    /// Passes the baton on, from a thread that can itself continue if `me_ready`. Returns when it
    /// has the baton again.
    fn pass(&self, mut state: MutexGuard<'_, BatonState>, me: usize) {
        let next = match self.choose(&mut state, me) {
            Some(next) => next,
            None => self.stop(state, "deadlock: nobody can go on, and no time will change that"),
        };
        if state.forgotten(self.patience_ns) {
            self.stop(state, "lost wake-up: a thread waits for a condition while nobody has anything to do");
        }
        state.threads[next].status = Status::Ready;
        if next == me {
            return;
        }
        state.switches += 1;
        let mine = state.threads[me].gate.clone();
        let ended = state.threads[me].status == Status::Ended;
        let theirs = state.threads[next].gate.clone();
        drop(state);
        theirs.open();
        if !ended {
            mine.pass();
        }
    }

    /// Chooses the next thread.
    fn choose(&self, state: &mut BatonState, me: usize) -> Option<usize> {
        let now_ns = self.clock.now_ns();
        let sleeping = state.sleeping();
        if state.chooser.wakes_early(sleeping.len()) {
            let (who, until_ns) = sleeping[state.chooser.any(sleeping.len())];
            self.clock.advance(until_ns.saturating_sub(now_ns));
            return Some(who);
        }
        let mut ready = state.ready(now_ns);
        if ready.is_empty() {
            let next_ns = sleeping.iter().map(|(_, ns)| *ns).min()?;
            self.clock.advance(next_ns - now_ns);
            state.idle_ns += next_ns - now_ns;
            ready = state.ready(next_ns);
        }
        Some(state.chooser.choose(me, &ready))
    }

    /// Ends a thread.
    fn end(&self, me: usize, panic: Option<Box<dyn Any + Send>>) {
        let mut state = lock(&self.state);
        if let Some(panic) = panic {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            let why = format!("thread {} panicked: {}", state.threads[me].name, text.unwrap_or_default());
            self.stop(state, &why);
        }
        state.threads[me].status = Status::Ended;
        wake(&mut state, (Act::Join, me), true);
        if state.threads.iter().all(|t| t.status == Status::Ended) {
            self.ended.notify_all();
            return;
        }
        self.pass(state, me);
    }
}

/// Makes the waiters for a resource ready: all, or one of them by the seed.
fn wake(state: &mut BatonState, resource: Resource, all: bool) {
    let waits = |t: &Thread| matches!(t.status, Status::Waiting { on, .. } if on == resource);
    let mut woken: Vec<usize> = (0..state.threads.len()).filter(|&i| waits(&state.threads[i])).collect();
    if !all && woken.len() > 1 {
        woken = vec![woken[state.chooser.any(woken.len())]];
    }
    for i in woken {
        state.threads[i].status = Status::Ready;
    }
}

/// A thread in its schedule.
struct Here {
    baton: Arc<Baton>,
    id: usize,
}

impl Here {
    fn enter(&self, act: Act, at: &'static Location<'static>) -> MutexGuard<'_, BatonState> {
        let mut state = lock(&self.baton.state);
        if state.stuck.is_some() {
            self.baton.stop(state, "");
        }
        state.note(self.id, act, at);
        if state.steps > self.baton.steps_max {
            self.baton.stop(state, "livelock: so many steps, and no end");
        }
        state
    }
}

impl Schedule for Here {
    fn point(&self, act: Act, at: &'static Location<'static>) {
        let state = self.enter(act, at);
        self.baton.pass(state, self.id);
    }

    fn wait(&self, on: Resource, longest: Option<Duration>, at: &'static Location<'static>) {
        let mut state = self.enter(on.0, at);
        let until_ns = longest.map(|longest| {
            let ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
            self.baton.clock.now_ns().saturating_add(ns)
        });
        let idle_since_ns = state.idle_ns;
        state.threads[self.id].status = Status::Waiting { on, until_ns, idle_since_ns };
        self.baton.pass(state, self.id);
    }

    fn wake(&self, on: Resource, all: bool) {
        let mut state = lock(&self.baton.state);
        if state.stuck.is_none() {
            wake(&mut state, on, all);
        }
    }
}

/// Starts threads under the schedule.
struct ScheduledSpawner(Arc<Baton>);

impl fmt::Debug for ScheduledSpawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("threads under a schedule")
    }
}

impl Spawner for ScheduledSpawner {
    fn spawn(
        &self,
        name: &str,
        _priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> Result<Box<dyn ThreadHandle>> {
        let id = self.0.start(name, body)?;
        schedule::point(Act::Spawn);
        Ok(Box::new(ScheduledThread { baton: self.0.clone(), id }))
    }
}

struct ScheduledThread {
    baton: Arc<Baton>,
    id: usize,
}

impl ThreadHandle for ScheduledThread {
    #[track_caller]
    fn join(self: Box<Self>) -> bool {
        let Some(schedule) = schedule::current() else { return false };
        schedule.point(Act::Join, Location::caller());
        while lock(&self.baton.state).threads[self.id].status != Status::Ended {
            schedule.wait((Act::Join, self.id), None, Location::caller());
        }
        true
    }
}
