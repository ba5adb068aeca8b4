//! The iterators that are open: who they are and which read state each holds, so that the space ledger can say who keeps which
//! files. Nothing else asks here: a read state is held by its reference count, not by its being listed.

use crate::tree::family::ReadState;
use base::SeqNo;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use version::FamilyId;

/// All open iterators, by number.
#[derive(Debug, Default)]
pub(crate) struct OpenIterators(Mutex<BTreeMap<u64, Reader>, rank::OpenIterators>);

/// An open iterator.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// What its maker calls it; empty: nothing.
    pub name: Arc<str>,
    pub family: FamilyId,
    pub seq: SeqNo,
    pub since_ns: u64,
    /// Gone a moment before the iterator is.
    pub read_state: Weak<ReadState>,
}

impl OpenIterators {
    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<(u64, Reader)> {
        lock(&self.0).iter().map(|(&id, reader)| (id, reader.clone())).collect()
    }
}

/// Lists an iterator until it is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    readers: Arc<OpenIterators>,
    id: u64,
}

impl Reading {
    /// `id`: a number that no snapshot has ([`Snapshots::new_id`](super::snapshot::Snapshots::new_id)).
    pub fn begin(readers: &Arc<OpenIterators>, id: u64, reader: Reader) -> Reading {
        lock(&readers.0).insert(id, reader);
        Reading { readers: readers.clone(), id }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.readers.0).remove(&self.id);
    }
}
