//! Rounds that are at the device without the token: several writes of the log at once.
//!
//! A leader whose pages all are new and of one group needs the token only until it has them in a buffer. It gives the token up
//! ([`Token::takes_off`]) and makes its durable write; meanwhile another may lead the next round, with the pages behind. So the log is
//! pipelined (SpanDB, section 4.2: its *loggers* are these writes, no threads of their own).
//!
//! **Landing is in order.** A round that ends before one that began earlier is only noted ([`Flight::lands`]): the frontiers go to the end
//! of the last of those that have ended *and all before them*. So what is acknowledged is a prefix, and no page that is durable behind
//! a hole counts. Whoever led such a round waits with all others.
//!
//! * A page's watermark says what was durable when it was put into the buffer, and is read from the same frontier.
//! * The first failure ends it: from then on the frontiers stay where they are, whatever lands later, and only those count as in flight that
//!   are at the device.
//! * A round that needs more than a write of its own (two groups, pages that were written before and not synced, a long run) waits
//!   until all have landed ([`Token::settles`]), as does everybody who takes the token for something else, and nobody takes off while
//!   one waits for that.
//!
//! **Whether it pays** is measured, since it depends on the device and on the length of a write: two writes of 4 KB at once may take a
//! third longer than one, two of 64 KB twice as long, and then they gain nothing ([`Pays`]). Nor do they where those who sync are few: one
//! round takes all of them ([`super::company`]), and each that is split costs a page that is half empty.
//!
//! **Nobody has said how many** ([`Loggers::AUTO`]): then it is tried what gives most, and that is followed ([`super::width`]). The company that a round
//! waits for is then the part of all that one of so many takes.

use super::company::{COMPANY_MAX, Company};
use super::width::{Served, Width, WidthTold};
use super::{Answered, Commit, State, Token, Took, poisoned, side_of};
use base::sync::model;
use base::sync::model::Condvar;
use base::sync::model::atomic::Ordering;
use base::{Error, ErrorKind, Result};
use std::collections::VecDeque;

/// The most writes of the log at once.
pub(crate) const FLIGHTS_MAX: usize = 3;
/// Requests without a thread that make a round beside others worth its while.
const WITHOUT_THREAD_MIN: usize = 8;
/// Classes of lengths of a write: up to one page, two, four, and so on.
const CLASSES: usize = 8;
/// A write beside another pays if it takes at most so many quarters of the time that one alone takes.
const PAYS_QUARTERS: u64 = 7;
/// Where it does not pay it is tried again after so many rounds.
const TRIED_AGAIN_ROUNDS: u32 = 1000;

/// Durable writes of a log that are at the device at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loggers {
    /// The most, 1 to 3. More than one are made where that was found to pay. 0: as many, up to 3, as are found to serve most writers in a second, which
    /// is tried from time to time. Default: 1.
    pub writes_max: usize,
    /// More than one only where at least so many threads sync, since few share one write, or eight records wait without a thread. 0:
    /// always, whether it pays or not. Default: 17. With `writes_max` 0: from so many waiting writers on other numbers are tried; 0: whoever waits.
    pub threads_min: usize,
}

impl Loggers {
    /// One write at a time: the default.
    pub const ONE: Loggers = Loggers { writes_max: 1, threads_min: COMPANY_MAX + 1 };
    /// As many as are found to serve most: one at a time as long as few wait.
    pub const AUTO: Loggers = Loggers { writes_max: 0, threads_min: 4 };

    /// Fails for what cannot be.
    ///
    /// # Errors
    /// `InvalidArgument`.
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

/// Where a thread that asks for a page finds it.
pub(super) enum Whose {
    /// In a round that is in flight.
    InFlight,
    /// In the round of the holder of the token.
    Present,
    /// In none that has begun.
    Next,
}

/// A round in flight.
#[derive(Debug)]
struct Round {
    round: u64,
    /// The end of its pages.
    end: u64,
    /// Threads that wait for it.
    threads: usize,
    landed: bool,
}

/// All rounds in flight, oldest first. The lock of the commit guards them.
#[derive(Debug, Default)]
pub(super) struct Flights {
    rounds: VecDeque<Round>,
    loggers: Loggers,
    /// Requests without a thread since pages were taken last.
    without_thread: usize,
    pays: Pays,
    /// Where nobody has said how many.
    width: Option<Width>,
}

impl Flights {
    pub fn of_loggers(loggers: Loggers) -> Self {
        let width = (loggers.writes_max == 0).then(|| Width::new(loggers.threads_min));
        Flights { loggers, width, ..Flights::default() }
    }

