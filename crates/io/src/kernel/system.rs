//! Time, threads and randomness of the machine; no other module asks the system for them.

use super::calls;
use super::handle::retry;
use crate::env::Entropy;
use crate::{Clock, Priority, Spawner, ThreadHandle};
use base::sync::statistic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Addend of a background thread to the nice value of the process: enough to yield to any
/// foreground thread, not so much that it starves next to other idle work of the machine.
const BACKGROUND_NICE: i32 = 10;
const NICE_MAX: i32 = 19;

/// For sleeps below this it matters that the kernel usually wakes a thread up to 50 us late.
const SHORT_SLEEP_NS: u64 = 1_000_000;

/// Runs a sleep with minimal timer slack. The thread is the user's, so its former slack is
/// restored.
pub(super) fn on_time<T>(sleep: impl FnOnce() -> T) -> T {
    let usual = NonZeroU64::new(calls::timer_slack_ns()).filter(|usual| *usual > NonZeroU64::MIN);
    let Some(usual) = usual else { return sleep() };
    calls::set_timer_slack(NonZeroU64::MIN);
    let _usual = UsualSlack(usual);
    sleep()
}

/// Restores the slack of the thread, even after a panic.
struct UsualSlack(NonZeroU64);

impl Drop for UsualSlack {
    fn drop(&mut self) {
        calls::set_timer_slack(self.0);
    }
}

/// The system's clocks.
#[derive(Debug)]
pub(super) struct KernelClock {
    start: Instant,
}

impl KernelClock {
    #[allow(clippy::disallowed_methods, reason = "this is what the engine's clock wraps")]
    pub(super) fn new() -> Self {
        KernelClock { start: Instant::now() }
    }
}

impl Clock for KernelClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods, reason = "this is what the engine's clock wraps")]
    fn unix_seconds(&self) -> u64 {
        // A clock before 1970 is not set.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    #[allow(clippy::disallowed_methods, reason = "this is what the engine's clock wraps")]
    fn sleep_ns(&self, ns: u64) {
        let sleep = || std::thread::sleep(Duration::from_nanos(ns));
        if ns < SHORT_SLEEP_NS { on_time(sleep) } else { sleep() }
    }
}

/// Threads of the system.
#[derive(Debug, Default)]
pub(super) struct KernelSpawner {
    /// A background thread was refused the lower priority.
    refused_priority: Arc<AtomicBool>,
}

struct KernelThread(std::thread::JoinHandle<()>);

impl ThreadHandle for KernelThread {
    fn join(self: Box<Self>) -> bool {
        self.0.join().is_ok()
    }
}

impl Spawner for KernelSpawner {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> Result<Box<dyn ThreadHandle>> {
        let refused = self.refused_priority.clone();
        let run = move || {
            if priority == Priority::Background && lower_priority().is_err() {
                refused.store(true, Ordering::Relaxed);
            }
            body();
        };
        let name = name.replace('\0', " ");
        let started = std::thread::Builder::new().name(name.clone()).spawn(run);
        let handle = started.map_err(|e| {
            let why = format!("cannot start the thread {name}; raise the limit of threads of this user (`ulimit -u`), and repeat");
            Error::new(ErrorKind::Io, why).caused_by(e)
        })?;
        Ok(Box::new(KernelThread(handle)))
    }

    fn refused_priority(&self) -> bool {
        self.refused_priority.load(Ordering::Relaxed)
    }
}

/// Lowers the calling thread's CPU and I/O priority as far as the system allows; returns the first
/// refusal. A sandbox may forbid it; the work is then the same, but competes with other threads.
pub(super) fn lower_priority() -> rustix::io::Result<()> {
    let nice = retry(calls::niceness);
    let cpu = nice.and_then(|now| retry(|| calls::set_niceness((now + BACKGROUND_NICE).min(NICE_MAX))));
    let io = retry(calls::lower_io_priority);
    cpu.and(io)
}

/// Randomness of the system.
#[derive(Debug)]
pub(super) struct KernelEntropy;

impl Entropy for KernelEntropy {
    fn next_u64(&self) -> u64 {
        // No fallback: repeated file identities would defeat the checksums that are masked with
        // them.
        calls::random_u64().expect("the kernel gives random bytes")
    }
}
