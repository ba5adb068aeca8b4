//! How far a scan reads ahead when nobody told it to.
//!
//! A request to a solid-state device costs as much as moving some 100 KB: on the machine this was measured on, 8 KiB
//! came in 53 us, 16 KiB in 57, 32 KiB in 65, 64 KiB in 82, 256 KiB in 190. So a cursor that misses the cache reads the
//! blocks beside the one it wants in the same request, as many as cost next to nothing at first ([`BEYOND_MIN`]), and
//! twice as many with every further request up to [`BEYOND_MAX`]; a seek starts again with few, unless it leads into
//! what was read last, or close behind it. A scan that stops early
//! has then moved at most about as many bytes for nothing as it has used, and a long one reads in large runs.
//!
//! How long the longest requests are follows what reads of the disk were measured to cost ([`io::ReadCosts`]): two of them are at the disk, and while one is
//! waited for the other should keep it busy. So where a read takes long that moves few bytes, they are twice as long as what moves meanwhile, up to [`BEYOND_LIMIT`].
//! They are never shorter than [`BEYOND_MAX`]: that would save nothing but memory.
//!
//! What was read beyond the wanted block waits in the cursor's window. Each block is verified when the cursor comes to
//! it, and only then it may go to the cache: what a scan does not look at does not push out what others use.
//!
//! A long scan of a store has the next run read while it goes through this one (`next_run`), behind the second request of full length after a seek: it
//! has used as much then as would be read for nothing, should it end there, and makes up for what a queue of reads costs. A run that fails so is read again when the cursor comes to it, which tells why.
//!
//! A run consists of whole blocks that lie one behind another in one partition of the index, which bounds it by what
//! is already in memory. It ends at the block in which the border of the scan lies.

use crate::frame::BlockHandle;
use crate::stream::Partition;
use io::{ReadCosts, ReadFile, ReadQueues};
use std::sync::Arc;

/// Bytes read beyond the wanted block by the first request after a seek.
pub(crate) const BEYOND_MIN: u64 = 16 << 10;
/// Bytes read beyond the wanted block at most, where nobody knows what reads cost, and where half of it moves while one read is waited for.
const BEYOND_MAX: u64 = 256 << 10;
/// The same where more has to be in flight.
const BEYOND_LIMIT: u64 = 1 << 20;
/// After so many requests of that length the next is made before it is needed.
const FULL_MIN: u32 = 2;

/// The user keys that a scan will look at; outside of them nothing is read ahead.
#[derive(Clone, Debug, Default)]
pub struct Borders {
    /// The first; `None`: no border.
    pub lower: Option<Vec<u8>>,
    /// The first behind them; `None`: no border.
    pub upper: Option<Vec<u8>>,
    /// What has reads of the next run go on while the scan goes through this one; `None`: each read is waited for.
    pub queues: Option<Arc<ReadQueues>>,
    /// Somebody else does the reads: moves wait for them ([`crate::KsstIter::each_fetched`]).
    pub wants: bool,
}

/// How much the next request reads beyond the block that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    bytes: u64,
    /// At most.
    bytes_max: u64,
    /// Requests that were as long as may be.
    full: u32,
}

impl Beyond {
    /// Of a scan that begins to read a file.
    pub(crate) fn of(file: &dyn ReadFile) -> Beyond {
        let window = ReadCosts::of(file).window_bytes.unwrap_or(0);
        let bytes_max = window.saturating_mul(2).clamp(BEYOND_MAX, BEYOND_LIMIT);
        Beyond { bytes: BEYOND_MIN, bytes_max, full: 0 }
    }

    /// After a request.
    pub(crate) fn grow(&mut self) {
        self.full = if self.bytes < self.bytes_max { 0 } else { self.full.saturating_add(1) };
        self.bytes = (self.bytes * 2).min(self.bytes_max);
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

    /// The run to read next where the block `row` is in a window on `read` of the file, if it is worth its while and the borders and the partition do
    /// not end before.
    pub(crate) fn behind(
        self,
        index: &Partition,
        row: usize,
        read: (u64, u64),
        backward: bool,
        borders: &Borders,
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
        // Nobody has asked for it: a block that is longer than all this is read where it is wanted.
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
