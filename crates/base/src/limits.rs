//! The largest sizes the engine accepts from users or believes from disk.
//!
//! Formats carry 64-bit lengths; these limits are of this release, not of the formats.

/// The longest user key, bytes. Empty keys need a store of format 2.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// The longest value that goes through log, memtable or a block of a table, bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;
/// The longest value of all, bytes: a value longer than [`VALUE_LEN_MAX`] has its own segment.
pub const LARGE_VALUE_LEN_MAX: u64 = 1 << 30;
/// The largest encoded write batch, bytes.
pub const BATCH_LEN_MAX: usize = (16 << 20) + (128 << 10);
/// The most entries in one batch.
pub const BATCH_ENTRIES_MAX: usize = 1 << 22;
/// The longest name of a column family, bytes.
pub const FAMILY_NAME_LEN_MAX: usize = 1 << 10;
/// The most column families in one store.
pub const FAMILIES_MAX: usize = 1 << 16;
/// The largest block (uncompressed) that a reader allocates for, bytes: a block with one entry of
/// the largest size.
pub const BLOCK_LEN_MAX: usize = VALUE_LEN_MAX + KEY_LEN_MAX + (64 << 10);
/// The longest file name inside a store, bytes.
pub const FILE_NAME_LEN_MAX: usize = 255;
/// The most levels of a column family.
pub const LEVELS_MAX: usize = 7;
