//! Who waits for what: workers for work, callers for what work brings about.
//!
//! Both are told by a count that is raised before anybody is woken: who is about to sleep has read it before he looked, and
//! does not sleep if it has changed since. A worker that nobody tells finds its work when it looks again, after a while.
//!
//! * **Work** ([`Signals::notify_work`]): there may be something to do. Workers sleep for it ([`Signals::sleep`]); those that
//!   sleep long are woken by whoever writes ([`Signals::wake_dozing`]).
//! * **Progress** ([`Signals::notify_progress`]): what a call in the foreground waits for may have come about
//!   ([`Signals::wait_until`]).
//!
//! A simulation has no workers: who waits does the work himself, by way of the [`Driver`]. It is the only thing that is
//! called upward from here, and knows whether work could free space.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, OnceLock, lock, rank, wait_timeout};
use io::Env;
use std::sync::Weak;
use std::time::Duration;

/// Whoever does the work.
pub trait Driver: Send + Sync {
    /// In simulation: one step of some work. False if there is nothing to do now.
    fn step(&self) -> bool;
    /// True if a job runs or could start that may free space.
    fn can_free(&self) -> bool;
}

/// See the module.
#[derive(Default)]
pub struct Signals {
    /// Raised whenever there may be new work; workers compare it before they look.
    work_epoch: AtomicU64,
    /// Raised whenever a waiting foreground call should look again.
    progress_epoch: AtomicU64,
    /// Raised whenever the limits on writes may have changed.
    state_epoch: AtomicU64,
    /// Guards nothing: who sleeps does so under it, so that no wake-up is lost.
    parked: Mutex<(), rank::Parked>,
    work: Condvar,
    progress: Condvar,
    waiters: AtomicU64,
    /// Some worker sleeps longer than usual.
    dozing: AtomicBool,
    stopping: AtomicBool,
    /// Set when the store begins service; gone when it is dropped.
    driver: OnceLock<Weak<dyn Driver>>,
}

/// Steps of simulated idleness after which a wait is declared a deadlock.
const IDLE_ROUNDS_MAX: u64 = 100_000;
/// Who waits looks again after so long, whether it was woken or not.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Signals {
    /// Who does the work. Once.
    pub fn set_driver(&self, driver: Weak<dyn Driver>) {
        let _ = self.driver.set(driver);
    }

    fn drive<T>(&self, ask: impl FnOnce(&dyn Driver) -> T) -> Option<T> {
        self.driver.get().and_then(Weak::upgrade).map(|driver| ask(&*driver))
    }

    /// True if a job runs or could start that may free space.
    pub fn can_free(&self) -> bool {
        self.drive(|driver| driver.can_free()).unwrap_or(false)
    }

    /// In simulation: one step of some work. False if there is nothing to do now.
    pub fn step(&self) -> bool {
        self.drive(|driver| driver.step()).unwrap_or(false)
    }

    /// What to compare later: see [`Signals::sleep`].
    pub fn work_epoch(&self) -> u64 {
        self.work_epoch.load(Ordering::Acquire)
    }

    /// There may be new work.
    pub fn notify_work(&self) {
        self.work_epoch.fetch_add(1, Ordering::Release);
        drop(lock(&self.parked));
        self.work.notify_all();
    }

    /// Something was written. Workers that look for work often enough are not told.
    ///
    /// A worker that falls asleep in the same moment may be missed: then it sleeps on for as long as workers do at most, as if
    /// that write had brought no work, and the next write wakes it.
    #[inline]
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

    /// The state that the limits on writes follow from has changed.
    pub fn state_changed(&self) {
        self.state_epoch.fetch_add(1, Ordering::Release);
    }

    /// Rises with each change of that state.
    #[inline]
    pub fn state_epoch(&self) -> u64 {
        self.state_epoch.load(Ordering::Acquire)
    }

    /// All work is to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify_work();
    }

    /// True once all work is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A worker sleeps, at most so long, unless there was new work since `seen`. `dozes`: whoever writes is to wake it.
    pub fn sleep(&self, seen: u64, longest: Duration, dozes: bool) {
        let guard = lock(&self.parked);
        if self.work_epoch() == seen && !self.is_stopping() {
            if dozes {
                self.dozing.store(true, Ordering::Release);
            }
            drop(wait_timeout(&self.work, guard, longest));
        }
    }

    /// Waits until `ready` returns something. In simulation the caller does the work it waits for.
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
        // The clock is asked only where that matters.
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

    /// Whoever waits is woken by what happens, or goes on when its time is over: under every schedule, and not before.
    #[test]
    fn a_wait_ends_when_it_is_met_or_when_its_time_is_over() {
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
