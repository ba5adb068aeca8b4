//! A view of range tombstones for scans, which look up neighboring keys in either direction.
//!
//! A scan reads from many sources, each with its fragmented range tombstones. Between two
//! neighboring bounds of all fragments together, the newest tombstone visible at the snapshot is
//! constant. So the view caches that window and its answer. A lookup inside costs two comparisons;
//! a lookup outside costs one binary search in each source. The window is correct in any order of
//! lookups.

use base::SeqNo;
use base::range_del::{Fragment, FragmentedRangeTombstones};
use std::sync::Arc;

/// Range tombstones of several sources, seen at a snapshot.
#[derive(Debug)]
pub struct TombstoneView {
    sources: Vec<Arc<FragmentedRangeTombstones>>,
    snapshot: SeqNo,
    window: Option<Window>,
}

/// A range `[low, high)` of user keys, with `None` for no bound, and the newest visible tombstone
/// that covers all of it.
#[derive(Debug, Default)]
struct Window {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    newest: Option<SeqNo>,
}

impl Window {
    fn contains(&self, user_key: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| low <= user_key)
            && self.high.as_deref().is_none_or(|high| user_key < high)
    }

    /// Narrows the window to the range around `user_key` in which the tombstones of `source` do not
    /// change.
    fn narrow(&mut self, source: &[Fragment], user_key: &[u8], snapshot: SeqNo) {
        let i = source.partition_point(|f| f.end.as_slice() <= user_key);
        let before = i.checked_sub(1).and_then(|i| source.get(i)).map(|f| &f.end);
        let (low, high) = match source.get(i) {
            Some(f) if f.start.as_slice() <= user_key => {
                let newest = f.seqs.get(f.seqs.partition_point(|&s| s > snapshot)).copied();
                self.newest = self.newest.max(newest);
                (Some(&f.start), Some(&f.end))
            }
            Some(f) => (before, Some(&f.start)),
            None => (before, None),
        };
        if let Some(low) = low.filter(|&l| self.low.as_ref().is_none_or(|have| have < l)) {
            self.low = Some(low.clone());
        }
        if let Some(high) = high.filter(|&h| self.high.as_ref().is_none_or(|have| h < have)) {
            self.high = Some(high.clone());
        }
    }
}

impl TombstoneView {
    /// Returns the tombstones of `sources` that `snapshot` sees.
    pub fn new(mut sources: Vec<Arc<FragmentedRangeTombstones>>, snapshot: SeqNo) -> Self {
        sources.retain(|s| !s.is_empty());
        TombstoneView { sources, snapshot, window: None }
    }

    /// Returns the newest visible tombstone that covers `user_key`.
    pub fn newest(&mut self, user_key: &[u8]) -> Option<SeqNo> {
        if self.sources.is_empty() {
            return None;
        }
        if let Some(window) = self.window.as_ref().filter(|w| w.contains(user_key)) {
            return window.newest;
        }
        let mut window = Window::default();
        for source in &self.sources {
            window.narrow(source.fragments(), user_key, self.snapshot);
        }
        let newest = window.newest;
        self.window = Some(window);
        newest
    }

    /// Returns true if a visible tombstone deletes the entry of `user_key` with sequence `seq`.
    #[inline]
    pub fn covers(&mut self, user_key: &[u8], seq: SeqNo) -> bool {
        !self.sources.is_empty() && self.newest(user_key).is_some_and(|t| t > seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::range_del::RangeTombstone;
    use io::Rng;

    #[test]
    fn agrees_with_asking_every_source() {
        for case in 0..500 {
            let mut rng = Rng::new(case);
            let snapshot = rng.below(12);
            let sources: Vec<Arc<FragmentedRangeTombstones>> = (0..rng.below(4))
                .map(|_| {
                    let all: Vec<RangeTombstone> = (0..rng.below(5))
                        .map(|_| RangeTombstone {
                            start: vec![rng.below(20) as u8],
                            end: vec![rng.below(20) as u8],
                            seq: rng.below(12),
                        })
                        .collect();
                    Arc::new(FragmentedRangeTombstones::new(&all))
                })
                .collect();
            let mut view = TombstoneView::new(sources.clone(), snapshot);
            for _ in 0..40 {
                let key = [rng.below(21) as u8];
                let expected = sources.iter().filter_map(|s| s.covering(&key, snapshot)).max();
                assert_eq!(view.newest(&key), expected, "case {case} key {key:?}");
            }
        }
    }
}
