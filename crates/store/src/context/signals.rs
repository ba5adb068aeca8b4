//! Wake-ups: workers wait for work, callers wait for the results of work.
//!
//! A counter (epoch) is raised before any thread is woken. A thread reads the epoch before it
//! checks its condition, and does not sleep if the epoch has changed since. A worker that misses a
//! wake-up finds its work at its next periodic check.
//!
//! * **Work** ([`Signals::notify_work`]): there may be work. Workers sleep for it
//!   ([`Signals::sleep`]). A write wakes the workers that sleep long ([`Signals::wake_dozing`]).
//! * **Progress** ([`Signals::notify_progress`]): the condition of a waiting foreground call may
//!   have become true ([`Signals::wait_until`]).
//!
//! A simulation has no workers: the waiting caller runs the work itself, through the [`Driver`].
//! The driver is the only upward call from here. It also knows whether work could free space.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, OnceLock, lock, rank, wait_timeout};
use io::Env;
use std::sync::Weak;
use std::time::Duration;

/// The scheduler, as a waiting caller sees it.
pub trait Driver: Send + Sync {
    /// Runs one step of some work in simulation. Returns false if there is nothing to do now.
    fn step(&self) -> bool;
    /// Returns true if a job runs or could start that may free space.
    fn can_free(&self) -> bool;
}

/// The wake-ups of a store: see the module.
#[derive(Default)]
pub struct Signals {
    /// Raised whenever there may be new work; workers read it before they check for work.
    work_epoch: AtomicU64,
    /// Raised whenever a waiting foreground call should check its condition again.
    progress_epoch: AtomicU64,
    /// Raised whenever the limits on writes may have changed.
    state_epoch: AtomicU64,
    /// Guards no data. Threads take it to go to sleep, so that no wake-up is lost.
    parked: Mutex<(), rank::Parked>,
    work: Condvar,
    progress: Condvar,
    waiters: AtomicU64,
    /// Some worker sleeps longer than usual.
    dozing: AtomicBool,
    stopping: AtomicBool,
    /// Set when the store begins service; dangling once its owner is dropped.
    driver: OnceLock<Weak<dyn Driver>>,
}

