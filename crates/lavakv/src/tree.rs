//! The families and what is seen of them: memtables and version as one read state, snapshots, who reads.
//!
//! * `families`: the list of families, `family_work`: which of them have changes in memtables. `family`: read states; `settings`: options, and tables that cannot be read. `summary`, `chain`, `demand`, `space_sums`: what is known of them. `install`: how a change of the files becomes theirs.
//! * `snapshot`, `readers`, `kept`: who keeps what. `read_gate`: whether reads are let in.
//! * `empty_ranges`: where iterators found no visible key.
//! * `log_floor`: what the log still holds for them.
//! * `output`: the files that jobs write; `disk`, `speed_tables`, `speed_values`: on which of two disks. `damage`: what it means for a family that a file cannot be read.

pub(crate) mod chain;
pub(crate) mod damage;
pub(crate) mod demand;
pub(crate) mod disk;
pub(crate) mod empty_ranges;
pub(crate) mod families;
pub(crate) mod family;
pub(crate) mod family_work;
pub(crate) mod flushable;
pub(crate) mod hiding;
pub(crate) mod install;
pub(crate) mod log_floor;
pub(crate) mod open_iterators;
pub(crate) mod output;
pub(crate) mod overwrites;
pub(crate) mod read_gate;
pub(crate) mod retained;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod space_sums;
pub(crate) mod speed_tables;
pub(crate) mod speed_values;
pub(crate) mod summary;

use crate::context::Context;
use crate::files::Files;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use families::Families;
use family::{ColumnFamily, Family};
use open_iterators::OpenIterators;
use read_gate::ReadGate;
use retained::RetainedVersions;
use snapshot::{Snapshot, Snapshots};
use space_sums::SpaceSums;
use speed_tables::SpeedTables;
use std::sync::Arc;
use store::space::{Demands, EDITS_BYTES, SpaceBudget};
use version::{Edit, FamilyId, Record, StoreRecord};

/// See the module.
pub(crate) struct Tree {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<Files>,
    pub families: Families,
    pub snapshots: Arc<Snapshots>,
    /// What tables hold only because of snapshots.
    pub kept: Arc<RetainedVersions>,
    /// The iterators that are open.
    pub readers: Arc<OpenIterators>,
    pub together: Together,
    pub speed: SpeedTables,
    /// What the families ask of the space.
    space_sums: Arc<SpaceSums>,
    /// Whether reads are let in.
    pub reads: ReadGate,
}

/// What flushes must put into tables together, or must not yet.
#[derive(Debug)]
pub(crate) struct Together {
    /// Memtables above this sequence are not flushed while a checkpoint is being taken.
    flush_ceiling: AtomicU64,
    /// The highest sequence of a volatile batch over several families: memtables that reach down to it are flushed in
    /// one edit (see `write::commit`).
    volatile_seq: AtomicU64,
    /// Memtables that reach down to this sequence were frozen with those of other families, so that they are best flushed in one edit.
    joined_seq: AtomicU64,
    /// No memtable that is frozen has anything above this sequence, nor a part of a batch that ends above it. Raised before the memtable is seen as
    /// frozen.
    frozen_to: AtomicU64,
    /// Held while several families are frozen, and while a flush chooses among what is: it takes none of one family's half
    /// of a batch before the other's is frozen.
    freezing: Mutex<(), rank::Freezing>,
}

impl Together {
    fn new() -> Together {
        Together {
            flush_ceiling: AtomicU64::new(SeqNo::MAX),
            volatile_seq: AtomicU64::new(0),
            joined_seq: AtomicU64::new(0),
            frozen_to: AtomicU64::new(0),
            freezing: Mutex::new(()),
        }
    }

    /// Nothing above is flushed from now on; `SeqNo::MAX`: everything may be.
    pub fn set_flush_ceiling(&self, seq: SeqNo) {
        self.flush_ceiling.store(seq, Ordering::Release);
    }

    pub fn flush_ceiling(&self) -> SeqNo {
        self.flush_ceiling.load(Ordering::Acquire)
    }

    /// Memtables that reach down to this sequence are flushed in one edit.
    pub fn flush_in_one_edit_to(&self, seq: SeqNo) {
        self.volatile_seq.fetch_max(seq, Ordering::AcqRel);
    }

    pub fn volatile_seq(&self) -> SeqNo {
        self.volatile_seq.load(Ordering::Acquire)
    }

    /// Memtables that reach down to this sequence are flushed in one edit if there is room for that: nothing depends on it.
    pub fn join_to(&self, seq: SeqNo) {
        self.joined_seq.fetch_max(seq, Ordering::AcqRel);
    }

