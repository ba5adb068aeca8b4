//! LavaKV, the key-value engine of LavaStore.
//!
//! ```text
//! put     write_path -> wal -> memtable -> visible -> durable
//! get     read_path  -> memtables -> tables, level by level
//! behind  scheduler  -> jobs: log, flush, compaction, clean-up -> manifest edit
//! ```
//!
//! * `open`, `read_only`: recovery.
//! * `write_path`, `throttle`: admission, the serialization point, durability.
//! * `read_path`, `iterator`, `prefetch`, `fetch`, `snapshot`: reading at one sequence.
//! * `scheduler`, `jobs`: background work in steps, on threads or in simulation.
//! * `slots`, `gc_pace`, `rate_limit`: how much of it at once, and how fast.
//! * `log_groups`, `tables`, `obsolete`: the life of files; `damaged`: those that cannot be read.
//! * `metered_fs`, `space_limit`: what they occupy, and how much they may.
//! * `checkpoint`, `verify`, `space`, `readers`, `metrics`, `collect`, `maintenance`: what operators ask for.

mod ablation;
mod batch;
mod checkpoint;
mod collect;
mod damaged;
mod db;
pub mod dump;
mod engine;
mod event;
mod families;
mod family;
mod fetch;
mod gc_pace;
mod iterator;
mod jobs;
mod large_value;
mod log_floor;
mod log_groups;
mod maintenance;
mod metered_fs;
mod metrics;
mod obsolete;
mod open;
mod options;
mod placement;
mod prefetch;
mod rate_limit;
mod read_only;
mod read_path;
mod readers;
mod repair;
mod scheduler;
mod segments;
mod slots;
mod snapshot;
mod space;
mod space_limit;
mod stats;
mod tables;
mod throttle;
mod unfinished;

mod verify;
mod write_path;

pub use ::io::{Access, Env};
pub use ablation::Ablation;
pub use base::{Compression, Error, ErrorKind, Result, SeqNo};
pub use batch::WriteBatch;
pub use cache::{CacheStats, SegmentStats};
pub use collect::{GcPause, GcPlan, GcProgress, GcReport, GcRequest, PlannedGc};
pub use damaged::DamagedFile;
pub use db::Db;
pub use event::{Event, EventListener};
pub use family::ColumnFamily;
pub use iterator::{DbIterator, Entries};
pub use large_value::{ValueReader, ValueWriter};
pub use options::{
    DamagedFiles, Durability, FamilyOptions, Options, ReadOptions, ValuePlacement, WriteOptions,
};
pub use read_path::Value;
pub use repair::{LostRange, RepairDamage, RepairOptions, RepairReport, RepairedFamily};
pub use snapshot::Snapshot;
pub use space::{FamilySpace, Holder, HolderKind, LevelSpace, LogHolder, Space};
pub use space_limit::{SpaceLimit, SpacePolicy};
pub use stats::Statistics;
pub use throttle::StallCause;
pub use verify::{Checked, CheckedCount, VerifyReport};

/// The environment's building blocks: clock, randomness, files, threads. For benchmarks and tests.
pub mod io {
    pub use ::io::*;
}

/// The simulated environment: seeded, single-threaded, with every crash state and fault.
pub mod sim {
    pub use ::io::sim::*;
}
