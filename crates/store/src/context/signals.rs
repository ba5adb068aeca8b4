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
        if env.is_simulated() {
            for _ in 0..IDLE_ROUNDS_MAX {
                if let Some(out) = ready() {
                    return out;
                }
                if !self.step() {
                    env.clock.sleep_ns(1_000_000);
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
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signals({} times work)", self.work_epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_wakes_those_that_sleep_long_and_does_so_once() {
        let signals = Signals::default();
        let before = signals.work_epoch();
        signals.wake_dozing();
        assert_eq!(signals.work_epoch(), before, "nobody sleeps long");
        signals.sleep(before, Duration::from_millis(1), true);
        signals.wake_dozing();
        signals.wake_dozing();
        assert_eq!(signals.work_epoch(), before + 1);
    }

    #[test]
    fn who_saw_an_older_epoch_or_is_to_stop_does_not_sleep() {
        let signals = Signals::default();
        let before = signals.work_epoch();
        signals.notify_work();
        signals.sleep(before, Duration::MAX, false);
        signals.stop();
        signals.sleep(signals.work_epoch(), Duration::MAX, false);
    }
}
