//! Rounds in flight without the token: several concurrent writes of the log.
//!
//! A leader whose pages are all new and of one group needs the token only until its pages are in a
//! buffer. It releases the token ([`Token::release_token_for_write`]) and makes its durable write;
//! meanwhile another thread may lead the next round, with the following pages. So the log is
//! pipelined (SpanDB, section 4.2: its *loggers* are these writes, not threads).
//!
//! **Rounds complete in order.** A round that ends before an older one is only marked as ended
//! ([`RoundInFlight::complete`]). The frontiers move to the end of the last round that has ended
//! *together with all rounds before it*. So the acknowledged pages are a prefix, and a durable page
//! behind a hole does not count. The leader of such a round waits like every other waiter.
//!
//! * The watermark of a page is the durable end when the page was copied to the buffer, read from
//!   the same frontier.
//! * After the first failure the frontiers no longer move, whatever ends later. Then only rounds at
//!   the device count as in flight.
//! * A round that needs more than one write of its own waits until all rounds in flight have ended
//!   ([`Token::wait_for_in_flight`]). Examples are two groups, pages written before and not synced, or a long
//!   run. Every thread that takes the token for other work waits likewise, and no round takes off
//!   while a thread waits for this.
//!
//! **Whether concurrency pays** is measured, since it depends on the device and on the length of a
//! write. Two concurrent writes of 4 KB may take a third longer than one; two of 64 KB take twice
//! as long, and gain nothing ([`Pays`]). Few waiters gain nothing either: one round takes all of
//! them ([`super::commit_group`]), and each split costs a half-empty page.
//!
//! **Automatic concurrency** ([`Loggers::AUTO`]): trials find the number of concurrent writes with
//! the highest throughput, and the log follows them ([`super::logger_concurrency`]). A round then
//! waits for its share of the commit group.

use super::commit_group::{COMPANY_MAX, CommitGroup};
use super::logger_concurrency::{LoggerConcurrency, LoggerTrials, Served};
use super::{Answered, Commit, CommitState, Token, Took, poisoned, side_of};
use base::sync::model;
use base::sync::model::Condvar;
use base::sync::model::atomic::Ordering;
use base::{Error, ErrorKind, Result};
use std::collections::VecDeque;

/// Upper limit of concurrent writes of the log.
pub(crate) const FLIGHTS_MAX: usize = 3;
/// Asynchronous requests that justify a concurrent round.
const WITHOUT_THREAD_MIN: usize = 8;
/// Classes of write lengths: up to one page, two, four, and so on.
const CLASSES: usize = 8;
/// A concurrent write pays if it takes at most this many quarters of the time of a single write.
const PAYS_QUARTERS: u64 = 7;
/// Rounds after which concurrency is tried again where it did not pay.
const TRIED_AGAIN_ROUNDS: u32 = 1000;

/// Number of durable log writes in flight at once, to tune the throughput of many durable writers.
///
/// More than one helps only on some devices. The default suits most programs: [`Loggers::ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loggers {
    /// Upper limit, 1 to 3. More than one are made where that was found to pay. 0: automatic, up to
    /// 3, chosen by repeated trials for the most durable commits per second. Default: 1.
    pub writes_max: usize,
    /// Concurrent writes need at least this many threads that sync, since few threads share one
    /// write, or eight asynchronous waiters. 0: always, whether they pay or not. Default: 17. With
    /// `writes_max` 0: trials begin at this many waiting writers; 0: at any number.
    pub threads_min: usize,
}

impl Loggers {
    /// One write at a time: the default, and right for most devices.
    pub const ONE: Loggers = Loggers { writes_max: 1, threads_min: COMPANY_MAX + 1 };
    /// Finds the number by repeated trials while the store is open, on a device that may gain from
    /// several: one write at a time while few writers wait.
    pub const AUTO: Loggers = Loggers { writes_max: 0, threads_min: 4 };

    /// Checks the range of the options, as an open does.
    ///
    /// # Errors
    /// `InvalidArgument`: `writes_max` is above 3.
    pub fn validate(self) -> Result<()> {
        if self.writes_max > FLIGHTS_MAX {
            let given = self.writes_max;
            return Err(Error::invalid(format!(
                "option loggers.writes_max = {given} is out of range: 0 to {FLIGHTS_MAX}"
            )));
        }
        Ok(())
    }
}

impl Default for Loggers {
    fn default() -> Self {
        Loggers::ONE
    }
}

