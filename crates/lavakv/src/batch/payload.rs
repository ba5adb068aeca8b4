//! The payload of a write: one change or a batch, with derived figures for the write path.

use super::frame::Frame;
use super::{Change, WriteBatch};
use crate::tree::family::Family;
use base::ValueKind;
use std::sync::Arc;

/// Memtable overhead of an entry beside its key and value, bytes.
const ENTRY_BYTES: usize = 64;

/// The payload of a write.
pub(crate) struct Payload<'a> {
    pub body: Body<'a>,
    /// The encoded changes in pieces, without the header of the batch.
    pub pieces: [&'a [u8]; 4],
    /// Number of changes.
    pub count: u32,
    /// The estimated growth of the memtables, bytes.
    pub weight: usize,
    /// Number of deletes.
    pub deletes: u32,
    /// Bytes of keys and values of the other changes.
    pub data_bytes: usize,
    pub has_empty_key: bool,
    /// True if some change is a merge operand.
    pub has_operands: bool,
}

/// The changes of a payload.
pub(crate) enum Body<'a> {
    /// One change, with its family.
    One(&'a Arc<Family>, Change<'a>),
    /// A batch.
    Batch(&'a WriteBatch),
}

impl<'a> Payload<'a> {
    /// Creates the payload of one change, encoded with this frame.
    pub fn one(family: &'a Arc<Family>, change: Change<'a>, frame: &'a Frame) -> Payload<'a> {
        Payload {
            body: Body::One(family, change),
            pieces: frame.around(&change),
            count: 1,
            weight: change.key.len() + change.value.len() + ENTRY_BYTES,
            deletes: u32::from(change.is_delete()),
            data_bytes: if change.is_delete() { 0 } else { change.key.len() + change.value.len() },
            has_empty_key: change.has_empty_key(),
            has_operands: change.kind == ValueKind::Merge,
        }
    }

    /// True if it holds deletes only.
    pub fn is_delete_only(&self) -> bool {
        self.deletes == self.count
    }

    /// The same for a test, with a frame that is never freed.
    #[cfg(all(test, not(loom)))]
    pub fn of_test(family: &'a Arc<Family>, change: Change<'a>) -> Payload<'a> {
        Payload::one(family, change, Box::leak(Box::new(Frame::of(&change))))
    }

    /// Creates the payload of a batch.
    pub fn batch(batch: &'a WriteBatch) -> Payload<'a> {
        let figures = batch.figures();
        Payload {
            body: Body::Batch(batch),
            pieces: [batch.body(), &[], &[], &[]],
            count: batch.len() as u32,
            weight: batch.byte_len() + ENTRY_BYTES * batch.len(),
            deletes: figures.deletes,
            data_bytes: figures.data_bytes,
            has_empty_key: figures.has_empty_key,
            has_operands: figures.has_operands,
        }
    }
}

/// The payload of an asynchronous write, which outlives its call.
#[derive(Debug)]
pub(crate) enum OwnedPayload {
    /// One change, with its family and the rest of its encoding.
    One { family: Arc<Family>, kind: ValueKind, key: Vec<u8>, value: Vec<u8>, frame: Frame },
    /// A batch.
    Batch(WriteBatch),
}

impl OwnedPayload {
    /// Creates the payload of one change.
    pub fn one(family: Arc<Family>, kind: ValueKind, key: Vec<u8>, value: Vec<u8>) -> OwnedPayload {
        let frame = Frame::of(&Change { kind, family: family.id, key: &key, value: &value });
        OwnedPayload::One { family, kind, key, value, frame }
    }

    /// Returns the payload as [`Payload`].
    pub fn borrowed(&self) -> Payload<'_> {
        match self {
            OwnedPayload::One { family, kind, key, value, frame } => {
                Payload::one(family, Change { kind: *kind, family: family.id, key, value }, frame)
            }
            OwnedPayload::Batch(batch) => Payload::batch(batch),
        }
    }

    /// Returns the length of its longest value that is no reference, bytes; 0 if there is none.
    pub fn longest_value(&self) -> usize {
        match self {
            OwnedPayload::One { kind: ValueKind::Value, value, .. } => value.len(),
            OwnedPayload::One { .. } => 0,
            OwnedPayload::Batch(batch) => batch.figures().longest_value,
        }
    }
}
