//! The active memtables: the writer's lock, inserts in flight, visibility and rotation.
//!
//! **The writer's lock** guards [`Writer`]: the next sequence, appends to the log, the registration
//! of inserts, and rotation. It is the one serialization point of all writes. Usually it is held
//! for about a microsecond. These hold it for longer, and no deadline of a write ends them:
//!
//! | under the writer's lock | bound |
//! |---|---|
//! | a batch needs a log group and none is prepared (`provide_group`) | a device write of a group: 16 MiB by default, 4 GiB at most; then a sync of the directory and an edit of the manifest |
//! | a group is prepared by the log thread at this moment | that preparation, as in the row above |
//! | the ring of log pages is full | the write of the current round, and one of up to 1 MiB; for a batch longer than the ring, the writes of the whole batch |
//! | the log thread confirms the end of the log | the writes and the sync of all pages, and the write of one page |
//! | the log thread makes its staging file longer | a new file, its rename and a sync of the directory |
//! | a batch goes to the other lane than the one before, which has grown meanwhile ([`super::commit`]) | a sync |
//! | the volume is nearly full, and the reserve of the log is filled again ([`super::admission::space`]) | a device write of that reserve |
//! | the volume's free space is queried, at a limited rate | a system call |
//! | a batch goes to the log of a secondary engine | an append to that lane, with its locks |
//! | a family is created or dropped, or its options change | an edit of the manifest |
//! | a transaction checks the keys and ranges that it has read ([`super::validation`]) | 65,536 lookups in memory |
//! | a write is compared with the row locks, where rows are locked ([`super::row_locks`]) | a lookup per key of the batch |
//! | a wait for all inserts in flight | 16 inserts of 16 KiB |
//! | a batch inserts alone | an insert of 16 MiB |
//!
//! **Inserts** run without the lock, several at once. Their registration order is the log order,
//! and they become visible in it ([`visibility_ring`]).
//!
//! **Rotation** freezes an active memtable, under the writer's lock and after
//! [`Memtables::wait_for_inserts`] has waited for all registered inserts. Two properties follow. A
//! frozen memtable holds whole batches, all of them visible. And an insert may go on in the
//! memtables that were active at its registration: none of them is frozen before it is done.
//!
//! **Memory** is booked by the insert, when it is done. Admission keeps room for inserts in flight,
//! and settles them before it calls memory short.
//!
//! **Joint rotation.** A flush of one family syncs the log where other families have older changes
//! in it (see [`super::commit`]). Where log pages wait to be superseded by flushes, that sync would
//! write all of them. So there the other families are frozen along with the full one
//! ([`Memtables::joins`]) and flushed in one edit. Such an edit holds a prefix of all writes and
//! needs nothing of the log.

mod queue;
pub(crate) mod visibility_ring;

use super::fate::of_unknown_fate;
use crate::batch::payload::{Body, Payload};
use crate::batch::{BatchEntries, Change, WriteBatch};
use crate::context::Context;
use crate::files::log::Log;
use crate::large::Large;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::tree::family_work::FamilyWork;
use base::sync::atomic::Ordering;
use base::sync::{Mutex, MutexGuard, lock, rank, try_lock};
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use memtable::MemTable;
pub(crate) use queue::{Ticket, WaitingWrites};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::space::SpaceBudget;
use table::SegmentReference;
use version::FamilyId;
use visibility_ring::VisibilityRing;
use wal::{Lane, Position};

/// Checks of a thread that waits for an insert, before it sleeps: most inserts are done sooner than
/// a sleep.
const LOOKS: usize = 64;
/// Spin-loop hints between two checks.
const PAUSES: usize = 4;
/// Most families in a joint rotation. Each gets a table of its part of a memtable. The shorter
/// these tables are, the more often a merge reads and writes the level below.
const JOINED_MAX: usize = 4;
/// Most small families among them. With the defaults, the merge of a short table of level 0 costs
/// about a quarter of a full memtable. The alternative is to write the log once.
const SMALL_MAX: usize = 2;
/// A family is small if it has less than a memtable divided by this.
const SMALL_PART: usize = 8;

/// The active memtables of a store: see the module.
pub(crate) struct Memtables {
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    tree: Arc<Tree>,
    log: Arc<Log>,
    large: Arc<Large>,
    /// The serialization point of all writes.
    writer: Mutex<Writer, rank::Writer>,
    /// Inserts in flight. Each is registered under the writer's lock and runs without it.
    pub(super) order: VisibilityRing,
    /// Number of checks before a sleep.
    looks: usize,
}

