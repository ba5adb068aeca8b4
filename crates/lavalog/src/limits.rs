//! The largest sizes that are accepted from users or believed from disk. They are of this release, not of the formats.

use crate::entry::Lsn;

/// The longest record, bytes.
pub const RECORD_LEN_MAX: usize = base::limits::VALUE_LEN_MAX;
/// The longest encoded batch of operations, bytes.
pub const BATCH_LEN_MAX: usize = base::limits::BATCH_LEN_MAX;
/// The longest name of a log, bytes. The empty name is refused.
pub const NAME_LEN_MAX: usize = 1 << 10;
/// The longest metadata of a log, bytes.
pub const METADATA_LEN_MAX: usize = 4 << 10;
/// The most logs in one store.
pub const LOGS_MAX: usize = 1 << 20;
/// The most operations in one batch.
pub const OPS_MAX: usize = 1 << 20;
/// The largest LSN: the one after it is a number, too.
pub const LSN_MAX: Lsn = u64::MAX - 1;
