//! Results of decisions: the picked job of each kind, and notes for later decisions.

use super::log_load::LogLoad;
use crate::tree::family::{Family, ReadState};
use crate::tree::scan_cost::Spent;
use lsm::policy::{Compaction, Relocation};
use memtable::MemTable;
use std::sync::{Arc, Weak};
use values::{Gc, GcOptions};
use version::{FamilyId, Version};

/// The memtables of one family that are flushed together.
pub(crate) type FlushUnit = (Arc<Family>, Vec<Arc<MemTable>>);

/// A compaction.
pub(crate) enum Compact {
    /// The manual compaction requested by `compact_range`, whose files are already claimed.
    Asked(Arc<Family>),
    /// A compaction picked by the policy.
    Picked(Arc<Family>, Box<Compaction>),
    /// A step of a relocation walk, and the walk after this step.
    Step(Arc<Family>, Box<Compaction>, Box<Relocation>),
}

/// The purpose of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Garbage.
    Garbage,
    /// Garbage, ahead of compactions.
    UrgentGarbage,
    /// Space on the fast tier: live values are copied to the capacity tier.
    FastTier,
}

/// A collection of vSSTs.
pub(crate) struct Collection {
    pub family: Arc<Family>,
    /// The read state that the collection was picked from.
    pub read_state: Arc<ReadState>,
    pub gc: Gc,
    pub options: GcOptions,
    pub purpose: Purpose,
}

/// Facts noted during the search for a job.
#[derive(Default)]
pub(crate) struct PlanNotes {
    /// Number of collections that the pressures allow.
    pub gc_slots: Option<usize>,
    /// Load of the log device.
    pub log_load: Option<LogLoad>,
    /// The search skipped collections and compactions below level 0 because the log device is busy.
    pub leaves_room_for_log: bool,
    /// Versions in which no compaction pays off.
    pub at_rest: Vec<(FamilyId, Weak<Version>)>,
    /// The subset of `at_rest` where a compaction would free deleted data, but the budget of rest
    /// work forbids it.
    pub unaffordable: Vec<(FamilyId, Weak<Version>)>,
    /// User bytes written since the open, noted when rest work ends.
    pub rest_ends_at: Option<u64>,
    /// Versions in which no compaction exposes enough garbage for the bytes it writes.
    pub exposes_none: Vec<(FamilyId, Weak<Version>)>,
    /// Walks that began, or ended (`None`).
    pub walks: Vec<(FamilyId, Option<Relocation>)>,
    /// Scan costs spent on walks.
    pub spent: Vec<(Arc<Family>, Spent)>,
    /// The family of the manual compaction was dropped.
    pub manual_is_void: bool,
}
