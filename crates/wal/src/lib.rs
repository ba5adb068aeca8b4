//! The write-ahead log: numbered pages in preallocated groups, packed in memory and written by one
//! leader at a time.
//!
//! A batch of writes is appended to the *open page* (4 KB), in memory. A batch that must survive
//! the process is then also written to the *staging file*, through the page cache. [`Syncer::sync`]
//! closes the open page, writes every page that is not yet on the device and returns when all of
//! them are durable. Callers that arrive while a write is in flight share the next one (group
//! commit). With many callers, the next write starts before the one in flight ends. A batch is
//! acknowledged when every page up to its last is durable. Recovery stops at the first hole, so an
//! acknowledged batch is never lost behind the torn page of another writer.
//!
//! Pages carry a store-wide number (LPN) that is never reused, the number of their group (LTN) and
//! the durable watermark at the time they were built. A batch belongs to a *tenant*, an engine.
//! Several tenants share one log, its syncs and its order; a group is released when no tenant needs
//! a batch in it. Recovery replays whole batches of contiguous pages. A damaged page below the
//! highest watermark found is corruption. A damaged page above it is the torn tail, and is cut off
//! together with everything after it. `docs/format/wal.md` has the byte map and the argument.
//!
//! Modules:
//!
//! - [`page`]: the format
//! - [`wal`]: the open log; `wal/overtaken`: pages superseded by a flush are never written
//! - `tail` and `groups`: the pages and the groups that the next batches go to
//! - `notes`: the batches of each page
//! - `tenant`: the owners of batches
//! - `commit`: the leader election and the durable end
//! - `counters`: statistics and latencies; `rate`: the speed of the device
//! - `history`: the groups that a log continues
//! - `durability`: the promise of a write
//! - [`recover`](mod@recover): replay after a restart
//! - `staging`: the pages that a crash left in the staging file
//! - [`place`]: reads of a part of one batch
//! - `lane`: several logs in one store
//! - [`check`]: verification of the written pages
//! - [`salvage`]: reads of a damaged log, as far as possible
//! - [`dump`]: a group as text
//!
//! Leader, followers, and shared pages for all waiting writers follow the group commit of DeWitt et
//! al., *Implementation Techniques for Main Memory Database Systems* (SIGMOD 1984). Page numbers,
//! log tags and preallocated groups follow SpanDB (FAST 2021). SpanDB acknowledges out of order;
//! this log does not.

pub mod check;
mod commit;
mod counters;
mod domain;
pub mod dump;
mod durability;
mod groups;
mod history;
mod lane;
mod notes;
pub mod page;
pub mod place;
mod rate;
pub mod recover;
pub mod salvage;
mod staging;
#[cfg(test)]
mod store_model;
mod tail;
mod tenant;
pub mod wal;
mod walk;

pub use commit::Loggers;
pub use counters::{Times, WalStats};
pub use domain::Domain;
pub use dump::dump_group;
pub use durability::Durability;
pub use groups::PreparedGroup;
pub use history::{Chain, History, LogBegin, PriorGroup};
pub use lane::Lane;
pub use page::{group_len_needed, group_of};
pub use place::{LogAddress, LogFilePosition, ReadGroup};
pub use recover::{
    LaneRead, LogGroup, LoggedBatch, OnBatch, ReadPoint, RecoveryMode, RecoveryReport, StagedPages,
    read_lane, read_on, recover, recover_lane, recover_staged, recover_up_to_damage,
};
pub use staging::{STAGING_NAME, Staging, newest_staged_group};
pub use tenant::{OnReplay, Span, Spans, TenantId, only};
pub use wal::{Content, DeferredWriter, Position, Syncer, UnrecordedBegin, Wal, WalOptions};
