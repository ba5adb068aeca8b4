//! Separation of logs into different cold files, from the second copy on.
//!
//! The first copy, from groups, mixes all logs: most of its records die soon. Records in a second
//! copy have outlived that. From then on a record should be copied only because records of its own
//! log died, not because of other logs:
//!
//! * A log with enough data for a file ([`own_bytes_min`]) gets its own file.
//! * The remaining logs that were never trimmed share one file, and all others share another.
//!
//! So records of a log that is never trimmed are not copied a third time. Its own file has no
//! garbage, and files without garbage are not collected. The file shared by untrimmed logs has no
//! garbage either while they stay untrimmed. One case remains: a log whose first trim comes after
//! its second copy, and that is too small for its own file. The logs in the same file are then
//! copied once more, as the tests show.
//!
//! Second-generation files are never merged for being small: that would be a third copy. Instead
//! second copies wait until they are worth a file, see [`super::PickOptions::second_bytes_min`] and
//! [`super::merge`].

use crate::lsn_set::Size;

/// Class of cold file for the records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColdClass {
    /// Shared by logs without a class of their own.
    Mixed,
    /// Shared by logs that were never trimmed.
    Kept,
    /// For this log alone.
    Own,
}

/// Minimum share of an output for a log to get its own file.
const OWN_PART: u64 = 64;
/// Minimum bytes for a log to get its own file. The last partial disk block then adds at most a
/// 32nd to the file, which the space grant covers.
const OWN_MIN: u64 = 128 << 10;

/// Returns the minimum live bytes for a log to get its own file, given the size of an output.
pub fn own_bytes_min(output_bytes: u64) -> u64 {
    (output_bytes / OWN_PART).max(OWN_MIN)
}

impl ColdClass {
    /// Returns the class for a log with `live` records in the inputs, for an output of
    /// `generation`. `is_trimmed`: the log was ever trimmed.
    pub fn of(generation: u32, live: Size, is_trimmed: bool, output_bytes: u64) -> ColdClass {
        if generation < 2 {
            ColdClass::Mixed
        } else if live.bytes >= own_bytes_min(output_bytes) {
            ColdClass::Own
        } else if is_trimmed {
            ColdClass::Mixed
        } else {
            ColdClass::Kept
        }
    }
}
