//! Key ranges of a family in which no key is visible. Iterators report them, and puts are checked
//! against them.
//!
//! The head of a queue is a run of tombstones. An iterator that has walked over it reports the
//! range, and later iterators seek past it ([`lsm::visible::empty`]). Puts into the range end that.
//!
//! **Statement.** A [`Watch`] with an empty range `[low, high)` of sequence `S` guarantees: a
//! snapshot `N >= S` sees no key in the range, if the watch is read after `N` was taken.
//!
//! **Proof.** A watch has a sequence `since`, and every put above it is checked against the watch
//! before it is visible ([`EmptyRanges::put`], called before the insert into the memtable). A put
//! takes its key out of the watched range. A walk at `N >= since` has seen all puts up to `N`, and
//! no put above `since` is in the watched range. So a range that the walk found empty, as far as it
//! is watched, stays empty for all later snapshots until a put is checked against it. Such a put is
//! checked before a snapshot sees it.
//!
//! **Start of a watch.** A put is registered ([`Snapshots::register`]), then pins the read state of
//! its family, and then reads `is_watched`. [`EmptyRanges::found`] sets `is_watched`, takes the
//! lock of the read state once, and then reads `since`, the last registered sequence. A put that
//! pinned the read state before was registered before, and `since` covers it. A put that pinned it
//! later sees `is_watched`. So a family without watches costs a put one load.
//!
//! A watch that no iterator used for [`UNUSED_PUTS_MAX`] puts is dropped. Loom test:
//! `loom_tests.rs`.

use crate::tree::snapshot::Snapshots;
use base::SeqNo;
use base::sync::model::atomic::{AtomicBool, Ordering};
use base::sync::model::{Mutex, lock};
use base::sync::{OnceLock, rank};
use lsm::visible::empty::{KeyRange, successor};
use std::sync::Arc;

/// Most watches of a family. Each put is compared with all of them.
const WATCHES_MAX: usize = 8;
/// Fewest keys in a walk that justify a new watch.
const KEYS_MIN: u64 = 64;
/// Puts without a use after which a watch is dropped.
const UNUSED_PUTS_MAX: u32 = 16 << 10;
/// Longest key of a watched range.
const KEY_LEN_MAX: usize = 1024;

/// The watches of a family: see the module.
#[derive(Debug, Default)]
pub(crate) struct EmptyRanges {
    /// True if there are watches. Changed under the lock of `watches`.
    is_watched: AtomicBool,
    /// The least recently used first.
    watches: Mutex<Vec<Watch>, rank::EmptyRanges>,
    /// The snapshots of the family's store.
    snapshots: OnceLock<Arc<Snapshots>>,
}

/// An empty range, and the wider range in which puts are checked against it: see the module.
#[derive(Debug)]
struct Watch {
    /// Puts above this sequence are checked.
    since: SeqNo,
    /// A range without puts above `since`.
    watched: KeyRange,
    state: WatchState,
    /// Puts checked since the last use.
    unused_puts: u32,
}

#[derive(Debug)]
enum WatchState {
    /// The start of a range that a walk found empty before the watch began.
    From(Vec<u8>),
    /// The empty range, a part of the watched one, and its sequence.
    Empty(KeyRange, SeqNo),
}

/// The effect of a reported range on a watch.
enum Extension {
    /// The range does not touch the watch.
    Unrelated,
    Whole,
    /// Part of the range is not watched yet.
    Part,
}

impl EmptyRanges {
    /// Adds the family to the store with these snapshots.
    pub fn join(&self, snapshots: &Arc<Snapshots>) {
        self.snapshots.get_or_init(|| snapshots.clone());
    }

