//! Admission of writes: the write rate follows the drain rate of the chain behind it.
//!
//! On-off stalls (full speed until a limit, then nothing until it clears) are what makes tail latencies of LSM trees
//! bad. Here each write is charged a delay in proportion to its bytes, and the price rises smoothly with how far the
//! chain is behind, so that a limit is approached but in the normal case never hit:
//!
//! * **memory**: the active memtable must not fill before the frozen ones are flushed. With `room` bytes left in the
//!   budget, `backlog` bytes still to flush and a measured flush rate `f`, the allowed rate is `f * room / backlog`.
//! * **L0**: between the slow-down and the stop depth the allowed rate falls, by the square of the room left, from twice
//!   the measured rate at which compaction drains L0 to a twentieth of it. (L0 drains in large pieces, when a compaction
//!   is installed; the square keeps enough room until the next one.)
//! * **levels**: from [`EXCESS_SLOW_PERCENT`] percent of the store in tables above the targets of their levels on, writers come to
//!   the rate at which the tree absorbs what is flushed: with `e` percent more the allowed rate is that rate times
//!   [`EXCESS_BALANCE_PERCENT`]` / e`, and far above less.
//! * **garbage**: above a bound for garbage in vSSTs writers come to the rate at which collection frees bytes: with `g`
//!   percent above the bound the allowed rate is that rate times [`GARBAGE_BALANCE_PERCENT`]` / g`, and far above less. It
//!   has no step, so writers do not rush ahead and wait in turns, and space stays bounded however fast they are.
//! * **space**: with a part `x` of the margin below the space limit left, the allowed rate is `x^2 / (1 - x)` times the
//!   rate of collection: no limit at the border of the margin, that rate at 0.62 of it, and nothing at the limit.
//!
//! The lowest allowed rate wins. A write pays for all of its bytes, in pieces of at most [`PIECE_NS_MAX`], and looks
//! anew after each what the price is: so a batch of a thousand puts pays what they would have paid one by one, nobody pays a
//! price that is not asked any more, and what is left when there is no limit any more is forgiven. Delays are collected
//! until they are worth [`SLEEP_NS_MIN`] (shorter sleeps cost more than they take). Writers share one [`Pacer`] and sleep
//! before they take the writer's lock, so that nobody else waits for what one of them owes. The functions here are pure but
//! for the pacer's lock; the write path sleeps. After vLSM (admission control rather than stops).

use crate::context::event::StallCause;
use base::sync::model::{Mutex, lock};
use base::sync::rank;

/// Delay that is collected before a writer sleeps. A short sleep takes a few microseconds of a core; and as many writes sleep as it is
/// shorter, so that what they owe is spread over more of them.
const SLEEP_NS_MIN: u64 = 40_000;
/// How long a writer that did not use its rate may go on without a sleep, and how much of a sleep that took too long is made up for.
const CREDIT_NS: u64 = 300_000;
/// What a writer pays at one price.
const PIECE_NS_MAX: u64 = 600_000;

/// Where the chain stands, as the write path sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Bytes of all memtables.
    pub memory_used: u64,
    /// Their budget.
    pub memory_max: u64,
    /// Bytes of frozen memtables not yet flushed.
    pub backlog: u64,
    /// Measured bytes of memtable flushed per second.
    pub flush_bytes_per_s: u64,
    /// Most files in L0 over all families.
    pub l0_files: u64,
    /// Where slowing starts.
    pub l0_slowdown: u64,
    /// Where writes stop.
    pub l0_stop: u64,
    /// Measured bytes of L0 compacted away per second.
    pub l0_bytes_per_s: u64,
    /// Tables above the targets of their levels, in percent of what the family keeps.
    pub excess_percent: u64,
    /// Measured bytes that the tree absorbs per second; 0: not known.
    pub absorbed_bytes_per_s: u64,
    /// How far exposed garbage lies above where slowing starts, in percent of what lives.
    pub garbage_over_percent: u64,
    /// Measured bytes of garbage freed per second.
    pub gc_bytes_per_s: u64,
    /// Bytes left below the space limit, as long as they are less than `space_margin`.
    pub space_room: u64,
    /// From so little room on writers are slowed down; 0: there is no limit, or room enough.
    pub space_margin: u64,
}

/// How far above its bound garbage may come to rest, in percent of what lives.
const GARBAGE_BALANCE_PERCENT: u64 = 5;

/// From so much excess on writers are slowed down. With level 0 and what jobs have in hand a tree whose keys are overwritten then
/// stays below 1.6 times its data.
const EXCESS_SLOW_PERCENT: u64 = 10;
/// How far above that it may come to rest.
const EXCESS_BALANCE_PERCENT: u64 = 10;

