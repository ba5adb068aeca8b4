//! Whether the store still takes writes, and jobs still work.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};

/// Whether the store still takes writes.
///
/// Three states besides healthy. *Poisoned*: a write or sync failed; nothing is acknowledged until the store is reopened;
/// reads go on. (A damaged file is no reason: engines go on with the rest.) *No space*: a job could not write for want of
/// room; jobs are tried again every tenth of a second, writers get `NoSpace` once memory is full, and everything resumes by
/// itself when room returns. *Busy*: jobs have met the same again and again that passes by itself (no descriptors, no memory).
/// It is like no space with another error.
#[derive(Debug, Default)]
pub struct Health {
    /// There is an `error`: changed behind it, and never back.
    poisoned: AtomicBool,
    /// What poisoned the store first.
    error: Mutex<Option<Error>, rank::HealthError>,
    /// A job found no room; with the next field, no lock.
    no_space: AtomicBool,
    /// When jobs are tried again, in clock nanoseconds.
    retry_at_ns: AtomicU64,
    /// What jobs met since one of them last wrote successfully.
    met: Mutex<Met, rank::HealthBusy>,
}

/// The logs of the store and its manifest report to it at once, and ask it before they acknowledge anything.
impl wal::Domain for Health {
    fn fail(&self, error: &Error) {
        self.poison(error);
    }

    fn check(&self) -> Result<()> {
        self.check_sound()
    }
}

/// What jobs met that passes.
#[derive(Debug, Default)]
struct Met {
    /// How often it was what passes by itself, and what it was the last time.
    busy: Option<(u32, Error)>,
    /// Where there was no room, the last time.
    no_space: Option<Error>,
}

/// How long jobs wait after one of them found no room, or no descriptor, or the like.
const RETRY_NS: u64 = 100_000_000;
/// So often jobs try in vain what others wait for, before these are told: a second or so.
const BUSY_TRIES: u32 = 10;

impl Health {
    /// Fails if nothing may be acknowledged any more.
    ///
    /// # Errors
    /// What failed first, as `Poisoned`; or `Closed`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        let error = lock(&self.error).clone().expect("what poisons the store says why before it does");
        match error.kind() {
            ErrorKind::Closed => error,
            _ => error
                .with_kind(ErrorKind::Poisoned)
                .context("an earlier failure stopped all writes; reopen the store"),
        }
    }

    /// The first failure, if there was one.
    pub fn first_error(&self) -> Option<Error> {
        lock(&self.error).clone()
    }

    /// Stops all writes, for good. The first reason is kept; but `Closed`, which is no failure, gives way to one: jobs may
    /// still fail while a store is being closed, and what becomes of their files depends on it.
    pub fn poison(&self, error: &Error) {
        let mut first = lock(&self.error);
        let closed_only = first.as_ref().is_none_or(|e| e.kind() == ErrorKind::Closed);
        if closed_only || first.is_none() {
            *first = Some(error.clone());
        }
        self.poisoned.store(true, Ordering::Release);
    }

    /// Fails if something went wrong; a store that is being closed is none the worse for it.
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

    /// True if nothing is acknowledged any more.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// True if a failed edit may be durable all the same: files it names must stay.
    pub fn outcome_unknown(&self) -> bool {
        self.is_poisoned() && self.first_error().is_some_and(|e| e.kind() != ErrorKind::Closed)
    }

    /// True from when a job found no room until one has written again.
    pub fn out_of_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// True while jobs that write must not start.
    pub fn must_wait(&self, now_ns: u64) -> bool {
        now_ns < self.retry_at_ns.load(Ordering::Acquire)
    }

    /// A job met what passes.
    pub fn busy_at(&self, now_ns: u64, error: &Error) {
        let mut met = lock(&self.met);
        let tries = met.busy.as_ref().map_or(0, |(tries, _)| *tries);
        met.busy = Some((tries.saturating_add(1), error.clone()));
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
    }

    /// What a job met a moment ago, again, and what should have passed by now: nobody knows when jobs will get on.
    pub fn held_up(&self, now_ns: u64) -> Option<Error> {
        if !self.must_wait(now_ns) {
            return None;
        }
        let met = lock(&self.met);
        met.busy.as_ref().filter(|(tries, _)| *tries >= BUSY_TRIES).map(|(_, error)| error.clone())
    }

    /// True if jobs cannot write: for want of room, or of what should have passed by now.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        self.out_of_space() || self.held_up(now_ns).is_some()
    }

    /// A job found no room: jobs that write wait a while. `why`: what refused it.
    pub fn no_space_at(&self, now_ns: u64, why: &Error) {
        lock(&self.met).no_space = Some(why.clone());
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
        self.no_space.store(true, Ordering::Release);
    }

    /// What refused a job for want of room, the last time, if jobs still wait for that.
    pub fn no_space_error(&self) -> Option<Error> {
        lock(&self.met).no_space.clone().filter(|_| self.out_of_space())
    }

    /// There may be room for the next try.
    pub fn retry(&self) {
        self.retry_at_ns.store(0, Ordering::Release);
    }

    /// A job wrote successfully.
    pub fn space_found(&self) {
        self.no_space.store(false, Ordering::Release);
        *lock(&self.met) = Met::default();
        self.retry_at_ns.store(0, Ordering::Release);
    }
}
