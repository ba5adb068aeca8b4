//! Sizes of a store's fixed parts, derived from a few numbers.
//!
//! The log, its reserved space and the reserve of deletes use space however little data a store
//! has. The code that creates them and the code that reserves space for them must agree on their
//! size, so it is defined here. Each engine adds its own parts ([`Terms`]).

use super::SpaceLimit;

/// Space for headers, filters and last pages of flushed files, bytes.
pub const OUTPUT_BYTES: u64 = 16 << 10;
/// Space for manifest edits in flight, bytes.
pub const EDITS_BYTES: u64 = 16 << 10;
/// Under a limit, the manifest is rolled at this fraction of it, within bounds in bytes.
const MANIFEST_PART: u64 = 256;
const MANIFEST_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// Under a limit, the live log is bounded to this fraction of it.
const LOG_PART: u64 = 64;

/// Returns the maximum output of a job with this input: outputs have their own headers and indexes.
pub fn with_overhead(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16).saturating_add(OUTPUT_BYTES)
}

/// Returns the maximum input whose output has at most these bytes.
pub(super) fn without_overhead(bytes: u64) -> u64 {
    let bytes = bytes.saturating_sub(OUTPUT_BYTES);
    bytes - bytes.div_ceil(17)
}

/// Returns the length of a manifest roll under a limit.
pub fn manifest_bytes(limit_bytes: u64) -> u64 {
    let (least, most) = MANIFEST_BYTES;
    (limit_bytes / MANIFEST_PART).clamp(least, most)
}

/// Sizes of the parts that every engine has.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Memtable size at which it is flushed.
    pub memtable_bytes: u64,
    /// Maximum total size of memtables.
    pub memory_bytes: u64,
    /// Length of the longest log group.
    pub log_group_bytes: u64,
    /// Reserved space of the log for a full disk ([`crate::commit::reserved_bytes`]).
    pub reserved_bytes: u64,
    /// Maximum size of the live log.
    pub wal_bytes_max: u64,
}

impl Sizes {
    /// Returns the number of free groups to keep under a space limit: those that one flush
    /// releases, and the group at its boundary.
    pub fn free_groups_max(&self) -> usize {
        1 + self.memtable_bytes.div_ceil(self.log_group_bytes) as usize
    }

    /// Returns the size of the live log at which the oldest memtable is flushed. Under a limit that
    /// is a small fraction of the limit, but never less than a memtable and a group need.
    pub fn live_log_bytes_max(&self, limit_bytes: u64) -> u64 {
        let least = 2 * self.log_group_bytes.max(self.memtable_bytes);
        self.wal_bytes_max.min((limit_bytes / LOG_PART).max(least))
    }

    /// Returns the maximum size of the log: the live part, the open group, the free groups, and the
    /// reserved space.
    pub fn log_bytes_max(&self, limit_bytes: u64) -> u64 {
        let more = 1 + self.free_groups_max() as u64;
        let prepared = self.log_group_bytes.saturating_mul(more).saturating_add(self.reserved_bytes);
        self.live_log_bytes_max(limit_bytes).saturating_add(prepared)
    }

    /// Returns the share of deletes in the reserve.
    pub fn delete_bytes(&self) -> u64 {
        (self.memtable_bytes / 4).max(16 << 10)
    }
}

/// The space terms of an engine, set once.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The configured limit.
    pub limit: Option<SpaceLimit>,
    /// Sizes of the parts that every engine has.
    pub sizes: Sizes,
    /// Minimum bytes that the store uses or keeps free, however little data it has.
    pub overhead_bytes: u64,
    /// No file except the manifest raises the store above the limit less the space for edits, not
    /// even during an open: all admitted data is in files already.
    pub is_strict: bool,
}

impl Terms {
    /// Returns the terms of an engine that keeps only the log.
    pub fn unlimited(sizes: Sizes) -> Terms {
        Terms { limit: None, sizes, overhead_bytes: 0, is_strict: false }
    }
}
