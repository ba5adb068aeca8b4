//! LavaKV, the key-value engine of LavaStore.
//!
//! ```text
//! put     commit -> wal -> memtable -> visible -> durable
//! get     read_path  -> memtables -> tables, level by level
//! behind  scheduler  -> jobs: log, flush, clean-up, compaction, collection, scrub -> manifest edit
//! ```
//!
//! Modules, from the lowest layer up (see docs/ARCHITECTURE.md; `structure` counts dependencies
//! that point up):
//!
//! * `context`: options, events, statistics. `files`: open, damaged and obsolete files, and the
//!   log.
//! * `tree`: families, snapshots, readers. `large`: values that are written to files before they
//!   are logged.
//! * `write`: admission, the serialization point, durability. `read`: reads at a sequence number.
//! * `plan`: how much background work runs at once, and how fast. `work`: jobs, in steps, on
//!   threads or in simulation.
//! * `admin`: operations for administrators. `requests`: asynchronous requests.
//! * `db`, `engine`, `open`, `service`, `read_only`, `multi_engine`, `repairing`, `secondary_lane`,
//!   `scale`: the top level of the crate.

#![warn(missing_debug_implementations)]

mod admin;
mod batch;
mod context;
mod db;
mod engine;
pub mod fast_tier;
mod files;
mod large;
#[doc(hidden)]
pub mod multi_engine;
mod open;
mod plan;
mod read;
mod read_only;
#[doc(hidden)]
pub mod repairing;
mod requests;
#[doc(hidden)]
pub mod scale;
mod secondary_lane;
mod service;
mod tree;
mod work;
mod write;

pub use self::requests::completion_queue::{AnyRequest, Outcome, RequestQueue};
pub use self::requests::request::{Entry, Request, WriteRequest};
pub use self::requests::{RequestOptions, Requests};
pub use ::io::{Access, Cancel, Env};
pub use admin::collect::{GcPause, GcPlan, GcProgress, GcReport, PlannedGc};
pub use admin::compact::{CompactProgress, CompactRequest};
pub use admin::dump;
pub use admin::space_report::{
    FamilySpace, Holder, HolderKind, LevelSpace, LogHolder, RestReport, RestState, Space,
};
pub use base::histogram::Distribution;
#[doc(hidden)]
pub use base::process;
pub use base::{Compression, Error, ErrorKind, Result, SeqNo, limits};
pub use batch::WriteBatch;
pub use cache::{CacheStats, SegmentStats};
pub use context::ablation::Ablation;
pub use context::event::{DamagedFile, Event, EventListener, FastTierChangeReason, StallCause};
pub use context::expert::{ExpertFamilyOptions, ExpertOptions};
pub use context::explain::{ExplainedOption, Explanation, OptionSource};
pub use context::family_options::FamilyOptions;
pub use context::options::{
    DamagedFiles, Durability, Loggers, Options, SpaceLimit, SpacePolicy, WriteOptions,
};
pub use context::stats::Statistics;
pub use context::times::Histograms;
pub use db::Db;
pub use lsm::operator::{set_members, set_of};
pub use lsm::policy::{OverlapOf, PolicyChoice, VlsmOptions};
pub use lsm::{
    CompactionFilter, CompactionFilters, FilterDecision, FilterRun, FilteredCompaction, FilteredEntry,
    MergeChoice, MergeOperator, MergeOperators,
};
pub use plan::requests::GcRequest;
pub use read::iterator::{DbIterator, Entries};
pub use read::options::{ReadAt, ReadOptions};
pub use read::pending::{FoundValue, PendingGet, PendingMultiGet, Progress};
pub use read::read_path::Value;
pub use read::value_reader::ValueReader;
pub use store::engines::EngineSpace;
pub use store::fast_tier::FastTierSpace;
pub use store::format::StoreFormat;
pub use store::mailbox::{CheckpointRequest, request_checkpoint};
pub use table::{BlockKind, BlockRequest, Extent, KeyPrefix};
pub use tree::family::ColumnFamily;
pub use tree::snapshot::Snapshot;
pub use work::verify::{Checked, CheckedCount, VerifyReport};
pub use write::conditions::Conditions;
pub use write::large_value::ValueWriter;
pub use write::row_locks::{LockMode, LockOwner};
pub use write::validation::{READ_SET_BYTES_MAX, RangeId, ReadSet};

/// The environment's components: clock, randomness, files, threads. For benchmarks and tests.
pub mod io {
    pub use ::io::*;
}

/// The interfaces of a compaction policy. For tests of policies that are not built in.
#[doc(hidden)]
pub mod policy {
    pub use lsm::policy::*;
    pub use lsm::{OutputCutter, OutputSize, SizeCutter};
    pub use version::{FileMeta, Version};
}

/// The simulated environment: seeded, single-threaded, with every crash state and fault.
pub mod sim {
    pub use ::io::sim::*;
}