    /// How many may be in flight now.
    pub fn at_once(&self) -> usize {
        self.width.as_ref().map_or(self.loggers.writes_max, Width::get).clamp(1, FLIGHTS_MAX)
    }

    /// As in the middle of a trial.
    #[cfg(all(test, loom))]
    pub fn tries(&mut self) {
        self.width = Some(Width::in_a_trial());
    }

    /// What was tried where nobody has said how many.
    pub fn told(&self) -> WidthTold {
        self.width.as_ref().map(Width::told).unwrap_or_default()
    }

    /// Of how many parts of all who sync one is waited for, for a round that nobody has begun.
    pub fn parts(&self) -> usize {
        self.width.as_ref().map_or(1, Width::get)
    }

    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// The round that has a page.
    pub fn of(&self, lpn: u64) -> Option<u64> {
        self.rounds.iter().find(|round| lpn < round.end).map(|round| round.round)
    }

    /// The end of the pages that are in flight.
    fn end(&self) -> Option<u64> {
        self.rounds.back().map(|round| round.end)
    }

    /// A thread waits for a round.
    pub fn joins(&mut self, number: u64) {
        if let Some(round) = self.rounds.iter_mut().find(|round| round.round == number) {
            round.threads += 1;
        }
    }

    /// Threads that wait for rounds in flight.
    pub fn threads(&self) -> usize {
        self.rounds.iter().map(|round| round.threads).sum()
    }

    /// Somebody waits without a thread.
    pub fn comes_without_thread(&mut self) {
        self.without_thread += 1;
    }

    /// Pages are taken: all that was asked for is among them.
    pub fn takes_pages(&mut self) {
        self.without_thread = 0;
    }

    /// True if one more may take off beside those there are, with those who have come for it.
    pub fn has_place(&mut self, company: &Company) -> bool {
        let beside = self.rounds.len();
        let threads_min = self.loggers.threads_min;
        if beside >= self.at_once() || threads_min == 0 {
            return beside < self.at_once();
        }
        let many_without = self.without_thread >= WITHOUT_THREAD_MIN;
        match &self.width {
            // Whether it pays is seen in what all of it gives.
            Some(width) => many_without || company.has_part(width.get(), width.get()),
            None => (many_without || company.has_part(beside + 1, threads_min)) && self.pays.tries(beside),
        }
    }
}

/// What writes take that are alone, and beside one and two others, by their length.
#[derive(Debug, Default)]
struct Pays {
    /// Nanoseconds, a moving average; 0: none yet.
    took_ns: [[u64; CLASSES]; FLIGHTS_MAX],
    /// The class of the last write.
    class: usize,
    /// Rounds since writes beside others were found not to pay, and were not made.
    skipped: u32,
}

impl Pays {
    fn class_of(pages: u64) -> usize {
        (pages.max(1).ilog2() as usize).min(CLASSES - 1)
    }

    /// A write of so many pages that began beside so many others has ended.
    fn took(&mut self, beside: usize, pages: u64, ns: u64) {
        self.class = Self::class_of(pages);
        if let Some(mean) = self.took_ns.get_mut(beside).and_then(|of| of.get_mut(self.class)) {
            *mean = if *mean == 0 { ns } else { (*mean * 7 + ns) / 8 }.max(1);
        }
    }

