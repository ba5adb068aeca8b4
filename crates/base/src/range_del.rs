//! Range tombstones: `[start, end)` of user keys deleted at a sequence.
//!
//! Tombstones may overlap in any way. For reading they are cut into *fragments*: disjoint ranges in
//! key order, each with the sequences of all tombstones that cover it, newest first. A lookup is
//! then one binary search over the fragments and one over the sequences, whatever the overlap. (The
//! idea is RocksDB's `FragmentedRangeTombstoneList`.)

use crate::key::SeqNo;
use std::collections::BTreeSet;

/// Deletes every user key in `[start, end)` with a sequence below `seq`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First user key deleted.
    pub start: Vec<u8>,
    /// First user key not deleted any more.
    pub end: Vec<u8>,
    /// The sequence of the delete.
    pub seq: SeqNo,
}

/// A piece of the key space covered by the same set of tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First user key covered.
    pub start: Vec<u8>,
    /// First user key after the piece.
    pub end: Vec<u8>,
    /// Sequences of the tombstones that cover it, newest first.
    pub seqs: Vec<SeqNo>,
}

/// Range tombstones cut into disjoint, ordered fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentedRangeTombstones {
    fragments: Vec<Fragment>,
}

impl FragmentedRangeTombstones {
    /// Cuts `tombstones` (in any order; empty ranges are ignored) at each other's borders.
    pub fn new(tombstones: &[RangeTombstone]) -> Self {
        let mut sorted: Vec<_> = tombstones.iter().filter(|t| t.start < t.end).collect();
        sorted.sort();
        let borders: BTreeSet<&[u8]> =
            sorted.iter().flat_map(|t| [t.start.as_slice(), t.end.as_slice()]).collect();
        let borders: Vec<&[u8]> = borders.into_iter().collect();
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut open: Vec<&RangeTombstone> = Vec::new();
        let mut coming = sorted.into_iter().peekable();
        for pair in borders.windows(2) {
            let [start, end] = pair else { continue };
            open.retain(|t| t.end.as_slice() > *start);
            while let Some(t) = coming.next_if(|t| t.start.as_slice() <= *start) {
                open.push(t);
            }
            if open.is_empty() {
                continue;
            }
            let mut seqs: Vec<SeqNo> = open.iter().map(|t| t.seq).collect();
            seqs.sort_unstable_by(|a, b| b.cmp(a));
            seqs.dedup();
            fragments.push(Fragment { start: start.to_vec(), end: end.to_vec(), seqs });
        }
        FragmentedRangeTombstones { fragments }
    }

    /// Returns the newest tombstone sequence visible at `snapshot` that covers `user_key`; entries
    /// of the key with a lower sequence are deleted.
    pub fn covering(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        let i = self.fragments.partition_point(|f| f.end.as_slice() <= user_key);
        let f = self.fragments.get(i).filter(|f| f.start.as_slice() <= user_key)?;
        f.seqs.get(f.seqs.partition_point(|&s| s > snapshot)).copied()
    }

    /// Returns the fragments in key order.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Returns true if nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Returns the fragments as tombstones, one for each sequence, in order of start and then
    /// newest first.
    pub fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|f| {
            f.seqs.iter().map(|&seq| RangeTombstone { start: f.start.clone(), end: f.end.clone(), seq })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(start: &str, end: &str, seq: SeqNo) -> RangeTombstone {
        RangeTombstone { start: start.into(), end: end.into(), seq }
    }

    /// Every combination of up to four tombstones over a small alphabet, against the definition.
    #[test]
    fn covering_agrees_with_the_definition() {
        let mut x = 7u64;
        let mut next = move |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for _ in 0..3000 {
            let all: Vec<RangeTombstone> = (0..next(6))
                .map(|_| RangeTombstone {
                    start: vec![b'a' + next(6) as u8],
                    end: vec![b'a' + next(6) as u8],
                    seq: next(8),
                })
                .collect();
            let fragmented = FragmentedRangeTombstones::new(&all);
            for key in b'a'..b'h' {
                for snapshot in 0..9 {
                    let expected = all
                        .iter()
                        .filter(|t| t.start[0] <= key && key < t.end[0] && t.seq <= snapshot)
                        .map(|t| t.seq)
                        .max();
                    assert_eq!(fragmented.covering(&[key], snapshot), expected, "{all:?} {key} {snapshot}");
                }
            }
            let again: Vec<_> = fragmented.tombstones().collect();
            assert_eq!(FragmentedRangeTombstones::new(&again), fragmented, "fragmenting is idempotent");
        }
    }

    #[test]
    fn fragments_are_disjoint_and_ordered() {
        let f = FragmentedRangeTombstones::new(&[t("a", "e", 5), t("c", "g", 9), t("x", "x", 1)]);
        let got: Vec<_> = f.fragments().iter().map(|f| (f.start[0], f.end[0], f.seqs.clone())).collect();
        assert_eq!(got, vec![(b'a', b'c', vec![5]), (b'c', b'e', vec![9, 5]), (b'e', b'g', vec![9])]);
    }
}
