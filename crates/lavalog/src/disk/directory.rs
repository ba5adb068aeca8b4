//! The directory of an index or cold file: which LSNs of which log are in it, and in which blocks.
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
//! For 256 LSNs there is a block; so the number of blocks is not stored, and the block of an LSN is the number of LSNs before it, by 256.
//! Blocks lie one behind another from the offset of the first up to the directory, in the order of the logs.
//!
//! It is read whole when a file is opened, and is what stays in memory of it in some form: for consecutive LSNs a few
//! bytes for 256 records.

use super::SUM_LEN;
use super::rows::{BLOCK_LEN_MAX, BLOCK_ROWS};
use crate::entry::{LogId, Lsn};
use crate::lsn_set::{Builder, LsnSet, Run, Size};
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, MAX_SEQ, Result, SeqNo};

/// A block: where it lies, and the first LSN in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first LSN.
    pub first: Lsn,
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes, checksum included.
    pub len: u32,
}

/// What a file has of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRows {
    /// The log.
    pub log: LogId,
    /// The smallest and the largest original sequence of its records here.
    pub seqs: (SeqNo, SeqNo),
    /// The LSNs of its records.
    pub lsns: LsnSet,
    /// Its blocks, in the order of their LSNs, one behind another.
    pub blocks: Vec<Block>,
}

impl LogRows {
    /// Its lowest LSN.
    pub fn low(&self) -> Option<Lsn> {
        self.blocks.first().map(|block| block.first)
    }

    /// The block that has the record of an LSN, if the file has one.
    pub fn block_of(&self, lsn: Lsn) -> Option<Block> {
        let after = self.blocks.partition_point(|block| block.first <= lsn);
        self.blocks.get(after.checked_sub(1)?).copied().filter(|_| self.lsns.contains(lsn))
    }
}

/// All that a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Its logs, ids ascending.
    pub logs: Vec<LogRows>,
}

impl Directory {
    /// What the file has of a log.
    pub fn log(&self, log: LogId) -> Option<&LogRows> {
        self.logs.binary_search_by_key(&log, |rows| rows.log).ok().and_then(|at| self.logs.get(at))
    }

    /// How many records the file has, and their bytes.
    pub fn size(&self) -> Size {
        self.logs.iter().map(|log| log.lsns.size()).sum()
    }

    /// The bytes of it. `offset` is where the first block begins.
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

    /// Reads what [`Directory::encode`] wrote, of a file whose blocks end at `end`: the head, and the directory.
    ///
    /// # Errors
    /// `Corruption` if it contradicts itself or the file.
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
            let why = format!("the blocks of a directory end at {offset}, the file has them up to {end}");
            return Err(Error::corruption(why));
        }
        Ok((head, Directory { logs }))
    }
}

fn decode_log(reader: &mut Reader<'_>, least: Option<LogId>, mut offset: u64) -> Result<LogRows> {
    let bad = |why: &str| Error::corruption(format!("a log in a directory has {why}"));
    let id = reader.varint()?;
    let log =
        least.and_then(|least| least.checked_add(id)).ok_or_else(|| bad("an id above all there can be"))?;
    let low = reader.varint()?;
    let high = low.checked_add(reader.varint()?).filter(|&high| high <= MAX_SEQ);
    let seqs = (low, high.ok_or_else(|| bad("a sequence above all there can be"))?);
    let mut lsns = Builder::default();
    let mut next = 0u64;
    for _ in 0..reader.varint()? {
        let first = next.checked_add(reader.varint()?).ok_or_else(|| bad("an LSN above all there can be"))?;
        let count = u32::try_from(reader.varint()?).map_err(|_| bad("more records than there can be"))?;
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

/// The first LSN of each block: one in 256.
fn block_firsts(lsns: &LsnSet) -> impl Iterator<Item = Lsn> + '_ {
    let step = BLOCK_ROWS as u64;
    let mut before = 0;
    lsns.runs().flat_map(move |run| {
        // What is left of the block that the run before has begun.
        let skip = (step - before % step) % step;
        before += u64::from(run.count);
        (skip..u64::from(run.count)).step_by(BLOCK_ROWS).map(move |i| run.first + i)
    })
}

#[cfg(test)]
mod tests;
