//! Bounds of a store's numbers: of files, log groups, pages and edits.
//!
//! A number read from disk may be damaged or hostile, and the next number is derived from it. So
//! there are three bounds, each half of the one before. They limit numbers in a format, numbers of
//! a plausible state, and numbers taken from the name of a stray file. Below each there is more
//! room than a store ever needs, and no addition overflows.

/// The largest valid file number, log group number, log page number or edit number. Two bits are
/// kept free so that a damaged or hostile number cannot make `number + 1` overflow.
pub const NUMBER_MAX: u64 = u64::MAX >> 2;

/// The largest plausible number in a state. Above it there is room for all future numbers:
/// allocation cannot run out because of a damaged or hostile number.
pub const NUMBER_REACHED_MAX: u64 = NUMBER_MAX >> 1;

/// The largest number in a file name that raises the allocator. It is lower again, so that a stray
/// file cannot push a store to an implausible number.
pub const NUMBER_SEEN_MAX: u64 = NUMBER_REACHED_MAX >> 1;
