//! Leader election of the group commit, and the end of the written and of the durable log.
//!
//! One thread at a time holds the *token* and takes pages to write; each such turn is a *round*. A
//! `sync` that finds the token free leads: it takes every unwritten page, its own among them, and
//! writes for all waiters. A `sync` that finds the token taken waits on one of a few condition
//! variables, chosen by the round that will cover its page. The end of a round then wakes only the
//! threads that it satisfied, and one waiter to lead the next round. A single thread never waits,
//! since the token is always free.
//!
//! With many waiters, several rounds are in flight at once: see [`rounds_in_flight`]. All other
//! work with the token waits until none is in flight.
//!
//! The token is also taken for other work ([`Commit::acquire`]), which may make pages durable
//! without having announced them in time ([`Token::covers`]). The waiters for such pages wait for
//! the next round, which may never come. So each side keeps the lowest page that its waiters need,
//! and a round that has made this page durable wakes the whole side. **A thread that is woken alone
//! is not satisfied yet, so it leads or waits for a leader**; no thread can consume the only
//! wake-up and leave. The models in `commit/loom_tests.rs` check every interleaving of this.
//!
//! A thread that finds the token free may wait a moment for the other threads of its commit group:
//! see [`commit_group`]. One of the waiters for a round that has not begun always waits with a
//! timeout, so that the round begins.
//!
//! An asynchronous waiter leaves a [`Completer`] with the number of its page
//! ([`Commit::when_durable`]). The end of every round resolves the completers of its pages, and a
//! failure resolves all of them. No thread leads for their pages, except a caller that syncs the
//! last of them ([`Commit::last_wanted`]). If there will be no such caller, they are refused
//! ([`Commit::refuse_wanted`]).
//!
//! Invariants: only the holder of the token moves the frontiers (the written and the durable end),
//! or, while rounds are in flight, the end of the oldest of them. `durable_end <= written_end`. All
//! pages below `durable_end` were covered by a durable write of their own or by a data sync of
//! their file that began after they were written. The first failure is kept for good. Nothing is
//! acknowledged after it, nor after a failure of the domain ([`Domain`]).

mod commit_group;
mod logger_concurrency;
mod rounds_in_flight;

use crate::domain::Domain;
use base::completion::Completer;
use base::sync::OnceLock;
use base::sync::model::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::model::{self, Condvar, Mutex, MutexGuard};
use base::sync::rank;
use base::{Error, ErrorKind, Result};
use commit_group::{CommitGroup, Plan, Waiter};
pub(crate) use logger_concurrency::LoggerTrials;
pub use rounds_in_flight::Loggers;
use rounds_in_flight::{FLIGHTS_MAX, RoundsInFlight, Whose};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rounds that threads may wait for: those in flight, and the next one.
const SIDES: usize = FLIGHTS_MAX + 1;

/// Duration of a durable write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub ns: u64,
    /// End of the write, in clock nanoseconds.
    pub until_ns: u64,
}

/// Page numbers, each the end (exclusive) of a prefix of the log.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    /// Changed by the holder of the token, or by the end of a write in flight.
    written_end: AtomicU64,
    /// Changed by the holder of the token, or by the end of a write in flight.
    durable_end: AtomicU64,
}

impl Frontier {
    /// Returns the end of the pages handed to their group file. Their slots in the tail buffer are
    /// free.
    pub fn written_end(&self) -> u64 {
        self.written_end.load(Ordering::Acquire)
    }

