//! The range tombstones of a memtable: a list, and runs of fragments over its parts.
//!
//! Fragmenting `n` tombstones costs `O(n log n)`, so the whole list cannot be fragmented again for
//! each read after a range delete. As in a log-structured merge tree, the list is covered by
//! *runs*: each has the fragments of a part of the list, and is more than twice as long as the
//! next. A read searches the `O(log n)` runs by binary search, and then at most [`REST_MAX`] newer
//! tombstones one by one. A longer rest becomes a run, together with all runs that are not twice as
//! long. So each tombstone is fragmented `O(log n)` times, by reads, and never by a write.
//! Iterators ask for neighboring keys: they use the runs, and convert the rest to one.
//!
//! The number of tombstones is an atomic: a memtable without any, which is the usual case, answers
//! after one load.

use base::SeqNo;
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{RwLock, rank, read, write};
use std::sync::Arc;

/// A lookup checks this many tombstones one by one before it fragments them.
const REST_MAX: usize = 32;

/// The range tombstones of one memtable.
#[derive(Default)]
pub struct RangeTombstones {
    /// Changed under `list`, read without it: most memtables have no tombstones.
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
    /// Runs over the parts of the list, the oldest part first.
    runs: Vec<Run>,
}

/// The fragments of a part of the list.
#[derive(Clone)]
struct Run {
    /// The part begins at the end of the one before, and ends here.
    end: usize,
    fragments: Arc<FragmentedRangeTombstones>,
}

impl List {
    /// Returns the end of the part that the first `runs` runs cover.
    fn end_of(&self, runs: usize) -> usize {
        runs.checked_sub(1).and_then(|last| self.runs.get(last)).map_or(0, |run| run.end)
    }

    fn rest(&self) -> &[RangeTombstone] {
        self.all.get(self.end_of(self.runs.len())..).unwrap_or_default()
    }

    /// Converts the rest to a run, together with the earlier runs that are not more than twice as
    /// long, or with all of them.
    fn fragment(&mut self, takes_all: bool) {
        let (end, mut kept) = (self.all.len(), self.runs.len());
        let mut begin = self.end_of(kept);
        while kept > 0 && (takes_all || begin - self.end_of(kept - 1) <= 2 * (end - begin)) {
            kept -= 1;
            begin = self.end_of(kept);
        }
        let is_done = begin == end || (takes_all && self.runs.len() == 1 && self.rest().is_empty());
        if let Some(part) = self.all.get(begin..end).filter(|_| !is_done) {
            let fragments = Arc::new(FragmentedRangeTombstones::new(part));
            self.runs.truncate(kept);
            self.runs.push(Run { end, fragments });
        }
    }

    fn covering(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        let covers = |t: &&RangeTombstone| {
            t.start.as_slice() <= user_key && user_key < t.end.as_slice() && t.seq <= snapshot
        };
        let rest = self.rest().iter().filter(covers).map(|t| t.seq).max();
        let runs = self.runs.iter().filter_map(|run| run.fragments.covering(user_key, snapshot)).max();
        // `None` is less than any sequence.
        runs.max(rest)
    }
}

impl RangeTombstones {
    /// Adds a tombstone.
    pub fn push(&self, tombstone: RangeTombstone) {
        // The list entry, and up to two fragments with copies of the keys.
        let bytes = 3 * (tombstone.start.len() + tombstone.end.len() + size_of::<RangeTombstone>());
        let mut list = write(&self.list);
        list.all.push(tombstone);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.store(list.all.len(), Ordering::Release);
    }

    /// Returns the number of tombstones.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns an estimate of their memory.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns all tombstones in the order of their addition.
    pub fn all(&self) -> Vec<RangeTombstone> {
        if self.len() == 0 { Vec::new() } else { read(&self.list).all.clone() }
    }

    /// Returns all tombstones as fragments.
    pub fn fragments(&self) -> Arc<FragmentedRangeTombstones> {
        let runs = self.with_runs(|list| (list.runs.len() == 1).then(|| list.runs.clone()), true);
        runs.into_iter().next().map_or_else(|| self.none.clone(), |run| run.fragments)
    }

    /// Returns all tombstones as fragments of several parts, each of which must be searched.
    pub fn parts(&self) -> Vec<Arc<FragmentedRangeTombstones>> {
        let runs = self.with_runs(|list| Some(list.runs.clone()), false);
        runs.into_iter().map(|run| run.fragments).collect()
    }

    /// Returns the runs: the present ones if `are_fit` accepts them, otherwise after fragmenting
    /// the rest.
    fn with_runs(&self, are_fit: impl Fn(&List) -> Option<Vec<Run>>, takes_all: bool) -> Vec<Run> {
        if self.len() == 0 {
            return Vec::new();
        }
        {
            let list = read(&self.list);
            if list.rest().is_empty()
                && let Some(runs) = are_fit(&list)
            {
                return runs;
            }
        }
        let mut list = write(&self.list);
        list.fragment(takes_all);
        list.runs.clone()
    }

    /// Returns the newest tombstone visible at `snapshot` that covers `user_key`.
    #[inline]
    pub fn covering(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        if self.len() == 0 { None } else { self.covering_some(user_key, snapshot) }
    }

    #[cold]
    fn covering_some(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        {
            let list = read(&self.list);
            if list.rest().len() <= REST_MAX {
                return list.covering(user_key, snapshot);
            }
        }
        let mut list = write(&self.list);
        if list.rest().len() > REST_MAX {
            list.fragment(false);
        }
        list.covering(user_key, snapshot)
    }
}