    /// Checks a put against the watches. Call it before the insert, with the read state pinned.
    #[inline]
    pub fn put(&self, user_key: &[u8]) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.check(user_key);
        }
    }

    fn check(&self, user_key: &[u8]) {
        let mut watches = lock(&self.watches);
        watches.retain_mut(|watch| watch.outlives(user_key));
        if watches.is_empty() {
            self.is_watched.store(false, Ordering::Relaxed);
        }
    }

    /// Returns a known range around a key in which `snapshot` sees no key.
    pub fn around(&self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange> {
        if !self.is_watched.load(Ordering::Relaxed) {
            return None;
        }
        let mut watches = lock(&self.watches);
        let nth = watches.iter().position(|watch| watch.is_empty_around(user_key, snapshot))?;
        // The most recently used watch comes last.
        if let Some(used) = watches.get_mut(nth..) {
            used.rotate_left(1);
        }
        let watch = watches.last_mut()?;
        watch.unused_puts = 0;
        match &watch.state {
            WatchState::Empty(range, _) => Some(range.clone()),
            WatchState::From(_) => None,
        }
    }

    /// Reports that a walk at `snapshot` over `keys` hidden keys saw no key in `range`. `pass_pins`
    /// returns after all earlier pins of the read state have ended.
    pub fn found(&self, range: &KeyRange, (snapshot, keys): (SeqNo, u64), pass_pins: impl FnOnce()) {
        let Some(snapshots) = self.snapshots.get() else { return };
        if range.low.len().max(range.high.as_ref().map_or(0, Vec::len)) > KEY_LEN_MAX {
            return;
        }
        let mut watches = lock(&self.watches);
        let begun = watches.iter_mut().find_map(|watch| match watch.extend(range, snapshot) {
            Extension::Unrelated => None,
            Extension::Whole => Some(None),
            Extension::Part => Some(Some(watch)),
        });
        let watch = match begun {
            Some(None) => return,
            Some(Some(watch)) => watch,
            None if keys < KEYS_MIN => return,
            None => {
                if watches.len() == WATCHES_MAX {
                    watches.remove(0);
                }
                watches.push(Watch::from(range.low.clone()));
                let Some(watch) = watches.last_mut() else { return };
                watch
            }
        };
        watch.watched = KeyRange { low: Vec::new(), high: None };
        self.is_watched.store(true, Ordering::Relaxed);
        pass_pins();
        watch.since = snapshots.registered();
    }
}

impl Watch {
    fn from(user_key: Vec<u8>) -> Watch {
        let watched = KeyRange { low: Vec::new(), high: None };
        Watch { since: SeqNo::MAX, watched, state: WatchState::From(user_key), unused_puts: 0 }
    }

    fn is_empty_around(&self, user_key: &[u8], snapshot: SeqNo) -> bool {
        matches!(&self.state, WatchState::Empty(range, seq) if *seq <= snapshot && range.contains(user_key))
    }

    /// Removes the key of a put from the ranges. False: nothing is left of them, or the watch was
    /// unused for too long.
    fn outlives(&mut self, user_key: &[u8]) -> bool {
        self.unused_puts += 1;
        if self.unused_puts > UNUSED_PUTS_MAX {
            return false;
        }
        if !self.watched.contains(user_key) {
            return true;
        }
        let keeps_lower = match &mut self.state {
            WatchState::From(from) if user_key == from.as_slice() => return false,
            WatchState::From(from) => from.as_slice() < user_key,
            WatchState::Empty(range, _) => {
                let keeps_lower = range.low.as_slice() < user_key;
                if range.contains(user_key) {
                    cut(range, user_key, keeps_lower);
                }
                if range.high.as_ref().is_some_and(|high| *high <= range.low) {
                    return false;
                }
                keeps_lower
            }
        };
        cut(&mut self.watched, user_key, keeps_lower);
        true
    }

    /// Extends the watch by `found`, in which a walk at `snapshot` saw no key.
    fn extend(&mut self, found: &KeyRange, snapshot: SeqNo) -> Extension {
        let is_related = match &self.state {
            WatchState::From(from) => found.contains(from),
            WatchState::Empty(range, _) => touch(range, found),
        };
        if !is_related {
            return Extension::Unrelated;
        }
        if snapshot < self.since {
            // A later walk extends it.
            return Extension::Whole;
        }
        let watched = common(found, &self.watched);
        let is_whole = watched == *found;
        let is_some = watched.high.as_ref().is_none_or(|high| watched.low < *high);
        match &mut self.state {
            WatchState::Empty(range, seq) if is_some && touch(range, &watched) => {
                range.low = watched.low.min(std::mem::take(&mut range.low));
                range.high = range.high.take().zip(watched.high).map(|(a, b)| a.max(b));
                *seq = snapshot.max(*seq);
            }
            WatchState::From(from) if is_some && watched.contains(from) => {
                self.state = WatchState::Empty(watched, snapshot);
            }
            _ => {}
        }
        self.unused_puts = 0;
        if is_whole { Extension::Whole } else { Extension::Part }
    }
}

/// Removes a key, and all keys on one side of it, from a range.
fn cut(range: &mut KeyRange, user_key: &[u8], keeps_lower: bool) {
    if keeps_lower {
        range.high = Some(user_key.to_vec());
    } else {
        range.low = successor(user_key.to_vec());
    }
}

/// True if two ranges overlap or are adjacent.
fn touch(a: &KeyRange, b: &KeyRange) -> bool {
    a.high.as_ref().is_none_or(|high| b.low <= *high) && b.high.as_ref().is_none_or(|high| a.low <= *high)
}

/// Returns the intersection, an empty range if there is none.
fn common(a: &KeyRange, b: &KeyRange) -> KeyRange {
    let high = match (&a.high, &b.high) {
        (Some(a), Some(b)) => Some(a.min(b).clone()),
        (a, b) => a.as_ref().or(b.as_ref()).cloned(),
    };
    KeyRange { low: a.low.clone().max(b.low.clone()), high }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
