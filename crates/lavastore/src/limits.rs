//! Size limits. Larger input is refused as [`TooLarge`](crate::ErrorKind::TooLarge), a longer family
//! name as [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
//!
//! ```
//! use lavastore::{ErrorKind, limits};
//! # let db = lavastore::testing::store();
//! let too_long = vec![b'k'; limits::KEY_LEN_MAX + 1];
//! assert_eq!(db.put(too_long, "").unwrap_err().kind(), ErrorKind::TooLarge);
//! ```

/// Longest key, 65,536 bytes, to check keys before a write: a longer one fails with `TooLarge`. The
/// shortest is one byte; empty keys need a store of format 2.
///
/// ```
/// assert_eq!(lavastore::limits::KEY_LEN_MAX, 64 << 10);
/// ```
pub const KEY_LEN_MAX: usize = lavakv::limits::KEY_LEN_MAX;

/// Longest value, 1 GiB: in a put, in a batch, in a stream. A value may be empty. A longer one
/// fails with `TooLarge`, and nothing is written. Split longer data over several keys;
/// [`Db::put_stream`](crate::Db::put_stream) writes a value in pieces.
///
/// ```
/// assert_eq!(lavastore::limits::VALUE_LEN_MAX, 1 << 30);
/// ```
pub const VALUE_LEN_MAX: u64 = lavakv::limits::LARGE_VALUE_LEN_MAX;

/// Longest batch, 16 MiB + 128 KiB (16,908,288 bytes), to compare with
/// [`WriteBatch::byte_len`](crate::WriteBatch::byte_len) while filling one. Values with their own
/// files (above 4 MiB by default) do not count. A longer batch fails with `TooLarge`, and nothing
/// is written. Split a longer batch.
///
/// ```
/// assert!(lavastore::limits::BATCH_LEN_MAX > 16 << 20);
/// ```
pub const BATCH_LEN_MAX: usize = lavakv::limits::BATCH_LEN_MAX;

/// Longest name of a column family, 1024 bytes of UTF-8. A longer one fails with `InvalidArgument`,
/// as does the empty name.
///
/// ```
/// assert_eq!(lavastore::limits::FAMILY_NAME_LEN_MAX, 1024);
/// ```
pub const FAMILY_NAME_LEN_MAX: usize = lavakv::limits::FAMILY_NAME_LEN_MAX;

/// Maximum number of column families in a store, `default` included: 65,536. Creating one more
/// fails with `TooLarge`; dropped families do not count. For more key spaces use prefixes of keys.
///
/// ```
/// assert_eq!(lavastore::limits::FAMILIES_MAX, 1 << 16);
/// ```
pub const FAMILIES_MAX: usize = lavakv::limits::FAMILIES_MAX;

/// Longest record of a log, 16 MiB, to split longer data before an append. A longer one fails with
/// `TooLarge`, and nothing is written. A record may be empty.
///
/// ```
/// assert_eq!(lavastore::limits::RECORD_LEN_MAX, 16 << 20);
/// ```
pub const RECORD_LEN_MAX: usize = lavalog::limits::RECORD_LEN_MAX;

/// Longest name of a log, 1024 bytes of UTF-8. A longer one fails with `TooLarge`, the empty name
/// with `InvalidArgument`.
///
/// ```
/// assert_eq!(lavastore::limits::LOG_NAME_LEN_MAX, 1024);
/// ```
pub const LOG_NAME_LEN_MAX: usize = lavalog::limits::NAME_LEN_MAX;

/// Longest metadata of a log, 4096 bytes. Longer metadata fail with `TooLarge`, and the former ones
/// stay. Put more data into a record or a key.
///
/// ```
/// assert_eq!(lavastore::limits::LOG_METADATA_LEN_MAX, 4096);
/// ```
pub const LOG_METADATA_LEN_MAX: usize = lavalog::limits::METADATA_LEN_MAX;

/// Maximum number of logs in a store, 1,048,576. Creating one more fails with `TooLarge`; deleted
/// logs do not count.
///
/// ```
/// assert_eq!(lavastore::limits::LOGS_MAX, 1 << 20);
/// ```
pub const LOGS_MAX: usize = lavalog::limits::LOGS_MAX;
