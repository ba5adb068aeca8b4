//! What decisions about background work are made from.
//!
//! [`Facts`] are asked, not handed over all at once: under the lock of what is in progress nobody works out more than the
//! decision at hand needs. Each is the same however often it is asked while a decision is made.

use super::in_progress::InProgressSet;
use super::rest::Rest;
use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::tree::family::{Family, ReadState};
use crate::tree::flushable::Flushable;
use base::SeqNo;
use lsm::policy::{CompactionPolicy, InProgress, SetAside};
use std::sync::Arc;
use version::FamilyId;
use version::names::FileKind;

/// A family at one moment.
pub(crate) struct FamilyFacts {
    pub family: Arc<Family>,
    pub read_state: Arc<ReadState>,
    pub options: Arc<FamilyOptions>,
    /// `None`: it is not known here.
    pub policy: Option<Arc<dyn CompactionPolicy>>,
    pub set_aside: Arc<SetAside>,
}

impl FamilyFacts {
    /// As the family is now.
    pub fn of(family: Arc<Family>) -> FamilyFacts {
        let ((options, policy), set_aside) = (family.settings.chosen(), family.settings.tables_set_aside());
        FamilyFacts { read_state: family.read_state(), options, policy, set_aside, family }
    }

    /// What its compaction policy is asked with.
    pub fn of_tree<'a>(&'a self, busy: &'a InProgress) -> lsm::policy::Facts<'a> {
        lsm::policy::Facts { version: &self.read_state.version, set_aside: &self.set_aside, busy }
    }
}

/// What is frozen and may be flushed.
pub(crate) struct Frozen {
    /// By family: the oldest sequence, and the memtables.
    pub ready: Vec<Flushable>,
    /// Memtables that reach down to this sequence are flushed in one edit.
    pub volatile_seq: SeqNo,
    /// The same where there is room for it: it spares a sync of the log.
    pub joined_seq: SeqNo,
}

/// The state of the store, as far as decisions need it. See the module.
pub(crate) trait Facts {
    /// Options of the store.
    fn options(&self) -> &Options;
    /// What jobs have claimed, and what was learned.
    fn in_progress(&self) -> &InProgressSet;
    /// The families, by id.
    fn families(&self) -> &[FamilyFacts];
    /// What may be flushed.
    fn frozen(&self) -> Frozen;
    /// True if some memtable is frozen.
    fn has_frozen(&self) -> bool;
    /// Whether names or vSSTs can be dropped; `None`: there is nothing to clean up.
    fn cleanup(&self) -> Option<bool>;
    /// A family with tables whose hidden garbage is unknown.
    fn to_survey(&self) -> Option<Arc<Family>>;
    /// There were no writes for a while.
    fn is_quiet(&self) -> bool;
    /// Somebody holds garbage collection off.
    fn gc_is_paused(&self) -> bool;
    /// The time, nanoseconds.
    fn now_ns(&self) -> u64;
    /// True if a job could start that writes the outputs of so many bytes.
    fn would_grant(&self, input_bytes: u64) -> bool;
    /// Room is so short that everything should be done that frees some.
    fn is_short_of_space(&self) -> bool;
    /// Room that is left, and how much is little; `None`: no limit.
    fn room(&self) -> Option<(u64, u64)>;
    /// Somebody set a limit of the space.
    fn has_own_limit(&self) -> bool;
    /// Bytes that the store's files occupy.
    fn used_bytes(&self) -> u64;
    /// Nanoseconds that durable writes of the log have taken in all, where it is on a disk with tables.
    fn log_taken_ns(&self) -> u64;
    /// A writer has waited for background work a moment ago.
    fn is_hurried(&self) -> bool;
    /// How full the space is, in percent.
    fn fill_percent(&self) -> u64;
    /// There are snapshots.
    fn has_snapshots(&self) -> bool;
    /// True if the table has versions that were kept for snapshots, and no snapshot reads them any more.
    fn has_released(&self, table: u64) -> bool;
    /// True if it is known which tables of the family have versions that were kept for snapshots.
    fn knows_retained(&self, family: FamilyId) -> bool;
    /// True if some memtable that is not frozen has tombstones.
    fn has_tombstones_in_memory(&self) -> bool;
    /// Bytes of keys and values that were written since the open.
    fn written_bytes(&self) -> u64;
    /// Whether the store is at rest.
    fn rest(&self) -> Rest;
    /// A table of this name is not the store's any more, and is still there for who reads it.
    fn is_leaving(&self, table: FileKind) -> bool;
    /// The garbage in this vSST stays where it is.
    fn is_uncollected(&self, vsst: u64) -> bool;
}
