//! Who writes, and up to where the log is written and durable.
//!
//! One thread at a time holds the *token* and takes pages to write. A `sync` that finds it free leads: it takes
//! every page there is, its own among them, and writes for all. One that finds it taken waits, on one of a few condition
//! variables chosen by the round that will cover it, so that the end of a round wakes the threads it satisfied, and one of
//! the others to lead the next. Nobody waits where there is only one thread: the token is then always free.
//!
//! Where many sync, several rounds are at the device at once: see [`flights`]. All other work with the token waits until none is.
//!
//! The token is also taken for other work ([`Commit::acquire`]), which may make pages durable without having said so in
//! time ([`Token::covers`]). Those who wait for such pages wait for the next round, of which nothing may ever come. So each
//! side knows the lowest page somebody waits for there: if a round has made that one durable, the whole side is woken.
//! **Who is woken alone is not satisfied yet, and so leads, or waits for somebody who does**; nobody can take the only
//! wake-up and leave. The models in `commit/loom_tests.rs` go through every interleaving of this.
//!
//! Who finds the token free may wait a moment for those who will sync, too: see [`company`]. One of those who wait for a round that
//! nobody has begun always does so for a limited time, so that it begins.
//!
//! Who waits without a thread leaves a [`Completer`] with the page it is for ([`Commit::when_durable`]). The end of every round resolves
//! those it made durable, and a failure all; nobody leads for their sake but whoever asks for the last of them
//! ([`Commit::last_wanted`]). Where nobody is going to, they are refused ([`Commit::refuse_wanted`]).
//!
//! Invariants: only the holder of the token moves the frontiers, or, while rounds are in flight, the end of the first of them.
//! `durable_end <= written_end`. All pages below
//! `durable_end` were covered by a durable write of their own or by a data sync of their file that began after they
//! were written. The first failure is kept for good, and nothing is acknowledged after it, nor after a failure of the domain
//! ([`Domain`]).

mod company;
mod flights;
mod width;

use crate::domain::Domain;
use base::completion::Completer;
use base::sync::OnceLock;
use base::sync::model::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::model::{self, Condvar, Mutex, MutexGuard};
use base::sync::rank;
use base::{Error, ErrorKind, Result};
use company::{Comer, Company, Plan};
pub use flights::Loggers;
use flights::{FLIGHTS_MAX, Flights, Whose};
use std::collections::BTreeMap;
use std::sync::Arc;
pub(crate) use width::WidthTold;

/// Rounds of which somebody may wait for the end: those in flight, and the one that comes next.
const SIDES: usize = FLIGHTS_MAX + 1;

/// How long a durable write took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub ns: u64,
    /// When it was over, in clock nanoseconds.
    pub until_ns: u64,
}

/// Page numbers, each the end (exclusive) of a prefix of the log. Written by the holder of the token alone.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    /// Changed by the holder of the token, or when a flight lands.
    written_end: AtomicU64,
    /// Changed by the holder of the token, or when a flight lands.
    durable_end: AtomicU64,
}

impl Frontier {
    /// All pages below were handed to their group file: their slots in the ring are free.
    pub fn written_end(&self) -> u64 {
        self.written_end.load(Ordering::Acquire)
    }

