//! Automatic read-ahead of a scan.
//!
//! A request to a solid-state device costs as much as moving some 100 KB. On the machine of the
//! measurements, 8 KiB took 53 us, 16 KiB 57, 32 KiB 65, 64 KiB 82, and 256 KiB 190. So a cursor
//! that misses the cache reads neighbors of the wanted block in the same request: at first as many
//! as cost almost nothing ([`BEYOND_MIN`]), and twice as many with every further request, up to
//! [`BEYOND_MAX`]. A seek starts again with few, unless its target is in the last read, or close
//! after it. A scan that stops early has then wasted about as many bytes as it has used, and a long
//! scan reads in large runs.
//!
//! The maximum length of requests follows from measured read costs of the disk ([`io::ReadCosts`]).
//! Two requests are in flight, and while the cursor waits for one, the other should keep the disk
//! busy. So on a disk with slow small reads, a request has twice the bytes that the disk moves in
//! that time, up to [`BEYOND_LIMIT`]. It is never shorter than [`BEYOND_MAX`]: that would save only
//! memory.
//!
//! Bytes read beyond the wanted block stay in the cursor's window. A block is verified when the
//! cursor reaches it, and only then may go to the cache. So blocks that a scan does not use evict
//! no other blocks.
//!
//! A long scan of a store reads the next run in the background (`next_run`), after the second
//! request of full length since a seek. By then it has used as many bytes as it would waste if it
//! ended there, and the gain covers the cost of a read queue. If the background read fails, the run
//! is read again when the cursor reaches it, and that read reports the error.
//!
//! A run consists of contiguous whole blocks in one index partition, which bounds it by data that
//! is already in memory. It ends at the block that contains the bound of the scan.

use crate::frame::BlockHandle;
use crate::stream::Partition;
use io::{ReadCosts, ReadFile, ReadQueues};
use std::sync::Arc;

/// Bytes that the first request after a seek reads beyond the wanted block.
pub(crate) const BEYOND_MIN: u64 = 16 << 10;
/// Maximum bytes read beyond the wanted block, if read costs are unknown, or if the disk moves at
/// most half of it during one read.
const BEYOND_MAX: u64 = 256 << 10;
/// Maximum bytes read beyond the wanted block on a disk that needs more bytes in flight.
const BEYOND_LIMIT: u64 = 1 << 20;
/// Number of requests of maximum length after which the next run is read in the background.
const FULL_MIN: u32 = 2;

/// User key range of a scan; nothing outside it is read ahead.
#[derive(Clone, Debug, Default)]
pub struct ScanBounds {
    /// First user key; `None`: no lower bound.
    pub lower: Option<Vec<u8>>,
    /// First user key after the range; `None`: no upper bound.
    pub upper: Option<Vec<u8>>,
    /// Queues for reading the next run in the background; `None`: the scan waits for each read.
    pub queues: Option<Arc<ReadQueues>>,
    /// True if the caller performs the reads: moves wait for them
    /// ([`crate::KsstIter::each_fetched`]).
    pub wants: bool,
    /// True if filters may exclude streams by the prefix of the keys. Jobs read all entries.
    pub asks_filters: bool,
}

/// Read-ahead of the next request beyond the wanted block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    bytes: u64,
    /// Maximum of `bytes`.
    bytes_max: u64,
    /// Number of requests of maximum length.
    full: u32,
}

impl Beyond {
    /// Returns the read-ahead of a scan that begins to read a file.
    pub(crate) fn of(file: &dyn ReadFile) -> Beyond {
        let window = ReadCosts::of(file).window_bytes.unwrap_or(0);
        let bytes_max = window.saturating_mul(2).clamp(BEYOND_MAX, BEYOND_LIMIT);
        Beyond { bytes: BEYOND_MIN, bytes_max, full: 0 }
    }

    /// Grows the read-ahead after a request.
    pub(crate) fn grow(&mut self) {
        self.full = if self.bytes < self.bytes_max { 0 } else { self.full.saturating_add(1) };
        self.bytes = (self.bytes * 2).min(self.bytes_max);
    }

    /// Returns the range of the file to read for the block `row` of `index`, in a scan in one
    /// direction within `borders`.
    pub(crate) fn run(
        self,
        index: &Partition,
        row: usize,
        backward: bool,
        borders: Option<&ScanBounds>,
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

    /// Returns the run to read next in the background, for a window that has the range `read` of
    /// the file and the block `row`. Returns `None` if it does not pay off, or if the bounds or the
    /// partition end before.
    pub(crate) fn behind(
        self,
        index: &Partition,
        row: usize,
        read: (u64, u64),
        backward: bool,
        borders: &ScanBounds,
    ) -> Option<(u64, u64)> {
        if self.full < FULL_MIN {
            return None;
        }
        let border = |key: &Vec<u8>| index.shape.search(&index.block, key, u64::MAX);
        let next = if backward {
            let first = borders.lower.as_ref().map_or(0, border);
            (first..row).rev().find(|&r| index.handle(r).end() <= read.0)
        } else {
            let rows = index.shape.rows();
            let end = borders.upper.as_ref().map_or(rows, border).saturating_add(1).min(rows);
            (row + 1..end).find(|&r| index.handle(r).offset >= read.1)
        };
        let run = next.map(|row| self.run(index, row, backward, Some(borders)));
        // No caller needs it yet: a block that exceeds this length is read on demand.
        run.filter(|(start, end)| end.saturating_sub(*start) <= 2 * self.bytes_max)
    }

    fn end(self, wanted: BlockHandle, next: impl Iterator<Item = BlockHandle>) -> u64 {
        let limit = wanted.end().saturating_add(self.bytes);
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
        let limit = wanted.offset.saturating_sub(self.bytes);
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
