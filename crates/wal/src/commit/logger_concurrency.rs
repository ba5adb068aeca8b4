//! Automatic number of concurrent rounds: found by trials while the log runs.
//!
//! The measure is the total throughput: writers whose pages become durable per second. The time of
//! a write beside another omits the cost of splitting the commit group, and the processor time in
//! between. The speed of a device on an empty store says nothing about its speed beside
//! compactions. So there is no measurement at open, which would also delay it: the first rounds
//! with enough writers are the calibration, and it is repeated as long as the log runs.
//!
//! * **The crowd** is the number of writers that wait or were served when a round ends, a moving
//!   average. Below the threshold there is one write at a time and no trial. The number found is
//!   suspended only when the crowd falls to half the threshold, and holds again when the crowd is
//!   back.
//! * **A trial** has five laps of the same number of rounds, alternating between the present number
//!   and the other one. *One more* is kept only if both of its laps gave a sixteenth more than each
//!   of the three. *One less* is kept if its laps were as good on average, since fewer writes are
//!   fewer padded pages. So other load on the machine does not decide the trial, and an unclear
//!   result changes nothing.
//! * **Rests** between trials double while trials find nothing, up to [`REST_LAPS_MAX`] laps. They
//!   are short again after a success, or when the crowd has doubled or halved. So trials that gain
//!   nothing cost two laps in thousands.
//!
//! The state is a pure function of its inputs; the lock of the commit guards it.

use super::rounds_in_flight::FLIGHTS_MAX;

/// Rounds of a lap.
const LAP_ROUNDS: u32 = 32;
/// Rounds of a lap where the threshold is 0.
const EAGER_LAP_ROUNDS: u32 = 1;
/// Laps of a trial.
const TRIAL_LAPS: usize = 5;
/// Laps until the next trial, at first.
const REST_LAPS: u32 = 16;
/// Upper limit of the laps until the next trial.
const REST_LAPS_MAX: u32 = 4096;
/// Sixteenths of the throughput that one more write must give.
const BETTER_16THS: u64 = 17;
/// Fractions of a writer in which the crowd is counted.
const PARTS: u64 = 16;

/// Result of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// End of the round, in clock nanoseconds.
    pub at_ns: u64,
    /// Writers that the round satisfied.
    pub done: usize,
    /// Writers that still wait.
    pub waiting: usize,
}

/// State of the trials; see the module.
#[derive(Debug)]
pub(super) struct LoggerConcurrency {
    /// Crowd from which more than one write is tried; 0: always.
    threads_min: usize,
    /// Best number found for a crowd.
    best: usize,
    /// The crowd, in sixteenths of a writer; then its value when the rests began.
    crowd: u64,
    crowd_of_rests: u64,
    is_crowded: bool,
    lap: Lap,
    /// Throughput of the laps of the present trial; empty between trials.
    laps: Vec<u64>,
    /// The number that is tried, or was tried last.
    other: usize,
    /// Laps until the next trial; then the length of the last rest.
    rest: u32,
    rest_before: u32,
    told: LoggerTrials,
}

/// Statistics of the trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggerTrials {
    /// Trials of another number.
    pub trials: u64,
    /// Trials whose number was kept.
    pub kept: u64,
}

#[derive(Debug, Default)]
struct Lap {
    rounds: u32,
    done: u64,
    /// Start of the lap; `None`: at the end of the next round.
    since_ns: Option<u64>,
}

impl LoggerConcurrency {
    /// Returns the state of a log without trials; `threads_min`: crowd from which they begin.
    pub fn new(threads_min: usize) -> LoggerConcurrency {
        LoggerConcurrency {
            threads_min,
            best: 1,
            crowd: 0,
            crowd_of_rests: 0,
            is_crowded: threads_min == 0,
            lap: Lap::default(),
            laps: Vec::new(),
            other: 1,
            rest: 1,
            rest_before: REST_LAPS / 2,
            told: LoggerTrials::default(),
        }
    }

    /// Returns how many rounds may be in flight.
    pub fn get(&self) -> usize {
        match self.is_crowded {
            false => 1,
            true if self.laps.len() % 2 == 1 => self.other,
            true => self.best,
        }
    }

    /// Returns the statistics of the trials.
    pub fn told(&self) -> LoggerTrials {
        self.told
    }

