//! Basic types of all other crates of LavaStore: keys, sequence numbers, codecs, checksums, errors,
//! limits.
//!
//! Nothing here does I/O or starts a thread. The modules:
//!
//! * [`error`]: one [`Error`] with a small [`ErrorKind`], the file and offset it concerns, and its
//!   source.
//! * [`key`]: internal keys (user key, sequence, kind) and their order.
//! * [`codec`]: fixed and variable-length integers, and a [`codec::Reader`] that cannot panic.
//! * [`completion`]: results of asynchronous operations, as futures.
//! * [`checksum`]: checksums masked with a file's uid and an offset, so that a stale or misplaced
//!   block is caught.
//! * [`hash`]: the hash of keys (filters), and hash maps without hidden randomness.
//! * [`histogram`]: distributions of values, recorded by many threads.
//! * [`iter`]: the iterator over internal keys that memtables, tables and merges implement.
//! * [`range_del`]: range tombstones and their fragments.
//! * [`compression`]: the codecs' names (the code behind them lives in `table`).
//! * [`dependency`]: references of a table into a value file.
//! * [`limits`]: the largest sizes the engine accepts or believes.
//! * [`process`]: the process that a handle belongs to; a child of `fork` is refused.
//! * [`sync`]: locks that ignore poisoning.
//! * [`table_notes`]: sizes and a sample of the keys of a table, kept in memory.

pub mod checksum;
pub mod codec;
pub mod completion;
pub mod compression;
pub mod dependency;
pub mod error;
pub mod footer;
pub mod hash;
pub mod histogram;
pub mod iter;
pub mod key;
pub mod limits;
pub mod process;
pub mod range_del;
pub mod sync;
pub mod table_notes;

pub use checksum::Uid;
pub use compression::Compression;
pub use dependency::Dependency;
pub use error::{Error, ErrorKind, Result};
pub use hash::{HashMap, HashSet};
pub use iter::{Gap, InternalIterator};
pub use key::{InternalKey, MAX_SEQ, SeqNo, ValueKind};
pub use table_notes::{KeySample, TableNotes};
