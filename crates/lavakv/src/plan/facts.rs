//! The input of decisions about background work.
//!
//! [`Facts`] are methods, not a precomputed struct: the mutex of [`InProgressSet`] is held, so only
//! the facts that the decision needs are computed. Each fact stays constant during one decision.

use super::in_progress::InProgressSet;
use super::rest::Rest;
use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::tree::family::{Family, ReadState};
use crate::tree::family_work::SettledTree;
use crate::tree::flushable::Flushable;
use base::SeqNo;
use lsm::policy::{CompactionPolicy, InProgress, SetAside};
use std::sync::Arc;
use version::FamilyId;
use version::names::FileKind;

/// A snapshot of a family.
pub(crate) struct FamilyFacts {
    pub family: Arc<Family>,
    pub read_state: Arc<ReadState>,
    pub options: Arc<FamilyOptions>,
    /// `None`: this build does not know the family's compaction policy.
    pub policy: Option<Arc<dyn CompactionPolicy>>,
    pub set_aside: Arc<SetAside>,
}

impl FamilyFacts {
    /// Takes a snapshot of the family.
    pub fn of(family: Arc<Family>) -> FamilyFacts {
        let ((options, policy), set_aside) = (family.settings.chosen(), family.settings.tables_set_aside());
        FamilyFacts { read_state: family.read_state(), options, policy, set_aside, family }
    }

    /// Returns the arguments for the compaction policy.
    pub fn of_tree<'a>(&'a self, busy: &'a InProgress) -> lsm::policy::PickInputs<'a> {
        lsm::policy::PickInputs { version: &self.read_state.version, set_aside: &self.set_aside, busy }
    }
}

/// Frozen memtables that may be flushed.
pub(crate) struct Frozen {
    /// The families with frozen memtables: oldest sequence number, family, memtables.
    pub ready: Vec<Flushable>,
    /// Memtables with sequence numbers up to this one are flushed in one version edit, because a
    /// volatile batch spans families.
    pub volatile_seq: SeqNo,
    /// Memtables with sequence numbers up to this one are flushed in one version edit if their
    /// tables fit, which saves a sync of the log.
    pub joined_seq: SeqNo,
}

/// The state of the store as seen by decisions. See the module.
pub(crate) trait Facts {
    /// Returns the options of the store.
    fn options(&self) -> &Options;
    /// Returns the claims of running jobs, and cached results.
    fn in_progress(&self) -> &InProgressSet;
    /// Returns the families, ordered by id: for decisions of an idle store, or one short of space, and
    /// for manual jobs.
    fn families(&self) -> &[FamilyFacts];
    /// Returns the families whose trees may need a job in a store that is busy and has space, ordered
    /// by id.
    fn families_with_work(&self) -> &[FamilyFacts];
    /// Returns the sizes of the trees of all other families.
    fn settled_trees(&self) -> SettledTree;
    /// Returns the memtables that may be flushed.
    fn frozen(&self) -> Frozen;
    /// Returns whether a memtable is frozen.
    fn has_frozen(&self) -> bool;
    /// Returns whether names or vSSTs can be pruned; `None`: there is nothing to clean up.
    fn cleanup(&self) -> Option<bool>;
    /// Returns a family with tables whose unexposed garbage is unknown.
    fn to_survey(&self) -> Option<Arc<Family>>;
    /// Returns whether the store has seen no writes for a while.
    fn is_quiet(&self) -> bool;
    /// Returns whether garbage collection is paused.
    fn gc_is_paused(&self) -> bool;
    /// Returns the clock, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Returns whether the outputs of a job with so many input bytes fit.
    fn would_grant(&self, input_bytes: u64) -> bool;
    /// Returns whether space is so short that every job that frees space should run.
    fn is_short_of_space(&self) -> bool;
    /// Returns the free space and the bound below which space is short; `None`: there is no limit.
    fn room(&self) -> Option<(u64, u64)>;
    /// Returns whether a space limit is configured.
    fn has_own_limit(&self) -> bool;
    /// Returns the bytes occupied by the store's files.
    fn used_bytes(&self) -> u64;
    /// Returns the total nanoseconds of durable log writes, if the log shares a device with tables.
    fn log_taken_ns(&self) -> u64;
    /// Returns whether a writer has recently waited for background work.
    fn is_hurried(&self) -> bool;
    /// Returns the fill of the space, in percent.
    fn fill_percent(&self) -> u64;
    /// Returns whether snapshots are open.
    fn has_snapshots(&self) -> bool;
    /// Returns whether the table has versions kept for snapshots that no open snapshot reads any
    /// more.
    fn has_released(&self, table: u64) -> bool;
    /// Returns whether the store knows which tables of the family have versions kept for snapshots.
    fn knows_retained(&self, family: FamilyId) -> bool;
    /// Returns whether a mutable memtable has tombstones.
    fn has_tombstones_in_memory(&self) -> bool;
    /// Returns the bytes of keys and values written since the open.
    fn written_bytes(&self) -> u64;
    /// Returns the rest state of the store.
    fn rest(&self) -> Rest;
    /// Returns whether the file of this name was removed from the store but is still open for
    /// readers.
    fn is_leaving(&self, table: FileKind) -> bool;
    /// Returns whether the garbage in this vSST must not be collected.
    fn is_uncollected(&self, vsst: u64) -> bool;
}
