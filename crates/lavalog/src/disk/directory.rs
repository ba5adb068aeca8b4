//! The directory of an index or cold file: the LSNs of each log in it, and their blocks.
//!
//! ```text
//! head: bytes (what the file says of itself) | logs varint | offset of the first block varint
//! for each log, ids ascending:
//!   id varint, less one more than the id before (the first as it is)
//!   smallest sequence varint | largest less smallest varint
//!   runs of LSNs, at least one: count varint; each: first LSN varint, less one more than the last of the run before (the first
//!   as it is) | LSNs in it varint | bytes of their records varint
//!   lengths of its blocks varint each, checksums included
//! ```
//!
//! Every 256 LSNs of a log share a block. So the number of blocks is not stored, and the block of
//! an LSN is the number of earlier LSNs divided by 256. Blocks are adjacent, in the order of the
//! logs, from the offset of the first up to the directory.
//!
//! Opening a file reads the whole directory, and memory keeps its contents in packed form. For
//! consecutive LSNs this takes a few bytes per 256 records.

use super::SUM_LEN;
use super::rows::{BLOCK_LEN_MAX, BLOCK_ROWS};
use crate::entry::{LogId, Lsn};
use crate::lsn_set::{Builder, LsnSet, Run, Size};
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, MAX_SEQ, Result, SeqNo};

/// A block of rows: its position, and its first LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First LSN in the block.
    pub first: Lsn,
    /// Offset in the file.
    pub offset: u64,
    /// Length with the checksum, bytes.
    pub len: u32,
}

/// The records of one log in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRows {
    /// The log.
    pub log: LogId,
    /// Lowest and highest sequence number of the appends of these records.
    pub seqs: (SeqNo, SeqNo),
    /// LSNs of the records.
    pub lsns: LsnSet,
    /// Adjacent blocks, in LSN order.
    pub blocks: Vec<Block>,
}

impl LogRows {
    /// Returns the lowest LSN.
    pub fn low(&self) -> Option<Lsn> {
        self.blocks.first().map(|block| block.first)
    }

    /// Returns the block with the row of an LSN, if the file has one.
    pub fn block_of(&self, lsn: Lsn) -> Option<Block> {
        let after = self.blocks.partition_point(|block| block.first <= lsn);
        self.blocks.get(after.checked_sub(1)?).copied().filter(|_| self.lsns.contains(lsn))
    }
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Logs in ascending order of numbers.
    pub logs: Vec<LogRows>,
}

impl Directory {
    /// Returns the records of a log in the file.
    pub fn log(&self, log: LogId) -> Option<&LogRows> {
        self.logs.binary_search_by_key(&log, |rows| rows.log).ok().and_then(|at| self.logs.get(at))
    }

    /// Returns the number of records in the file, and their bytes.
    pub fn size(&self) -> Size {
        self.logs.iter().map(|log| log.lsns.size()).sum()
    }

    /// Encodes the directory. `offset` is the offset of the first block.
    pub(crate) fn encode(&self, head: &[u8], offset: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, head);
        put_varint(&mut out, self.logs.len() as u64);
        put_varint(&mut out, offset);
        let mut least = 0;
        for log in &self.logs {
            put_varint(&mut out, log.log - least);
            least = log.log.saturating_add(1);
            put_varint(&mut out, log.seqs.0);
            put_varint(&mut out, log.seqs.1 - log.seqs.0);
            put_varint(&mut out, log.lsns.runs().count() as u64);
            let mut next = 0;
            for run in log.lsns.runs() {
                put_varint(&mut out, run.first - next);
                put_varint(&mut out, u64::from(run.count));
                put_varint(&mut out, run.bytes);
                next = run.last() + 1;
            }
            log.blocks.iter().for_each(|block| put_varint(&mut out, u64::from(block.len)));
        }
        out
    }

    /// Decodes the head and the directory of a file whose blocks end at `end`.
    ///
    /// # Errors
    /// `Corruption` if the directory contradicts itself or the file.
    pub(super) fn decode(bytes: &[u8], end: u64) -> Result<(&[u8], Directory)> {
        let mut reader = Reader::new(bytes);
        let head = reader.bytes()?;
        let count = reader.varint()?;
        let mut offset = reader.varint()?;
        let mut logs = Vec::new();
        let mut least = Some(0);
        for _ in 0..count {
            let rows = decode_log(&mut reader, least, offset)?;
            offset = rows.blocks.last().map_or(offset, |block| block.offset.saturating_add(block.len.into()));
            least = rows.log.checked_add(1);
            logs.push(rows);
        }
        if offset != end || !reader.is_empty() {
            let why =
                format!("the index blocks end at offset {offset} by the directory, but at {end} in the file");
            return Err(Error::corruption(why));
        }
        Ok((head, Directory { logs }))
    }
}

fn decode_log(reader: &mut Reader<'_>, least: Option<LogId>, mut offset: u64) -> Result<LogRows> {
    let bad = |why: &str| Error::corruption(format!("a log in the directory of the file has {why}"));
    let id = reader.varint()?;
    let log = least.and_then(|least| least.checked_add(id)).ok_or_else(|| bad("an id over 64 bits"))?;
    let low = reader.varint()?;
    let high = low.checked_add(reader.varint()?).filter(|&high| high <= MAX_SEQ);
    let seqs = (low, high.ok_or_else(|| bad("a sequence number over 56 bits"))?);
    let mut lsns = Builder::default();
    let mut next = 0u64;
    for _ in 0..reader.varint()? {
        let first = next.checked_add(reader.varint()?).ok_or_else(|| bad("an LSN over 64 bits"))?;
        let count = u32::try_from(reader.varint()?).map_err(|_| bad("a count of records over 32 bits"))?;
        lsns.push_run(Run { first, count, bytes: reader.varint()? })?;
        next = first + u64::from(count);
    }
    let lsns = lsns.build();
    if lsns.is_empty() {
        return Err(bad("no records"));
    }
    let mut blocks = Vec::new();
    for first in block_firsts(&lsns) {
        let len = reader.length(BLOCK_LEN_MAX + SUM_LEN)? as u32;
        blocks.push(Block { first, offset, len });
        offset = offset.saturating_add(len.into());
    }
    Ok(LogRows { log, seqs, lsns, blocks })
}

/// Iterates over the first LSN of each block: every 256th.
fn block_firsts(lsns: &LsnSet) -> impl Iterator<Item = Lsn> + '_ {
    let step = BLOCK_ROWS as u64;
    let mut before = 0;
    lsns.runs().flat_map(move |run| {
        // Rows of this run that complete the block begun by the previous run.
        let skip = (step - before % step) % step;
        before += u64::from(run.count);
        (skip..u64::from(run.count)).step_by(BLOCK_ROWS).map(move |i| run.first + i)
    })
}

#[cfg(test)]
mod tests;
