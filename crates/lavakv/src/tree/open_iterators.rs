//! The open iterators and their read states, so that the space ledger can attribute pinned files.
//! Only the ledger reads the list: a read state is held by its reference count.

use crate::tree::family::ReadState;
use base::SeqNo;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use version::FamilyId;

/// All open iterators, by id.
#[derive(Debug, Default)]
pub(crate) struct OpenIterators(Mutex<BTreeMap<u64, Reader>, rank::OpenIterators>);

/// An open iterator.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// The caller's name for it; may be empty.
    pub name: Arc<str>,
    pub family: FamilyId,
    pub seq: SeqNo,
    pub since_ns: u64,
    /// Released a moment before the iterator.
    pub read_state: Weak<ReadState>,
}

impl OpenIterators {
    /// Returns all open iterators, the oldest first.
    pub fn all(&self) -> Vec<(u64, Reader)> {
        lock(&self.0).iter().map(|(&id, reader)| (id, reader.clone())).collect()
    }
}

/// Lists an iterator until it is dropped.
#[derive(Debug)]
pub(crate) struct IteratorGuard {
    readers: Arc<OpenIterators>,
    id: u64,
}

impl IteratorGuard {
    /// `id`: unique among snapshots and iterators
    /// ([`Snapshots::new_id`](super::snapshot::Snapshots::new_id)).
    pub fn begin(readers: &Arc<OpenIterators>, id: u64, reader: Reader) -> IteratorGuard {
        lock(&readers.0).insert(id, reader);
        IteratorGuard { readers: readers.clone(), id }
    }
}

impl Drop for IteratorGuard {
    fn drop(&mut self) {
        lock(&self.readers.0).remove(&self.id);
    }
}
