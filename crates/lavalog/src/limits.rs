//! Limits on sizes that users pass or that are read from disk. They belong to this release, not to
//! the file formats.

use crate::entry::Lsn;

/// Maximum length of a record, bytes.
pub const RECORD_LEN_MAX: usize = base::limits::VALUE_LEN_MAX;
/// Maximum length of an encoded batch of operations, bytes.
pub const BATCH_LEN_MAX: usize = base::limits::BATCH_LEN_MAX;
/// Maximum length of a log's name, bytes. The empty name is refused.
pub const NAME_LEN_MAX: usize = 1 << 10;
/// Maximum length of a log's metadata, bytes.
pub const METADATA_LEN_MAX: usize = 4 << 10;
/// Maximum number of logs in one store.
pub const LOGS_MAX: usize = 1 << 20;
/// Maximum number of operations in one batch.
pub const OPS_MAX: usize = 1 << 20;
/// Largest LSN. The next LSN still fits the type.
pub const LSN_MAX: Lsn = u64::MAX - 1;
