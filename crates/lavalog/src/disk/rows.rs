//! Blocks of rows: the positions of up to 256 records of one log.
//!
//! ```text
//! log varint | rows - 1 u8 | flags u8 | four columns: LSN, sequence, place, length
//! ```
//!
//! Flag bit `i` is set if column `i` is *uneven*. An even column has values with a constant step.
//! It is stored as its first value and, if the block has several rows, the step. An uneven column
//! is stored as its first value and the difference between each value and the previous one. First
//! values are varints; steps and differences are zigzag varints modulo 2^64. So consecutive LSNs,
//! equal lengths and adjacent records take no bytes per row. A record of one log among many takes
//! three to five bytes: one or two for its sequence number, and two or three for its position.
//!
//! The column `place` is [`Entry::at`]: page and position in the index of a group, the offset of
//! the record in a cold file.
//!
//! LSNs ascend within a block and across the blocks of a log. All blocks of a log except the last
//! have 256 rows, so the block of a record follows from the number of earlier LSNs
//! ([`super::directory`]). (A MetaFlush record of LavaStore, PVLDB 17(12), has as many entries.)

use crate::entry::{Entry, LogId, Lsn};
use crate::limits::{LSN_MAX, RECORD_LEN_MAX};
use base::codec::{Reader, put_varint};
use base::{Error, ErrorKind, MAX_SEQ, Result};

/// Maximum number of rows in a block.
pub const BLOCK_ROWS: usize = 256;
/// Maximum length of a block without its checksum: log, row count, flags, and the columns.
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
        _ => Err(Error::corruption(format!(
            "the LSN {lsn}, sequence number {seq} or length {len} bytes of a record in an index block is out of range; records in other blocks stay readable"
        ))),
    }
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Appends a block of 1 to 256 records of one log, with ascending LSNs.
///
/// # Panics
/// If `rows` is empty or has more than 256 records.
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
/// `Unsupported` for flags of a newer release, `Corruption` for any other defect.
pub fn decode(payload: &[u8]) -> Result<Vec<Entry>> {
    let mut reader = Reader::new(payload);
    let log = reader.varint()?;
    let count = usize::from(reader.u8()?) + 1;
    let flags = reader.u8()?;
    if flags >> COLUMNS != 0 {
        let why = format!("an index block has the unknown flags {flags:#x}: use a newer release");
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
        return Err(Error::corruption(format!(
            "an index block has {} bytes behind its last record; records in other blocks stay readable",
            reader.rest().len()
        )));
    }
    let rows = cells.into_iter().map(|row| from_columns(log, row)).collect::<Result<Vec<Entry>>>()?;
    if !rows.is_sorted_by(|a, b| a.lsn < b.lsn) {
        return Err(Error::corruption(
            "the LSNs in an index block do not ascend; records in other blocks stay readable",
        ));
    }
    Ok(rows)
}

/// Returns the row of an LSN in a block, if it has one.
pub fn find(rows: &[Entry], lsn: Lsn) -> Option<Entry> {
    rows.binary_search_by_key(&lsn, |row| row.lsn).ok().and_then(|at| rows.get(at).copied())
}
