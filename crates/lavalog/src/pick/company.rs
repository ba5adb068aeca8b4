//! With whom a log's records lie once they are copied for the second time.
//!
//! The first copy, out of groups, mixes all logs: most of what is in it dies soon. What is copied a second time has outlived that, and from
//! then on a record is to be copied because records of its own log died, and not because others' did:
//!
//! * a log of which there is enough for a file ([`own_bytes_min`]) gets one of its own;
//! * the rest of those that were never trimmed goes into one file, and the rest of the others into another.
//!
//! So of a log that is never trimmed nothing is copied a third time: its own file has no garbage, and nothing without garbage is
//! collected. Neither has one that it shares with others that were never trimmed, for as long as they are not. (What is left open is a log
//! that was not trimmed before its second copy and is later, with a share so small that it has no file of its own: those beside it are
//! copied once more then, as the tests show.)
//!
//! Files of a second copy are never put together with others for being small: that would be a third one. Instead second copies wait until
//! they are worth a file, see [`super::PickOptions::second_bytes_min`] and [`super::merge`].

use crate::lsn_set::Size;

/// Where the records of a log go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Company {
    /// To those of all others.
    Mixed,
    /// To those of logs that were never trimmed.
    Kept,
    /// Into a file of their own.
    Own,
}

/// A log has a file of its own from this part of an output on,
const OWN_PART: u64 = 64;
/// and not below so many bytes: the end of a file in a block of its own is then at most a 32nd of it, for which room is granted.
const OWN_MIN: u64 = 128 << 10;

/// Bytes from which on a log has a file of its own, where outputs have so many.
pub fn own_bytes_min(output_bytes: u64) -> u64 {
    (output_bytes / OWN_PART).max(OWN_MIN)
}

impl Company {
    /// Of a log with so much alive in the inputs of a copy, whose output is of `generation`; `is_trimmed`: it was, ever.
    pub fn of(generation: u32, live: Size, is_trimmed: bool, output_bytes: u64) -> Company {
        if generation < 2 {
            Company::Mixed
        } else if live.bytes >= own_bytes_min(output_bytes) {
            Company::Own
        } else if is_trimmed {
            Company::Mixed
        } else {
            Company::Kept
        }
    }
}
