//! Into the memtables.

use super::WritePath;
use crate::batch::payload::Payload;
use crate::batch::{Change, Entries};
use crate::tree::family::Family;
use base::{SeqNo, ValueKind};
use memtable::MemTable;
use std::sync::Arc;
use table::SegmentReference;
use table::segment::RecordReference;
use version::FamilyId;

impl WritePath {
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
        let before = read_state.active.bytes();
        let bytes = self.insert_into(&read_state.active, family.id, seq, change);
        self.space.memory.grew(read_state.active.bytes() - before);
        bytes
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
        if change.is_placed() {
            // In recovery: a value that is lost.
            if let Ok(reference) = RecordReference::decode(change.value) {
                segments.hold(reference.file, family, active, 0);
            }
        } else if change.kind == ValueKind::PlacedReference {
            let reference =
                SegmentReference::decode(change.value).expect("checked with the limits of the change");
            segments.hold(reference.file, family, active, reference.stored_len);
            return change.key.len() as u64 + reference.raw_len;
        }
        (change.key.len() + change.value.len()) as u64
    }
}
