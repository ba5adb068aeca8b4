//! How large the numbers of a store may be: of files, log groups, pages and edits.
//!
//! A number comes from disk, may be damaged or hostile, and the next one is made from it. So there are three bounds, each
//! half of the one before: what can be written down, what a store is believed to have reached, and what the name of a stray
//! file can push it to. Below each there is more room than a store ever needs, and no addition overflows.

/// The largest file number, LTN, LPN or edit number that is believed. Two bits are kept free so that a damaged or
/// hostile number cannot make `number + 1` overflow.
pub const NUMBER_MAX: u64 = u64::MAX >> 2;

/// The largest number that a store is believed to have reached. Above it there is room for all numbers that it will
/// ever need: allocation cannot run out because of a damaged or hostile number.
pub const NUMBER_REACHED_MAX: u64 = NUMBER_MAX >> 1;

/// The largest number in the name of a file that new numbers are kept above. It is lower again, so that a stray file
/// cannot push a store to a number with which it is not believed.
pub const NUMBER_SEEN_MAX: u64 = NUMBER_REACHED_MAX >> 1;
