//! How many rounds are in flight at once where nobody has said so: tried while the log runs, and followed.
//!
//! What counts is what all of it gives: writers whose pages become durable in a second. How long a write takes beside another says
//! nothing of what it costs to split those who sync, nor of the processors that they need in between; and what a device gives on an empty store
//! says nothing of what it gives beside compactions. So there is no measurement at open, which nobody would wait for either: the
//! first rounds of a crowd are the calibration, and it is repeated as long as the log runs.
//!
//! * **The crowd** is how many wait or have been served when a round ends, a moving average. While it is less than asked for there is one
//!   write at a time and nothing is tried. It has to fall to half of that before what was found is given up, and when it is back that holds again.
//! * **A trial** has five laps, of so many rounds each: as it is, the other number, as it is, the other, as it is. *One more* is kept only
//!   if both of its laps gave a sixteenth more than each of the three. *One less* is kept if its laps were as good on the average, since fewer writes are
//!   fewer padded pages. So what else happens on the machine meanwhile does not decide it, and where nothing is clear all stays as it is.
//! * **Rests** between trials grow by two while they are in vain, up to [`REST_LAPS_MAX`] laps, and are short again when
//!   something was found, or when the crowd has doubled or halved. So trials that gain nothing cost two laps in thousands.
//!
//! It is a pure function of what it was told; the lock of the commit guards it.

use super::flights::FLIGHTS_MAX;

/// Rounds of a lap.
const LAP_ROUNDS: u32 = 32;
/// The same where more than one is tried whoever waits.
const EAGER_LAP_ROUNDS: u32 = 1;
/// Laps of a trial.
const TRIAL_LAPS: usize = 5;
/// Laps until the next trial, at first.
const REST_LAPS: u32 = 16;
/// The same at most.
const REST_LAPS_MAX: u32 = 4096;
/// One more has to give so many sixteenths.
const BETTER_16THS: u64 = 17;
/// Parts of a writer in which the crowd is counted.
const PARTS: u64 = 16;

/// What became of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// When it ended, in clock nanoseconds.
    pub at_ns: u64,
    /// Writers that need not wait any more.
    pub done: usize,
    /// Writers that wait on.
    pub waiting: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Width {
    /// A crowd from which more than one is tried; 0: whoever waits.
    threads_min: usize,
    /// What was found to be best for a crowd.
    best: usize,
    /// The crowd, in sixteenths of a writer; what it was when the rests began.
    crowd: u64,
    crowd_of_rests: u64,
    is_crowded: bool,
    lap: Lap,
    /// What the laps of a trial gave so far; empty: between two.
    laps: Vec<u64>,
    /// What is tried, or was.
    other: usize,
    /// Laps until the next trial, and how many there were before the last.
    rest: u32,
    rest_before: u32,
    told: WidthTold,
}

/// What statistics tell of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WidthTold {
    /// Trials of another number.
    pub trials: u64,
    /// Those of them whose number was kept.
    pub kept: u64,
}

#[derive(Debug, Default)]
struct Lap {
    rounds: u32,
    done: u64,
    /// When it began; `None`: with the next round.
    since_ns: Option<u64>,
}

impl Width {
    /// More than one is tried where so many wait.
    pub fn new(threads_min: usize) -> Width {
        Width {
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
            told: WidthTold::default(),
        }
    }

    /// How many rounds may be in flight.
    pub fn get(&self) -> usize {
        match self.is_crowded {
            false => 1,
            true if self.laps.len() % 2 == 1 => self.other,
            true => self.best,
        }
    }

    /// What was tried.
    pub fn told(&self) -> WidthTold {
        self.told
    }

    /// A round has ended.
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

    /// In the middle of a trial, with two; the next round is the last of the lap.
    #[cfg(all(test, loom))]
    pub fn in_a_trial() -> Width {
        let lap = Lap { rounds: EAGER_LAP_ROUNDS - 1, done: 1, since_ns: Some(0) };
        Width { lap, laps: vec![1], other: 2, crowd: PARTS, crowd_of_rests: PARTS, ..Width::new(0) }
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
            // What was measured was another crowd's.
            self.crowd_of_rests = self.crowd;
            self.laps.clear();
            self.lap = Lap::default();
            self.rest_before = REST_LAPS / 2;
            // A moment, for the average to come to where the crowd is.
            self.rest = 1;
        }
    }

    /// One more and one less, in turn, as far as there is one.
    fn choose_other(&mut self) {
        let was_more = self.other > self.best;
        self.other = match self.best {
            1 => 2,
            best if best == FLIGHTS_MAX || was_more => best - 1,
            best => best + 1,
        };
    }

    /// A lap of a trial has ended.
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
            // What comes next is further in the same direction.
            std::mem::swap(&mut self.best, &mut self.other);
            self.rest_before = REST_LAPS / 2;
        }
        self.rest_before = (self.rest_before * 2).clamp(REST_LAPS, REST_LAPS_MAX);
        self.rest = if self.threads_min == 0 { 1 } else { self.rest_before };
    }
}