    /// Takes the result of a round.
    pub fn served(&mut self, served: Served) {
        self.follow_crowd(served.done + served.waiting);
        if !self.is_crowded {
            return;
        }
        let Some(rate) = self.lap.ends_with(served, self.lap_rounds()) else { return };
        if !self.laps.is_empty() || self.rest == 0 {
            self.tries(rate);
        } else {
            self.rest -= 1;
            // The next lap is the first of a trial.
            if self.rest == 0 {
                self.choose_other();
            }
        }
    }

    fn lap_rounds(&self) -> u32 {
        if self.threads_min == 0 { EAGER_LAP_ROUNDS } else { LAP_ROUNDS }
    }

    /// In the middle of a trial of two writes; the next round is the last of the lap.
    #[cfg(all(test, loom))]
    pub fn in_a_trial() -> LoggerConcurrency {
        let lap = Lap { rounds: EAGER_LAP_ROUNDS - 1, done: 1, since_ns: Some(0) };
        LoggerConcurrency {
            lap,
            laps: vec![1],
            other: 2,
            crowd: PARTS,
            crowd_of_rests: PARTS,
            ..LoggerConcurrency::new(0)
        }
    }

    fn follow_crowd(&mut self, now: usize) {
        let now = now as u64 * PARTS;
        self.crowd = if self.crowd == 0 { now } else { (self.crowd * (PARTS - 1) + now) / PARTS };
        let enough = self.threads_min as u64 * PARTS;
        let was_crowded = self.is_crowded;
        self.is_crowded = self.crowd >= if was_crowded { enough / 2 } else { enough };
        let has_changed = self.crowd > 2 * self.crowd_of_rests
            || 2 * self.crowd < self.crowd_of_rests.saturating_sub(PARTS);
        if was_crowded != self.is_crowded || has_changed {
            // The measurements belong to a crowd of another size.
            self.crowd_of_rests = self.crowd;
            self.laps.clear();
            self.lap = Lap::default();
            self.rest_before = REST_LAPS / 2;
            // One lap, so that the moving average reaches the new crowd.
            self.rest = 1;
        }
    }

    /// Chooses one more and one less in turn, within the limits.
    fn choose_other(&mut self) {
        let was_more = self.other > self.best;
        self.other = match self.best {
            1 => 2,
            best if best == FLIGHTS_MAX || was_more => best - 1,
            best => best + 1,
        };
    }

    /// Takes the throughput of a lap of a trial.
    fn tries(&mut self, rate: u64) {
        self.laps.push(rate);
        if self.laps.len() < TRIAL_LAPS {
            return;
        }
        let laps = std::mem::take(&mut self.laps);
        self.told.trials += 1;
        let keeps = is_better(&laps, self.other > self.best);
        if keeps {
            self.told.kept += 1;
            // The next trial goes further in the same direction.
            std::mem::swap(&mut self.best, &mut self.other);
            self.rest_before = REST_LAPS / 2;
        }
        self.rest_before = (self.rest_before * 2).clamp(REST_LAPS, REST_LAPS_MAX);
        self.rest = if self.threads_min == 0 { 1 } else { self.rest_before };
    }
}

/// Returns whether to keep the number that every other lap tried.
fn is_better(laps: &[u64], is_more: bool) -> bool {
    let of = |first: usize| laps.iter().skip(first).step_by(2).copied();
    if is_more {
        let (worst, best) = (of(1).min().unwrap_or(0), of(0).max().unwrap_or(0));
        return u128::from(worst) * 16 >= u128::from(best) * u128::from(BETTER_16THS);
    }
    let mean = |first: usize| of(first).map(u128::from).sum::<u128>() / of(first).count().max(1) as u128;
    mean(1) >= mean(0)
}