/// What is left of a rate with something `over` percent above its bound that comes to rest `balance` percent above: all of it there, more
/// below, and far above less and less.
fn balanced(rate: f64, over_percent: u64, balance_percent: u64) -> u64 {
    let scarce = balance_percent as f64 / over_percent.max(1) as f64;
    ((rate * scarce * scarce.min(0.5) * 2.0) as u64).max(RATE_FLOOR / 4)
}

/// Rates below this are not believed: they come from a job that was preempted.
const RATE_FLOOR: u64 = 1 << 20;

impl Pressure {
    /// The rate at which collection frees bytes. Before anything was collected, an eighth of the flush rate stands in.
    fn collected_per_s(&self) -> f64 {
        self.gc_bytes_per_s.max(self.flush_bytes_per_s / 8).max(RATE_FLOOR) as f64
    }

    /// The rate at which the tree absorbs what is flushed. Before that was measured, a quarter of the flush rate stands in.
    fn absorbed_per_s(&self) -> f64 {
        let known = Some(self.absorbed_bytes_per_s).filter(|rate| *rate > 0);
        known.unwrap_or(self.flush_bytes_per_s / 4).max(RATE_FLOOR) as f64
    }

    /// True if writers are slowed down for what lies above the targets of the levels.
    pub fn is_slow_for_levels(&self) -> bool {
        self.excess_percent > EXCESS_SLOW_PERCENT
    }

    /// The part that concerns what goes neither through memory nor through L0.
    pub fn of_space(self) -> Pressure {
        Pressure { backlog: 0, l0_files: 0, excess_percent: 0, ..self }
    }

    /// The allowed rate in bytes per second and what limits it; `None` if there is no limit.
    pub fn allowed_rate(&self) -> Option<(u64, StallCause)> {
        let memory = (self.backlog > 0).then(|| {
            let room = self.memory_max.saturating_sub(self.memory_used);
            let rate = self.flush_bytes_per_s.max(RATE_FLOOR) as f64 * room as f64 / self.backlog as f64;
            ((rate as u64).max(RATE_FLOOR / 4), StallCause::Memory)
        });
        let l0 = (self.l0_files > self.l0_slowdown).then(|| {
            let span = self.l0_stop.saturating_sub(self.l0_slowdown).max(1) as f64;
            let over = (self.l0_files - self.l0_slowdown) as f64 / span;
            let factor = (2.0 * (1.0 - over.min(1.0)).powi(2)).max(0.05);
            let rate = self.l0_bytes_per_s.max(RATE_FLOOR) as f64 * factor;
            ((rate as u64).max(RATE_FLOOR / 4), StallCause::L0)
        });
        let garbage = (self.garbage_over_percent > 0).then(|| {
            let rate = balanced(self.collected_per_s(), self.garbage_over_percent, GARBAGE_BALANCE_PERCENT);
            (rate, StallCause::Garbage)
        });
        let is_priced = !base::canary::is("levels-below-the-first-cost-nothing");
        let levels = (self.is_slow_for_levels() && is_priced).then(|| {
            let over = self.excess_percent - EXCESS_SLOW_PERCENT;
            (balanced(self.absorbed_per_s(), over, EXCESS_BALANCE_PERCENT), StallCause::Levels)
        });
        let space = (self.space_room < self.space_margin).then(|| {
            let x = self.space_room as f64 / self.space_margin as f64;
            let rate = self.collected_per_s() * x * x / (1.0 - x);
            ((rate as u64).max(RATE_FLOOR / 4), StallCause::Space)
        });
        [memory, l0, levels, garbage, space].into_iter().flatten().min_by_key(|(rate, _)| *rate)
    }
}

/// What a writer was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    /// Bytes that are paid for.
    pub bytes: u64,
    /// What they cost, nanoseconds.
    pub cost_ns: u64,
    /// How long it should sleep before it goes on; 0: not at all.
    pub sleep_ns: u64,
}

/// Collects the delays of writes until they are worth a sleep. One for all writers.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the paced stream of writes may go on, in clock nanoseconds.
    free_at_ns: Mutex<u64, rank::Pacer>,
}

