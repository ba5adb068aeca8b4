//! The payload of a write: one change, or a batch.

use super::{Change, Entries, WriteBatch};
use crate::tree::family::Family;
use base::ValueKind;
use std::sync::Arc;

/// The payload of a write.
pub(crate) enum Payload<'a> {
    /// One change, with its family.
    One(&'a Arc<Family>, Change<'a>),
    /// A batch.
    Batch(&'a WriteBatch),
}

/// The payload of an asynchronous write, which outlives its call.
#[derive(Debug)]
pub(crate) enum OwnedPayload {
    /// One change, with its family.
    One { family: Arc<Family>, kind: ValueKind, key: Vec<u8>, value: Vec<u8> },
    /// A batch.
    Batch(WriteBatch),
}

impl OwnedPayload {
    /// Returns the payload as [`Payload`].
    pub fn borrowed(&self) -> Payload<'_> {
        match self {
            OwnedPayload::One { family, kind, key, value } => {
                Payload::One(family, Change { kind: *kind, family: family.id, key, value })
            }
            OwnedPayload::Batch(batch) => Payload::Batch(batch),
        }
    }

    /// Returns an upper bound of the lengths of its values, bytes.
    pub fn longest_value(&self) -> usize {
        match self {
            OwnedPayload::One { kind: ValueKind::Value, value, .. } => value.len(),
            OwnedPayload::One { .. } => 0,
            OwnedPayload::Batch(batch) => batch.longest_value(),
        }
    }
}

impl Payload<'_> {
    pub fn count(&self) -> u32 {
        match self {
            Payload::One(..) => 1,
            Payload::Batch(b) => b.len() as u32,
        }
    }

    /// Returns the estimated growth of the memtables, bytes.
    pub fn weight(&self) -> usize {
        match self {
            Payload::One(_, c) => c.key.len() + c.value.len() + 64,
            Payload::Batch(b) => b.byte_len() + 64 * b.len(),
        }
    }

    /// Returns true if a key is empty.
    pub fn has_empty_key(&self) -> bool {
        match self {
            Payload::One(_, c) => c.has_empty_key(),
            Payload::Batch(b) => b.has_empty_key(),
        }
    }

    pub fn is_delete_only(&self) -> bool {
        let frees = |kind: ValueKind| kind.is_tombstone() || kind == ValueKind::RangeDeletion;
        match self {
            Payload::One(_, c) => frees(c.kind),
            Payload::Batch(b) => Entries::of(b.body()).all(|c| c.is_ok_and(|c| frees(c.kind))),
        }
    }
}