    /// Returns the end of the durable pages.
    pub fn durable_end(&self) -> u64 {
        self.durable_end.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
struct CommitState {
    busy: bool,
    /// Number of times that the token was taken.
    round: u64,
    /// End of the pages that the present round makes durable.
    covers: u64,
    /// The rounds in flight without the token.
    flights: RoundsInFlight,
    /// Threads that wait for a round to make their page durable, by the number of the round modulo
    /// `SIDES`.
    sides: [Side; SIDES],
    /// The present round was begun for a sync.
    is_sync: bool,
    company: CommitGroup,
    /// Threads that wait for the token itself.
    queued: usize,
    /// Asynchronous waiters, by page.
    wanted: BTreeMap<u64, Vec<Completer<()>>>,
    failure: Option<Error>,
}

/// Waiters on one of the condition variables.
#[derive(Debug)]
struct Side {
    /// Waiters, including woken ones that do not have the lock yet.
    threads: usize,
    /// Lower bound of the pages that waiters need, except those of waiters that were woken.
    lowest_lpn: u64,
}

impl Default for Side {
    fn default() -> Self {
        Side { threads: 0, lowest_lpn: u64::MAX }
    }
}

impl Side {
    fn enter(&mut self, lpn: u64) {
        self.lowest_lpn = self.lowest_lpn.min(lpn);
        self.threads += 1;
    }

    /// Resets the lowest page before all waiters are woken: the pages that they waited for say
    /// nothing about later waiters. If the bound were kept, a round that satisfies no thread of
    /// this side would wake all of them in vain.
    fn forget(&mut self) {
        self.lowest_lpn = u64::MAX;
    }
}

/// The token, the frontiers and the first failure.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// Holder of the token, waiters, first failure.
    state: Mutex<CommitState, rank::LogCommit>,
    rounds: [Condvar; SIDES],
    freed: Condvar,
    /// Set once there is a failure: changed under `state`, read without it.
    failed: AtomicBool,
    /// Fails with the log; checked before each acknowledgment.
    domain: OnceLock<Arc<dyn Domain>>,
    pub frontier: Frontier,
}

/// Result of [`Commit::lead_or_wait`].
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// The pages of the caller are durable.
    Durable,
    /// The caller writes, for all waiters.
    Lead(Token<'a>),
}

impl Commit {
    pub fn new(durable_end: u64, written_end: u64) -> Self {
        let frontier =
            Frontier { written_end: AtomicU64::new(written_end), durable_end: AtomicU64::new(durable_end) };
        Commit { frontier, ..Commit::default() }
    }

    /// Sets how many rounds may be in flight at once.
    pub fn with_flights(self, loggers: Loggers) -> Self {
        let mut state = self.lock();
        state.flights = RoundsInFlight::of_loggers(loggers);
        drop(state);
        self
    }

    /// Assigns the log to a domain. To be called once.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        let _ = self.domain.set(domain);
    }

    /// Returns the answer for a waiter whose pages are durable.
    pub fn acknowledge(&self) -> Result<()> {
        self.domain.get().map_or(Ok(()), |domain| domain.check())
    }

