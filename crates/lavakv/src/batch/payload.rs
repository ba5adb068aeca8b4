//! What a write writes: one change, or a batch.

use super::{Change, Entries, WriteBatch};
use crate::tree::family::Family;
use base::ValueKind;
use std::sync::Arc;

/// What is written.
pub(crate) enum Payload<'a> {
    /// One change to a family that is already known.
    One(&'a Arc<Family>, Change<'a>),
    /// A batch.
    Batch(&'a WriteBatch),
}

impl Payload<'_> {
    pub fn count(&self) -> u32 {
        match self {
            Payload::One(..) => 1,
            Payload::Batch(b) => b.len() as u32,
        }
    }

    /// Bytes the memtables will grow by, roughly.
    pub fn weight(&self) -> usize {
        match self {
            Payload::One(_, c) => c.key.len() + c.value.len() + 64,
            Payload::Batch(b) => b.byte_len() + 64 * b.len(),
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
