//! Blocks of rows: where up to 256 records of one log are.
//!
//! ```text
//! log varint | rows - 1 u8 | flags u8 | four columns: LSN, sequence, place, length
//! ```
//!
//! Flag bit `i` is set if column `i` is *uneven*. An even one (values that rise by the same step) is its first value and, if
//! there are more rows than one, the step; an uneven one its first value and the difference of each further one to the one
//! before. First values are varints, steps and differences zigzag varints of differences modulo 2^64. So consecutive
//! LSNs, equal lengths and records that lie one behind another cost nothing for each row; a record of some log among many takes
//! three to five bytes: one or two for its sequence, and two or three for its place.
//!
//! A place is that of [`Entry::at`]: in the index of a group page and position, in a cold file the offset of the record.
//!
//! LSNs ascend in a block and from block to block of a log, and all blocks of a log but its last have 256 rows, so which block a
//! record is in follows from how many LSNs lie before it ([`super::directory`]). (A MetaFlush record of LavaStore, PVLDB
//! 17(12), has as many entries.)

use crate::entry::{Entry, LogId, Lsn};
use crate::limits::{LSN_MAX, RECORD_LEN_MAX};
use base::codec::{Reader, put_varint};
use base::{Error, ErrorKind, MAX_SEQ, Result};

/// The most rows of a block.
pub const BLOCK_ROWS: usize = 256;
/// The longest block without its checksum: log, rows and flags, and the columns.
pub const BLOCK_LEN_MAX: usize = 12 + COLUMNS * (BLOCK_ROWS + 1) * 10;

const COLUMNS: usize = 4;

fn columns(entry: &Entry) -> [u64; COLUMNS] {
    [entry.lsn, entry.seq, entry.at, u64::from(entry.len)]
}

fn from_columns(log: LogId, [lsn, seq, at, len]: [u64; COLUMNS]) -> Result<Entry> {
    match u32::try_from(len) {
        Ok(len) if seq <= MAX_SEQ && lsn <= LSN_MAX && len as usize <= RECORD_LEN_MAX => {
            Ok(Entry { log, lsn, seq, at, len })
        }
        _ => Err(Error::corruption(format!("LSN {lsn}, sequence {seq} and length {len} are no record's"))),
    }
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Appends the block of 1 to 256 records of one log, whose LSNs ascend.
///
/// # Panics
/// With fewer or more.
pub fn encode(out: &mut Vec<u8>, rows: &[Entry]) {
    let (Some(first), 1..=BLOCK_ROWS) = (rows.first(), rows.len()) else {
        panic!("a block of {} rows", rows.len());
    };
    put_varint(out, first.log);
    out.push((rows.len() - 1) as u8);
    let flags_at = out.len();
    out.push(0);
    for (column, first) in columns(first).into_iter().enumerate() {
        let values = || rows.iter().map(|row| columns(row)[column]);
        let steps = || values().zip(values().skip(1)).map(|(before, after)| after.wrapping_sub(before));
        put_varint(out, first);
        let Some(step) = steps().next() else { continue };
        if steps().all(|other| other == step) {
            put_varint(out, zigzag(step));
        } else {
            out[flags_at] |= 1 << column;
            steps().for_each(|step| put_varint(out, zigzag(step)));
        }
    }
}

/// Decodes a block, which has at least one row.
///
/// # Errors
/// `Unsupported` for flags of a newer release, `Corruption` for everything else that is wrong.
pub fn decode(payload: &[u8]) -> Result<Vec<Entry>> {
    let mut reader = Reader::new(payload);
    let log = reader.varint()?;
    let count = usize::from(reader.u8()?) + 1;
    let flags = reader.u8()?;
    if flags >> COLUMNS != 0 {
        let why = format!("a block of rows with the flags {flags:#x}: it needs a newer release");
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let mut cells = vec![[0; COLUMNS]; count];
    for column in 0..COLUMNS {
        let mut value = reader.varint()?;
        let is_uneven = flags >> column & 1 == 1;
        let even = if is_uneven || count == 1 { 0 } else { unzigzag(reader.varint()?) };
        for (i, row) in cells.iter_mut().enumerate() {
            if i > 0 {
                let step = if is_uneven { unzigzag(reader.varint()?) } else { even };
                value = value.wrapping_add(step);
            }
            if let Some(cell) = row.get_mut(column) {
                *cell = value;
            }
        }
    }
    if !reader.is_empty() {
        return Err(Error::corruption("a block of rows with bytes behind it"));
    }
    let rows = cells.into_iter().map(|row| from_columns(log, row)).collect::<Result<Vec<Entry>>>()?;
    if !rows.is_sorted_by(|a, b| a.lsn < b.lsn) {
        return Err(Error::corruption("a block of rows whose LSNs do not ascend"));
    }
    Ok(rows)
}

/// The record of an LSN in a block, if there is one.
pub fn find(rows: &[Entry], lsn: Lsn) -> Option<Entry> {
    rows.binary_search_by_key(&lsn, |row| row.lsn).ok().and_then(|at| rows.get(at).copied())
}