impl Lap {
    /// Takes the result of a round; returns the throughput if it ends the lap.
    fn ends_with(&mut self, served: Served, rounds: u32) -> Option<u64> {
        // The writers of the very first round arrived before the lap.
        let Some(since_ns) = self.since_ns else {
            self.since_ns = Some(served.at_ns);
            return None;
        };
        self.rounds += 1;
        self.done += served.done as u64;
        if self.rounds < rounds {
            return None;
        }
        let took_ns = u128::from(served.at_ns.saturating_sub(since_ns).max(1));
        let rate = u128::from(self.done) * 1_000_000_000 / took_ns;
        *self = Lap { since_ns: Some(served.at_ns), ..Lap::default() };
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Model of a log with `writers`, and of a device with `round_ns` for a number of concurrent
    /// rounds.
    struct Device<F: Fn(usize, u64) -> u64> {
        writers: usize,
        round_ns: F,
        now_ns: u64,
        rounds: u64,
    }

    impl<F: Fn(usize, u64) -> u64> Device<F> {
        fn new(writers: usize, round_ns: F) -> Self {
            Device { writers, round_ns, now_ns: 1, rounds: 0 }
        }

        /// Runs `rounds` rounds. Returns how many of them ended while more than one was allowed.
        fn run(&mut self, width: &mut LoggerConcurrency, rounds: u64) -> u64 {
            let mut beside = 0;
            for _ in 0..rounds {
                let at_once = width.get();
                beside += u64::from(at_once > 1);
                self.rounds += 1;
                self.now_ns += (self.round_ns)(at_once, self.rounds);
                let done = (self.writers / (at_once + 1)).max(1);
                width.served(Served { at_ns: self.now_ns, done, waiting: self.writers - done });
            }
            beside
        }
    }

    /// Round times where two concurrent writes give `two_percent` percent of the throughput of one.
    /// Each round serves fewer writers the more rounds there are.
    fn gives(two_percent: u64, three_percent: u64) -> impl Fn(usize, u64) -> u64 {
        move |at_once, _| match at_once {
            1 => 120_000,
            2 => 120_000 * 2 / 3 * 100 / two_percent,
            _ => 120_000 / 2 * 100 / three_percent,
        }
    }

    #[test]
    fn the_best_logger_concurrency_is_found_and_kept() {
        for (two, three, best) in [(140, 170, 3), (140, 120, 2), (100, 100, 1), (60, 200, 1)] {
            let mut width = LoggerConcurrency::new(4);
            let mut device = Device::new(60, gives(two, three));
            device.run(&mut width, 2_000);
            assert_eq!(width.best, best, "{two} {three}");
            device.run(&mut width, 100_000);
            assert_eq!(width.best, best, "{two} {three}");
        }
    }

    #[test]
    fn useless_logger_concurrency_is_rarely_tried() {
        let mut width = LoggerConcurrency::new(4);
        let beside = Device::new(60, gives(90, 90)).run(&mut width, 1_000_000);
        assert!(beside > 0 && beside < 1_000, "{beside} of a million rounds");
        assert_eq!((width.told.kept, width.get()), (0, 1));
    }

    #[test]
    fn noise_does_not_change_logger_concurrency() {
        // Now and then every round takes ten times as long, whatever number is tried.
        let mut width = LoggerConcurrency::new(4);
        let mut rng = io::Rng::new(7);
        let noises: Vec<u64> = (0..4096).map(|_| if rng.one_in(40) { 10 } else { 1 }).collect();
        let noise = move |round: u64| noises[(round / 16 % 4096) as usize];
        let plain = gives(100, 100);
        Device::new(60, move |at_once, round| plain(at_once, round) * noise(round)).run(&mut width, 300_000);
        assert!(width.told.trials >= 8 && width.told.kept <= width.told.trials / 8, "{:?}", width.told);
    }

    #[test]
    fn logger_concurrency_is_one_for_few_writers() {
        let mut width = LoggerConcurrency::new(4);
        Device::new(3, gives(200, 300)).run(&mut width, 10_000);
        assert_eq!((width.get(), width.told), (1, LoggerTrials::default()));
        Device::new(60, gives(150, 100)).run(&mut width, 5_000);
        assert_eq!(width.get(), 2);
        // Three of four are still a crowd; one is not.
        Device::new(3, gives(150, 100)).run(&mut width, 1);
        assert_eq!(width.best, 2);
        Device::new(1, gives(150, 100)).run(&mut width, 200);
        assert_eq!((width.get(), width.best), (1, 2));
        Device::new(60, gives(150, 100)).run(&mut width, 20);
        assert_eq!(width.get(), 2, "what was found holds again");
    }

    #[test]
    fn logger_concurrency_follows_the_device() {
        let mut width = LoggerConcurrency::new(4);
        Device::new(60, gives(150, 100)).run(&mut width, 5_000);
        assert_eq!(width.best, 2);
        Device::new(60, gives(80, 60)).run(&mut width, 400_000);
        assert_eq!(width.best, 1);
    }
}