/// Round of the page that a thread asks for.
pub(super) enum Whose {
    /// A round in flight.
    InFlight,
    /// The round of the holder of the token.
    Present,
    /// A round that has not begun.
    Next,
}

/// A round in flight.
#[derive(Debug)]
struct Round {
    round: u64,
    /// End of its pages.
    end: u64,
    /// Threads that wait for it.
    threads: usize,
    landed: bool,
}

/// All rounds in flight, oldest first. The lock of the commit guards them.
#[derive(Debug, Default)]
pub(super) struct RoundsInFlight {
    rounds: VecDeque<Round>,
    loggers: Loggers,
    /// Asynchronous requests since pages were last taken.
    without_thread: usize,
    pays: Pays,
    /// Present where the concurrency is automatic.
    width: Option<LoggerConcurrency>,
}

impl RoundsInFlight {
    pub fn of_loggers(loggers: Loggers) -> Self {
        let width = (loggers.writes_max == 0).then(|| LoggerConcurrency::new(loggers.threads_min));
        RoundsInFlight { loggers, width, ..RoundsInFlight::default() }
    }

    /// Returns how many rounds may be in flight now.
    pub fn at_once(&self) -> usize {
        self.width.as_ref().map_or(self.loggers.writes_max, LoggerConcurrency::get).clamp(1, FLIGHTS_MAX)
    }

    /// Puts the automatic concurrency into the middle of a trial.
    #[cfg(all(test, loom))]
    pub fn tries(&mut self) {
        self.width = Some(LoggerConcurrency::in_a_trial());
    }

    /// Returns the trials of the automatic concurrency.
    pub fn told(&self) -> LoggerTrials {
        self.width.as_ref().map(LoggerConcurrency::told).unwrap_or_default()
    }

    /// Returns into how many parts the commit group is divided; a round waits for one part.
    pub fn parts(&self) -> usize {
        self.width.as_ref().map_or(1, LoggerConcurrency::get)
    }

    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Returns the round that has a page.
    pub fn of(&self, lpn: u64) -> Option<u64> {
        self.rounds.iter().find(|round| lpn < round.end).map(|round| round.round)
    }

    /// Returns the end of the pages in flight.
    fn end(&self) -> Option<u64> {
        self.rounds.back().map(|round| round.end)
    }

    /// Counts a thread that waits for a round.
    pub fn joins(&mut self, number: u64) {
        if let Some(round) = self.rounds.iter_mut().find(|round| round.round == number) {
            round.threads += 1;
        }
    }

    /// Returns the number of threads that wait for rounds in flight.
    pub fn threads(&self) -> usize {
        self.rounds.iter().map(|round| round.threads).sum()
    }

    /// Counts an asynchronous waiter.
    pub fn comes_without_thread(&mut self) {
        self.without_thread += 1;
    }

    /// Resets the count of asynchronous waiters: the pages that are taken include theirs.
    pub fn takes_pages(&mut self) {
        self.without_thread = 0;
    }

    /// Returns true if one more round may take off now, with the threads that have arrived for it.
    pub fn has_place(&mut self, company: &CommitGroup) -> bool {
        let beside = self.rounds.len();
        let threads_min = self.loggers.threads_min;
        if beside >= self.at_once() || threads_min == 0 {
            return beside < self.at_once();
        }
        let many_without = self.without_thread >= WITHOUT_THREAD_MIN;
        match &self.width {
            // The trials measure the total throughput, so [`Pays`] is not needed.
            Some(width) => many_without || company.has_part(width.get(), width.get()),
            None => (many_without || company.has_part(beside + 1, threads_min)) && self.pays.tries(beside),
        }
    }
}

/// Time of a write alone, and beside one or two others, by its length.
#[derive(Debug, Default)]
struct Pays {
    /// Nanoseconds, a moving average; 0: not measured yet.
    took_ns: [[u64; CLASSES]; FLIGHTS_MAX],
    /// Class of the last write.
    class: usize,
    /// Concurrent rounds skipped since they were found not to pay.
    skipped: u32,
}

impl Pays {
    fn class_of(pages: u64) -> usize {
        (pages.max(1).ilog2() as usize).min(CLASSES - 1)
    }

    /// Records a write of `pages` that began beside `beside` others.
    fn took(&mut self, beside: usize, pages: u64, ns: u64) {
        self.class = Self::class_of(pages);
        if let Some(mean) = self.took_ns.get_mut(beside).and_then(|of| of.get_mut(self.class)) {
            *mean = if *mean == 0 { ns } else { (*mean * 7 + ns) / 8 }.max(1);
        }
    }