    fn lock(&self) -> MutexGuard<'_, CommitState> {
        model::lock(&self.state)
    }

    /// Resolves `completer` when the page is durable, or when it is known that it never will be; on
    /// any thread, perhaps during this call. Returns true if this is the only asynchronous waiter
    /// for pages that are not durable, so that a thread that syncs for them may be asleep.
    pub fn when_durable(&self, lpn: u64, completer: Completer<()>) -> bool {
        if self.frontier.durable_end() > lpn {
            completer.resolve(self.acknowledge());
            return false;
        }
        let mut state = self.lock();
        // A round that makes the page durable from now on finds the completer when it ends.
        let durable = self.frontier.durable_end() > lpn;
        if durable || state.failure.is_some() {
            let failure = state.failure.as_ref().filter(|_| !durable).map(poisoned);
            drop(state);
            completer.resolve(failure.map_or_else(|| self.acknowledge(), Err));
            return false;
        }
        let is_first = self.wanted_in(&state).is_none();
        state.wanted.entry(lpn).or_default().push(completer);
        state.flights.comes_without_thread();
        is_first
    }

    /// Resolves the asynchronous waiters of pages that are not durable with an error; the log goes
    /// on.
    pub fn refuse_wanted(&self, why: &Error) {
        let pages = std::mem::take(&mut self.lock().wanted);
        let (durable_end, refusal) = (self.frontier.durable_end(), self.acknowledge().err());
        Answered { pages, durable_end, failure: Some(why.clone()), refusal }.resolve();
    }

    /// Returns the last page that is not durable and has an asynchronous waiter. Waiters for
    /// durable pages are resolved by the end of the round, and need no leader.
    pub fn last_wanted(&self) -> Option<u64> {
        self.wanted_in(&self.lock())
    }

    fn wanted_in(&self, state: &CommitState) -> Option<u64> {
        let last = state.wanted.last_key_value().map(|(lpn, _)| *lpn);
        last.filter(|lpn| *lpn >= self.frontier.durable_end())
    }

    /// Fails the log for a reason other than a write.
    pub fn fail(&self, error: Error) {
        let answered = {
            let mut state = self.lock();
            self.keep(&mut state, Some(error));
            self.answered(&mut state)
        };
        // A thread that was woken to lead now does not, so no round may end and wake the others.
        self.rounds.iter().for_each(Condvar::notify_all);
        self.freed.notify_all();
        answered.resolve();
    }

    /// Keeps the first failure for good.
    fn keep(&self, state: &mut CommitState, failure: Option<Error>) {
        if let Some(error) = failure {
            self.failed.store(true, Ordering::Relaxed);
            let first = state.failure.get_or_insert(error);
            if let Some(domain) = self.domain.get() {
                domain.fail(first);
            }
        }
    }

    /// Returns the first failure, as `Poisoned`.
    pub fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) { self.first_failure() } else { Ok(()) }
    }

    #[cold]
    fn first_failure(&self) -> Result<()> {
        self.lock().failure.as_ref().map_or(Ok(()), |failure| Err(poisoned(failure)))
    }

    /// Waits until the page is durable, or until it is the caller's turn to write.
    pub fn lead_or_wait(&self, lpn: u64) -> Result<Turn<'_>> {
        if self.frontier.durable_end() > lpn {
            return Ok(Turn::Durable);
        }
        let turn = rank::turn::<rank::LogToken>();
        let mut state = self.lock();
        let mut comer = Waiter::default();
        loop {
            if self.frontier.durable_end() > lpn {
                return Ok(Turn::Durable);
            }
            if let Some(failure) = &state.failure {
                return Err(poisoned(failure));
            }
            let (round, plan) = state.comes(&mut comer, lpn);
            if plan == Plan::Lead {
                // The round takes all pages appended until now; [`Token::covers`] sets their end.
                return Ok(Turn::Lead(self.begin(turn, &mut state, u64::MAX)));
            }
            let side = side_of(round);
            state.sides[side].enter(lpn);
            state = match plan {
                Plan::Watch(patience_ns) => self.watch(side, state, patience_ns),
                _ => model::wait(&self.rounds[side], state),
            };
            state.sides[side].threads -= 1;
        }
    }

    /// Returns how many rounds may be in flight now, and the trials that found this number.
    pub fn width(&self) -> (usize, LoggerTrials) {
        let state = self.lock();
        (state.flights.at_once(), state.flights.told())
    }

    /// Returns how often a thread waited for its commit group.
    #[cfg(test)]
    pub fn watches(&self) -> u64 {
        self.lock().company.watches()
    }

    /// Waits, with a timeout, for a round that has not begun.
    fn watch<'a>(
        &'a self,
        side: usize,
        state: MutexGuard<'a, CommitState>,
        patience_ns: u64,
    ) -> MutexGuard<'a, CommitState> {
        let (missing, round) = (state.company.missing(), state.round);
        // A model has no time: the timeout always expires, however much other threads did
        // meanwhile.
        #[cfg(loom)]
        let mut state = {
            let _ = (side, patience_ns);
            drop(state);
            model::loom::thread::yield_now();
            self.lock()
        };
        #[cfg(not(loom))]
        let mut state =
            base::sync::wait_timeout(&self.rounds[side], state, std::time::Duration::from_nanos(patience_ns));
        let led = state.round > round;
        state.company.watch_ends(missing, led);
        state
    }

    /// Waits for the token, for work other than a sync. No round is in flight then.
    pub fn acquire(&self) -> Result<Token<'_>> {
        let token = self.acquire_unless(|_| false)?;
        Ok(token.expect("waited until it was free"))
    }

    /// Waits for the token, or until written pages make `enough` true: then returns `None`.
    pub fn acquire_unless(&self, enough: impl Fn(&Frontier) -> bool) -> Result<Option<Token<'_>>> {
        let turn = rank::turn::<rank::LogToken>();
        let mut state = self.lock();
        while state.busy || !state.flights.is_empty() {
            if enough(&self.frontier) {
                return Ok(None);
            }
            state.queued += 1;
            state = model::wait(&self.freed, state);
            state.queued -= 1;
        }
        match &state.failure {
            Some(failure) => Err(poisoned(failure)),
            None => Ok(Some(self.begin(turn, &mut state, 0))),
        }
    }

    fn begin(&self, turn: rank::Turn, state: &mut CommitState, covers: u64) -> Token<'_> {
        assert!(!state.busy && state.failure.is_none(), "one writer at a time, none after a failure");
        state.busy = true;
        state.round += 1;
        state.covers = covers;
        state.is_sync = covers == u64::MAX;
        let is_sync = state.is_sync;
        state.company.begins(is_sync);
        Token { commit: self, finished: false, took: Took::default(), _turn: turn }
    }

    /// Removes the asynchronous waiters that are satisfied or failed. The caller resolves them
    /// without the lock.
    fn answered(&self, state: &mut CommitState) -> Answered {
        if state.wanted.is_empty() {
            return Answered::default();
        }
        let later = match state.failure {
            Some(_) => BTreeMap::new(),
            None => state.wanted.split_off(&self.frontier.durable_end()),
        };
        let durable_end = self.frontier.durable_end();
        let failure = state.failure.as_ref().map(poisoned);
        let pages = std::mem::replace(&mut state.wanted, later);
        Answered { pages, durable_end, failure, refusal: self.acknowledge().err() }
    }

    #[must_use = "to be resolved when the token is given up"]
    fn end(&self, failure: Option<Error>, took: Took) -> Answered {
        let mut state = self.lock();
        state.busy = false;
        if state.is_sync {
            let others = state.flights.threads();
            state.company.ends(took.ns, others);
        }
        self.keep(&mut state, failure);
        let (this, next) = (side_of(state.round), side_of(state.round + 1));
        let durable = self.frontier.durable_end() > state.sides[next].lowest_lpn;
        let failed = state.failure.is_some();
        let satisfied = failed || durable;
        let (wake_this, wake_next) = (state.sides[this].threads > 0, state.sides[next].threads > 0);
        let wake_queued = state.queued > 0;
        let answered = self.answered(&mut state);
        state.sides[this].forget();
        if satisfied {
            state.sides[next].forget();
        }
        drop(state);
        if failed {
            self.rounds.iter().for_each(Condvar::notify_all);
        }
        // The next leader is woken before the satisfied waiters: the device is idle until the
        // leader writes.
        if wake_next && !satisfied {
            self.rounds[next].notify_one();
        }
        if wake_this {
            self.rounds[this].notify_all();
        }
        if wake_next && satisfied {
            self.rounds[next].notify_all();
        }
        if wake_queued {
            self.freed.notify_all();
        }
        answered
    }
}