/// Whether what was tried in every other lap is to be kept.
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
    /// A round has ended; if the lap has with it, what it gave in a second.
    fn ends_with(&mut self, served: Served, rounds: u32) -> Option<u64> {
        // What the very first round served came before the lap.
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

    /// A log with so many writers, of which so many are served in a round, on a device that takes so long for one with so many at once.
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

        /// So many rounds; how many of them ended while more than one was allowed.
        fn run(&mut self, width: &mut Width, rounds: u64) -> u64 {
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

    /// Rounds end so often, where two at once give so many percent of what one gives. Each serves fewer the more there are.
    fn gives(two_percent: u64, three_percent: u64) -> impl Fn(usize, u64) -> u64 {
        move |at_once, _| match at_once {
            1 => 120_000,
            2 => 120_000 * 2 / 3 * 100 / two_percent,
            _ => 120_000 / 2 * 100 / three_percent,
        }
    }

    #[test]
    fn what_gives_more_is_found_within_the_first_rounds_and_kept() {
        for (two, three, best) in [(140, 170, 3), (140, 120, 2), (100, 100, 1), (60, 200, 1)] {
            let mut width = Width::new(4);
            let mut device = Device::new(60, gives(two, three));
            device.run(&mut width, 2_000);
            assert_eq!(width.best, best, "{two} {three}");
            device.run(&mut width, 100_000);
            assert_eq!(width.best, best, "{two} {three}");
        }
    }

    #[test]
    fn what_gains_nothing_is_hardly_ever_tried() {
        let mut width = Width::new(4);
        let beside = Device::new(60, gives(90, 90)).run(&mut width, 1_000_000);
        assert!(beside > 0 && beside < 1_000, "{beside} of a million rounds");
        assert_eq!((width.told.kept, width.get()), (0, 1));
    }

    #[test]
    fn what_else_happens_on_the_machine_decides_nothing() {
        // Now and then everything takes ten times as long, whatever is tried.
        let mut width = Width::new(4);
        let mut rng = io::Rng::new(7);
        let noises: Vec<u64> = (0..4096).map(|_| if rng.one_in(40) { 10 } else { 1 }).collect();
        let noise = move |round: u64| noises[(round / 16 % 4096) as usize];
        let plain = gives(100, 100);
        Device::new(60, move |at_once, round| plain(at_once, round) * noise(round)).run(&mut width, 300_000);
        assert!(width.told.trials >= 8 && width.told.kept <= width.told.trials / 8, "{:?}", width.told);
    }

    #[test]
    fn few_write_one_at_a_time_and_a_crowd_that_is_back_as_before() {
        let mut width = Width::new(4);
        Device::new(3, gives(200, 300)).run(&mut width, 10_000);
        assert_eq!((width.get(), width.told), (1, WidthTold::default()));
        Device::new(60, gives(150, 100)).run(&mut width, 5_000);
        assert_eq!(width.get(), 2);
        // Three of four are few enough to be a crowd still; one is none.
        Device::new(3, gives(150, 100)).run(&mut width, 1);
        assert_eq!(width.best, 2);
        Device::new(1, gives(150, 100)).run(&mut width, 200);
        assert_eq!((width.get(), width.best), (1, 2));
        Device::new(60, gives(150, 100)).run(&mut width, 20);
        assert_eq!(width.get(), 2, "what was found holds again");
    }

    #[test]
    fn a_device_that_changes_is_followed() {
        let mut width = Width::new(4);
        Device::new(60, gives(150, 100)).run(&mut width, 5_000);
        assert_eq!(width.best, 2);
        Device::new(60, gives(80, 60)).run(&mut width, 400_000);
        assert_eq!(width.best, 1);
    }
}