/// State of the serialization point.
pub(crate) struct Writer {
    /// The sequence of the next change.
    pub next_seq: SeqNo,
    pub next_memtable_id: u64,
    /// The families with changes in their active memtables, by id: a rotation of all families skips
    /// the others.
    pub changed: BTreeMap<FamilyId, Arc<Family>>,
    /// The same set, for threads without the writer's lock.
    work: Arc<FamilyWork>,
    /// True if a volatile batch over several families is in active memtables.
    pub volatile_over_families: bool,
    /// The highest sequence of a volatile change; 0: none since the open. (A clean close flushes
    /// the unflushed ones.)
    pub volatile_seq: SeqNo,
    /// Lane and position of the last batch in the log.
    pub last_logged: Option<(Lane, Position)>,
    /// The highest sequence of an embedded batch; 0: none since the open.
    pub embedded_seq: SeqNo,
    /// Writes that wait for memory.
    pub queue: WaitingWrites,
}

impl Writer {
    pub fn new(next_seq: SeqNo, next_memtable_id: u64, work: Arc<FamilyWork>) -> Writer {
        Writer {
            next_seq,
            next_memtable_id,
            changed: BTreeMap::new(),
            work,
            volatile_over_families: false,
            volatile_seq: 0,
            last_logged: None,
            embedded_seq: 0,
            queue: WaitingWrites::default(),
        }
    }

    /// Returns the first and last sequence of the next write, of `count` changes.
    ///
    /// # Errors
    /// `TooLarge`: there are no more sequences.
    pub fn sequences_of(&self, count: u32) -> Result<(SeqNo, SeqNo)> {
        let last_seq = self.next_seq + u64::from(count) - 1;
        if last_seq > base::MAX_SEQ { Err(out_of_sequences()) } else { Ok((self.next_seq, last_seq)) }
    }

    /// Records that the active memtables of these families are about to change.
    pub fn changes(&mut self, families: &[Arc<Family>]) {
        for family in families {
            self.changed.entry(family.id).or_insert_with(|| {
                self.work.changes(family.id);
                family.clone()
            });
        }
    }
}

#[cold]
fn out_of_sequences() -> Error {
    let why = "the store has used up its sequence numbers (2^56) and takes no more writes; reads go on: \
               copy the data into a new store";
    Error::new(ErrorKind::TooLarge, why)
}

impl Memtables {
    pub fn new(tree: &Arc<Tree>, log: &Arc<Log>, large: &Arc<Large>) -> Memtables {
        let memtables = tree.families.all().len() as u64;
        let context = tree.context.clone();
        // Half of the write may be in the memtables.
        let on_panic = move || {
            let why =
                "a thread panicked while it put a write into the memtables, a fault of the engine: report it";
            context.health.poison(&Error::new(ErrorKind::Poisoned, why));
        };
        Memtables {
            context: tree.context.clone(),
            space: tree.space.clone(),
            tree: tree.clone(),
            log: log.clone(),
            large: large.clone(),
            writer: Mutex::new(Writer::new(
                tree.snapshots.visible() + 1,
                memtables + 1,
                tree.families.work.clone(),
            )),
            order: VisibilityRing::new(&tree.snapshots, on_panic),
            looks: if tree.context.env.is_simulated() { 1 } else { LOOKS },
        }
    }

    /// Takes the writer's lock, for another purpose than a write.
    pub fn lock(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// Takes the writer's lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Writer>> {
        try_lock(&self.writer)
    }