    /// Returns whether to make a write beside `beside` others.
    fn tries(&mut self, beside: usize) -> bool {
        let of = |n: usize| self.took_ns.get(n).map_or(0, |of| of[self.class]);
        let (alone, together) = (of(0), of(beside));
        // Throughput of concurrent writes against that of a single write.
        let pays = alone == 0 || together == 0 || together * 4 <= alone * PAYS_QUARTERS * beside as u64;
        if pays {
            return true;
        }
        self.skipped += 1;
        if self.skipped < TRIED_AGAIN_ROUNDS {
            return false;
        }
        self.skipped = 0;
        if let Some(of) = self.took_ns.get_mut(beside) {
            of[self.class] = 0;
        }
        true
    }
}

impl<'a> Token<'a> {
    /// Returns the first page that no round has taken.
    pub fn taken_end(&self) -> u64 {
        let state = self.commit.lock();
        state.flights.end().unwrap_or(self.commit.frontier.written_end())
    }

    /// Waits until no round is in flight.
    ///
    /// # Errors
    /// `Poisoned`, if one failed.
    pub fn wait_for_in_flight(self) -> Result<Token<'a>> {
        let mut state = self.commit.lock();
        while !state.flights.is_empty() {
            state.queued += 1;
            state = model::wait(&self.commit.freed, state);
            state.queued -= 1;
        }
        let failure = state.failure.as_ref().map(poisoned);
        drop(state);
        match failure {
            Some(failure) => self.finish(Err(failure)),
            None => Ok(self),
        }
    }

    /// Continues without the token, to write the `pages` new pages below `end`. One write must make
    /// them durable.
    pub fn release_token_for_write(mut self, end: u64, pages: u64) -> RoundInFlight<'a> {
        let commit = self.commit;
        let mut state = commit.lock();
        let (round, beside) = (state.round, state.flights.rounds.len());
        let threads = state.company.release_token_for_write();
        state.flights.rounds.push_back(Round { round, end, threads, landed: false });
        state.busy = false;
        self.finished = true;
        // Waiters that arrived since the pages were taken may suffice for one more round. If not,
        // the end of a round in flight wakes one of them.
        let CommitState { flights, company, sides, .. } = &mut *state;
        let wakes_next = sides[side_of(round + 1)].threads > 0 && flights.has_place(company);
        drop(state);
        if wakes_next {
            commit.rounds[side_of(round + 1)].notify_one();
        }
        RoundInFlight { commit, round, beside, pages, landed: false }
    }
}

/// Round in flight. If dropped without [`RoundInFlight::complete`] (a panic), poisons the log.
#[derive(Debug)]
pub(crate) struct RoundInFlight<'a> {
    commit: &'a Commit,
    round: u64,
    /// Rounds in flight when it took off.
    beside: usize,
    pages: u64,
    landed: bool,
}

impl RoundInFlight<'_> {
    /// Returns true if other rounds were in flight when it took off.
    pub fn is_beside(&self) -> bool {
        self.beside > 0
    }

    /// Records the end of its write. Its pages are durable once those of all older rounds are:
    /// check the frontier.
    pub fn complete(mut self, outcome: Result<()>, took: Took) -> Result<()> {
        self.landed = true;
        self.commit.complete(&self, outcome.as_ref().err().cloned(), took).resolve();
        outcome
    }
}

impl Drop for RoundInFlight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            let why = Error::new(ErrorKind::Poisoned, "a thread panicked while it wrote the log");
            self.commit.complete(self, Some(why), Took::default()).resolve();
        }
    }
}

impl Commit {
    fn complete(&self, flight: &RoundInFlight<'_>, failure: Option<Error>, took: Took) -> Answered {
        let mut state = self.lock();
        let others = state.flights.threads();
        state.company.ends(took.ns, others);
        state.flights.pays.took(flight.beside, flight.pages, took.ns);
        self.keep(&mut state, failure);
        let satisfied = self.take_landed(&mut state, flight.round);
        let answered = self.answered(&mut state);
        let done = satisfied.iter().map(|round| round.threads).sum::<usize>() + answered.count();
        state.served(took.until_ns, done);
        let next = side_of(state.round + 1);
        let failed = state.failure.is_some();
        let satisfied: Vec<usize> = satisfied.iter().map(|round| side_of(round.round)).collect();
        satisfied.iter().for_each(|&side| state.sides[side].forget());
        let wakes_queued = state.queued > 0;
        let wakes_next = !state.busy && state.sides[next].threads > 0;
        drop(state);
        if failed {
            self.rounds.iter().for_each(Condvar::notify_all);
        } else {
            if wakes_next {
                self.rounds[next].notify_one();
            }
            satisfied.into_iter().for_each(|side| self.rounds[side].notify_all());
        }
        if wakes_queued {
            self.freed.notify_all();
        }
        answered
    }

