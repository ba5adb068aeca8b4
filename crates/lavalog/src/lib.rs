//! LavaLog: thousands of logical logs on few physical ones.
//!
//! A record has a log and an LSN, which its writer gives it. Records of all logs are appended to the log lane of a store, which
//! is where they stay: its groups are kept as storage when nobody needs them for replay any more. An index says where each record
//! is. Most of it is in files, one for each group; in memory are the entries of the newest groups, and for all others the runs of
//! LSNs that each file has of each log.
//!
//! * [`ops`]: what is written to the log. [`logs`]: what that leads to. [`index`]: where the records are; [`ledger`]: how much of each
//!   file is alive.
//! * [`entry`]: what the index says of a record. [`lsn_set`]: which LSNs a file has. [`limits`]: how large things may be.
//! * [`index_file`]: where the records of one group are. [`checkpoint`]: what is known of logs beside that. [`cold`]: records that
//!   outlived their group. [`disk`]: what these three kinds of files have in common.
//! * [`mod@pick`]: which files to collect next.
//!
//! Beside LavaKV on a store, not on top of it: none of the two knows the other.

pub mod checkpoint;
pub mod cold;
pub mod disk;
pub mod entry;
pub mod index;
pub mod index_file;
pub mod ledger;
pub mod limits;
pub mod logs;
pub mod lsn_set;
pub mod ops;
pub mod pick;

pub use entry::{Entry, LogId, Lsn, Source};
