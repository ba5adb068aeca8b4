//! What decisions come to: what was found out of each kind of work, and what else was learned.

use super::log_load::LogLoad;
use crate::tree::demand::Spent;
use crate::tree::family::{Family, ReadState};
use lsm::policy::{Compaction, Relocation};
use memtable::MemTable;
use std::sync::{Arc, Weak};
use values::{Gc, GcOptions};
use version::{FamilyId, Version};

/// The memtables of one family that are flushed together.
pub(crate) type Flushed = (Arc<Family>, Vec<Arc<MemTable>>);

/// A compaction.
pub(crate) enum Compact {
    /// The one that somebody asked for, whose files are claimed.
    Asked(Arc<Family>),
    /// One that was picked.
    Picked(Arc<Family>, Box<Compaction>),
    /// A step of a walk, and the walk behind it.
    Step(Arc<Family>, Box<Compaction>, Box<Relocation>),
}

/// What a collection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Garbage.
    Garbage,
    /// The same, before compactions.
    UrgentGarbage,
    /// Room on the speed disk: what is live goes to the directory.
    SpeedDisk,
}

/// A collection of vSSTs.
pub(crate) struct Collection {
    pub family: Arc<Family>,
    /// The read state it was picked from.
    pub read_state: Arc<ReadState>,
    pub gc: Gc,
    pub options: GcOptions,
    pub purpose: Purpose,
}

/// What was learned while something to do was looked for.
#[derive(Default)]
pub(crate) struct Notes {
    /// How many collections the pressures allow.
    pub gc_slots: Option<usize>,
    /// How much the log is written.
    pub log_load: Option<LogLoad>,
    /// Compaction below level 0 and collection were not looked for, since the log is written much.
    pub leaves_room_for_log: bool,
    /// Versions in which no compaction pays.
    pub at_rest: Vec<(FamilyId, Weak<Version>)>,
    /// Those of them in which a compaction would free deleted data, and the account of rest work does not allow it.
    pub unaffordable: Vec<(FamilyId, Weak<Version>)>,
    /// Rest work has come to its end, with so many bytes written since the open.
    pub rest_ends_at: Option<u64>,
    /// Versions in which none exposes enough for what it writes.
    pub exposes_none: Vec<(FamilyId, Weak<Version>)>,
    /// Walks that have begun, and those that have come to their end.
    pub walks: Vec<(FamilyId, Option<Relocation>)>,
    /// What scans have paid for walks.
    pub spent: Vec<(Arc<Family>, Spent)>,
    /// The family of the compaction that was asked for is gone.
    pub manual_is_void: bool,
}
