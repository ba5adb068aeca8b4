//! What a compaction has to know of its inputs before it merges them: which names they use.
//!
//! That stands in the tables, not in the version, and no file is read under the lock under which a compaction is claimed. So a
//! claim holds all names of the family ([`values::Pins::hold`]), and the first steps of the job read the lists, a table in a
//! step, one read each. Then the job pins the names that it may emit and lets go of the others; what of the version it needs is made
//! of the same lists ([`values::outline`]), and so is what its edit says of the sums under names.
//!
//! A table that only moves is read by nobody: what it references stays.

use super::{Begun, CompactionJob, Whole, class_of};
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use crate::work::jobs::claim::Claim;
use base::Result;
use lsm::TableSource;
use lsm::policy::{Compaction, CompactionPolicy};
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use table::ReadCounters;
use version::{Dependency, FileMeta, Version};

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
    /// With a hold on all names of the family. Dropped last.
    pub claim: Claim,
}

/// First it reads what its inputs reference, then it is the compaction.
pub(super) struct LookingJob {
    inputs: Vec<Arc<FileMeta>>,
    lists: Lists,
    job: Option<Box<CompactionJob>>,
    /// Dropped last, as what was claimed goes with it.
    claimed: Option<Claimed>,
}

impl LookingJob {
    pub fn new(claimed: Claimed) -> LookingJob {
        let inputs = claimed.compaction.input_files().map(|(_, f)| f.clone()).collect();
        LookingJob { inputs, lists: Lists::new(), job: None, claimed: Some(claimed) }
    }

    /// Reads the list of the next input. True when there is none.
    fn read(&mut self) -> Result<bool> {
        let Some(claimed) = self.claimed.as_ref().filter(|claimed| !claimed.compaction.trivial_move) else {
            return Ok(true);
        };
        let Some(input) = self.inputs.get(self.lists.len()) else { return Ok(true) };
        let mut list = Vec::new();
        if input.uses.sums().names > 0 {
            let table = claimed.jobs.files.tables.table(input)?;
            list = table.dependencies(&mut ReadCounters::default())?;
        }
        self.lists.push(list);
        Ok(false)
    }

    /// All lists are there: merging can begin.
    fn begin(&mut self) -> Option<Box<CompactionJob>> {
        let mut of = self.claimed.take()?;
        let lists = std::mem::take(&mut self.lists);
        let used = values::used_names(lists.iter().map(Vec::as_slice));
        of.claim.narrow(values::names_to_pin(&of.version, &used));
        let outline = values::outline(&of.version, &used, &of.compaction.relocate_vssts);
        let whole = Whole::new(of, outline, lists);
        whole.ask_for_help();
        Some(CompactionJob::new(whole, None))
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
        if let Some(job) = &mut self.job {
            return job.step();
        }
        let is_read = self.read();
        // Nobody will miss what it makes: no failure of it means anything.
        if self.claimed.as_ref().is_none_or(|claimed| claimed.family.is_dropped()) {
            return Ok(Progress::Done);
        }
        if is_read? {
            self.job = self.begin();
        }
        Ok(Progress::More)
    }

    fn inputs(&self) -> Vec<u64> {
        self.inputs.iter().map(|f| f.number).collect()
    }

    fn abandon(&mut self) {
        if let Some(job) = &mut self.job {
            job.abandon();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
