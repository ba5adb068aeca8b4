//! Claims of running jobs, and cached results of decisions.
//!
//! A single mutex protects all of it. A job claims its inputs when it starts and returns them when
//! it ends, also on failure: see `work::jobs::claim`.

use super::answer::Purpose;
use super::log_load::LogLoad;
use super::placement::Moving;
use super::requests::{Caller, GcRequests};
use super::rest::Account;
use super::scrub::Turn;
use base::HashMap;
use lsm::policy::{Compaction, InProgress, Reason, Relocation};
use std::sync::{Arc, Weak};
use store::run::{Job, JobClass};
use version::{FamilyId, Version};

/// The running jobs, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningJobs {
    pub log: bool,
    pub flush: bool,
    pub cleanup: bool,
    /// A survey reads samples of keys.
    pub survey: bool,
    /// Compactions of all families.
    pub compactions: usize,
    /// Helper jobs that merge pieces of these compactions.
    pub helpers: usize,
    /// Manual compactions among `compactions`.
    pub manual: usize,
    /// One of the compactions is a relocation step.
    pub relocation: bool,
    /// Collections of vSSTs, all families.
    pub collections: usize,
    /// The subset of `collections` that compactions do not preempt.
    pub urgent_collections: usize,
    /// A table is moving to the other tier.
    pub moves: bool,
    /// Value files are moving from the fast tier to the capacity tier.
    pub values_go_down: bool,
}

impl RunningJobs {
    /// Returns the number of compaction jobs that occupy a slot. A relocation does not: it yields
    /// to all other jobs between its steps.
    pub fn merges(&self) -> usize {
        self.compactions + self.helpers - usize::from(self.relocation)
    }

    /// Returns whether a running job replaces files, which leaves garbage behind.
    pub fn rewrites(&self) -> bool {
        self.compactions > 0 || self.collections > 0 || self.values_go_down
    }

    /// Returns whether a running job may free space.
    pub fn makes_room(&self) -> bool {
        // A survey may raise a limit relative to the live data.
        self.flush || self.cleanup || self.survey || self.rewrites()
    }

    /// Returns whether any job other than the scrub runs.
    pub fn is_any(&self) -> bool {
        self.log || self.moves || self.makes_room()
    }
}

/// Cached results of earlier decisions.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Relocation walks, which restore key order in value files, by family.
    pub walks: HashMap<FamilyId, Relocation>,
    /// Versions in which an idle store has no compaction that pays off, by family.
    pub at_rest: HashMap<FamilyId, Weak<Version>>,
    /// The subset of `at_rest` where a compaction would free deleted data, but the budget of rest
    /// work forbids it.
    pub unaffordable: HashMap<FamilyId, Weak<Version>>,
    /// Versions in which no compaction exposes enough garbage for the bytes it writes.
    pub exposes_none: HashMap<FamilyId, Weak<Version>>,
    /// Versions from which a survey can learn nothing more.
    pub surveyed: HashMap<FamilyId, Weak<Version>>,
    /// Number of collections that the pressures allowed at the last decision (see `slots`).
    pub gc_slots: usize,
    /// Load of the log device.
    pub log_load: LogLoad,
    /// vSSTs with an abandoned collection, and the garbage that the ledger then saw in them. They
    /// are retried once the ledger sees more.
    pub abandoned: HashMap<u64, u64>,
    /// The remaining rewrite budget of rest work.
    pub rest: Account,
    /// Target tiers of tables.
    pub moving: Moving,
    /// Value files due to move from the fast tier to the capacity tier, oldest first.
    pub lasting: Vec<(FamilyId, u64)>,
}

/// A compaction in pieces, which several threads may merge.
pub(crate) trait Subcompactions: Send + Sync {
    /// Returns a helper job for one more thread.
    fn help(self: Arc<Self>) -> Box<dyn Job>;
}

/// A compaction that requests helper threads.
#[derive(Debug)]
struct WantsHelp {
    job: u64,
    class: JobClass,
    /// Number of threads requested.
    threads: usize,
    compaction: Weak<dyn Subcompactions>,
}

/// A manual compaction, requested by `compact_range`.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    pub compaction: Compaction,
    pub caller: Caller,
}

/// Returns whether `compact_range` is the reason.
fn is_asked_for(reason: Reason) -> bool {
    matches!(reason, Reason::Manual | Reason::Rewrite | Reason::Cut)
}

