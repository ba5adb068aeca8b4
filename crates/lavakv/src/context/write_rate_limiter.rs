//! The write rate limiter: the debt of throttled writers.
//!
//! Each write is charged time in proportion to its bytes. The pacer sums the charges and returns
//! the sleep of each charged writer. So all writers together keep to the rate of their charges,
//! whatever their number. The store has a pacer for resources shared by all families (memory,
//! space). Each family has one for its own (level 0, levels, garbage). A write pays only at the
//! pacers of its families, so no write waits for the debt of an unrelated family.

use base::sync::model::{Mutex, lock};
use base::sync::rank;

/// Minimum sleep of a writer. A sleep costs a few microseconds of CPU time; a shorter minimum makes
/// more writes sleep, and spreads the debt over more of them.
const SLEEP_NS_MIN: u64 = 40_000;
/// Unused rate that a writer may catch up without a sleep. It also bounds the compensation for
/// oversleeping.
const CREDIT_NS: u64 = 300_000;
/// Maximum time charged at one evaluated rate.
const PIECE_NS_MAX: u64 = 600_000;
/// Minimum rate, bytes per second: lower measurements come from preempted jobs.
pub(crate) const RATE_FLOOR: u64 = 1 << 20;

/// Returns the throttle charge for `bytes` at a rate in bytes per second.
pub(crate) fn cost_ns(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(RATE_FLOOR));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the part of `bytes` to charge at one evaluated rate.
pub(crate) fn piece(bytes: u64, rate: u64) -> u64 {
    bytes.min((u128::from(rate.max(RATE_FLOOR)) * u128::from(PIECE_NS_MAX) / 1_000_000_000) as u64)
}

/// The deadline of a charged write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeDeadline {
    /// Deadline in clock nanoseconds; `u64::MAX`: none.
    pub ns: u64,
    /// Maximum debt that the write may leave behind at its deadline.
    pub debt_ns_max: u64,
}

/// The debt of a stream of writes. See the module.
#[derive(Debug, Default)]
pub(crate) struct WriteRateLimiter {
    /// Time at which the throttled stream of writes may continue, in clock nanoseconds.
    free_at_ns: Mutex<u64, rank::WriteRateLimiter>,
}

impl WriteRateLimiter {
    /// Returns whether the current debt and a new charge are paid before `until_ns`. A remainder
    /// below the minimum sleep counts as paid.
    pub fn is_paid_by(&self, now_ns: u64, cost_ns: u64, until_ns: u64) -> bool {
        let begins_ns = (*lock(&self.free_at_ns)).max(now_ns.saturating_sub(CREDIT_NS));
        begins_ns.saturating_add(cost_ns) < until_ns.max(now_ns).saturating_add(SLEEP_NS_MIN)
    }

    /// Adds a charge. Returns the sleep of the writer (0: none).
    ///
    /// Refuses the write without a charge (`None`) in two cases: the current debt is not paid by
    /// its deadline, or the write would leave more debt than its limit.
    pub fn charge(&self, now_ns: u64, cost_ns: u64, until: ChargeDeadline) -> Option<u64> {
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

    /// Returns the remaining time of the current debt.
    pub fn owed_ns(&self, now_ns: u64) -> u64 {
        lock(&self.free_at_ns).saturating_sub(now_ns)
    }

    /// Subtracts the throttle charge of a failed write.
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

    const PATIENT: ChargeDeadline = ChargeDeadline { ns: u64::MAX, debt_ns_max: 0 };

    /// A refund subtracts exactly its charge, also beside concurrent charges.
    #[test]
    fn loom_a_refund_subtracts_exactly_its_charge() {
        check(3, || {
            let pacer = Arc::new(WriteRateLimiter::default());
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

    /// Concurrent charges add up.
    #[test]
    fn loom_no_charge_is_lost() {
        check(3, || {
            let pacer = Arc::new(WriteRateLimiter::default());
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
