//! Waits for the results of jobs, while jobs can make progress.

use crate::plan::requests::Caller;
use crate::work::jobs::Jobs;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Maximum wait of a cancelled call for its jobs to discard their outputs, nanoseconds. A job
/// preempted by more urgent work discards them later, and creates no more.
const GIVEN_UP_NS: u64 = 500_000_000;

/// Waits for the jobs of a call that ended with `e`, if the call was cancelled.
pub(crate) fn wait_given_up(jobs: &Arc<Jobs>, caller: &Caller, e: &Error) {
    if e.kind() == ErrorKind::Cancelled {
        jobs.context.signals.notify_work();
        let until_ns = jobs.context.now_ns().saturating_add(GIVEN_UP_NS);
        jobs.context.wait_before(until_ns, || !caller.has_jobs());
    }
}

/// Waits until jobs have made `done` true. Ends early with an error from `done`, a failed store, a
/// recent lack of space (message `no_space`), or a transient error that persists. Old errors are
/// ignored, because the work is being retried.
pub(crate) fn wait_for_jobs(
    jobs: &Arc<Jobs>,
    no_space: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    jobs.context.wait_until(|| look(jobs, no_space, &mut done))
}

/// Checks the condition once; `None`: not done yet.
pub(crate) fn look(
    jobs: &Arc<Jobs>,
    no_space: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Option<Result<()>> {
    if let Err(e) = jobs.context.health.check() {
        return Some(Err(e));
    }
    let now_ns = jobs.context.now_ns();
    if jobs.context.health.must_wait(now_ns)
        && let Some(why) = jobs.context.health.no_space_error()
    {
        // The path of the failure, because a store may have two tiers.
        let at = why.file().unwrap_or(&jobs.context.dir).to_owned();
        return Some(Err(Error::new(ErrorKind::NoSpace, no_space).at_file(at).caused_by(why)));
    }
    if let Some(e) = jobs.context.health.held_up(now_ns) {
        return Some(Err(e.context(
            "background work (flush, compaction or collection) that this call waits for is held up; it \
             resumes when the cause is removed",
        )));
    }
    done().map(|done| done.then_some(())).transpose()
}