    /// Returns the rounds that became durable with the end of this one; after a failure none.
    fn take_landed(&self, state: &mut CommitState, landed: u64) -> Vec<Round> {
        let mut satisfied = Vec::new();
        if state.failure.is_some() {
            // Nothing is acknowledged any more, and every side wakes its waiters. Rounds that ended
            // behind this one have no thread left that would remove them.
            state.flights.rounds.retain(|round| round.round != landed && !round.landed);
            return satisfied;
        }
        if let Some(round) = state.flights.rounds.iter_mut().find(|round| round.round == landed) {
            round.landed = true;
        }
        while state.flights.rounds.front().is_some_and(|round| round.landed)
            && let Some(round) = state.flights.rounds.pop_front()
        {
            let end = round.end.max(self.frontier.written_end());
            self.frontier.written_end.store(end, Ordering::Release);
            self.frontier.durable_end.store(end, Ordering::Release);
            satisfied.push(round);
        }
        satisfied
    }
}

impl CommitState {
    /// Passes the end of a round in flight, which satisfied `done` waiters, to the automatic
    /// concurrency.
    fn served(&mut self, at_ns: u64, done: usize) {
        let RoundsInFlight { rounds, without_thread, width, .. } = &mut self.flights;
        if let Some(width) = width {
            let in_flight: usize = rounds.iter().map(|round| round.threads).sum();
            let waiting = in_flight + self.company.under_way() + *without_thread;
            width.served(Served { at_ns, done, waiting });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often a concurrent write is made in `rounds` rounds of one page.
    fn made(rounds: u32, alone_ns: u64, beside_ns: u64) -> u32 {
        let mut pays = Pays::default();
        let mut made = 0;
        for _ in 0..rounds {
            pays.took(0, 1, alone_ns);
            if pays.tries(1) {
                pays.took(1, 1, beside_ns);
                made += 1;
            }
        }
        made
    }

    #[test]
    fn concurrent_writes_are_used_only_if_faster() {
        assert_eq!(made(5000, 100, 130), 5000, "two in the time of 1.3");
        assert_eq!(made(5000, 100, 170), 5000);
        // Tried once, then again after `TRIED_AGAIN_ROUNDS`, in case the device has changed.
        assert_eq!(made(5000, 100, 190), 5, "two in the time of 1.9");
    }

    #[test]
    fn write_lengths_are_judged_separately() {
        let mut pays = Pays::default();
        for (pages, alone_ns, beside_ns) in [(1, 100, 130), (16, 250, 500)] {
            pays.took(0, pages, alone_ns);
            pays.took(1, pages, beside_ns);
        }
        assert!(!pays.tries(1), "the last were long");
        pays.took(0, 1, 100);
        assert!(pays.tries(1));
    }

    #[test]
    fn concurrent_writes_need_many_blocked_or_async_waiters() {
        let mut company = CommitGroup::default();
        let mut flights = RoundsInFlight::of_loggers(Loggers { writes_max: 2, ..Loggers::ONE });
        (0..20).for_each(|_| company.joins());
        company.ends(100, 0);
        flights.rounds.push_back(Round { round: 1, end: 5, threads: 20, landed: false });
        assert!(!flights.has_place(&company), "nobody has come");
        (0..10).for_each(|_| company.comes());
        assert!(flights.has_place(&company), "half of them are back");
        flights.rounds.push_back(Round { round: 2, end: 6, threads: 10, landed: false });
        assert!(!flights.has_place(&company), "there are two");
        flights.rounds.pop_back();
        let few = CommitGroup::default();
        assert!(!flights.has_place(&few));
        (0..WITHOUT_THREAD_MIN).for_each(|_| flights.comes_without_thread());
        assert!(flights.has_place(&few));
        flights.takes_pages();
        assert!(!flights.has_place(&few));
    }
}
