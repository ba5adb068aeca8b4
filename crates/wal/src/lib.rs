//! The write-ahead log: numbered pages in preallocated groups, packed in memory, taken to the device by one leader at a time.
//!
//! A batch of writes is appended to the *open page* (4 KB), in memory. One that must survive the process is then written
//! to the *staging file* too, through the page cache. [`Syncer::sync`] closes the open page, writes every page that is
//! not yet on the device and returns when all of them are durable; callers that arrive while a write is in flight
//! share the next one (group commit), which where they are many does not wait for the one in flight. A batch is acknowledged when every page up to its last is durable, so that
//! recovery, which stops at the first hole, never loses an acknowledged batch behind somebody else's torn page.
//!
//! Pages carry a store-wide number (LPN) that is never used twice, the number of their group (LTN) and the durable
//! watermark at the time they were built. A batch belongs to a *tenant*, an engine: several share one log, its syncs and
//! its order, and a group goes when each has said that it needs nothing in it. Recovery replays whole batches of contiguous pages; a damaged page below the
//! highest watermark found is corruption, one above it is the torn tail and is cut off together with everything after
//! it. `docs/format/wal.md` has the byte map and the argument.
//!
//! Modules: [`page`] (the format), [`wal`] (the log while it is open; `wal/overtaken`: what a flush overtakes is never written), `tail` and `groups` (what comes next goes
//! where), `notes` (which batches are in which pages), `tenant` (whose batches are), `commit` (who writes, and when it is durable), `counters` (what was done, how long it took), `rate` (how fast the device is), `history` (the groups that a log continues), `durability` (the promise of a write), [`recover`](mod@recover) (after a restart), `staging` (the
//! pages that a crash left in the staging file), [`place`] (a part of a batch, read alone), `lane` (several logs in one store), [`check`] (what was written, read again), [`salvage`] (a damaged log, as far
//! as it can be read), [`dump`] (a group as text).
//!
//! Leader and followers, and packing the batches of all waiting writers into shared pages, follow the group commit
//! of DeWitt et al., *Implementation Techniques for Main Memory Database Systems* (SIGMOD 1984); page numbers, log
//! tags and preallocated groups follow SpanDB (FAST 2021), which acknowledges out of order and here does not.

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
pub use place::{LogPlace, Place, ReadGroup};
pub use recover::{
    LaneRead, LogGroup, LoggedBatch, OnBatch, ReadPoint, RecoveryMode, RecoveryReport, StagedPages,
    read_lane, read_on, recover, recover_lane, recover_staged, recover_up_to_damage,
};
pub use staging::{STAGING_NAME, Staging, newest_staged_group};
pub use tenant::{OnReplay, Span, Spans, TenantId, only};
pub use wal::{Content, Deferred, Overtaken, Position, Syncer, Wal, WalOptions};
