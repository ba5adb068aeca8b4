//! The write-ahead log: numbered pages in preallocated groups, packed in memory, taken to the device by one leader at a time.
//!
//! A batch of writes is appended to the *open page* (4 KB), in memory. One that must survive the process is then written
//! to the *staging file* too, through the page cache. [`Wal::sync`] closes the open page, writes every page that is
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
//! where), `notes` (which batches are in which pages), `tenant` (whose batches are), `commit` (who writes, and when it is durable), `counters` (what was done, how long it took), `rate` (how fast the device is), [`recover`](mod@recover) (after a restart), `staging` (the
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
mod groups;
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
pub use groups::PreparedGroup;
pub use lane::Lane;
pub use page::{group_len_needed, group_of};
pub use place::{Place, ReadGroup};
pub use recover::{
    LaneRead, LogGroup, LoggedBatch, OnBatch, RecoveryMode, RecoveryReport, StagedPages, read_lane, recover,
    recover_lane, recover_up_to_damage,
};
pub use staging::newest_staged_group;
pub use tenant::{OnReplay, Span, Spans, TenantId, only};
pub use wal::{Overtaken, Position, Wal, WalOptions};

/// The name of the staging file of the first lane, which keeps the open pages for the next process, in the log's directory.
pub const STAGING_NAME: &str = "STAGING";

/// Where something stands in the files of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The file.
    pub path: std::path::PathBuf,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// What a write promises when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Survives power loss.
    Durable,
    /// Survives the death of the process.
    Buffered,
    /// Survives neither: not logged at all.
    Volatile,
}

/// Where a group begins to continue another: the end of the pages before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The group that ends here.
    pub ltn: u64,
    /// One more than the number of its last page.
    pub end_lpn: u64,
    /// Bytes used in that page.
    pub used: u16,
}

/// Where the log begins in its oldest group, if that is not the first page of it: what is before was overtaken by flushes, and
/// perhaps never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBegin {
    /// The first page of the group.
    pub first_lpn: u64,
    /// The first page that counts.
    pub lpn: u64,
    /// Bytes used in the page before it; of no meaning if it is the first of the group.
    pub used: u16,
}

impl LogBegin {
    /// Where that is in the file of the group.
    pub fn offset(self, lane: Lane) -> u64 {
        self.lpn.saturating_sub(self.first_lpn).saturating_mul(lane.unit() as u64)
    }
}

/// A group that still holds records somebody may need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorGroup {
    /// Its number.
    pub ltn: u64,
    /// Bytes of its file.
    pub len: u64,
    /// Where in its file the pages begin that count, bytes: 0 but where the log begins in the middle of it ([`LogBegin`]).
    pub begins: u64,
    /// How far its file is filled with pages, or was when recovery read it (some of them in staging, for one who only reads),
    /// bytes.
    pub filled: u64,
    /// The sequences of its batches.
    pub seqs: Spans,
}

/// What a log continues when it starts: nothing in a new store, else what recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The end of the accepted pages; `None` if there are none.
    pub chain: Option<Chain>,
    /// The groups that were accepted, oldest first. [`Wal::release_below`] hands them out like the log's own.
    pub groups: Vec<PriorGroup>,
}

impl History {
    /// Lets go of the oldest groups up to the first that a tenant needs by its floor, before a log is started that continues
    /// this one; all pages are durable. Returns their numbers.
    pub fn release_below(&mut self, floors: &[(TenantId, base::SeqNo)]) -> Vec<u64> {
        let needed = self.groups.iter().position(|group| group.seqs.are_needed(floors));
        let released = self.groups.drain(..needed.unwrap_or(self.groups.len()));
        let released = released.map(|group| group.ltn).collect();
        if self.groups.is_empty() {
            self.chain = None;
        }
        released
    }
}
