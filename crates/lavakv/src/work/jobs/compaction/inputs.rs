//! What a compaction has to know of its inputs before it merges them: which names they use.
//!
//! That stands in the tables, not in the version, and no file is read under the lock under which a compaction is claimed. So a
//! claim holds all names of the family ([`values::Pins::hold`]), and the first step of the job reads the lists, one read for each table that
//! references anything, and begins to merge. There the job pins the names that it may emit and lets go of the others; what of the version it
//! needs is made of the same lists ([`values::outline`]), and so is what its edit says of the sums under names.
//!
//! Where no input references anything, and where tables only move, there is nothing to read and nothing to hold: what a table that moves
//! references stays.

use super::{Begun, CompactionJob, Whole, class_of};
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

/// What each input references, by name.
pub(super) type Lists = Vec<Vec<Dependency>>;

/// A compaction that is claimed and has not looked at its inputs yet.
pub(super) struct Claimed {
    pub jobs: Arc<Jobs>,
    pub family: Arc<Family>,
    pub compaction: Arc<Compaction>,
    pub policy: Arc<dyn CompactionPolicy>,
    pub number: u64,
    /// The version it was picked from, whole.
    pub version: Arc<Version>,
    pub pieces_max: usize,
    pub begun: Begun,
    /// With a hold on all names of the family, if there is something to look at.
    pub claim: Claim,
    /// The call that asked for it. Dropped last.
    pub caller: Option<Caller>,
}

/// True if its inputs have to be looked at.
fn looks(compaction: &Compaction) -> bool {
    !compaction.trivial_move && compaction.input_files().any(|(_, f)| f.uses.sums().names > 0)
}

/// What a compaction keeps until it knows its names. Under the lock under which it is claimed.
pub(super) fn pins(jobs: &Jobs, family: &Family, compaction: &Compaction) -> PinGuard {
    match looks(compaction) {
        true => jobs.files.pins.hold(family.id),
        false => jobs.files.pins.pin([]),
    }
}

impl Claimed {
    /// The job. What needs no look at its inputs is merged from the first step on, as it is claimed.
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

    /// All lists are there: merging can begin.
    fn begin(mut self, lists: Lists) -> Box<CompactionJob> {
        let used = values::used_names(lists.iter().map(Vec::as_slice));
        self.claim.narrow(values::names_to_pin(&self.version, &used));
        let outline = values::outline(&self.version, &used, &self.compaction.relocate_vssts);
        let whole = Whole::new(self, outline, lists);
        whole.ask_for_help();
        CompactionJob::new(whole, None)
    }
}

/// First it reads what its inputs reference, then it is the compaction.
struct LookingJob {
    job: Option<Box<CompactionJob>>,
    /// Dropped last, as what was claimed goes with it.
    claimed: Option<Claimed>,
}

impl LookingJob {
    /// The compaction, once its inputs are known. `None`: nobody will miss what it makes.
    fn look(&mut self) -> Result<Option<&mut CompactionJob>> {
        if let Some(claimed) = &self.claimed {
            let lists = claimed.lists();
            // No failure of it means anything.
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
