//! LavaLog: thousands of logical logs in one physical log.
//!
//! A record is identified by its log and an LSN that the writer chooses. Records of all logs are
//! appended to the record lane of the store's log and stay there. When replay needs a log group no
//! longer, the engine seals it: the group remains on disk as record storage. An index maps each
//! record to its position. Sealed groups have their index entries in one index file each. Memory
//! holds the entries of the newest groups and, for each log and file, the runs of LSNs in the file.
//!
//! * [`ops`]: operations and their encoding in the log. [`logs`]: the state that they produce.
//!   [`index`]: record positions; [`ledger`]: live bytes of each file.
//! * [`entry`]: index entries. [`lsn_set`]: sets of LSNs. [`limits`]: size limits.
//! * [`index_file`]: the index entries of one log group. [`checkpoint`]: the rest of the state of
//!   all logs. [`cold`]: records that outlived their group. [`disk`]: the common parts of these
//!   three file kinds.
//! * [`space_report`]: space by owner. [`verify`]: integrity check. [`repair`]: salvages a damaged
//!   store into a new one.
//! * [`mod@pick`]: chooses files for garbage collection.
//! * [`log_store`]: the public API.
//!
//! The components, lowest first. Each owns its state and its lock; `core` only holds them together:
//!
//! | component | owns |
//! |---|---|
//! | `store_handles` | handles of the underlying store, which never change |
//! | `catalog` | the state of all logs |
//! | `files`, `recent` | open index and cold files; the bytes of the newest records |
//! | `hold`, `appliers` | the exclusive right to move groups; the exclusive right to apply a log |
//! | `to_remake` | the queue of index files to rebuild |
//! | `room`, `space` | the reserved space for a full volume; the reserve below a space limit |
//! | `records` | point reads ([`scan`] has the range reads) |
//! | `log_writer` | the order of operations, and the groups with embedded batches |
//! | `collect` | sealed groups and cold files, and their garbage collection |
//! | `seal` | sealing of log groups |
//! | `remake` | rebuilding of index files |
//! | `write` | the write path through these components, and the waiting readers (`tails`) |
//!
//! `jobs` schedules the background work. `open` assembles the components. Also: [`options`],
//! `manifest` (this engine's part of the manifest), `copy` (checkpoints of the store) and `times`
//! (latency statistics).
//!
//! LavaLog and LavaKV are peers on the same store, and neither depends on the other. `secondary`
//! opens LavaLog as the secondary engine of a store that another engine, the *host engine*, opens
//! and drives.

mod appliers;
mod applying;
mod catalog;
pub mod checkpoint;
pub mod cold;
mod collect;
mod copy;
mod core;
pub mod disk;
pub mod entry;
mod files;
mod full_volume;
mod group_rows;
mod hold;
pub mod index;
pub mod index_file;
mod index_rebuild;
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
mod rebuild_queue;
mod recent;
mod records;
pub mod repair;
pub mod scan;
mod seal;
mod secondary;
mod space;
pub mod space_report;
mod store_handles;
mod tails;
mod times;
mod to_collect;
pub mod verify;
mod write;

pub use applying::Applying;
pub use entry::{Entry, LogId, Lsn, Source};
pub use log_store::{BackgroundIo, LogBatch, LogHandle, LogStore, Statistics};
pub use manifest::NAME;
pub use options::Options;
pub use repair::{
    LostBatches, RecordOutcome, RepairDamage, RepairGap, RepairOptions, RepairReport, RepairedLog,
    SecondaryLogRepair,
};
pub use scan::Scan;
pub use secondary::SecondaryLogs;
pub use space_report::Space;
pub use store::commit::{Completion, Durability, Loggers};
pub use store::engines::EngineSpace;
pub use verify::VerifyReport;
