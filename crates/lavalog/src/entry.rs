//! What the index says of a record, and how it names places.
//!
//! A record lies in a *source*: a group of the log lane, or a cold file. Where it begins there is one number, `at`: in a cold file
//! the offset; in a group the block that its page begins with, counted from the first of the group, times [`io::PAGE`], and the position in
//! that page. So the places of records that were written one after another are numbers close to each other, which pack well.

use base::SeqNo;

/// The number of a logical log. Never given to another one.
pub type LogId = u64;

/// The number of a record in its log, given by its writer.
pub type Lsn = u64;

/// What a place counts for each block of a group: the positions that a page may have.
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

/// The place of a byte of a group: the first block of its page, and the position there, which is below [`io::PAGE`].
pub fn at(block: u32, pos: u16) -> u64 {
    debug_assert!(u64::from(pos) < PAGE, "position {pos} of a page");
    u64::from(block) * PAGE + u64::from(pos)
}

/// Block and position of a place in a group: what [`at()`] was given. `None` for a block that no group has.
pub fn page_of(at: u64) -> Option<(u32, u16)> {
    Some((u32::try_from(at / PAGE).ok()?, (at % PAGE) as u16))
}
