//! Deleted ranges as disjoint fragments, each with the position of the last deletion that covers
//! it.
//!
//! A new range is the last deletion wherever it covers: it replaces the fragments inside of it, and
//! cuts the two at its ends. So there are at most two fragments more per range.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Fragments of deleted ranges: see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fragments {
    /// End and position, by start. An end of `None` is behind all keys.
    by_start: BTreeMap<Vec<u8>, (Option<Vec<u8>>, u32)>,
}

/// A fragment, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    pub start: &'a [u8],
    pub end: Option<&'a [u8]>,
    pub position: u32,
}

impl Fragments {
    /// Makes the fragments of ranges with ascending positions.
    pub fn of<'a>(ranges: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>, u32)>) -> Fragments {
        let mut fragments = Fragments::default();
        ranges.for_each(|(start, end, position)| fragments.cover(start, end, position));
        fragments
    }

    /// Adds a range. Its position is above all others.
    pub fn cover(&mut self, start: &[u8], end: Option<&[u8]>, position: u32) {
        self.cut_at(start);
        if let Some(end) = end {
            self.cut_at(end);
        }
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let covered = self.by_start.range::<[u8], _>((Bound::Included(start), upper));
        let covered: Vec<Vec<u8>> = covered.map(|(start, _)| start.clone()).collect();
        covered.iter().for_each(|start| drop(self.by_start.remove(start)));
        self.by_start.insert(start.to_vec(), (end.map(<[u8]>::to_vec), position));
    }

    /// Returns the fragment with a key.
    pub fn at(&self, key: &[u8]) -> Option<Fragment<'_>> {
        let before = (Bound::Unbounded, Bound::Included(key));
        let (start, (end, position)) = self.by_start.range::<[u8], _>(before).next_back()?;
        let end = end.as_deref();
        end.is_none_or(|end| key < end).then_some(Fragment { start, end, position: *position })
    }

    /// Cuts the fragment with a key into one before the key and one from the key on.
    fn cut_at(&mut self, key: &[u8]) {
        let Some(Fragment { start, position, .. }) = self.at(key) else { return };
        if start == key {
            return;
        }
        let start = start.to_vec();
        if let Some((end, _)) = self.by_start.get_mut(&start) {
            let end = end.replace(key.to_vec());
            self.by_start.insert(key.to_vec(), (end, position));
        }
    }
}