/// The work in progress. See the module.
#[derive(Debug, Default)]
pub(crate) struct InProgressSet {
    pub running: RunningJobs,
    /// Files and levels in use by jobs, by family.
    families: HashMap<FamilyId, InProgress>,
    /// The value for families without running jobs.
    nothing: InProgress,
    /// A compaction requested by `compact_range` that waits for a thread. Its inputs are already
    /// claimed.
    pub manual: Option<ManualCompaction>,
    /// Manual collections.
    pub gc_requests: GcRequests,
    /// Schedule of scrub passes.
    pub scrub: Turn,
    /// Schedule of the metrics file.
    pub metrics: Turn,
    pub learned: Learned,
    /// Compactions that request helper threads.
    in_pieces: Vec<WantsHelp>,
    last_job: u64,
}

impl InProgressSet {
    /// Returns a number for the next job, as stored in the properties of its tables.
    pub fn job_number(&mut self) -> u64 {
        self.last_job += 1;
        self.last_job
    }

    /// Copies the inputs of collection plans. A plan may visit many files, so it runs on a copy
    /// without the mutex.
    pub fn as_plans_see_it(&self) -> InProgressSet {
        let learned = Learned { abandoned: self.learned.abandoned.clone(), ..Learned::default() };
        InProgressSet { families: self.families.clone(), learned, ..InProgressSet::default() }
    }

    /// Returns the claims in a family.
    pub fn of(&self, family: FamilyId) -> &InProgress {
        self.families.get(&family).unwrap_or(&self.nothing)
    }

    /// Returns the claims in a family, mutably.
    pub fn of_mut(&mut self, family: FamilyId) -> &mut InProgress {
        self.families.entry(family).or_default()
    }

    /// Claims the files of this compaction.
    pub fn claim(&mut self, compaction: &Compaction) {
        self.of_mut(compaction.family).add(compaction);
    }

    /// Releases the files of a compaction.
    pub fn give_back(&mut self, compaction: &Compaction) {
        if let Some(busy) = self.families.get_mut(&compaction.family) {
            busy.remove(compaction);
        }
    }

    /// Counts a compaction whose files are already claimed.
    pub fn begins(&mut self, reason: Reason) {
        self.running.compactions += 1;
        self.running.manual += usize::from(is_asked_for(reason));
        self.running.relocation |= reason == Reason::Relocation;
    }

    /// Requests helper threads for a running compaction.
    pub fn wants_help(
        &mut self,
        job: u64,
        class: JobClass,
        threads: usize,
        compaction: Weak<dyn Subcompactions>,
    ) {
        self.in_pieces.push(WantsHelp { job, class, threads, compaction });
    }

    /// Returns the job of this class that has waited longest for helpers.
    pub fn to_help(&self, class: JobClass) -> Option<u64> {
        let wants = |of: &&WantsHelp| of.class == class && of.threads > 0 && of.compaction.strong_count() > 0;
        self.in_pieces.iter().find(wants).map(|of| of.job)
    }

    /// Assigns a helper thread to a job. `None`: the job has ended.
    pub fn helps(&mut self, job: u64) -> Option<Arc<dyn Subcompactions>> {
        let of = self.in_pieces.iter_mut().find(|of| of.job == job)?;
        let compaction = of.compaction.upgrade()?;
        of.threads -= 1;
        self.running.helpers += 1;
        Some(compaction)
    }

    /// Ends a compaction, whose inputs are deleted or unchanged.
    pub fn ended(&mut self, job: u64, compaction: &Compaction) {
        self.in_pieces.retain(|of| of.job != job);
        self.give_back(compaction);
        self.running.compactions -= 1;
        self.running.manual -= usize::from(is_asked_for(compaction.reason));
        self.running.relocation &= compaction.reason != Reason::Relocation;
    }

    /// Begins a collection of these vSSTs. A move to the capacity tier does not occupy a collection
    /// slot.
    pub fn collects(&mut self, family: FamilyId, inputs: &[u64], purpose: Purpose) {
        let busy = self.of_mut(family);
        for &number in inputs {
            assert!(busy.claim_vsst(number), "a vSST was picked that a job works on");
        }
        let goes_down = purpose == Purpose::FastTier;
        self.running.collections += usize::from(!goes_down);
        self.running.urgent_collections += usize::from(purpose == Purpose::UrgentGarbage);
        self.running.values_go_down |= goes_down;
    }

    /// Ends a collection of these vSSTs.
    pub fn collected(&mut self, family: FamilyId, inputs: &[u64], purpose: Purpose) {
        if let Some(busy) = self.families.get_mut(&family) {
            inputs.iter().for_each(|&number| busy.release_vsst(number));
        }
        let goes_down = purpose == Purpose::FastTier;
        self.running.collections -= usize::from(!goes_down);
        self.running.urgent_collections -= usize::from(purpose == Purpose::UrgentGarbage);
        self.running.values_go_down &= !goes_down;
    }
}
