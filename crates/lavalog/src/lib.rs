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
//! * [`space_report`]: who owns the bytes on disk. [`verify`]: whether all of it is whole. [`repair`]: a new
//!   store of what can be proved in a damaged one.
//! * [`mod@pick`]: which files to collect next.
//! * [`log_store`]: what a user has in hand.
//!
//! The parts, each with its state and its lock, the lowest first; `core` only leads to them:
//!
//! | part | owns |
//! |---|---|
//! | `foundation` | handles of the store under the engine, which never change |
//! | `catalog` | the state of all logs |
//! | `files`, `recent` | open files of rows; the bytes of the newest records |
//! | `hold`, `appliers` | the right to move groups; the right to apply a log |
//! | `to_remake` | which index files are to be made again |
//! | `room`, `space` | the ballast of a full volume; the reserve below a space limit |
//! | `records` | the read path ([`scan`] is the other half) |
//! | `log_writer` | the order of operations, and which groups carry another engine's batches |
//! | `collect` | what is storage, and what of it may be collected |
//! | `seal` | which groups become storage, and when |
//! | `remake` | index files that are made again |
//! | `write` | the way of a write through these, and who waits for records (`tails`) |
//!
//! `jobs` finds what is to do in the background. `open` puts the parts together; [`options`], `manifest` (this engine's part of it), `copy` (a
//! checkpoint of the store), `times` (how long operations take).
//!
//! Beside LavaKV on a store, not on top of it: none of the two knows the other. `beside`: opened together with an engine that opens the store.

mod appliers;
mod applying;
mod beside;
mod catalog;
pub mod checkpoint;
pub mod cold;
mod collect;
mod copy;
mod core;
pub mod disk;
pub mod entry;
mod files;
mod foundation;
mod group_rows;
mod hold;
pub mod index;
pub mod index_file;
mod jobs;
pub mod ledger;
pub mod limits;
pub mod log_store;
mod log_writer;
pub mod logs;
pub mod lsn_set;
mod manifest;
mod open;
pub mod ops;
pub mod options;
pub mod pick;
mod reader;
mod recent;
mod records;
mod remake;
pub mod repair;
mod room;
pub mod scan;
mod seal;
mod space;
pub mod space_report;
mod tails;
mod times;
mod to_collect;
mod to_remake;
pub mod verify;
mod write;

pub use applying::Applying;
pub use beside::Beside;
pub use entry::{Entry, LogId, Lsn, Source};
pub use log_store::{BackgroundIo, LogBatch, LogHandle, LogStore, Statistics};
pub use manifest::NAME;
pub use options::Options;
pub use repair::{
    LostBatches, RecordOutcome, RepairBeside, RepairDamage, RepairGap, RepairOptions, RepairReport,
    RepairedLog,
};
pub use scan::Scan;
pub use space_report::Space;
pub use store::commit::{Completion, Durability, Loggers};
pub use store::engines::EngineSpace;
pub use verify::VerifyReport;
