//! Checks for background work, and waits for its end.

use crate::work::jobs::{self, Jobs};
use std::sync::Arc;
use std::time::Duration;

/// Returns whether no background work is running or due.
pub(crate) fn is_idle(jobs: &Arc<Jobs>) -> bool {
    if jobs.log.get().is_none() || jobs.context.health.is_poisoned() {
        return true;
    }
    jobs::is_idle(jobs)
}

/// Waits for [`is_idle`], then confirms the end of the log at once instead of after an idle period.
pub(crate) fn wait_idle(jobs: &Arc<Jobs>, timeout: Duration) -> bool {
    let clock = &jobs.context.env.clock;
    let end_ns = clock.now_ns().saturating_add(timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64);
    loop {
        jobs.quiet.declare(jobs.tree.snapshots.visible());
        if is_idle(jobs) {
            if jobs.log.get().is_none()
                || jobs.context.health.is_poisoned()
                || !jobs.log.upkeep().has_unconfirmed()
            {
                return true;
            }
            let Ok(_entered) = jobs.context.enter() else { return false };
            if let Err(e) = jobs.log.upkeep().persist_watermark() {
                jobs.job_failed(e, &[]);
            }
            jobs.log.floors().hint();
        }
        if clock.now_ns() >= end_ns || jobs.context.check_open().is_err() {
            return false;
        }
        if jobs.context.env.is_simulated() {
            if !jobs.context.signals.step() {
                clock.sleep_ns(1_000_000);
            }
        } else {
            jobs.context.signals.notify_work();
            clock.sleep_ns(2_000_000);
        }
    }
}
