//! Split of the budget between the segments, as a pure state machine.
//!
//! Returns of recently evicted blocks are counted by segment. After every [`WINDOW_HITS`] of them
//! the segment with clearly more (by [`MARGIN_HITS`]) wins one step. A window, not a running
//! balance: old workloads are forgotten at once, and equal pressure on both sides moves nothing.

use crate::Segment;

/// The share is counted in 256ths of the budget.
pub const PARTS: u64 = 256;
const PARTS_MIN: u64 = 26; // 10 %
const PARTS_MAX: u64 = PARTS - PARTS_MIN;
const WINDOW_HITS: u32 = 64;
const MARGIN_HITS: u32 = 16;

/// The split and the counts that move it.
pub struct Share {
    index_parts: u64,
    index_hits: u32,
    data_hits: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self::new()
    }
}

impl Share {
    /// Returns an even split.
    pub fn new() -> Self {
        Share { index_parts: PARTS / 2, index_hits: 0, data_hits: 0 }
    }

    /// Returns the index segment's 256ths of the budget.
    pub fn index_parts(&self) -> u64 {
        self.index_parts
    }

    /// Returns the bytes of `budget_bytes` for (index, data).
    pub fn split(&self, budget_bytes: u64) -> (u64, u64) {
        let index = (u128::from(budget_bytes) * u128::from(self.index_parts) / u128::from(PARTS)) as u64;
        (index, budget_bytes - index)
    }

    /// Counts a block that returned to `segment` soon after its eviction. Returns true if the split
    /// changed.
    pub fn count(&mut self, segment: Segment) -> bool {
        match segment {
            Segment::Index => self.index_hits += 1,
            Segment::Data => self.data_hits += 1,
        }
        if self.index_hits + self.data_hits < WINDOW_HITS {
            return false;
        }
        let before = self.index_parts;
        if self.index_hits >= self.data_hits + MARGIN_HITS {
            self.index_parts = (before + 1).min(PARTS_MAX);
        } else if self.data_hits >= self.index_hits + MARGIN_HITS {
            self.index_parts = (before - 1).max(PARTS_MIN);
        }
        (self.index_hits, self.data_hits) = (0, 0);
        self.index_parts != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_moves_toward_higher_returns_up_to_the_clamp() {
        let mut share = Share::new();
        assert_eq!(share.split(1001), (500, 501));
        let moves = (0..20_000).filter(|_| share.count(Segment::Index)).count();
        assert_eq!((moves, share.index_parts()), (102, PARTS_MAX));
        for _ in 0..40_000 {
            share.count(Segment::Data);
        }
        assert_eq!(share.index_parts(), PARTS_MIN);
        for i in 0..10_000 {
            share.count(if i % 2 == 0 { Segment::Index } else { Segment::Data });
        }
        assert_eq!(share.index_parts(), PARTS_MIN, "equal pressure moves nothing");
        let (index, data) = share.split(u64::MAX);
        assert_eq!(index + data, u64::MAX);
    }
}