/// Steps of simulated idleness after which a wait is declared a deadlock.
const IDLE_ROUNDS_MAX: u64 = 100_000;
/// A waiting call checks its condition again after this time, whether woken or not.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Signals {
    /// Sets the scheduler. Once.
    pub fn set_driver(&self, driver: Weak<dyn Driver>) {
        let _ = self.driver.set(driver);
    }

    fn drive<T>(&self, ask: impl FnOnce(&dyn Driver) -> T) -> Option<T> {
        self.driver.get().and_then(Weak::upgrade).map(|driver| ask(&*driver))
    }

    /// Returns true if a job runs or could start that may free space.
    pub fn can_free(&self) -> bool {
        self.drive(|driver| driver.can_free()).unwrap_or(false)
    }

    /// Runs one step of some work in simulation. Returns false if there is nothing to do now.
    pub fn step(&self) -> bool {
        self.drive(|driver| driver.step()).unwrap_or(false)
    }

    /// Returns the work epoch, to pass to [`Signals::sleep`].
    pub fn work_epoch(&self) -> u64 {
        self.work_epoch.load(Ordering::Acquire)
    }

    /// Reports that there may be new work.
    pub fn notify_work(&self) {
        self.work_epoch.fetch_add(1, Ordering::Release);
        drop(lock(&self.parked));
        self.work.notify_all();
    }

    /// Reports a write: wakes workers that sleep long. Other workers check for work often enough.
    ///
    /// A worker that falls asleep in the same moment may be missed. It then sleeps for its full
    /// interval, as if that write had brought no work, and the next write wakes it.
    #[inline]
    pub fn wake_dozing(&self) {
        if self.dozing.load(Ordering::Relaxed) && self.dozing.swap(false, Ordering::AcqRel) {
            self.notify_work();
        }
    }

    /// Reports that the condition of a waiting foreground call may have become true.
    pub fn notify_progress(&self) {
        self.progress_epoch.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.parked));
            self.progress.notify_all();
        }
    }

    /// Reports that the limits on writes may have changed.
    pub fn state_changed(&self) {
        self.state_epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns the epoch of that state, which rises with each change.
    #[inline]
    pub fn state_epoch(&self) -> u64 {
        self.state_epoch.load(Ordering::Acquire)
    }

    /// Stops all work.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify_work();
    }

    /// Returns true once all work must stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Puts a worker to sleep, for at most `longest`, unless there was new work since epoch `seen`.
    /// With `dozes`, the next write wakes it.
    pub fn sleep(&self, seen: u64, longest: Duration, dozes: bool) {
        let guard = lock(&self.parked);
        if self.work_epoch() == seen && !self.is_stopping() {
            if dozes {
                self.dozing.store(true, Ordering::Release);
            }
            drop(wait_timeout(&self.work, guard, longest));
        }
    }

    /// Waits until `ready` returns a value. In simulation the caller runs the background work
    /// itself.
    pub fn wait_until<T>(&self, env: &Env, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(out) = self.wait(env, u64::MAX, &mut ready) {
                return out;
            }
        }
    }

    /// Waits until `is_ready`, or until `until_ns` in clock nanoseconds.
    pub fn wait_before(&self, env: &Env, until_ns: u64, mut is_ready: impl FnMut() -> bool) {
        self.wait(env, until_ns, &mut || is_ready().then_some(()));
    }

    fn wait<T>(&self, env: &Env, until_ns: u64, ready: &mut dyn FnMut() -> Option<T>) -> Option<T> {
        // Reads the clock only for waits with a deadline.
        let left_ns = || match until_ns {
            u64::MAX => u64::MAX,
            until_ns => until_ns.saturating_sub(env.clock.now_ns()),
        };
        if env.is_simulated() {
            for _ in 0..IDLE_ROUNDS_MAX {
                if let Some(out) = ready() {
                    return Some(out);
                }
                match left_ns() {
                    0 => return None,
                    left_ns if !self.step() => env.clock.sleep_ns(left_ns.min(1_000_000)),
                    _ => {}
                }
            }
            panic!("simulated deadlock: a foreground call waits for work that no job will do");
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let out = loop {
            let seen = self.progress_epoch.load(Ordering::SeqCst);
            if let Some(out) = ready() {
                break Some(out);
            }
            let left_ns = left_ns();
            if left_ns == 0 {
                break None;
            }
            let guard = lock(&self.parked);
            if self.progress_epoch.load(Ordering::SeqCst) == seen {
                let longest = LOOK_AGAIN.min(Duration::from_nanos(left_ns));
                drop(wait_timeout(&self.progress, guard, longest));
            }
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        out
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signals({} times work)", self.work_epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under every schedule, a wait ends when its condition is met or its time is over, and not
    /// earlier.
    #[test]
    fn a_wait_ends_by_its_condition_or_timeout() {
        for seed in 1..=200 {
            let sim = io::sim::SimEnv::new(seed);
            let ran = sim.run_threads(&io::sim::threads::Plan::new(seed), move |env| {
                let signals = std::sync::Arc::new(Signals::default());
                let is_there = std::sync::Arc::new(AtomicBool::new(false));
                let spawner = env.spawner.clone().expect("threads under a schedule");
                let until_ns = env.clock.now_ns() + 2_000_000 * (seed % 3);
                let (other, own, clock) = (signals.clone(), is_there.clone(), env.clone());
                let body = Box::new(move || {
                    clock.clock.sleep_ns(1_000_000 * (seed % 5));
                    own.store(true, Ordering::SeqCst);
                    other.notify_progress();
                });
                let thread = spawner.spawn("works", io::Priority::Background, body).unwrap();
                signals.wait_before(env, until_ns, || is_there.load(Ordering::SeqCst));
                assert!(is_there.load(Ordering::SeqCst) || env.clock.now_ns() >= until_ns);
                assert!(thread.join());
                signals.wait_before(env, u64::MAX, || is_there.load(Ordering::SeqCst));
                assert_eq!(signals.waiters.load(Ordering::SeqCst), 0);
            });
            ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
