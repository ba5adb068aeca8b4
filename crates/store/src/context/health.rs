//! Whether the store still takes writes, and whether jobs make progress.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};

/// Whether the store still takes writes.
///
/// There are three states besides healthy:
///
/// * *Poisoned*: a write or sync failed. The store acknowledges nothing until it is reopened; reads
///   continue. A damaged file does not poison the store: engines continue with the rest.
/// * *No space*: a job could not write for want of space. Jobs are retried every tenth of a second,
///   and writers get `NoSpace` once memory is full. Everything resumes by itself when space
///   returns.
/// * *Busy*: jobs keep failing for a transient reason (no descriptors, no memory). It acts like no
///   space, with another error.
#[derive(Debug, Default)]
pub struct Health {
    /// True once `error` is set; stored after it, and never reset.
    poisoned: AtomicBool,
    /// The first error that poisoned the store.
    error: Mutex<Option<Error>, rank::HealthError>,
    /// A job found no space. Separate from `met` so that a reader needs no lock.
    no_space: AtomicBool,
    /// Time of the next attempt of jobs, clock nanoseconds.
    retry_at_ns: AtomicU64,
    /// Transient errors of jobs since one of them last wrote successfully.
    met: Mutex<Met, rank::HealthBusy>,
}

/// The logs and the manifest of the store report failures at once, and check health before they
/// acknowledge anything.
impl wal::Domain for Health {
    fn fail(&self, error: &Error) {
        self.poison(error);
    }

    fn check(&self) -> Result<()> {
        self.check_sound()
    }
}

#[derive(Debug, Default)]
struct Met {
    /// Number of busy errors, and the last one.
    busy: Option<(u32, Error)>,
    /// The last error for want of space.
    no_space: Option<Error>,
}

/// Pause of jobs after a transient error.
const RETRY_NS: u64 = 100_000_000;
/// Failed attempts of jobs before waiting callers get the error: about a second.
const BUSY_TRIES: u32 = 10;

impl Health {
    /// Fails if the store may not acknowledge anything any more.
    ///
    /// # Errors
    /// The first failure, as `Poisoned`; or `Closed`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        let error = lock(&self.error).clone().expect("what poisons the store says why before it does");
        match error.kind() {
            ErrorKind::Closed => error,
            _ => error.with_kind(ErrorKind::Poisoned).context("an earlier failure stopped all writes"),
        }
    }

    /// Returns the first failure, if any.
    pub fn first_error(&self) -> Option<Error> {
        lock(&self.error).clone()
    }

    /// Stops all writes, for good. The first reason is kept, but a failure replaces `Closed`. Jobs
    /// may still fail while a store is being closed, and the fate of their files depends on that
    /// failure.
    pub fn poison(&self, error: &Error) {
        let mut first = lock(&self.error);
        let closed_only = first.as_ref().is_none_or(|e| e.kind() == ErrorKind::Closed);
        if closed_only || first.is_none() {
            *first = Some(error.clone());
        }
        self.poisoned.store(true, Ordering::Release);
    }

    /// Fails after a failure; a store that is being closed still passes.
    ///
    /// # Errors
    /// As [`Health::check`], without `Closed`.
    pub fn check_sound(&self) -> Result<()> {
        if self.is_poisoned() { self.closed_or_refusal() } else { Ok(()) }
    }

    #[cold]
    fn closed_or_refusal(&self) -> Result<()> {
        match self.refusal() {
            e if e.kind() == ErrorKind::Closed => Ok(()),
            e => Err(e),
        }
    }

    /// Returns true if the store acknowledges nothing any more.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Returns true if a failed edit may still be durable, so that the files it names must stay.
    pub fn outcome_unknown(&self) -> bool {
        self.is_poisoned() && self.first_error().is_some_and(|e| e.kind() != ErrorKind::Closed)
    }

    /// Returns true from the time that a job found no space until a job has written again.
    pub fn out_of_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// Returns true while jobs that write must not start.
    pub fn must_wait(&self, now_ns: u64) -> bool {
        now_ns < self.retry_at_ns.load(Ordering::Acquire)
    }

    /// Records a transient error of a job.
    pub fn busy_at(&self, now_ns: u64, error: &Error) {
        let mut met = lock(&self.met);
        let tries = met.busy.as_ref().map_or(0, |(tries, _)| *tries);
        met.busy = Some((tries.saturating_add(1), error.clone()));
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
    }

    /// Returns the repeated transient error of jobs that still wait, once it lasts longer than
    /// expected.
    pub fn held_up(&self, now_ns: u64) -> Option<Error> {
        if !self.must_wait(now_ns) {
            return None;
        }
        let met = lock(&self.met);
        met.busy.as_ref().filter(|(tries, _)| *tries >= BUSY_TRIES).map(|(_, error)| error.clone())
    }

    /// Returns true if jobs cannot write: no space, or a transient error that lasts.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        self.out_of_space() || self.held_up(now_ns).is_some()
    }

    /// Records that a job found no space; jobs that write pause for a while. `why`: the refusal.
    pub fn no_space_at(&self, now_ns: u64, why: &Error) {
        lock(&self.met).no_space = Some(why.clone());
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
        self.no_space.store(true, Ordering::Release);
    }

    /// Returns the last refusal for want of space, if jobs still wait for space.
    pub fn no_space_error(&self) -> Option<Error> {
        lock(&self.met).no_space.clone().filter(|_| self.out_of_space())
    }

    /// Lets jobs try again at once: there may be space.
    pub fn retry(&self) {
        self.retry_at_ns.store(0, Ordering::Release);
    }

    /// Records that a job wrote successfully.
    pub fn space_found(&self) {
        self.no_space.store(false, Ordering::Release);
        *lock(&self.met) = Met::default();
        self.retry_at_ns.store(0, Ordering::Release);
    }
}
