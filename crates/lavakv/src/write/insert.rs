//! Into the memtables, and visible.

use super::WritePath;
use super::log::of_unknown_fate;
use super::order::UnderWay;
use crate::batch::payload::Payload;
use crate::batch::{Change, Entries};
use crate::tree::family::Family;
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use memtable::MemTable;
use std::sync::Arc;
use table::SegmentReference;
use version::FamilyId;

/// A write that is being put into the memtables.
pub(crate) struct Inserting<'a> {
    writes: &'a WritePath,
    under_way: Option<UnderWay<'a>>,
}

impl Inserting<'_> {
    /// It is in the memtables.
    pub fn done(mut self) {
        if let Some(under_way) = self.under_way.take() {
            under_way.done();
        }
    }
}

impl Drop for Inserting<'_> {
    fn drop(&mut self) {
        // Before those who wait for it are told: half of it may be in the memtables.
        if self.under_way.is_some() {
            let why = "a thread panicked while it put a write into the memtables";
            self.writes.context.health.poison(&Error::new(ErrorKind::Poisoned, why));
        }
    }
}

impl WritePath {
    /// Under the writer's lock: a write that was logged is going to be put into the memtables.
    pub fn begin_insert(&self, last_seq: SeqNo) -> Inserting<'_> {
        Inserting { writes: self, under_way: Some(self.order.begin(last_seq)) }
    }

    /// True if a write is visible, or is a moment later.
    pub fn sees(&self, seq: SeqNo) -> bool {
        self.order.sees(seq, self.looks())
    }

    /// Waits until a write is visible.
    ///
    /// # Errors
    /// It never will be: a write before it ended with a panic, and the store is poisoned.
    pub fn wait_visible(&self, seq: SeqNo) -> Result<()> {
        match self.order.wait_for(seq, self.looks()) {
            true => Ok(()),
            false => self.context.health.check().map_err(of_unknown_fate),
        }
    }

    /// Puts the changes into the memtables; returns key and value bytes.
    pub fn insert(&self, payload: &Payload<'_>, families: &[Arc<Family>], first_seq: SeqNo) -> u64 {
        match payload {
            Payload::One(family, change) => self.insert_one(family, first_seq, change),
            Payload::Batch(batch) => {
                let mut bytes = 0;
                for (seq, change) in (first_seq..).zip(Entries::of(batch.body())) {
                    let change = change.expect("a batch encodes its own entries");
                    let family = families.iter().find(|f| f.id == change.family);
                    let family = family.expect("families were looked up by the batch's list");
                    bytes += self.insert_one(family, seq, &change);
                }
                bytes
            }
        }
    }

    /// Puts one change into the active memtable of its family, and books the memory; returns key and value bytes. Under the
    /// writer's lock, or in recovery.
    pub fn insert_one(&self, family: &Family, seq: SeqNo, change: &Change<'_>) -> u64 {
        let read_state = family.read_state();
        let bytes = self.insert_into(&read_state.active, family.id, seq, change);
        self.book(&read_state.active);
        bytes
    }

    /// Books by how much a memtable has grown.
    pub fn book(&self, memtable: &MemTable) {
        let grown = memtable.take_grown();
        if grown > 0 {
            self.space.memory.grew(grown);
        }
    }

    /// Puts one change into the active memtable of its family, and books no memory; returns key and value bytes.
    pub fn insert_into(
        &self,
        active: &Arc<MemTable>,
        family: FamilyId,
        seq: SeqNo,
        change: &Change<'_>,
    ) -> u64 {
        active.insert(seq, change.kind, change.key, change.value);
        let segments = &self.large.segments;
        if change.kind == ValueKind::PlacedReference {
            let reference =
                SegmentReference::decode(change.value).expect("checked with the limits of the change");
            segments.hold(reference.file, family, active, reference.stored_len);
            return change.key.len() as u64 + reference.raw_len;
        }
        (change.key.len() + change.value.len()) as u64
    }
}
