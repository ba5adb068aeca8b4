//! How long the pieces of a store are: what follows from the options alone.
//!
//! The log, its ring of open pages, its ballast, the tails of placed values and the reserve of deletes are parts of what a
//! store occupies however little data it has. Who makes them and who keeps room for them must agree on their length, so all
//! of it stands here.

use crate::context::options::{FamilyOptions, Options, SpaceLimit};
use base::{Error, Result};
use io::PAGE;
use store::commit::{ballast_bytes, staging_len};

/// For headers, filters and last pages of what a family flushes, bytes.
pub(crate) const FAMILY_BYTES: u64 = 16 << 10;
/// For the edits of the manifest that are under way.
pub(crate) const EDITS_BYTES: u64 = 16 << 10;
/// Under a limit the manifest is rolled when it has this part of it, within bounds in bytes.
const MANIFEST_PART: u64 = 256;
const MANIFEST_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// Under a limit the log is bounded to this part of it.
const LOG_PART: u64 = 64;
/// Tails that are kept, and that a limit has room for. Two memtables take turns where the flush keeps up.
pub(crate) const TAILS_KEPT_MAX: usize = 2;

/// What a job may write for so many bytes of input: outputs have headers and indexes of their own.
pub(crate) fn with_overhead(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16).saturating_add(FAMILY_BYTES)
}

/// When the manifest is rolled under a limit.
pub(crate) fn manifest_bytes(limit_bytes: u64) -> u64 {
    let (least, most) = MANIFEST_BYTES;
    (limit_bytes / MANIFEST_PART).clamp(least, most)
}

/// Bytes of a tail of placed values.
pub(crate) fn tail_len(options: &Options) -> usize {
    staging_len(options.log_group_bytes) / PAGE * PAGE
}

/// Bytes of the tails that are part of the reserve where values are placed in the log.
pub(crate) fn tails_kept_bytes(options: &Options) -> u64 {
    (TAILS_KEPT_MAX * tail_len(options)) as u64
}

/// Under a space limit so many free groups are kept: what a flush lets go of, and the border that it crosses.
pub(crate) fn free_groups_max(options: &Options) -> usize {
    1 + (options.memtable_bytes as u64).div_ceil(options.log_group_bytes) as usize
}

/// From so many bytes of live log on the family that holds the oldest is flushed. Under a limit that is a small part of
/// it, but never less than a memtable and a group need.
pub(crate) fn live_log_bytes_max(options: &Options, limit_bytes: u64) -> u64 {
    let least = 2 * options.log_group_bytes.max(options.memtable_bytes as u64);
    options.wal_bytes_max.min((limit_bytes / LOG_PART).max(least))
}

/// What the log comes to: what may be live, the group that is open, those that are kept free, and the ballast.
pub(crate) fn log_bytes_max(options: &Options, limit_bytes: u64) -> u64 {
    let more = 1 + free_groups_max(options) as u64;
    let prepared =
        options.log_group_bytes.saturating_mul(more).saturating_add(ballast_bytes(options.log_group_bytes));
    live_log_bytes_max(options, limit_bytes).saturating_add(prepared)
}

/// What deletes may take of the reserve.
pub(crate) fn delete_bytes(options: &Options) -> u64 {
    (options.memtable_bytes as u64 / 4).max(16 << 10)
}

/// The least that a store with these options occupies or keeps free, however little data it has.
/// `places`: values of some family are placed in the log.
pub(crate) fn overhead_bytes(options: &Options, family: &FamilyOptions, places: bool) -> u64 {
    let staging = staging_len(options.log_group_bytes) as u64;
    let log = log_bytes_max(options, 0);
    let vsst = if family.min_blob_size > 0 { family.vsst_bytes } else { 0 };
    // A file of placed values is as long as its memtable.
    let placed = if places { options.memtable_bytes as u64 } else { 0 };
    let tails = if places { tails_kept_bytes(options) } else { 0 };
    let memory = (options.memtable_bytes as u64).saturating_mul(4);
    let jobs = with_overhead(vsst.max(placed)).saturating_add(with_overhead(memory));
    let files = staging + log + tails + MANIFEST_BYTES.0 + EDITS_BYTES + FAMILY_BYTES;
    files + memory + jobs + delete_bytes(options)
}

impl Options {
    /// Checks every option and combination.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        self.check_ranges()?;
        leaves_room(self)
    }
}

/// Refuses a limit that leaves no room for anything.
fn leaves_room(options: &Options) -> Result<()> {
    let needed = overhead_bytes(options, &options.family, options.family.places_values());
    match options.space_limit {
        Some(SpaceLimit::Bytes(bytes)) if bytes < needed => Err(Error::invalid(format!(
            "option space_limit = {bytes} bytes is less than log, memtables and reserve need: at least {needed} bytes with \
             these options; smaller log groups, memtables and value files (log_group_bytes, memtable_bytes, vsst_bytes) \
             need less, and so does value_placement = table"
        ))),
        Some(SpaceLimit::Ratio(ratio)) if !(1.05..=1000.0).contains(&ratio) => Err(Error::invalid(format!(
            "option space_limit = {ratio} times the live data is out of range: 1.05 to 1000"
        ))),
        _ => Ok(()),
    }
}