    /// All pages below are durable.
    pub fn durable_end(&self) -> u64 {
        self.durable_end.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
struct State {
    busy: bool,
    /// Counts holders of the token.
    round: u64,
    /// The present round makes everything below durable.
    covers: u64,
    /// The rounds that are at the device without the token.
    flights: Flights,
    /// Threads that wait for a round to make them durable, by the round modulo their number.
    sides: [Side; SIDES],
    /// The present round was begun for those who sync.
    is_sync: bool,
    company: Company,
    /// Threads that wait for the token itself.
    queued: usize,
    /// Who waits without a thread, by page.
    wanted: BTreeMap<u64, Vec<Completer<()>>>,
    failure: Option<Error>,
}

/// Those who wait on one of the condition variables.
#[derive(Debug)]
struct Side {
    /// Who was woken is counted until it has the lock.
    threads: usize,
    /// No page that somebody waits for who was not woken yet is lower.
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

    /// All are about to be woken: what they waited for says nothing about those who come before they have gone. If it did,
    /// a round that satisfies nobody on this side would wake all of it, only to wait again.
    fn forget(&mut self) {
        self.lowest_lpn = u64::MAX;
    }
}

/// The token, the frontiers and the first failure.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// Who has the token, who waits, the first failure.
    state: Mutex<State, rank::LogCommit>,
    rounds: [Condvar; SIDES],
    freed: Condvar,
    /// There is a failure: changed under `state`, looked at without it.
    failed: AtomicBool,
    /// Fails with the log; asked before each acknowledgement.
    domain: OnceLock<Arc<dyn Domain>>,
    pub frontier: Frontier,
}

/// What a caller of [`Commit::lead_or_wait`] has to do.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// Its pages are durable.
    Durable,
    /// It writes, for all.
    Lead(Token<'a>),
}

impl Commit {
    pub fn new(durable_end: u64, written_end: u64) -> Self {
        let frontier =
            Frontier { written_end: AtomicU64::new(written_end), durable_end: AtomicU64::new(durable_end) };
        Commit { frontier, ..Commit::default() }
    }

    /// So many rounds may be at the device at once.
    pub fn with_flights(self, loggers: Loggers) -> Self {
        let mut state = self.lock();
        state.flights = Flights::of_loggers(loggers);
        drop(state);
        self
    }

    /// The log belongs to this domain from now on. Once.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        let _ = self.domain.set(domain);
    }

    /// The answer to a waiter whose pages are durable.
    pub fn acknowledge(&self) -> Result<()> {
        self.domain.get().map_or(Ok(()), |domain| domain.check())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        model::lock(&self.state)
    }

    /// `completer` is resolved when the page is durable, or when it is known that nobody will tell; by whoever finds out, perhaps now. True:
    /// nobody else waits like this for what is not durable, so whoever makes it so may sleep.
    pub fn when_durable(&self, lpn: u64, completer: Completer<()>) -> bool {
        if self.frontier.durable_end() > lpn {
            completer.resolve(self.acknowledge());
            return false;
        }
        let mut state = self.lock();
        // A round that makes it durable from now on finds it when it ends.
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

    /// All who wait without a thread are told that nobody will make durable what is not; the log goes on.
    pub fn refuse_wanted(&self, why: &Error) {
        let pages = std::mem::take(&mut self.lock().wanted);
        let (durable_end, refusal) = (self.frontier.durable_end(), self.acknowledge().err());
        Answered { pages, durable_end, failure: Some(why.clone()), refusal }.resolve();
    }

    /// The last page that somebody waits for without a thread, and that is not durable: those who wait for one that is are told when
    /// the round ends, and need nobody who leads.
    pub fn last_wanted(&self) -> Option<u64> {
        self.wanted_in(&self.lock())
    }

    fn wanted_in(&self, state: &State) -> Option<u64> {
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
        // Somebody may have been woken to lead and now will not: there may be no round that ends and wakes the others.
        self.rounds.iter().for_each(Condvar::notify_all);
        self.freed.notify_all();
        answered.resolve();
    }

    /// What failed first is kept for good.
    fn keep(&self, state: &mut State, failure: Option<Error>) {
        if let Some(error) = failure {
            self.failed.store(true, Ordering::Relaxed);
            let first = state.failure.get_or_insert(error);
            if let Some(domain) = self.domain.get() {
                domain.fail(first);
            }
        }
    }

    /// The error for everybody who comes after the first failure.
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
        let mut comer = Comer::default();
        loop {
            if self.frontier.durable_end() > lpn {
                return Ok(Turn::Durable);
            }
            if let Some(failure) = &state.failure {
                return Err(poisoned(failure));
            }
            let (round, plan) = state.comes(&mut comer, lpn);
            if plan == Plan::Lead {
                // Whatever was appended until now will be taken; how far that is, is known in a moment.
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

    /// How many rounds may be in flight now, and what was tried to find that out.
    pub fn width(&self) -> (usize, WidthTold) {
        let state = self.lock();
        (state.flights.at_once(), state.flights.told())
    }

    /// How often somebody waited for others.
    #[cfg(test)]
    pub fn watches(&self) -> u64 {
        self.lock().company.watches()
    }

    /// Waits for a round that nobody has begun, but not for long.
    fn watch<'a>(
        &'a self,
        side: usize,
        state: MutexGuard<'a, State>,
        patience_ns: u64,
    ) -> MutexGuard<'a, State> {
        let (missing, round) = (state.company.missing(), state.round);
        // A model has no time: it is always over, however much others did meanwhile.
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

    /// Waits for the token, to do something else than a sync. No round is in flight then.
    pub fn acquire(&self) -> Result<Token<'_>> {
        let token = self.acquire_unless(|_| false)?;
        Ok(token.expect("waited until it was free"))
    }

    /// Waits for the token, or until pages were written that make `enough` true: then there is nothing to do (`None`).
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

    fn begin(&self, turn: rank::Turn, state: &mut State, covers: u64) -> Token<'_> {
        assert!(!state.busy && state.failure.is_none(), "one writer at a time, none after a failure");
        state.busy = true;
        state.round += 1;
        state.covers = covers;
        state.is_sync = covers == u64::MAX;
        let is_sync = state.is_sync;
        state.company.begins(is_sync);
        Token { commit: self, finished: false, took: Took::default(), _turn: turn }
    }

