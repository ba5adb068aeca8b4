//! What the index says of a record, and how it names places.
//!
//! A record lies in a *source*: a group of the log lane, or a cold file. Where it begins there is one number, `at`: in a cold file
//! the offset; in a group the number of the page times [`io::PAGE`], and the position in that page. So the places of
//! records that were written one after another are numbers close to each other, which pack well.

use base::{Error, Result, SeqNo};

/// The number of a logical log. Never given to another one.
pub type LogId = u64;

/// The number of a record in its log, given by its writer.
pub type Lsn = u64;

/// Bytes that a place counts for each page of a group.
const PAGE: u64 = io::PAGE as u64;

/// What holds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A group of the log lane, by its log tag number.
    Group(u64),
    /// A cold file, by its file number.
    Cold(u64),
}

/// One record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Its log.
    pub log: LogId,
    /// Its number there.
    pub lsn: Lsn,
    /// The sequence of the operation that appended it, which it keeps wherever it is copied to.
    pub seq: SeqNo,
    /// Where its bytes begin in its source. See the module.
    pub at: u64,
    /// How many bytes it has.
    pub len: u32,
}

/// The place of a byte of a group: page `lpn`, position `pos` in it.
///
/// # Errors
/// `Corruption` for a position outside of a page, or a page that no lane ever reaches.
pub fn at(lpn: u64, pos: u16) -> Result<u64> {
    let page = lpn.checked_mul(PAGE).filter(|_| u64::from(pos) < PAGE);
    page.map(|page| page + u64::from(pos))
        .ok_or_else(|| Error::corruption(format!("position {pos} of page {lpn} is no place in a group")))
}

/// Page and position of a place in a group: what [`at()`] was given.
pub fn page_of(at: u64) -> (u64, u16) {
    (at / PAGE, (at % PAGE) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbers() {
        for (lpn, pos) in [(0, 0), (1, 4095), (1 << 51, 112)] {
            assert_eq!(page_of(at(lpn, pos).unwrap()), (lpn, pos));
        }
        assert!(at(1, 4096).unwrap_err().is_corruption());
        assert!(at(1 << 56, 0).unwrap_err().is_corruption());
    }
}
