//! The first step of a compaction: reading the names that its inputs reference.
//!
//! The names are stored in the tables, not in the version, and the mutex of the claim must not be
//! held during I/O. So a claim holds all names of the family ([`values::Pins::hold`]). The first
//! step of the job reads the list of each table with references, then begins to merge. The job pins
//! the names that it may write, and releases the others. The outline of the version
//! ([`values::outline`]) and the reference sums of the version edit are computed from the same
//! lists.
//!
//! Inputs without references need no reads and no holds. Moves need none either: the references of
//! a moved table stay.

use super::{ClaimedCompaction, CompactionJob, CompactionStart, class_of};
use crate::plan::requests::Caller;
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use crate::work::jobs::claim::Claim;
use base::Result;
use lsm::policy::{Compaction, CompactionPolicy};
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use values::PinGuard;
use version::{Dependency, Version};

/// The references of each input, by name.
pub(super) type Lists = Vec<Vec<Dependency>>;

/// A claimed compaction before its inputs are read.
pub(super) struct ClaimedInputs {
    pub jobs: Arc<Jobs>,
    pub family: Arc<Family>,
    pub compaction: Arc<Compaction>,
    pub policy: Arc<dyn CompactionPolicy>,
    pub number: u64,
    /// The complete version it was picked from.
    pub version: Arc<Version>,
    pub pieces_max: usize,
    pub begun: CompactionStart,
    /// Holds all names of the family if the inputs have references.
    pub claim: Claim,
    /// The call that requested it. Dropped last.
    pub caller: Option<Caller>,
}

/// Returns whether the references of the inputs must be read.
fn looks(compaction: &Compaction) -> bool {
    !compaction.trivial_move && compaction.input_files().any(|(_, f)| f.uses.sums().names > 0)
}

/// Returns the names to hold until the references are read. Called under the mutex of the claim.
pub(super) fn pins(jobs: &Jobs, family: &Family, compaction: &Compaction) -> PinGuard {
    match looks(compaction) {
        true => jobs.files.pins.hold(family.id),
        false => jobs.files.pins.pin([]),
    }
}

impl ClaimedInputs {
    /// Builds the job. Without references to read, the first step merges.
    pub fn job(self) -> Box<dyn Job> {
        match looks(&self.compaction) {
            true => Box::new(LookingJob { job: None, claimed: Some(self) }),
            false => self.begin(Lists::new()),
        }
    }

    fn lists(&self) -> Result<Lists> {
        let tables = &self.jobs.files.tables;
        self.compaction.input_files().map(|(_, file)| tables.dependencies(file)).collect()
    }

    /// Begins the merge, with the references of all inputs.
    fn begin(mut self, lists: Lists) -> Box<CompactionJob> {
        let used = values::used_names(lists.iter().map(Vec::as_slice));
        self.claim.narrow(values::names_to_pin(&self.version, &used));
        let outline = values::outline(&self.version, &used, &self.compaction.relocate_vssts);
        let whole = ClaimedCompaction::new(self, outline, lists);
        whole.ask_for_help();
        CompactionJob::new(whole, None)
    }
}

/// A compaction job that first reads the references of its inputs.
struct LookingJob {
    job: Option<Box<CompactionJob>>,
    /// Dropped last, because it releases the claim.
    claimed: Option<ClaimedInputs>,
}

impl LookingJob {
    /// Returns the compaction job, after reading its inputs. `None`: the family was dropped.
    fn look(&mut self) -> Result<Option<&mut CompactionJob>> {
        if let Some(claimed) = &self.claimed {
            let lists = claimed.lists();
            // Errors in a dropped family are ignored.
            if claimed.family.is_dropped() {
                return Ok(None);
            }
            let lists = lists?;
            self.job = self.claimed.take().map(|claimed| claimed.begin(lists));
        }
        Ok(self.job.as_deref_mut())
    }
}

impl Job for LookingJob {
    fn class(&self) -> JobClass {
        match (&self.claimed, &self.job) {
            (Some(claimed), _) => class_of(&claimed.compaction),
            (None, Some(job)) => job.class(),
            (None, None) => JobClass::Compaction,
        }
    }

    fn step(&mut self) -> Result<Progress> {
        self.look()?.map_or(Ok(Progress::Done), CompactionJob::step)
    }

    fn inputs(&self) -> Vec<u64> {
        match (&self.claimed, &self.job) {
            (Some(claimed), _) => claimed.compaction.input_files().map(|(_, f)| f.number).collect(),
            (None, job) => job.as_ref().map(|job| job.inputs()).unwrap_or_default(),
        }
    }

    fn abandon(&mut self) {
        if let Some(job) = &mut self.job {
            job.abandon();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
