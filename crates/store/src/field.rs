//! How the fields of records are read: numbers within their range, flags that are known, and what is said of others.

use crate::numbers::NUMBER_MAX;
use base::codec::{Reader, put_varint};
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo};

/// An error about something that only a newer release can have written.
pub fn newer(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{what} is not known to this release: open the store with the release that wrote it, or a newer one"
        ),
    )
}

/// What is an argument error for a caller is damage when it comes from disk.
pub fn damaged(e: Error) -> Error {
    e.with_kind(ErrorKind::Corruption)
}

/// A byte of flags, of which only those in `known` may be set.
///
/// # Errors
/// `Unsupported` if others are.
pub fn flags(r: &mut Reader<'_>, known: u8) -> Result<u8> {
    let flags = r.u8()?;
    if flags & !known != 0 { Err(newer(format!("flag byte {flags:#04x}"))) } else { Ok(flags) }
}

/// A file, log or page number within its range.
///
/// # Errors
/// `Corruption`.
pub fn number(r: &mut Reader<'_>) -> Result<u64> {
    match r.varint()? {
        n if n <= NUMBER_MAX => Ok(n),
        n => Err(Error::corruption(format!("number {n} is out of range"))),
    }
}

/// A list of numbers: count, then each.
pub fn put_numbers(out: &mut Vec<u8>, list: &[u64]) {
    put_varint(out, list.len() as u64);
    list.iter().for_each(|&n| put_varint(out, n));
}

/// Reads what [`put_numbers`] wrote.
///
/// # Errors
/// `Corruption`.
pub fn numbers(r: &mut Reader<'_>) -> Result<Vec<u64>> {
    let count = r.length(r.rest().len())?;
    (0..count).map(|_| number(r)).collect()
}

/// A sequence within its range.
///
/// # Errors
/// `Corruption`.
pub fn sequence(r: &mut Reader<'_>) -> Result<SeqNo> {
    match r.varint()? {
        n if n <= MAX_SEQ => Ok(n),
        n => Err(Error::corruption(format!("sequence {n} is out of range"))),
    }
}

/// A number of 32 bits: an id or a level.
///
/// # Errors
/// `Corruption`.
pub fn small(r: &mut Reader<'_>) -> Result<u32> {
    let n = r.varint()?;
    u32::try_from(n).map_err(|_| Error::corruption(format!("id or level {n} is out of range")))
}
