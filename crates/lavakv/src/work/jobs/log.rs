//! The log's background work: write out buffered pages, prepare groups, release old ones, persist the watermark.
//!
//! All of it is short, and writers wait for it sooner or later, so it is the most urgent class.

use super::claim::Claim;
use super::{Claimed, Jobs};
use crate::plan::in_progress::InProgressSet;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::space::sizes::{live_log_bytes_max, shortest_group_bytes};
use base::Result;
use std::sync::Arc;

pub(crate) struct LogJob {
    jobs: Arc<Jobs>,
    /// Dropped last.
    _claim: Claim,
}

/// Claims the log's work.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> Claimed {
    set.running.log = true;
    let claim = Claim::new(jobs, |set| set.running.log = false);
    let jobs = jobs.clone();
    Box::new(|| Box::new(LogJob { jobs, _claim: claim }))
}

/// What there is to do for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    WriteOut,
    Prepare,
    Lengthen,
    Release,
    Vouch,
}

/// The most urgent of it. After something found no room, nothing that takes any is tried for a while: a job for anything else
/// would be refused in its place, and put off everybody's next try again and again.
fn task(jobs: &Jobs) -> Option<Task> {
    let has_room = !jobs.context.health.must_wait(jobs.context.env.clock.now_ns());
    if jobs.log.wal().wants_write_out() {
        // Until it is tried again whoever finds the ring full tries himself, and is told. Nothing else is done: what vouches
        // for these pages would meet the same, and stop the log.
        (has_room || !jobs.log.write_out_was_refused()).then_some(Task::WriteOut)
    } else if has_room && wants_spare(jobs) {
        Some(Task::Prepare)
    } else if has_room && jobs.log.wants_longer_ring() {
        Some(Task::Lengthen)
    } else if has_room && jobs.log.may_release() {
        Some(Task::Release)
    } else if jobs.log.is_idle() {
        Some(Task::Vouch)
    } else {
        None
    }
}

/// True if the log has work.
pub(crate) fn wanted(jobs: &Jobs) -> bool {
    task(jobs).is_some()
}

fn wants_spare(jobs: &Jobs) -> bool {
    let shortest = shortest_group_bytes(&jobs.context.options);
    let fits = || jobs.log.has_free() || jobs.space.fits_job(shortest);
    let wanted = jobs.log.wal().groups_wanted() > 0 && jobs.log.wal().is_half_full();
    // What room there is, is for deletes and the jobs that make more of it.
    wanted && !jobs.log.ballast_is_short() && fits()
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs;
        match task(jobs) {
            Some(Task::WriteOut) => {
                jobs.log.write_out()?;
                jobs.log.hint_release();
            }
            Some(Task::Prepare) => {
                jobs.log.prepare_ahead()?;
                let live_max = live_log_bytes_max(&jobs.context.options, jobs.space.limit_bytes());
                if jobs.log.wal().live_bytes() > live_max {
                    jobs.log.set_over_bound();
                }
            }
            Some(Task::Lengthen) => jobs.log.lengthen_ring()?,
            Some(Task::Release) => jobs.log.release(jobs.tree.log_floor())?,
            Some(Task::Vouch) => jobs.log.persist_watermark()?,
            None => {}
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}