    /// Whether to make one beside so many others.
    fn tries(&mut self, beside: usize) -> bool {
        let of = |n: usize| self.took_ns.get(n).map_or(0, |of| of[self.class]);
        let (alone, together) = (of(0), of(beside));
        // What so many at once give, each in its time, against what one gives.
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
    /// Where pages begin that nobody has taken.
    pub fn taken_end(&self) -> u64 {
        let state = self.commit.lock();
        state.flights.end().unwrap_or(self.commit.frontier.written_end())
    }

    /// Waits until no round is in flight.
    ///
    /// # Errors
    /// `Poisoned`, if one failed.
    pub fn settles(self) -> Result<Token<'a>> {
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

    /// Goes on without the token, to write the pages below `end`, which are new and so many: they must be made durable by one write.
    pub fn takes_off(mut self, end: u64, pages: u64) -> Flight<'a> {
        let commit = self.commit;
        let mut state = commit.lock();
        let (round, beside) = (state.round, state.flights.rounds.len());
        let threads = state.company.takes_off();
        state.flights.rounds.push_back(Round { round, end, threads, landed: false });
        state.busy = false;
        self.finished = true;
        // Who came since the pages were taken may be enough for one more. If not, the end of a flight wakes one of them.
        let State { flights, company, sides, .. } = &mut *state;
        let wakes_next = sides[side_of(round + 1)].threads > 0 && flights.has_place(company);
        drop(state);
        if wakes_next {
            commit.rounds[side_of(round + 1)].notify_one();
        }
        Flight { commit, round, beside, pages, landed: false }
    }
}

/// A round that is at the device. Dropped without [`Flight::lands`] (a panic), it poisons the log.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    commit: &'a Commit,
    round: u64,
    /// So many were in flight when it took off.
    beside: usize,
    pages: u64,
    landed: bool,
}

impl Flight<'_> {
    /// True if others were in flight when it took off.
    pub fn is_beside(&self) -> bool {
        self.beside > 0
    }

    /// Its write is over, after so long. Its pages are durable when all before them are: ask again.
    pub fn lands(mut self, outcome: Result<()>, took: Took) -> Result<()> {
        self.landed = true;
        self.commit.lands(&self, outcome.as_ref().err().cloned(), took).resolve();
        outcome
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            let why = Error::new(ErrorKind::Poisoned, "a thread panicked while it wrote the log");
            self.commit.lands(self, Some(why), Took::default()).resolve();
        }
    }
}

impl Commit {
    fn lands(&self, flight: &Flight<'_>, failure: Option<Error>, took: Took) -> Answered {
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

    /// The rounds that are durable now that this one is at an end; after a failure none.
    fn take_landed(&self, state: &mut State, landed: u64) -> Vec<Round> {
        let mut satisfied = Vec::new();
        if state.failure.is_some() {
            // Nothing is acknowledged any more. Whoever waits is told by all sides. Of those that landed behind this one nobody is left
            // who would take them away.
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

impl State {
    /// A round in flight has ended, and so many need not wait any more.
    fn served(&mut self, at_ns: u64, done: usize) {
        let Flights { rounds, without_thread, width, .. } = &mut self.flights;
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

    /// How often one is made beside another, in so many rounds of one page, if it takes so long.
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
    fn writes_beside_each_other_are_made_where_they_pay() {
        assert_eq!(made(5000, 100, 130), 5000, "two in the time of 1.3");
        assert_eq!(made(5000, 100, 170), 5000);
        // It is tried, and then again after so many rounds, in case the device has changed.
        assert_eq!(made(5000, 100, 190), 5, "two in the time of 1.9");
    }

    #[test]
    fn lengths_are_judged_apart() {
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
    fn a_crowd_is_needed_or_many_without_a_thread() {
        let mut company = Company::default();
        let mut flights = Flights::of_loggers(Loggers { writes_max: 2, ..Loggers::ONE });
        (0..20).for_each(|_| company.joins());
        company.ends(100, 0);
        flights.rounds.push_back(Round { round: 1, end: 5, threads: 20, landed: false });
        assert!(!flights.has_place(&company), "nobody has come");
        (0..10).for_each(|_| company.comes());
        assert!(flights.has_place(&company), "half of them are back");
        flights.rounds.push_back(Round { round: 2, end: 6, threads: 10, landed: false });
        assert!(!flights.has_place(&company), "there are two");
        flights.rounds.pop_back();
        let few = Company::default();
        assert!(!flights.has_place(&few));
        (0..WITHOUT_THREAD_MIN).for_each(|_| flights.comes_without_thread());
        assert!(flights.has_place(&few));
        flights.takes_pages();
        assert!(!flights.has_place(&few));
    }
}
