//! The range tombstones of a memtable: a list, and its fragments made when somebody asks.
//!
//! Fragmenting costs `O(n log n)`. Iterators and flushes need all fragments; a point lookup does not: it asks the
//! fragments made last and then looks through the tombstones that came since, so that alternating range deletes and
//! lookups do not fragment again each time. The fragments are made anew when the unsorted rest has outgrown them.
//!
//! The number of tombstones is an atomic: a memtable without any, which is nearly every one, answers after one load.

use base::SeqNo;
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{RwLock, rank, read, write};
use std::sync::Arc;

/// A lookup goes through this many tombstones one by one rather than have them fragmented.
const REST_MAX: usize = 32;

/// The range tombstones of one memtable.
#[derive(Default)]
pub struct RangeTombstones {
    /// Changed under `list`, looked at without it: most memtables have none.
    count: AtomicUsize,
    /// Changed under `list`.
    bytes: AtomicUsize,
    none: Arc<FragmentedRangeTombstones>,
    /// The tombstones and their fragments.
    list: RwLock<List, rank::RangeTombstones>,
}

#[derive(Default)]
struct List {
    all: Vec<RangeTombstone>,
    /// The fragments of the first `fragmented` ones.
    fragments: Arc<FragmentedRangeTombstones>,
    fragmented: usize,
}

impl List {
    fn fragment(&mut self) -> Arc<FragmentedRangeTombstones> {
        if self.fragmented < self.all.len() {
            self.fragments = Arc::new(FragmentedRangeTombstones::new(&self.all));
            self.fragmented = self.all.len();
        }
        self.fragments.clone()
    }

    fn rest_is_long(&self) -> bool {
        self.all.len() - self.fragmented > REST_MAX + self.fragmented / 16
    }

    fn covering(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        let covers = |t: &&RangeTombstone| {
            t.start.as_slice() <= user_key && user_key < t.end.as_slice() && t.seq <= snapshot
        };
        let rest = self.all[self.fragmented..].iter().filter(covers).map(|t| t.seq).max();
        // `None` is less than any sequence.
        self.fragments.covering(user_key, snapshot).max(rest)
    }
}

impl RangeTombstones {
    /// Adds one.
    pub fn push(&self, tombstone: RangeTombstone) {
        // The list, and up to two fragments with keys of their own.
        let bytes = 3 * (tombstone.start.len() + tombstone.end.len() + size_of::<RangeTombstone>());
        let mut list = write(&self.list);
        list.all.push(tombstone);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.store(list.all.len(), Ordering::Release);
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// An estimate of the memory they take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All of them, as they were added.
    pub fn all(&self) -> Vec<RangeTombstone> {
        if self.len() == 0 { Vec::new() } else { read(&self.list).all.clone() }
    }

    /// All of them as fragments.
    pub fn fragments(&self) -> Arc<FragmentedRangeTombstones> {
        if self.len() == 0 {
            return self.none.clone();
        }
        {
            let list = read(&self.list);
            if list.fragmented == list.all.len() {
                return list.fragments.clone();
            }
        }
        write(&self.list).fragment()
    }

    /// The newest one visible at `snapshot` that covers `user_key`.
    #[inline]
    pub fn covering(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        if self.len() == 0 { None } else { self.covering_some(user_key, snapshot) }
    }

    #[cold]
    fn covering_some(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        {
            let list = read(&self.list);
            if !list.rest_is_long() {
                return list.covering(user_key, snapshot);
            }
        }
        let mut list = write(&self.list);
        if list.rest_is_long() {
            list.fragment();
        }
        list.covering(user_key, snapshot)
    }
}
