//! Column families and their read view: read states (memtables and version), snapshots and open
//! iterators.
//!
//! * `families`: the list of families. `family_work`: the families with unflushed changes.
//!   `family`: read states. `settings`: options and unreadable tables.
//! * `summary`, `compaction_debt`, `scan_cost`, `space_sums`: figures derived from a version or
//!   collected at run time. `install`: commits an edit and publishes the new versions.
//! * `snapshot`, `open_iterators`, `retained`: snapshots, iterators, and the versions that tables
//!   retain for them. `read_gate`: admits or refuses reads.
//! * `empty_ranges`: key ranges in which iterators found no visible key.
//! * `log_floor`: the oldest sequence that the log must still hold.
//! * `output`: files written by jobs. `table_placement`, `fast_tier_tables`, `fast_tier_values`:
//!   placement of files on two tiers. `damage`: consequences of an unreadable file for its family.

pub(crate) mod compaction_debt;
pub(crate) mod damage;
pub(crate) mod empty_ranges;
pub(crate) mod families;
pub(crate) mod family;
pub(crate) mod family_work;
pub(crate) mod fast_tier_tables;
pub(crate) mod fast_tier_values;
pub(crate) mod flushable;
pub(crate) mod install;
pub(crate) mod log_floor;
pub(crate) mod open_iterators;
pub(crate) mod output;
pub(crate) mod overwrites;
pub(crate) mod read_gate;
pub(crate) mod retained;
pub(crate) mod scan_cost;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod space_sums;
pub(crate) mod summary;
pub(crate) mod table_placement;
pub(crate) mod unexposed_garbage;

use crate::context::Context;
use crate::files::KvFiles;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use families::Families;
use family::{ColumnFamily, Family};
use fast_tier_tables::FastTierTables;
use open_iterators::OpenIterators;
use read_gate::ReadGate;
use retained::RetainedVersions;
use snapshot::{Snapshot, Snapshots};
use space_sums::SpaceSums;
use std::sync::Arc;
use store::space::{Demands, EDITS_BYTES, SpaceBudget};
use version::{Edit, FamilyId, Record, StoreRecord};

/// The column families of a store, with their snapshots, readers and space demands.
pub(crate) struct Tree {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<KvFiles>,
    pub families: Families,
    pub snapshots: Arc<Snapshots>,
    /// Versions that tables retain only for snapshots.
    pub kept: Arc<RetainedVersions>,
    pub readers: Arc<OpenIterators>,
    pub together: AtomicFlush,
    pub speed: FastTierTables,
    /// Space demands of all families.
    space_sums: Arc<SpaceSums>,
    pub reads: ReadGate,
}

/// Bounds for atomic flush groups, and the ceiling of a running checkpoint.
#[derive(Debug)]
pub(crate) struct AtomicFlush {
    /// Memtables above this sequence are not flushed while a checkpoint is being taken.
    flush_ceiling: AtomicU64,
    /// The highest sequence of an unlogged batch over several families. Memtables that reach down
    /// to it are flushed in one edit (see `write::commit`).
    volatile_seq: AtomicU64,
    /// Memtables that reach down to this sequence were rotated together with those of other
    /// families. One edit for all of them is best.
    joined_seq: AtomicU64,
    /// No frozen memtable holds a change above this sequence, nor part of a batch that ends above
    /// it. Raised before the memtable is published as frozen.
    frozen_to: AtomicU64,
    /// Held while the memtables of several families are rotated, and while a flush picks memtables.
    /// So a flush never picks half of a batch while the other family still has its half in the
    /// active memtable.
    freezing: Mutex<(), rank::Freezing>,
}

impl AtomicFlush {
    fn new() -> AtomicFlush {
        AtomicFlush {
            flush_ceiling: AtomicU64::new(SeqNo::MAX),
            volatile_seq: AtomicU64::new(0),
            joined_seq: AtomicU64::new(0),
            frozen_to: AtomicU64::new(0),
            freezing: Mutex::new(()),
        }
    }

    /// Forbids flushes of memtables with changes above `seq`; `SeqNo::MAX` lifts the ceiling.
    pub fn set_flush_ceiling(&self, seq: SeqNo) {
        self.flush_ceiling.store(seq, Ordering::Release);
    }

    pub fn flush_ceiling(&self) -> SeqNo {
        self.flush_ceiling.load(Ordering::Acquire)
    }

    /// Requires that memtables that reach down to `seq` are flushed in one edit.
    pub fn flush_in_one_edit_to(&self, seq: SeqNo) {
        self.volatile_seq.fetch_max(seq, Ordering::AcqRel);
    }

    pub fn volatile_seq(&self) -> SeqNo {
        self.volatile_seq.load(Ordering::Acquire)
    }

    /// Asks for one edit for memtables that reach down to `seq`, if there is room for the outputs.
    /// Correctness does not depend on it.
    pub fn join_to(&self, seq: SeqNo) {
        self.joined_seq.fetch_max(seq, Ordering::AcqRel);
    }

    pub fn joined_seq(&self) -> SeqNo {
        self.joined_seq.load(Ordering::Acquire)
    }