/// Returns the side of the waiters for a round.
fn side_of(round: u64) -> usize {
    (round % SIDES as u64) as usize
}

impl CommitState {
    /// Counts a thread that asks for a page. Returns the round that makes it durable, and the
    /// action of the thread.
    fn comes(&mut self, comer: &mut Waiter, lpn: u64) -> (u64, Plan) {
        let is_present = self.busy && self.covers > lpn;
        let (round, whose) = match self.flights.of(lpn) {
            Some(round) => (round, Whose::InFlight),
            None if is_present => (self.round, Whose::Present),
            None => (self.round + 1, Whose::Next),
        };
        if comer.comes(round) {
            match whose {
                Whose::InFlight => self.flights.joins(round),
                Whose::Present => self.company.joins(),
                Whose::Next => self.company.comes(),
            }
        }
        let plan = match whose {
            Whose::Next if self.busy => Plan::Wait,
            Whose::Next if self.flights.is_empty() => self.company.plan(comer, round, self.flights.parts()),
            Whose::Next if self.queued == 0 && self.flights.has_place(&self.company) => Plan::Lead,
            _ => Plan::Wait,
        };
        (round, plan)
    }
}

/// Asynchronous waiters to resolve, by page, and their answers.
#[derive(Debug, Default)]
struct Answered {
    pages: BTreeMap<u64, Vec<Completer<()>>>,
    durable_end: u64,
    /// Answer for pages that are not durable.
    failure: Option<Error>,
    /// Answer for durable pages, where the domain failed.
    refusal: Option<Error>,
}