impl Pacer {
    /// Charges as many of `bytes` as [`PIECE_NS_MAX`] is enough for at `rate` bytes per second. Returns how many that are,
    /// and how long the writer should sleep before it goes on (0: not at all).
    ///
    /// A writer that cannot wait beyond `until_ns` is refused (`None`), and not charged, if what others owe is not paid by then: what is not
    /// worth a sleep is no wait. Else all of its bytes are charged at once, and whoever comes behind waits for what it did not.
    pub fn charge(&self, now_ns: u64, bytes: u64, rate: u64, until_ns: u64) -> Option<Charged> {
        let rate = u128::from(rate.max(RATE_FLOOR));
        let whole_ns = u64::try_from(u128::from(bytes) * 1_000_000_000 / rate).unwrap_or(u64::MAX);
        let piece = bytes.min((rate * u128::from(PIECE_NS_MAX) / 1_000_000_000) as u64);
        let cost_ns = (u128::from(piece) * 1_000_000_000 / rate) as u64;
        let mut free_at_ns = lock(&self.free_at_ns);
        let begins_ns = (*free_at_ns).max(now_ns.saturating_sub(CREDIT_NS));
        let until_ns = until_ns.max(now_ns);
        if begins_ns >= until_ns.saturating_add(SLEEP_NS_MIN) {
            return None;
        }
        let paid_at_ns = begins_ns.saturating_add(whole_ns);
        if paid_at_ns >= until_ns.saturating_add(SLEEP_NS_MIN) {
            *free_at_ns = paid_at_ns;
            let left_ns = until_ns - now_ns;
            let sleep_ns = if left_ns < SLEEP_NS_MIN { 0 } else { left_ns };
            return Some(Charged { bytes, cost_ns: whole_ns, sleep_ns });
        }
        *free_at_ns = (*free_at_ns).max(now_ns.saturating_sub(CREDIT_NS)).saturating_add(cost_ns);
        let ahead_ns = free_at_ns.saturating_sub(now_ns);
        let sleep_ns = if ahead_ns < SLEEP_NS_MIN { 0 } else { ahead_ns };
        Some(Charged { bytes: piece, cost_ns, sleep_ns })
    }

