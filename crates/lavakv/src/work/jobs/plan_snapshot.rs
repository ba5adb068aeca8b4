//! The plan snapshot: the facts of a running store, for decisions.

use super::{Jobs, cleanup, disks, survey};
use crate::context::options::Options;
use crate::plan::facts::{Facts, FamilyFacts, Frozen};
use crate::plan::in_progress::InProgressSet;
use crate::plan::rest::Rest;
use crate::tree::family::Family;
use crate::tree::family_work::SettledTree;
use crate::tree::flushable::flushable;
use base::SeqNo;
use lsm::policy::InProgress;
use std::cell::OnceCell;
use std::sync::Arc;
use version::FamilyId;
use version::names::FileKind;

/// The plan snapshot of one decision, computed on demand under the mutex of the work in progress.
pub(crate) struct PlanSnapshot<'a> {
    jobs: &'a Jobs,
    in_progress: &'a InProgressSet,
    families: OnceCell<Vec<FamilyFacts>>,
    with_work: OnceCell<(Vec<FamilyFacts>, SettledTree)>,
    quiet: OnceCell<bool>,
    rest: OnceCell<Rest>,
    /// Sequence numbers that a job must keep readable.
    snapshots: OnceCell<Vec<SeqNo>>,
}

impl<'a> PlanSnapshot<'a> {
    pub fn new(jobs: &'a Jobs, in_progress: &'a InProgressSet) -> Self {
        PlanSnapshot {
            jobs,
            in_progress,
            families: OnceCell::new(),
            with_work: OnceCell::new(),
            quiet: OnceCell::new(),
            rest: OnceCell::new(),
            snapshots: OnceCell::new(),
        }
    }

    /// Returns the families with work, and the sum of the trees of all others.
    fn with_work(&self) -> &(Vec<FamilyFacts>, SettledTree) {
        self.with_work.get_or_init(|| {
            let (families, others) = self.jobs.tree.families.with_work();
            let seen: Vec<_> = families.into_iter().map(FamilyFacts::of).collect();
            debug_assert!(self.others_are_settled(&seen), "a family with work is not visited");
            (seen, others)
        })
    }

    /// Returns whether every family that is not visited is settled, in stores of few families.
    fn others_are_settled(&self, visited: &[FamilyFacts]) -> bool {
        let families = &self.jobs.tree.families;
        let is_visited = |id| visited.iter().any(|seen| seen.family.id == id);
        // A family may have become unsettled since.
        let is_settled = |family: &Arc<Family>| {
            let seen = FamilyFacts::of(family.clone());
            let (busy, policy) = (&InProgress::default(), &seen.policy);
            let tree = seen.of_tree(busy);
            let is_in_shape = || policy.as_ref().is_none_or(|policy| policy.levels(&tree).is_none());
            seen.read_state.settled().is_some() && is_in_shape()
                || families.work.with_work().0.contains(&family.id)
        };
        families.all().iter().take(8).all(|family| is_visited(family.id) || is_settled(family))
    }

    /// Returns whether no memtable is frozen, including those whose flush is held back.
    pub fn is_flushed(&self) -> bool {
        !self.has_frozen()
    }
}

impl Facts for PlanSnapshot<'_> {
    fn options(&self) -> &Options {
        &self.jobs.context.options
    }

    fn in_progress(&self) -> &InProgressSet {
        self.in_progress
    }

    fn families(&self) -> &[FamilyFacts] {
        let of = |family: Arc<_>| FamilyFacts::of(family);
        self.families.get_or_init(|| self.jobs.tree.families.all().into_iter().map(of).collect())
    }

    fn families_with_work(&self) -> &[FamilyFacts] {
        &self.with_work().0
    }

    fn settled_trees(&self) -> SettledTree {
        self.with_work().1
    }

    fn frozen(&self) -> Frozen {
        let tree = &self.jobs.tree;
        let _frozen_whole = tree.together.freezing();
        let ready = flushable(tree.families.frozen(), || tree.together.flush_ceiling());
        Frozen { ready, volatile_seq: tree.together.volatile_seq(), joined_seq: tree.together.joined_seq() }
    }

    fn has_frozen(&self) -> bool {
        self.jobs.tree.families.work.has_frozen()
    }

    fn cleanup(&self) -> Option<bool> {
        cleanup::is_wanted(self.jobs)
    }

    fn to_survey(&self) -> Option<Arc<Family>> {
        let wanted =
            self.families_with_work().iter().find(|family| survey::is_wanted(family, self.in_progress));
        wanted.map(|family| family.family.clone())
    }

    fn is_quiet(&self) -> bool {
        *self.quiet.get_or_init(|| self.jobs.is_quiet())
    }

    fn gc_is_paused(&self) -> bool {
        self.jobs.drain.gc_is_paused()
    }

    fn now_ns(&self) -> u64 {
        self.jobs.context.now_ns()
    }

    fn would_grant(&self, input_bytes: u64) -> bool {
        self.jobs.space.grants.would_grant(input_bytes)
    }

    fn is_short_of_space(&self) -> bool {
        self.jobs.space.is_short()
    }

    fn room(&self) -> Option<(u64, u64)> {
        self.jobs.space.room()
    }

    fn has_own_limit(&self) -> bool {
        self.jobs.space.has_own_limit()
    }

    fn used_bytes(&self) -> u64 {
        self.jobs.space.used_bytes()
    }

    fn log_taken_ns(&self) -> u64 {
        let options = self.options();
        if options.fast_tier.is_some() && options.expert.fast_tier_levels == 0 {
            return 0;
        }
        let lanes = [self.jobs.log.get(), self.jobs.log.records().and_then(|log| log.begun())];
        lanes.into_iter().flatten().map(wal::Wal::durable_ns).sum()
    }

    fn is_hurried(&self) -> bool {
        self.jobs.context.pace().is_hurried()
    }

    fn fill_percent(&self) -> u64 {
        self.jobs.space.fill_percent()
    }

    fn has_snapshots(&self) -> bool {
        self.jobs.tree.snapshots.is_any()
    }

    fn has_released(&self, table: u64) -> bool {
        let snapshots = self.snapshots.get_or_init(|| self.jobs.tree.snapshots.for_job());
        self.jobs.tree.kept.has_released(table, snapshots)
    }

    fn knows_retained(&self, family: FamilyId) -> bool {
        self.jobs.tree.kept.is_read(family)
    }

    fn has_tombstones_in_memory(&self) -> bool {
        let has_tombstones = |family: &Arc<Family>| family.look(|seen| seen.active.has_tombstones());
        self.jobs.tree.families.unflushed().iter().any(has_tombstones)
    }

    fn written_bytes(&self) -> u64 {
        self.jobs.context.stats.user_bytes_written.get()
    }

    fn rest(&self) -> Rest {
        *self.rest.get_or_init(|| self.jobs.rest())
    }

    fn is_leaving(&self, table: FileKind) -> bool {
        disks::is_leaving(self.jobs, table)
    }

    fn is_uncollected(&self, vsst: u64) -> bool {
        self.jobs.files.tables.quarantine.is_uncollected(vsst)
    }
}
