//! What running jobs have claimed, and what has been learned of what could run.
//!
//! All of it is under one lock. A job claims what it works on when it is started and gives it back when it ends, however it
//! ends: see `work::jobs::claim`.

use super::answer::Purpose;
use super::log_load::LogLoad;
use super::placement::Moving;
use super::requests::{Caller, Requests};
use super::rest::Account;
use super::scrub::Turn;
use base::HashMap;
use lsm::policy::{Compaction, InProgress, Reason, Relocation};
use std::sync::{Arc, Weak};
use store::run::{Job, JobClass};
use version::{FamilyId, Version};

/// How many jobs run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    pub log: bool,
    pub flush: bool,
    pub cleanup: bool,
    /// Samples of keys are read.
    pub survey: bool,
    /// Compactions, all families.
    pub compactions: usize,
    /// Jobs that have come to help them, each with pieces of its own.
    pub helpers: usize,
    /// Those of the compactions that somebody asked for.
    pub manual: usize,
    /// One of them is a step of a walk that relocates values.
    pub relocation: bool,
    /// Collections of vSSTs, all families.
    pub collections: usize,
    /// Those of them that compactions do not interrupt.
    pub urgent_collections: usize,
    /// A table goes to the other disk.
    pub moves: bool,
    /// Files of values go down from the speed disk.
    pub values_go_down: bool,
}

impl Running {
    /// Jobs of compactions that count: what only relocates values waits for all others between its steps.
    pub fn merges(&self) -> usize {
        self.compactions + self.helpers - usize::from(self.relocation)
    }

    /// True if a job runs that replaces files by others, and leaves their garbage behind.
    pub fn rewrites(&self) -> bool {
        self.compactions > 0 || self.collections > 0 || self.values_go_down
    }

    /// True if a job runs that may make room.
    pub fn makes_room(&self) -> bool {
        // A survey may raise a limit relative to the live data.
        self.flush || self.cleanup || self.survey || self.rewrites()
    }

    /// True if a job runs, but for the scrub.
    pub fn is_any(&self) -> bool {
        self.log || self.moves || self.makes_room()
    }
}

/// What was learned by asking, and need not be asked again.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Walks that put values back in the order of keys, by family.
    pub walks: HashMap<FamilyId, Relocation>,
    /// Versions in which a quiet store has no compaction that pays, by family.
    pub at_rest: HashMap<FamilyId, Weak<Version>>,
    /// Those of them in which a compaction would free deleted data, and the account of rest work did not allow it.
    pub unaffordable: HashMap<FamilyId, Weak<Version>>,
    /// Versions in which no compaction exposes enough for what it writes.
    pub exposes_none: HashMap<FamilyId, Weak<Version>>,
    /// Versions of which a survey can learn no more.
    pub surveyed: HashMap<FamilyId, Weak<Version>>,
    /// How many collections the pressures allowed when it was asked last (see `slots`).
    pub gc_slots: usize,
    /// How much the log is written.
    pub log_load: LogLoad,
    /// vSSTs whose collection was given up, with the garbage that the ledger saw in them: not tried again before it sees
    /// more.
    pub abandoned: HashMap<u64, u64>,
    /// The bytes that rest work may still rewrite.
    pub rest: Account,
    /// Which tables are to be on which of two disks.
    pub moving: Moving,
    /// Files of values that are to go down from the speed disk, the oldest first, as they were noted.
    pub lasting: Vec<(FamilyId, u64)>,
}

/// A compaction in pieces, which several threads may merge.
pub(crate) trait InPieces: Send + Sync {
    /// The part in it of one thread more.
    fn help(self: Arc<Self>) -> Box<dyn Job>;
}

/// A compaction that wants more threads.
#[derive(Debug)]
struct WantsHelp {
    job: u64,
    class: JobClass,
    /// How many.
    threads: usize,
    compaction: Weak<dyn InPieces>,
}

/// A compaction that a `compact_range` asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub compaction: Compaction,
    pub caller: Caller,
}

/// True for what a `compact_range` does.
fn is_asked_for(reason: Reason) -> bool {
    matches!(reason, Reason::Manual | Reason::Rewrite | Reason::Cut)
}