    /// What was charged for a write that came to nothing.
    pub fn refund(&self, cost_ns: u64) {
        let mut free_at_ns = lock(&self.free_at_ns);
        *free_at_ns = free_at_ns.saturating_sub(cost_ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_backlog_no_limit_and_the_price_rises_with_the_backlog() {
        let mut p = Pressure {
            memory_max: 64 << 20,
            flush_bytes_per_s: 100 << 20,
            l0_slowdown: 12,
            l0_stop: 24,
            l0_bytes_per_s: 50 << 20,
            ..Default::default()
        };
        assert_eq!(p.allowed_rate(), None);
        p.backlog = 16 << 20;
        let mut last = u64::MAX;
        for used in [20u64, 40, 60, 64] {
            p.memory_used = used << 20;
            let (rate, cause) = p.allowed_rate().unwrap();
            assert!(rate < last && cause == StallCause::Memory);
            last = rate;
        }
        p.backlog = 0;
        let mut last = u64::MAX;
        for files in 13..30 {
            p.l0_files = files;
            let (rate, cause) = p.allowed_rate().unwrap();
            assert!(rate <= last && rate > 0 && cause == StallCause::L0);
            last = rate;
        }
        p.l0_files = 0;
        p.gc_bytes_per_s = 40 << 20;
        let mut last = u64::MAX;
        for over in 1..30 {
            p.garbage_over_percent = over;
            let (rate, cause) = p.allowed_rate().unwrap();
            assert!(rate <= last && rate > 0 && cause == StallCause::Garbage);
            last = rate;
        }
        p.garbage_over_percent = 0;
        p.excess_percent = EXCESS_SLOW_PERCENT;
        assert_eq!(p.allowed_rate(), None);
        let mut last = u64::MAX;
        for excess in 1..60 {
            p.excess_percent = EXCESS_SLOW_PERCENT + excess;
            let (rate, cause) = p.allowed_rate().unwrap();
            assert!(rate < last && rate > 0 && cause == StallCause::Levels);
            last = rate;
        }
        (p.excess_percent, p.absorbed_bytes_per_s) = (EXCESS_SLOW_PERCENT + EXCESS_BALANCE_PERCENT, 30 << 20);
        assert_eq!(p.allowed_rate(), Some((30 << 20, StallCause::Levels)));
        p.excess_percent = 0;
        (p.space_margin, p.space_room) = (1000, 1000);
        assert_eq!(p.allowed_rate(), None);
        let mut last = u64::MAX;
        for room in (0..1000).rev() {
            p.space_room = room;
            let (rate, cause) = p.allowed_rate().unwrap();
            assert!(rate <= last && rate > 0 && cause == StallCause::Space);
            last = rate;
        }
        p.space_room = 618;
        assert!(p.allowed_rate().unwrap().0.abs_diff(40 << 20) < 1 << 20);
    }

    #[test]
    fn paced_writes_reach_the_allowed_rate_whatever_their_size() {
        for len in [200, 1000, 16_000, 1 << 20, 16 << 20] {
            let (pacer, mut now, mut written, mut longest) = (Pacer::default(), 0u64, 0u64, 0);
            let rate = 10 << 20;
            while now < 10_000_000_000 {
                now += 2_000;
                let mut left = len;
                while left > 0 {
                    let Charged { bytes: paid, sleep_ns, .. } =
                        pacer.charge(now, left, rate, u64::MAX).unwrap();
                    assert!(paid > 0);
                    left -= paid;
                    now += sleep_ns;
                    longest = longest.max(sleep_ns);
                }
                written += len;
            }
            let share = written as f64 / (rate as f64 * now as f64 / 1e9);
            assert!((0.95..1.05).contains(&share), "{len}: {share}");
            assert!(longest <= PIECE_NS_MAX + SLEEP_NS_MIN, "{len}: {longest}");
        }
    }

    #[test]
    fn a_price_that_has_fallen_is_paid_from_the_next_piece_on() {
        let pacer = Pacer::default();
        let charge = |now, bytes, rate| {
            let charged = pacer.charge(now, bytes, rate, u64::MAX).unwrap();
            (charged.bytes, charged.sleep_ns)
        };
        let (paid, sleep_ns) = charge(0, 1 << 30, RATE_FLOOR);
        assert!(paid < 1000 && sleep_ns <= PIECE_NS_MAX + SLEEP_NS_MIN);
        let (paid, _) = charge(sleep_ns, 1 << 20, 10 << 30);
        assert_eq!(paid, 1 << 20);
        assert_eq!(charge(1_000_000_000, 200, 10 << 20), (200, 0), "nothing is left to pay for");
    }

    /// Who may not wait so long is told at once, and owes nothing: else refused writes would hold up all others.
    #[test]
    fn who_cannot_wait_for_what_others_owe_is_not_charged() {
        let (pacer, rate, second) = (Pacer::default(), 10 << 20, 1_000_000_000);
        let free_at_ns = || *lock(&pacer.free_at_ns);
        let first = pacer.charge(second, 1 << 20, rate, second).unwrap();
        assert_eq!(
            (first.bytes, first.cost_ns, first.sleep_ns),
            (1 << 20, 100_000_000, 0),
            "nobody owes anything"
        );
        let owed = free_at_ns();
        assert!((0..1000).all(|_| pacer.charge(second, 1000, rate, second).is_none()));
        assert!(pacer.charge(second, 1000, rate, second + 50_000_000).is_none());
        assert_eq!(free_at_ns(), owed);
        let patient = pacer.charge(second, 1 << 20, rate, second + 120_000_000).unwrap();
        assert_eq!(
            (patient.bytes, patient.sleep_ns),
            (1 << 20, 120_000_000),
            "and the rest is for those behind it"
        );
        pacer.refund(patient.cost_ns);
        assert_eq!(free_at_ns(), owed, "it came to nothing");
        let later = pacer.charge(2 * second, 200, rate, 2 * second).unwrap();
        assert_eq!((later.bytes, later.sleep_ns), (200, 0), "no wait is needed any more");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    /// What comes to nothing is given back, and no more than that, whoever is charged meanwhile.
    #[test]
    fn loom_a_refund_takes_nothing_of_others() {
        check(3, || {
            let pacer = Arc::new(Pacer::default());
            let other = {
                let pacer = pacer.clone();
                thread::spawn(move || {
                    let charged = pacer.charge(CREDIT_NS, 1 << 10, 10 << 20, u64::MAX).unwrap();
                    pacer.refund(charged.cost_ns);
                })
            };
            let kept = pacer.charge(CREDIT_NS, 1 << 10, 10 << 20, u64::MAX).unwrap();
            other.join().unwrap();
            assert_eq!(*lock(&pacer.free_at_ns), kept.cost_ns);
        });
    }

    /// Two writers at once pay for the bytes of both.
    #[test]
    fn loom_no_charge_is_lost() {
        check(3, || {
            let pacer = Arc::new(Pacer::default());
            let other = {
                let pacer = pacer.clone();
                thread::spawn(move || {
                    (0..2)
                        .map(|_| pacer.charge(CREDIT_NS, 1 << 10, 10 << 20, u64::MAX).unwrap().bytes)
                        .sum::<u64>()
                })
            };
            let paid =
                pacer.charge(CREDIT_NS, 1 << 10, 10 << 20, u64::MAX).unwrap().bytes + other.join().unwrap();
            assert_eq!(
                (paid, *lock(&pacer.free_at_ns)),
                (3 << 10, 3 * (1 << 10) * 1_000_000_000 / (10 << 20))
            );
        });
    }
}
