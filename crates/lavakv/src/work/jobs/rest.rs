//! Rotation of memtables with tombstones in a store at rest: tombstones free nothing before they
//! are flushed.
//!
//! The job freezes these memtables; the next flush takes them.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::plan::in_progress::InProgressSet;
use crate::tree::family::Family;
use base::Result;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};

/// The rotation job. See the module.
pub(crate) struct FreezeJob {
    jobs: Arc<Jobs>,
    /// Dropped last.
    _claim: Claim,
}

/// Claims the rotation in place of the next flush.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> ClaimedJob {
    set.running.flush = true;
    let claim = Claim::new(jobs, |set| set.running.flush = false);
    let jobs = jobs.clone();
    Box::new(|| Box::new(FreezeJob { jobs, _claim: claim }))
}

impl Job for FreezeJob {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        let memtables = &self.jobs.writes.memtables;
        let has_tombstones = |family: &Arc<Family>| family.look(|seen| seen.active.has_tombstones());
        let mut families = self.jobs.tree.families.unflushed();
        families.retain(has_tombstones);
        let mut writer = memtables.lock();
        families.iter().for_each(|family| memtables.rotate(&mut writer, family));
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}