/// What is in progress. See the module.
#[derive(Debug, Default)]
pub(crate) struct InProgressSet {
    pub running: Running,
    /// Files and levels under work, by family.
    families: HashMap<FamilyId, InProgress>,
    /// Of a family in which nothing is in progress.
    nothing: InProgress,
    /// A compaction asked for by `compact_range`, waiting for a thread. What it works on is claimed.
    pub manual: Option<Asked>,
    /// Collections somebody asked for.
    pub gc_requests: Requests,
    /// Passes of the scrub.
    pub scrub: Turn,
    /// The file of metrics.
    pub metrics: Turn,
    pub learned: Learned,
    /// Compactions with pieces that wait for a thread.
    in_pieces: Vec<WantsHelp>,
    last_job: u64,
}

impl InProgressSet {
    /// A number for the next job, as stored in the properties of its tables.
    pub fn job_number(&mut self) -> u64 {
        self.last_job += 1;
        self.last_job
    }

    /// A copy of what plans of collections depend on. A plan may go through many files: it is made of this, under no lock.
    pub fn as_plans_see_it(&self) -> InProgressSet {
        let learned = Learned { abandoned: self.learned.abandoned.clone(), ..Learned::default() };
        InProgressSet { families: self.families.clone(), learned, ..InProgressSet::default() }
    }

    /// What is under work in a family.
    pub fn of(&self, family: FamilyId) -> &InProgress {
        self.families.get(&family).unwrap_or(&self.nothing)
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, family: FamilyId) -> &mut InProgress {
        self.families.entry(family).or_default()
    }

    /// Nobody else may work on the files of this compaction.
    pub fn claim(&mut self, compaction: &Compaction) {
        self.of_mut(compaction.family).add(compaction);
    }

    /// Gives back the files of a compaction.
    pub fn give_back(&mut self, compaction: &Compaction) {
        if let Some(busy) = self.families.get_mut(&compaction.family) {
            busy.remove(compaction);
        }
    }

    /// A compaction begins whose files are claimed.
    pub fn begins(&mut self, reason: Reason) {
        self.running.compactions += 1;
        self.running.manual += usize::from(is_asked_for(reason));
        self.running.relocation |= reason == Reason::Relocation;
    }

    /// A compaction that runs wants so many threads more.
    pub fn wants_help(&mut self, job: u64, class: JobClass, threads: usize, compaction: Weak<dyn InPieces>) {
        self.in_pieces.push(WantsHelp { job, class, threads, compaction });
    }

    /// The compaction of this class that wants help for the longest time.
    pub fn to_help(&self, class: JobClass) -> Option<u64> {
        let wants = |of: &&WantsHelp| of.class == class && of.threads > 0 && of.compaction.strong_count() > 0;
        self.in_pieces.iter().find(wants).map(|of| of.job)
    }

    /// A thread helps it. `None`: it is over.
    pub fn helps(&mut self, job: u64) -> Option<Arc<dyn InPieces>> {
        let of = self.in_pieces.iter_mut().find(|of| of.job == job)?;
        let compaction = of.compaction.upgrade()?;
        of.threads -= 1;
        self.running.helpers += 1;
        Some(compaction)
    }

    /// A compaction has ended: its inputs are gone, or as they were.
    pub fn ended(&mut self, job: u64, compaction: &Compaction) {
        self.in_pieces.retain(|of| of.job != job);
        self.give_back(compaction);
        self.running.compactions -= 1;
        self.running.manual -= usize::from(is_asked_for(compaction.reason));
        self.running.relocation &= compaction.reason != Reason::Relocation;
    }

    /// A collection of these vSSTs begins. One for which they go down to the directory takes no other's place.
    pub fn collects(&mut self, family: FamilyId, inputs: &[u64], purpose: Purpose) {
        let busy = self.of_mut(family);
        for &number in inputs {
            assert!(busy.claim_vsst(number), "a vSST was picked that a job works on");
        }
        let goes_down = purpose == Purpose::SpeedDisk;
        self.running.collections += usize::from(!goes_down);
        self.running.urgent_collections += usize::from(purpose == Purpose::UrgentGarbage);
        self.running.values_go_down |= goes_down;
    }

    /// A collection of these vSSTs has ended.
    pub fn collected(&mut self, family: FamilyId, inputs: &[u64], purpose: Purpose) {
        if let Some(busy) = self.families.get_mut(&family) {
            inputs.iter().for_each(|&number| busy.release_vsst(number));
        }
        let goes_down = purpose == Purpose::SpeedDisk;
        self.running.collections -= usize::from(!goes_down);
        self.running.urgent_collections -= usize::from(purpose == Purpose::UrgentGarbage);
        self.running.values_go_down &= !goes_down;
    }
}
