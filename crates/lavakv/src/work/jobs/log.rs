//! The log's background work: write out buffered pages, prepare groups, release old ones, persist the watermark. And what it refers to: values
//! that are placed in files become durable before what says where they are.
//!
//! All of it is short, and writers wait for it sooner or later, so it is the most urgent class.

use super::claim::Claim;
use super::{Claimed, Jobs};
use crate::plan::in_progress::InProgressSet;
use base::Result;
use std::sync::Arc;
use store::commit::Task;
use store::run::{Job, JobClass, Progress};

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

/// True if the log has work.
pub(crate) fn wanted(jobs: &Jobs) -> bool {
    jobs.log.task().is_some()
}

/// True if what it refers to is to be made durable. Not to be asked under the lock of what is in progress: who appends to a file may wait for room
/// there with the file locked.
pub(super) fn values_are_due(jobs: &Jobs) -> bool {
    jobs.large.placement.is_due()
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs;
        if jobs.large.placement.sync_due()? {
            return Ok(Progress::Done);
        }
        let task = jobs.log.task();
        if task == Some(Task::Confirm) && !base::canary::is("log-confirmed-without-its-values") {
            // Who pauses is to lose nothing that is older than the pause.
            jobs.large.placement.sync_unasked()?;
        }
        match task {
            Some(Task::Release) => jobs.log.release(|| jobs.tree.log_floor())?,
            Some(task) => jobs.log.run(task)?,
            None => {}
        }
        if task == Some(Task::Prepare) {
            let live_max = jobs.context.options.sizes().live_log_bytes_max(jobs.space.limit_bytes());
            if jobs.log.is_over(live_max) {
                jobs.log.set_over_bound();
            }
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}