    /// Those who wait without a thread and need not any more. To be resolved without the lock.
    fn answered(&self, state: &mut State) -> Answered {
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
        // Who leads next comes before those who are done: the device has nothing to do until then.
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

/// Where those wait who a round will satisfy.
fn side_of(round: u64) -> usize {
    (round % SIDES as u64) as usize
}

impl State {
    /// A thread asks for a page: which round makes it durable, and what the thread does.
    fn comes(&mut self, comer: &mut Comer, lpn: u64) -> (u64, Plan) {
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

/// Who waited without a thread, by page, and what there is to say.
#[derive(Debug, Default)]
struct Answered {
    pages: BTreeMap<u64, Vec<Completer<()>>>,
    durable_end: u64,
    /// The answer to those whose pages are not durable.
    failure: Option<Error>,
    /// The answer to the others, where the domain failed.
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

/// What the first failure is to all who come after it.
fn poisoned(failure: &Error) -> Error {
    failure.clone().with_kind(ErrorKind::Poisoned).context(
        "an earlier write or sync of the log failed; nothing is acknowledged until the store is reopened",
    )
}

/// The right to write pages. Dropped without [`Token::finish`] (a panic), it poisons the log.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    commit: &'a Commit,
    finished: bool,
    /// Time of the write.
    took: Took,
    _turn: rank::Turn,
}

impl Token<'_> {
    /// Tells threads that come now up to where this round makes pages durable.
    pub fn covers(&self, end: u64) {
        let mut state = self.commit.lock();
        state.covers = end;
        state.flights.takes_pages();
    }

    pub fn written(&self, end: u64) {
        let frontier = &self.commit.frontier;
        assert!(end >= frontier.written_end(), "pages are written in order");
        frontier.written_end.store(end, Ordering::Release);
        // An append may wait for the slots that have just become free.
        if self.commit.lock().queued > 0 {
            self.commit.freed.notify_all();
        }
    }

    /// Writing, with its sync, took so long: a part of that is worth waiting for others.
    pub fn took(&mut self, took: Took) {
        self.took = took;
    }

    pub fn durable(&self, end: u64) {
        let frontier = &self.commit.frontier;
        assert!(end >= frontier.durable_end() && end <= frontier.written_end(), "durable pages were written");
        frontier.durable_end.store(end, Ordering::Release);
    }

    /// The same after writes that nobody has begun to sync: where there was no room for them, they can be made again.
    pub fn finish_write<T>(mut self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace) {
            self.give_up(None);
            return outcome;
        }
        self.finish(outcome)
    }

    /// Gives the token up; an error is what poisons the log.
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