impl Answered {
    fn count(&self) -> usize {
        self.pages.values().map(Vec::len).sum()
    }

    fn resolve(self) {
        for (lpn, completers) in self.pages {
            for completer in completers {
                let failure = if lpn < self.durable_end { &self.refusal } else { &self.failure };
                completer.resolve(failure.clone().map_or(Ok(()), Err));
            }
        }
    }
}

/// Returns the error for every caller after the first failure.
fn poisoned(failure: &Error) -> Error {
    failure.clone().with_kind(ErrorKind::Poisoned).context(
        "an earlier write or sync of the log failed; nothing is acknowledged until the store is reopened",
    )
}

/// Right to write pages. If dropped without [`Token::finish`] (a panic), poisons the log.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    commit: &'a Commit,
    finished: bool,
    /// Duration of the write.
    took: Took,
    _turn: rank::Turn,
}

impl Token<'_> {
    /// Announces to new waiters the end of the pages that this round makes durable.
    pub fn covers(&self, end: u64) {
        let mut state = self.commit.lock();
        state.covers = end;
        state.flights.takes_pages();
    }

    pub fn written(&self, end: u64) {
        let frontier = &self.commit.frontier;
        assert!(end >= frontier.written_end(), "pages are written in order");
        frontier.written_end.store(end, Ordering::Release);
        // An append may wait for the slots that are now free.
        if self.commit.lock().queued > 0 {
            self.commit.freed.notify_all();
        }
    }

    /// Records the duration of the write and its sync: the wait for a commit group is a part of
    /// that.
    pub fn took(&mut self, took: Took) {
        self.took = took;
    }

    pub fn durable(&self, end: u64) {
        let frontier = &self.commit.frontier;
        assert!(end >= frontier.durable_end() && end <= frontier.written_end(), "durable pages were written");
        frontier.durable_end.store(end, Ordering::Release);
    }

    /// As [`Token::finish`], after writes that have not been synced: after `NoSpace` they can be
    /// repeated.
    pub fn finish_write<T>(mut self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace) {
            self.give_up(None);
            return outcome;
        }
        self.finish(outcome)
    }

    /// Releases the token; an error poisons the log.
    pub fn finish<T>(mut self, outcome: Result<T>) -> Result<T> {
        self.give_up(outcome.as_ref().err().cloned());
        outcome
    }

    fn give_up(&mut self, failure: Option<Error>) {
        self.finished = true;
        self.commit.end(failure, self.took).resolve();
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.give_up(Some(Error::new(ErrorKind::Poisoned, "a thread panicked while it wrote the log")));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
