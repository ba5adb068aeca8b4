//! How far a scan reads ahead when nobody told it to.
//!
//! A request to a solid-state device costs as much as moving some 100 KB: on the machine this was measured on, 8 KiB
//! came in 53 us, 16 KiB in 57, 32 KiB in 65, 64 KiB in 82, 256 KiB in 190. So a cursor that misses the cache reads the
//! blocks beside the one it wants in the same request, as many as cost next to nothing at first ([`BEYOND_MIN`]), and
//! twice as many with every further request up to [`BEYOND_MAX`]; a seek starts again with few. A scan that stops early
//! has then moved at most about as many bytes for nothing as it has used, and a long one reads in large runs.
//!
//! What was read beyond the wanted block waits in the cursor's window. Each block is verified when the cursor comes to
//! it, and only then it may go to the cache: what a scan does not look at does not push out what others use.
//!
//! A run consists of whole blocks that lie one behind another in one partition of the index, which bounds it by what
//! is already in memory. It ends at the block in which the border of the scan lies.

use crate::frame::BlockHandle;
use crate::stream::Partition;

/// Bytes read beyond the wanted block by the first request after a seek.
const BEYOND_MIN: u64 = 16 << 10;
/// Bytes read beyond the wanted block at most.
const BEYOND_MAX: u64 = 256 << 10;

/// The user keys that a scan will look at; outside of them nothing is read ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Borders {
    /// The first; `None`: no border.
    pub lower: Option<Vec<u8>>,
    /// The first behind them; `None`: no border.
    pub upper: Option<Vec<u8>>,
}

/// How much the next request reads beyond the block that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond(u64);

impl Default for Beyond {
    fn default() -> Self {
        Beyond(BEYOND_MIN)
    }
}

impl Beyond {
    /// After a request.
    pub(crate) fn grow(&mut self) {
        self.0 = (self.0 * 2).min(BEYOND_MAX);
    }

    /// The range of the file to read for the block `row` of `index` by a scan in one direction within `borders`.
    pub(crate) fn run(
        self,
        index: &Partition,
        row: usize,
        backward: bool,
        borders: Option<&Borders>,
    ) -> (u64, u64) {
        let wanted = index.handle(row);
        if backward {
            let lower = borders.and_then(|b| b.lower.as_deref());
            let first = lower.map_or(0, |key| index.shape.search(&index.block, key, u64::MAX));
            (self.start(wanted, (first..row).rev().map(|r| index.handle(r))), wanted.end())
        } else {
            let upper = borders.and_then(|b| b.upper.as_deref());
            let rows = index.shape.rows();
            let last = upper.map_or(rows, |key| index.shape.search(&index.block, key, u64::MAX));
            let last = last.min(rows.saturating_sub(1));
            (wanted.offset, self.end(wanted, (row + 1..=last).map(|r| index.handle(r))))
        }
    }

    fn end(self, wanted: BlockHandle, next: impl Iterator<Item = BlockHandle>) -> u64 {
        let limit = wanted.end().saturating_add(self.0);
        let mut end = wanted.end();
        for handle in next {
            if handle.offset != end || handle.end() > limit {
                break;
            }
            end = handle.end();
        }
        end
    }

    fn start(self, wanted: BlockHandle, before: impl Iterator<Item = BlockHandle>) -> u64 {
        let limit = wanted.offset.saturating_sub(self.0);
        let mut start = wanted.offset;
        for handle in before {
            if handle.end() != start || handle.offset < limit {
                break;
            }
            start = handle.offset;
        }
        start
    }
}
