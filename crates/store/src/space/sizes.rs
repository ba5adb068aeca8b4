//! How long the pieces of a store are: what follows from a few numbers alone.
//!
//! The log, its ballast and the reserve of deletes are parts of what a store occupies however little data it has. Who makes
//! them and who keeps room for them must agree on their length, so it stands here. What an engine has besides, it says itself
//! ([`Terms`]).

use super::SpaceLimit;

/// For headers, filters and last pages of what is flushed, bytes.
pub const OUTPUT_BYTES: u64 = 16 << 10;
/// For the edits of the manifest that are under way.
pub const EDITS_BYTES: u64 = 16 << 10;
/// Under a limit the manifest is rolled when it has this part of it, within bounds in bytes.
const MANIFEST_PART: u64 = 256;
const MANIFEST_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// Under a limit the log is bounded to this part of it.
const LOG_PART: u64 = 64;

/// What a job may write for so many bytes of input: outputs have headers and indexes of their own.
pub fn with_overhead(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16).saturating_add(OUTPUT_BYTES)
}

/// The longest input of which the outputs are no longer than that.
pub(super) fn without_overhead(bytes: u64) -> u64 {
    let bytes = bytes.saturating_sub(OUTPUT_BYTES);
    bytes - bytes.div_ceil(17)
}

/// When the manifest is rolled under a limit.
pub fn manifest_bytes(limit_bytes: u64) -> u64 {
    let (least, most) = MANIFEST_BYTES;
    (limit_bytes / MANIFEST_PART).clamp(least, most)
}

/// The pieces that every engine has.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// What is collected in memory before a file is made of it.
    pub memtable_bytes: u64,
    /// All that may be in memory.
    pub memory_bytes: u64,
    /// The longest group of the log.
    pub log_group_bytes: u64,
    /// What of the log is kept for a full disk, as long as there is room ([`crate::commit::ballast_bytes`]).
    pub ballast_bytes: u64,
    /// What may be live of the log.
    pub wal_bytes_max: u64,
}

impl Sizes {
    /// Under a space limit so many free groups are kept: what a flush lets go of, and the border that it crosses.
    pub fn free_groups_max(&self) -> usize {
        1 + self.memtable_bytes.div_ceil(self.log_group_bytes) as usize
    }

    /// From so many bytes of live log on whoever holds the oldest is flushed. Under a limit that is a small part of it, but
    /// never less than a memtable and a group need.
    pub fn live_log_bytes_max(&self, limit_bytes: u64) -> u64 {
        let least = 2 * self.log_group_bytes.max(self.memtable_bytes);
        self.wal_bytes_max.min((limit_bytes / LOG_PART).max(least))
    }

    /// What the log comes to: what may be live, the group that is open, those that are kept free, and the ballast.
    pub fn log_bytes_max(&self, limit_bytes: u64) -> u64 {
        let more = 1 + self.free_groups_max() as u64;
        let prepared = self.log_group_bytes.saturating_mul(more).saturating_add(self.ballast_bytes);
        self.live_log_bytes_max(limit_bytes).saturating_add(prepared)
    }

    /// What deletes may take of the reserve.
    pub fn delete_bytes(&self) -> u64 {
        (self.memtable_bytes / 4).max(16 << 10)
    }
}

/// What an engine says once of the space it needs.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The bound that somebody set.
    pub limit: Option<SpaceLimit>,
    /// The pieces that every engine has.
    pub sizes: Sizes,
    /// The least that the store occupies or keeps free, however little data it has, bytes.
    pub overhead_bytes: u64,
    /// No file but the manifest's lifts the store above the limit less what edits need, not even while it is opened: what was
    /// admitted is in files already.
    pub is_strict: bool,
}

impl Terms {
    /// Of an engine that keeps nothing but the log.
    pub fn unlimited(sizes: Sizes) -> Terms {
        Terms { limit: None, sizes, overhead_bytes: 0, is_strict: false }
    }
}