    /// Takes the writer's lock for a write.
    pub fn enter(&self) -> MutexGuard<'_, Writer> {
        for _ in 0..self.looks {
            if let Some(writer) = self.try_lock() {
                return writer;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.lock()
    }

    /// Returns when the visibility ring has a slot. Under the writer's lock.
    ///
    /// # Errors
    /// The store is poisoned.
    pub fn make_place(&self) -> Result<()> {
        if self.order.make_place(self.looks) { Ok(()) } else { self.context.health.check() }
    }

    /// Waits until all registered inserts are done and visible. No new insert begins while the
    /// caller holds the writer's lock.
    pub fn wait_for_inserts(&self) {
        // A failed insert never becomes visible; it has poisoned the store.
        self.order.wait_for_inserts(self.looks);
    }

    /// Freezes the active memtables of all families with changes.
    pub fn freeze_all(&self, writer: &mut Writer) {
        self.freeze_of(writer, None);
    }

    /// Freezes the active memtable of a family (of all families, if a volatile batch spans several)
    /// and wakes the flush.
    pub fn rotate(&self, writer: &mut Writer, family: &Arc<Family>) {
        self.freeze_of(writer, Some(family));
    }

    /// True if one edit is to flush all families with changes, since that spares a write of the
    /// log. `only`: the full family; `None`: all are to be frozen.
    fn joins(&self, writer: &Writer, only: Option<&Arc<Family>>) -> bool {
        let changed = &writer.changed;
        let keeps_pages = self.log.get().is_some_and(wal::Wal::keeps_pages);
        keeps_pages
            && (2..=JOINED_MAX).contains(&changed.len())
            && only.is_none_or(|only| changed.contains_key(&only.id) && self.few_are_small(writer, only.id))
    }

    /// True if few families with changes, other than `but`, have a small memtable.
    fn few_are_small(&self, writer: &Writer, but: FamilyId) -> bool {
        let small = self.context.options.memtable_bytes / SMALL_PART;
        let others = writer.changed.values().filter(|family| family.id != but);
        others.filter(|family| family.look(|seen| seen.active.bytes() < small)).count() <= SMALL_MAX
    }

    /// True if the memtables of several families that are flushed together hold as many bytes as
    /// one memtable may. The log keeps as many pages for them, and has room for no more
    /// ([`store::commit::Aging::tail_buffer_len`]).
    pub fn are_full_together(&self, writer: &Writer) -> bool {
        let (memory, memtable_bytes) = (&self.space.memory, self.context.options.memtable_bytes as u64);
        memory.used().saturating_sub(memory.backlog()) >= memtable_bytes
            && self.joins(writer, None)
            && self.few_are_small(writer, FamilyId::MAX)
    }

    /// Freezes the memtable of the family `only`, or of all families. It takes all without `only`,
    /// where a joint flush costs less ([`Memtables::joins`]), and where a volatile batch spans
    /// families.
    fn freeze_of(&self, writer: &mut Writer, only: Option<&Arc<Family>>) {
        self.wait_for_inserts();
        let over_families = std::mem::take(&mut writer.volatile_over_families);
        let joins = self.joins(writer, only);
        let upto = writer.next_seq.saturating_sub(1);
        self.tree.together.freezes_to(upto);
        let families: Vec<Arc<Family>> = match only.filter(|_| !over_families && !joins) {
            Some(family) => {
                writer.changed.remove(&family.id);
                vec![Arc::clone(family)]
            }
            None => std::mem::take(&mut writer.changed).into_values().collect(),
        };
        {
            let _freezing = (over_families || joins).then(|| self.tree.together.freezing());
            if joins {
                self.tree.together.join_to(upto);
            }
            self.freeze_each(writer, families);
        }
        self.context.signals.state_changed();
        self.context.signals.notify_work();
    }

    /// Freezes the active memtables of some families (of all, if a volatile batch spans several), to
    /// be flushed in one edit, and wakes the flush.
    pub fn freeze_together(&self, writer: &mut Writer, chosen: &[Arc<Family>]) {
        self.wait_for_inserts();
        let upto = writer.next_seq.saturating_sub(1);
        self.tree.together.freezes_to(upto);
        let families: Vec<Arc<Family>> = match std::mem::take(&mut writer.volatile_over_families) {
            true => std::mem::take(&mut writer.changed).into_values().collect(),
            false => chosen.iter().filter_map(|family| writer.changed.remove(&family.id)).collect(),
        };
        {
            let _freezing = self.tree.together.freezing();
            self.tree.together.flush_in_one_edit_to(upto);
            self.freeze_each(writer, families);
        }
        self.context.signals.state_changed();
        self.context.signals.notify_work();
    }

    fn freeze_each(&self, writer: &mut Writer, families: Vec<Arc<Family>>) {
        for family in families {
            let active = family.read_state().active.clone();
            if !active.is_empty() || active.has_range_tombstones() {
                self.space.memory.froze(active.bytes());
                family.rotate(writer.next_memtable_id);
                writer.next_memtable_id += 1;
            }
            writer.work.is_unchanged(family.id);
        }
    }

    /// True if a write is visible, or becomes so within a few checks.
    pub fn sees(&self, seq: SeqNo) -> bool {
        self.order.sees(seq, self.looks)
    }

    /// Waits until a write is visible.
    ///
    /// # Errors
    /// A panic in an earlier write prevents that; the store is poisoned.
    pub fn wait_visible(&self, seq: SeqNo) -> Result<()> {
        match self.order.wait_for(seq, self.looks) {
            true => Ok(()),
            false => self.context.health.check().map_err(of_unknown_fate),
        }
    }

    /// Inserts a logged write into the memtables, beside other inserts. Releases the writer's lock
    /// before the insert, unless `is_alone`. The write becomes visible in log order.
    pub fn insert(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        payload: &Payload<'_>,
        families: &[Arc<Family>],
        (first_seq, last_seq): (SeqNo, SeqNo),
        is_alone: bool,
    ) {
        if is_alone {
            self.wait_for_inserts();
        }
        writer.changes(families);
        let under_way = self.order.begin(last_seq);
        let writer = is_alone.then_some(writer);
        let bytes = match &payload.body {
            Body::One(family, change) => self.insert_one(family, first_seq, change),
            Body::Batch(batch) => self.insert_batch(batch, families, first_seq),
        };
        families.iter().for_each(|family| self.book(family));
        under_way.done();
        if let Some(writer) = writer {
            self.freeze_if_segments_are_over_bound(writer, families);
        }
        self.context.signals.wake_dozing();
        self.context.stats.write_batches.add(1);
        self.context.stats.write_entries.add(u64::from(payload.count));
        self.context.stats.user_bytes_written.add(bytes);
    }

    fn insert_batch(&self, batch: &WriteBatch, families: &[Arc<Family>], first_seq: SeqNo) -> u64 {
        let mut bytes = 0;
        for (seq, change) in (first_seq..).zip(BatchEntries::of(batch.body())) {
            let change = change.expect("a batch encodes its own entries");
            let family = families.iter().find(|f| f.id == change.family);
            let family = family.expect("families were looked up by the batch's list");
            bytes += self.insert_one(family, seq, &change);
        }
        bytes
    }

    fn freeze_if_segments_are_over_bound(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        families: &[Arc<Family>],
    ) {
        if self.large.segments.over_bound.swap(false, Ordering::AcqRel) {
            families.iter().for_each(|family| self.rotate(&mut writer, family));
        }
    }

    /// Inserts one change into the active memtable of its family, without booking memory. Returns
    /// the bytes of key and value. Call it between the registration of the insert and its end, or
    /// in recovery.
    pub fn insert_one(&self, family: &Family, seq: SeqNo, change: &Change<'_>) -> u64 {
        let read_state = family.read_state();
        if !change.is_delete() {
            family.empty_ranges.put(change.key);
        }
        self.insert_into(&read_state.active, family.id, seq, change)
    }

    /// Books the growth of the active memtable of a family.
    pub fn book(&self, family: &Family) {
        let read_state = family.read_state();
        self.book_memtable(&read_state.active);
    }

    /// Books the growth of a memtable.
    pub fn book_memtable(&self, memtable: &MemTable) {
        if let Some(grown) = memtable.take_grown() {
            self.space.memory.grew(grown);
        }
    }

    /// Inserts one change into the active memtable of its family, without booking memory. Returns
    /// the bytes of key and value.
    pub fn insert_into(
        &self,
        active: &Arc<MemTable>,
        family: FamilyId,
        seq: SeqNo,
        change: &Change<'_>,
    ) -> u64 {
        active.insert(seq, change.kind, change.key, change.value);
        change.key.len() as u64 + self.value_bytes(active, family, change)
    }

    /// Returns the length of the value, even if the change has only a reference to it.
    fn value_bytes(&self, active: &Arc<MemTable>, family: FamilyId, change: &Change<'_>) -> u64 {
        let is_reference = change.kind == ValueKind::PlacedReference;
        if is_reference { self.hold_segment(active, family, change) } else { change.value.len() as u64 }
    }

    /// Retains the file of a value for as long as the memtable references it. Returns the length of
    /// the value.
    fn hold_segment(&self, active: &Arc<MemTable>, family: FamilyId, change: &Change<'_>) -> u64 {
        let reference =
            SegmentReference::decode(change.value).expect("checked with the limits of the change");
        self.large.segments.hold(reference.file, family, active, reference.stored_len);
        reference.raw_len
    }
}