    pub fn joined_seq(&self) -> SeqNo {
        self.joined_seq.load(Ordering::Acquire)
    }

    /// Memtables with changes up to this sequence are about to be frozen: all of them are in, and whole batches.
    pub fn freezes_to(&self, seq: SeqNo) {
        self.frozen_to.fetch_max(seq, Ordering::AcqRel);
    }

    /// For who has seen memtables that are frozen: they reach no further, not even with the rest of a batch in another family.
    pub fn frozen_to(&self) -> SeqNo {
        self.frozen_to.load(Ordering::Acquire)
    }

    /// See [`Together`].
    pub fn freezing(&self) -> MutexGuard<'_, ()> {
        lock(&self.freezing)
    }
}

impl Tree {
    pub fn new(
        context: &Arc<Context>,
        space: &Arc<SpaceBudget>,
        files: &Arc<Files>,
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
            together: Together::new(),
            speed: SpeedTables::new(context),
            space_sums,
            reads: ReadGate::new(context.process),
        }
    }

    /// Checks that a handle is of this store.
    pub fn own<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        self.reads.check()?;
        if self.families.has(&family.0) { Ok(&family.0) } else { Err(not_owned(family)) }
    }

    /// The sequence to read at. `None`: what is visible.
    ///
    /// # Errors
    /// `InvalidArgument`: the snapshot is of another store.
    pub fn sequence_of(&self, snapshot: Option<&Snapshot>) -> Result<Option<SeqNo>> {
        if snapshot.is_some_and(|snapshot| !snapshot.is_of(&self.snapshots)) {
            return Err(Error::invalid("the snapshot belongs to another store"));
        }
        Ok(snapshot.map(Snapshot::sequence))
    }

    /// A family was made; its edit is durable.
    pub fn add_family(&self, family: &Arc<Family>) {
        // Before anybody can drop it.
        family.tells(&self.space_sums);
        family.empty_ranges.join(&self.snapshots);
        self.families.add(family);
    }

    /// The lowest sequence that only the log and memtables hold: groups wholly below it are no longer needed.
    pub fn log_floor(&self) -> SeqNo {
        log_floor::log_floor(&self.snapshots, || {
            self.families.unflushed().iter().filter_map(|f| f.read_state().oldest_unflushed_seq()).min()
        })
    }

    /// After a version was installed, or files were removed: limit, reserve and ceiling are worked out anew. No family is asked, since writers do
    /// this too, under their lock.
    pub fn refresh_space(&self) {
        self.space.refresh(|roll_bytes| self.demands(roll_bytes));
        self.context.signals.state_changed();
    }

    /// Tells the next process what the files may occupy, where that cannot be seen from the files: in a store with a guest. Nothing if it is
    /// told already.
    ///
    /// # Errors
    /// Those of the manifest. Where there is no room it is told another time.
    pub fn tell_ceiling(&self, has_guest: bool) -> Result<()> {
        let told = self.files.manifest.state().store.space_ceiling;
        if !has_guest && told.is_none() {
            return Ok(());
        }
        let Some(ceiling) = self.space.ceiling.to_tell(told.unwrap_or(u64::MAX)) else { return Ok(()) };
        let bytes = if ceiling == u64::MAX { 0 } else { ceiling };
        match self.files.manifest.commit(Edit(vec![Record::Store(StoreRecord::SpaceCeiling { bytes })])) {
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            told => told.map(drop),
        }
    }

    /// Room may have come back while nobody wrote. Not under the lock of what is in progress.
    pub fn look_for_space(&self) {
        if self.space.look_again() {
            self.refresh_space();
        }
    }

    /// What the families ask of the space. The manifest is rolled at so many bytes from now on.
    fn demands(&self, roll_bytes: u64) -> Demands {
        #[cfg(all(test, not(loom)))]
        crate::context::sizes::tests::SUMS.with(|sums| sums.set(sums.get() + 1));
        self.files.manifest.files().sizes().set_roll_len(roll_bytes);
        let fixed_bytes = EDITS_BYTES + self.files.manifest.growth_bytes();
        let live_bytes = self.space.gauges.segment_bytes();
        self.space_sums.demands(fixed_bytes, live_bytes)
    }
}

/// The error of a handle of a family that is not in the store.
#[cold]
fn not_owned(family: &ColumnFamily) -> Error {
    if let Err(e) = family.0.check_there() {
        return e;
    }
    Error::invalid(format!("the handle of column family {} is of another store", family.name()))
}
