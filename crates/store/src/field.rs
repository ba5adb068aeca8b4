//! Decoding of record fields: numbers within their range, and known flags.

use crate::numbers::NUMBER_MAX;
use base::codec::{Reader, put_varint};
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo};

/// Returns the error for a field that only a newer release can have written.
pub fn newer(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{what} is not known to this release: open the store with the release that wrote it, or a newer one"
        ),
    )
}

/// Turns an argument error into corruption, because the argument came from disk.
pub fn damaged(e: Error) -> Error {
    e.with_kind(ErrorKind::Corruption)
}

/// Reads a byte of flags, all of which must be in `known`.
///
/// # Errors
/// `Unsupported` for other flags.
pub fn flags(r: &mut Reader<'_>, known: u8) -> Result<u8> {
    let flags = r.u8()?;
    if flags & !known != 0 {
        return Err(newer(format!("the flag byte {flags:#04x} of a stored record")));
    }
    Ok(flags)
}

/// Reads a file, log or page number within its range.
///
/// # Errors
/// `Corruption`.
pub fn number(r: &mut Reader<'_>) -> Result<u64> {
    match r.varint()? {
        n if n <= NUMBER_MAX => Ok(n),
        n => Err(Error::corruption(format!(
            "the file, log group or page number {n} in a stored record is out of range: at most {NUMBER_MAX}"
        ))),
    }
}

/// Appends a list of numbers: the count, then each number.
pub fn put_numbers(out: &mut Vec<u8>, list: &[u64]) {
    put_varint(out, list.len() as u64);
    list.iter().for_each(|&n| put_varint(out, n));
}

/// Reads a list written by [`put_numbers`].
///
/// # Errors
/// `Corruption`.
pub fn numbers(r: &mut Reader<'_>) -> Result<Vec<u64>> {
    let count = r.length(r.rest().len())?;
    (0..count).map(|_| number(r)).collect()
}

/// Reads a sequence within its range.
///
/// # Errors
/// `Corruption`.
pub fn sequence(r: &mut Reader<'_>) -> Result<SeqNo> {
    match r.varint()? {
        n if n <= MAX_SEQ => Ok(n),
        n => Err(Error::corruption(format!(
            "the sequence number {n} in a stored record is out of range: at most {MAX_SEQ}"
        ))),
    }
}

/// Reads a number of 32 bits: an id or a level.
///
/// # Errors
/// `Corruption`.
pub fn small(r: &mut Reader<'_>) -> Result<u32> {
    let n = r.varint()?;
    u32::try_from(n).map_err(|_| {
        Error::corruption(format!(
            "the id or level {n} in a stored record is out of range: at most 4294967295"
        ))
    })
}
