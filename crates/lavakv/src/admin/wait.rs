//! Waiting for what jobs do, as long as they can do it.

use crate::plan::requests::Caller;
use crate::work::jobs::Jobs;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A cancelled call waits so long for its jobs to give back what they made. A job whose thread does more urgent work meanwhile gives it
/// back later, and makes no more.
const GIVEN_UP_NS: u64 = 500_000_000;

/// Waits for the jobs of a call that ended with `e`, if that was because it is cancelled.
pub(crate) fn wait_given_up(jobs: &Arc<Jobs>, caller: &Caller, e: &Error) {
    if e.kind() == ErrorKind::Cancelled {
        jobs.context.signals.notify_work();
        let until_ns = jobs.context.now_ns().saturating_add(GIVEN_UP_NS);
        jobs.context.wait_before(until_ns, || !caller.has_jobs());
    }
}

/// Waits until jobs have made `done` true, as long as they can: an error ends it, a store that failed, a disk on which
/// a job found no room a moment ago (`no_space`: what to say then), and what should have passed by itself and has not. What was
/// met a while ago is no answer: it may have passed since, and the work is tried again.
pub(crate) fn wait_for_jobs(
    jobs: &Arc<Jobs>,
    no_space: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    jobs.context.wait_until(|| look(jobs, no_space, &mut done))
}

/// One look at what is waited for: `None`, it is not over.
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
        // Where it was: a store may be on two disks.
        let at = why.file().unwrap_or(&jobs.context.dir).to_owned();
        return Some(Err(Error::new(ErrorKind::NoSpace, no_space).at_file(at).caused_by(why)));
    }
    if let Some(e) = jobs.context.health.held_up(now_ns) {
        return Some(Err(
            e.context("work that this call waits for is held up; it goes on when this has passed")
        ));
    }
    done().map(|done| done.then_some(())).transpose()
}