    /// Announces the rotation of memtables with changes up to `seq`. All of these changes are
    /// inserted, and no batch is cut.
    pub fn freezes_to(&self, seq: SeqNo) {
        self.frozen_to.fetch_max(seq, Ordering::AcqRel);
    }

    /// Returns an upper bound for all frozen memtables that the caller has seen, and for the
    /// batches in them, whatever their families.
    pub fn frozen_to(&self) -> SeqNo {
        self.frozen_to.load(Ordering::Acquire)
    }

    /// Locks rotations that cover several families: see [`AtomicFlush`].
    pub fn freezing(&self) -> MutexGuard<'_, ()> {
        lock(&self.freezing)
    }
}

impl Tree {
    pub fn new(
        context: &Arc<Context>,
        space: &Arc<SpaceBudget>,
        files: &Arc<KvFiles>,
        families: HashMap<FamilyId, Arc<Family>>,
    ) -> Tree {
        let snapshots = Arc::new(Snapshots::default());
        snapshots.publish(files.manifest.state().store.last_seq);
        let space_sums = Arc::new(SpaceSums::default());
        for family in families.values() {
            family.tells(&space_sums);
            family.empty_ranges.join(&snapshots);
        }
        Tree {
            context: context.clone(),
            space: space.clone(),
            files: files.clone(),
            families: Families::new(families),
            snapshots,
            kept: Arc::default(),
            readers: Arc::default(),
            together: AtomicFlush::new(),
            speed: FastTierTables::new(context),
            space_sums,
            reads: ReadGate::new(context.process),
        }
    }

    /// Checks that a handle is of this store.
    pub fn own<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        self.reads.check()?;
        if self.families.has(&family.0) { Ok(&family.0) } else { Err(not_owned(family)) }
    }

    /// Returns the sequence of `snapshot`. `None`: the read uses the visible frontier.
    ///
    /// # Errors
    /// `InvalidArgument`: the snapshot is of another store.
    pub fn sequence_of(&self, snapshot: Option<&Snapshot>) -> Result<Option<SeqNo>> {
        if snapshot.is_some_and(|snapshot| !snapshot.is_of(&self.snapshots)) {
            return Err(Error::invalid("the snapshot belongs to another store: use one of this store"));
        }
        Ok(snapshot.map(Snapshot::sequence))
    }

    /// Adds a new family, whose edit is durable.
    pub fn add_family(&self, family: &Arc<Family>) {
        // Before another thread can drop it.
        family.tells(&self.space_sums);
        family.empty_ranges.join(&self.snapshots);
        self.families.add(family);
    }

    /// Returns the lowest sequence that only the log and memtables hold. Log groups wholly below it
    /// may be released.
    pub fn log_floor(&self) -> SeqNo {
        log_floor::log_floor(&self.snapshots, || {
            self.families.unflushed().iter().filter_map(|f| f.read_state().oldest_unflushed_seq()).min()
        })
    }

    /// Recomputes space limit, reserve and ceiling after an install or a removal of files. It reads
    /// sums and asks no family, since writers call it under their lock.
    pub fn refresh_space(&self) {
        self.space.refresh(|roll_bytes| self.demands(roll_bytes));
        self.context.signals.state_changed();
    }

    /// Records the space ceiling in the manifest for the next process. Needed only in a store with
    /// a secondary engine, since its files do not show their bound. Does nothing if the recorded
    /// ceiling is current.
    ///
    /// # Errors
    /// Those of the manifest. If there is no room for the record, a later call writes it.
    pub fn tell_ceiling(&self, has_secondary: bool) -> Result<()> {
        let told = self.files.manifest.state().store.space_ceiling;
        if !has_secondary && told.is_none() {
            return Ok(());
        }
        let Some(ceiling) = self.space.ceiling.to_tell(told.unwrap_or(u64::MAX)) else { return Ok(()) };
        let bytes = if ceiling == u64::MAX { 0 } else { ceiling };
        match self.files.manifest.commit(Edit(vec![Record::Store(StoreRecord::SpaceCeiling { bytes })])) {
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            told => told.map(drop),
        }
    }

    /// Recomputes the space budget if free space has returned while no write ran. Must not be
    /// called under the lock of the jobs in progress.
    pub fn look_for_space(&self) {
        if self.space.look_again() {
            self.refresh_space();
        }
    }

    /// Returns the space demands of all families. From now on the manifest rolls at `roll_bytes`.
    fn demands(&self, roll_bytes: u64) -> Demands {
        #[cfg(all(test, not(loom)))]
        crate::context::sizes::tests::SUMS.with(|sums| sums.set(sums.get() + 1));
        self.files.manifest.files().sizes().set_roll_len(roll_bytes);
        let fixed_bytes = EDITS_BYTES + self.files.manifest.growth_bytes();
        let live_bytes = self.space.gauges.segment_bytes();
        self.space_sums.demands(fixed_bytes, live_bytes)
    }
}

/// Returns the error of a handle of a family that is not in the store.
#[cold]
fn not_owned(family: &ColumnFamily) -> Error {
    if let Err(e) = family.0.check_there() {
        return e;
    }
    Error::invalid(format!(
        "the handle of column family {} belongs to another store: use one of this store",
        family.name()
    ))
}
