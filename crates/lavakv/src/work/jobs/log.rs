//! The log's background work: write buffered pages, prepare groups, release old ones, persist the
//! watermark.
//!
//! Each task is short, and writers soon depend on it, so it is the most urgent class.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
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
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> ClaimedJob {
    set.running.log = true;
    let claim = Claim::new(jobs, |set| set.running.log = false);
    let jobs = jobs.clone();
    Box::new(|| Box::new(LogJob { jobs, _claim: claim }))
}

/// Returns whether the log has work.
pub(crate) fn wanted(jobs: &Jobs) -> bool {
    jobs.log.upkeep().task().is_some()
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs;
        let task = jobs.log.upkeep().task();
        match task {
            Some(Task::Release) => jobs.log.release(|| jobs.tree.log_floor())?,
            Some(task) => jobs.log.upkeep().run(task)?,
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
