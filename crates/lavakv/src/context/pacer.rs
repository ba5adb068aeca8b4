//! What writers owe where they are slowed down, and when it is paid.
//!
//! Each write is charged a time in proportion to its bytes. A pacer adds up what was charged and says how long who is charged should sleep,
//! so that the bytes of all that it charges keep to the rate at which they were charged, whoever they are. The store has a pacer for what all families
//! share (memory, space), and each family one for what is its own (level 0, levels, garbage): a write pays at those that it has to do with, so nobody
//! waits for what a family owes to which he does not write.

use base::sync::model::{Mutex, lock};
use base::sync::rank;

/// Delay that is collected before a writer sleeps. A short sleep takes a few microseconds of a core; and as many writes sleep as it is
/// shorter, so that what they owe is spread over more of them.
const SLEEP_NS_MIN: u64 = 40_000;
/// How long a writer that did not use its rate may go on without a sleep, and how much of a sleep that took too long is made up for.
const CREDIT_NS: u64 = 300_000;
/// What a writer pays at one price.
const PIECE_NS_MAX: u64 = 600_000;
/// No rate is below this, bytes per second: such come from a job that was preempted.
pub(crate) const RATE_FLOOR: u64 = 1 << 20;

/// What so many bytes cost at a rate, in bytes per second.
pub(crate) fn cost_ns(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(RATE_FLOOR));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// As many of `bytes` as are paid at one price.
pub(crate) fn piece(bytes: u64, rate: u64) -> u64 {
    bytes.min((u128::from(rate.max(RATE_FLOOR)) * u128::from(PIECE_NS_MAX) / 1_000_000_000) as u64)
}

/// How long who is charged may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// In clock nanoseconds; `u64::MAX`: as long as it takes.
    pub ns: u64,
    /// What it may leave to those behind it if it may not wait that long.
    pub debt_ns_max: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the paced stream of writes may go on, in clock nanoseconds.
    free_at_ns: Mutex<u64, rank::Pacer>,
}

impl Pacer {
    /// True if what others owe, and a cost, is paid before `until_ns`: what is not worth a sleep is no wait.
    pub fn is_paid_by(&self, now_ns: u64, cost_ns: u64, until_ns: u64) -> bool {
        let begins_ns = (*lock(&self.free_at_ns)).max(now_ns.saturating_sub(CREDIT_NS));
        begins_ns.saturating_add(cost_ns) < until_ns.max(now_ns).saturating_add(SLEEP_NS_MIN)
    }

    /// Charges a cost. Returns how long the writer should sleep before it goes on (0: not at all).
    ///
    /// A writer that may not wait beyond a moment is refused (`None`), and not charged, if what others owe is not paid by then, or if it would
    /// leave more than it may to those behind it.
    pub fn charge(&self, now_ns: u64, cost_ns: u64, until: Until) -> Option<u64> {
        let until_ns = until.ns.max(now_ns);
        let mut free_at_ns = lock(&self.free_at_ns);
        let begins_ns = (*free_at_ns).max(now_ns.saturating_sub(CREDIT_NS));
        let paid_at_ns = begins_ns.saturating_add(cost_ns);
        let is_too_late = begins_ns >= until_ns.saturating_add(SLEEP_NS_MIN);
        let leaves_too_much = paid_at_ns > until_ns.saturating_add(until.debt_ns_max.max(SLEEP_NS_MIN));
        if is_too_late || leaves_too_much {
            return None;
        }
        *free_at_ns = paid_at_ns;
        let sleep_ns = paid_at_ns.min(until_ns).saturating_sub(now_ns);
        Some(if sleep_ns < SLEEP_NS_MIN { 0 } else { sleep_ns })
    }

    /// How long who is charged nothing more would have to wait.
    pub fn owed_ns(&self, now_ns: u64) -> u64 {
        lock(&self.free_at_ns).saturating_sub(now_ns)
    }

    /// What was charged for a write that came to nothing.
    pub fn refund(&self, cost_ns: u64) {
        let mut free_at_ns = lock(&self.free_at_ns);
        *free_at_ns = free_at_ns.saturating_sub(cost_ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    const PATIENT: Until = Until { ns: u64::MAX, debt_ns_max: 0 };

    /// What comes to nothing is given back, and no more than that, whoever is charged meanwhile.
    #[test]
    fn loom_a_refund_takes_nothing_of_others() {
        check(3, || {
            let pacer = Arc::new(Pacer::default());
            let other = {
                let pacer = pacer.clone();
                thread::spawn(move || {
                    pacer.charge(CREDIT_NS, 100_000, PATIENT).unwrap();
                    pacer.refund(100_000);
                })
            };
            pacer.charge(CREDIT_NS, 70_000, PATIENT).unwrap();
            other.join().unwrap();
            assert_eq!(*lock(&pacer.free_at_ns), 70_000);
        });
    }

    /// Two writers at once pay for both.
    #[test]
    fn loom_no_charge_is_lost() {
        check(3, || {
            let pacer = Arc::new(Pacer::default());
            let other = {
                let pacer = pacer.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        pacer.charge(CREDIT_NS, 10_000, PATIENT).unwrap();
                    }
                })
            };
            pacer.charge(CREDIT_NS, 10_000, PATIENT).unwrap();
            other.join().unwrap();
            assert_eq!(*lock(&pacer.free_at_ns), 30_000);
        });
    }
}
