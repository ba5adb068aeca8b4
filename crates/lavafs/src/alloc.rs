//! In-memory map of the free blocks, indexed by position and by run length.
//!
//! A growing file continues at its end if the blocks there are free. Otherwise it gets the smallest
//! run that holds the whole request. Without such a run, it gets several runs, the longest first.
//! Therefore most files consist of one run, and long runs last.
//!
//! Invariants: runs neither touch nor overlap each other, and both indexes hold the same runs.

use crate::layout::{Extent, push};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of runs returned for one request.
const RUNS_MAX: usize = 1024;

/// Map of the free blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeMap {
    by_start: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    blocks: u64,
}

impl FreeMap {
    /// Number of free blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.by_start.len()
    }

    /// Length of the longest run, in blocks.
    pub(crate) fn longest(&self) -> u32 {
        self.by_len.last().map_or(0, |&(blocks, _)| blocks)
    }

    fn add(&mut self, start: u32, blocks: u32) {
        self.by_start.insert(start, blocks);
        self.by_len.insert((blocks, start));
        self.blocks += u64::from(blocks);
    }

    fn drop_run(&mut self, start: u32, blocks: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(blocks, start));
        self.blocks -= u64::from(blocks);
    }

    /// Frees blocks. Returns false, without a change, if some of the blocks are already free.
    #[must_use]
    pub(crate) fn release(&mut self, extent: Extent) -> bool {
        let (mut start, mut blocks) = (extent.start, extent.blocks);
        let before = self.by_start.range(..=start).next_back().map(|(&s, &n)| (s, n));
        let after = self.by_start.range(start..).next().map(|(&s, &n)| (s, n));
        if blocks == 0
            || before.is_some_and(|(s, n)| u64::from(s) + u64::from(n) > u64::from(start))
            || after.is_some_and(|(s, _)| extent.end() > u64::from(s))
        {
            return blocks == 0;
        }
        if let Some((s, n)) = before.filter(|(s, n)| s + n == start) {
            self.drop_run(s, n);
            (start, blocks) = (s, n + blocks);
        }
        if let Some((s, n)) = after.filter(|(s, _)| start + blocks == *s) {
            self.drop_run(s, n);
            blocks += n;
        }
        self.add(start, blocks);
        true
    }

    /// Allocates exactly the blocks of `extent`. Returns false, without a change, if one of them is
    /// not free.
    #[must_use]
    pub(crate) fn claim(&mut self, extent: Extent) -> bool {
        let found = self.by_start.range(..=extent.start).next_back().map(|(&s, &n)| (s, n));
        let Some((start, blocks)) = found.filter(|(s, n)| u64::from(*s) + u64::from(*n) >= extent.end())
        else {
            return false;
        };
        self.drop_run(start, blocks);
        let head = extent.start - start;
        let tail = blocks - head - extent.blocks;
        if head > 0 {
            self.add(start, head);
        }
        if tail > 0 {
            self.add(start + head + extent.blocks, tail);
        }
        true
    }

    /// Returns the free parts of `extent`.
    pub(crate) fn overlapping(&self, extent: Extent) -> Vec<Extent> {
        let first = self.by_start.range(..=extent.start).next_back().map_or(extent.start, |(&s, _)| s);
        let runs = self.by_start.range(first..).take_while(|(s, _)| u64::from(**s) < extent.end());
        let cut = runs.map(|(&s, &n)| {
            let start = s.max(extent.start);
            let end = (u64::from(s) + u64::from(n)).min(extent.end());
            Extent::new(start, end.saturating_sub(u64::from(start)) as u32)
        });
        cut.filter(|e| !e.is_empty()).collect()
    }

    /// Allocates `blocks` blocks, starting at `goal` (the block after the last one of the file) if
    /// that block begins a free run. Returns `None`, without a change, if too few blocks are free
    /// or the request needs too many runs.
    pub(crate) fn allocate(&mut self, blocks: u32, goal: Option<u32>) -> Option<Vec<Extent>> {
        if u64::from(blocks) > self.blocks {
            return None;
        }
        let mut taken = Vec::new();
        let mut left = blocks;
        if let Some((goal, run)) = goal.and_then(|g| Some((g, *self.by_start.get(&g)?))) {
            let extent = Extent::new(goal, run.min(left));
            left -= extent.blocks;
            self.take(extent, &mut taken);
        }
        while left > 0 {
            let fit = self.by_len.range((left, 0)..).next().or_else(|| self.by_len.last()).copied();
            let Some((run, start)) = fit.filter(|_| taken.len() < RUNS_MAX) else {
                for extent in taken {
                    let released = self.release(extent);
                    debug_assert!(released, "it was free a moment ago");
                }
                return None;
            };
            let extent = Extent::new(start, run.min(left));
            left -= extent.blocks;
            self.take(extent, &mut taken);
        }
        Some(taken)
    }

    /// Allocates `blocks` blocks in any number of runs. Takes the longest runs first if no single
    /// run suffices.
    pub(crate) fn allocate_any(&mut self, blocks: u64) -> Option<Vec<Extent>> {
        if blocks > self.blocks {
            return None;
        }
        let (mut taken, mut left) = (Vec::new(), blocks);
        while left > 0 {
            let whole = u32::try_from(left).ok().and_then(|blocks| self.allocate(blocks, None));
            let some = whole.or_else(|| self.allocate(left.min(RUNS_MAX as u64) as u32, None))?;
            left -= some.iter().map(|e| u64::from(e.blocks)).sum::<u64>();
            some.into_iter().for_each(|e| push(&mut taken, e));
        }
        Some(taken)
    }

    fn take(&mut self, extent: Extent, taken: &mut Vec<Extent>) {
        let claimed = self.claim(extent);
        debug_assert!(claimed, "the run was found free");
        push(taken, extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Rng;

    fn map(runs: &[(u32, u32)]) -> FreeMap {
        let mut map = FreeMap::default();
        runs.iter().for_each(|&(s, n)| assert!(map.release(Extent::new(s, n))));
        map
    }

    #[test]
    fn growth_continues_and_fits_best() {
        let mut free = map(&[(100, 10), (200, 50), (300, 20)]);
        assert_eq!(
            free.allocate(5, Some(205)),
            Some(vec![Extent::new(100, 5)]),
            "205 is inside a run: best fit"
        );
        assert_eq!(free.allocate(15, None), Some(vec![Extent::new(300, 15)]));
        assert_eq!(free.allocate(3, Some(105)), Some(vec![Extent::new(105, 3)]));
        let many = free.allocate(54, None).unwrap();
        assert_eq!(many, [Extent::new(200, 50), Extent::new(315, 4)]);
        assert_eq!((free.blocks(), free.runs(), free.longest()), (3, 2, 2));
        assert_eq!(free.allocate(4, None), None);
        assert_eq!(free.blocks(), 3, "nothing was taken");
    }

    #[test]
    fn double_free_and_double_allocation_are_refused() {
        let mut free = map(&[(40, 10)]);
        for twice in [(40, 1), (35, 6), (49, 5), (30, 100), (45, 2)] {
            assert!(!free.release(Extent::new(twice.0, twice.1)), "{twice:?}");
        }
        assert!(free.claim(Extent::new(43, 2)) && !free.claim(Extent::new(44, 2)));
        let parts = [Extent::new(41, 2), Extent::new(45, 3)];
        assert_eq!(free.overlapping(Extent::new(41, 7)), parts);
        assert_eq!(free.overlapping(Extent::new(43, 2)), []);
    }

    #[test]
    fn allocator_agrees_with_a_bitmap() {
        const LEN: usize = 400;
        let mut rng = Rng::new(5);
        for _ in 0..50 {
            let (mut free, mut bits) = (FreeMap::default(), [false; LEN]);
            let mut held: Vec<Extent> = Vec::new();
            assert!(free.release(Extent::new(0, LEN as u32)));
            bits.fill(true);
            for _ in 0..300 {
                if rng.one_in(2) || held.is_empty() {
                    let want = rng.range(1, 40) as u32;
                    let goal = held.last().map(|e| e.end() as u32);
                    match free.allocate(want, goal) {
                        Some(got) => {
                            assert_eq!(got.iter().map(|e| e.blocks).sum::<u32>(), want);
                            for e in got {
                                (e.start..e.start + e.blocks).for_each(|b| {
                                    assert!(std::mem::take(&mut bits[b as usize]), "block {b} was not free");
                                });
                                held.push(e);
                            }
                        }
                        None => assert!(bits.iter().filter(|b| **b).count() < want as usize),
                    }
                } else {
                    let e = held.swap_remove(rng.below(held.len() as u64) as usize);
                    assert!(free.release(e));
                    (e.start..e.start + e.blocks).for_each(|b| bits[b as usize] = true);
                }
                assert_eq!(free.blocks(), bits.iter().filter(|b| **b).count() as u64);
                let runs = (0..LEN).filter(|&i| bits[i] && (i == 0 || !bits[i - 1])).count();
                assert_eq!(free.runs(), runs, "runs are joined");
            }
        }
    }
}
