//! The groups that a log continues when it starts, and the end of their pages.

use crate::lane::Lane;
use crate::tenant::{Spans, TenantId};

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

/// Where the log begins in its oldest group, if that is not the first page of it: flushes have overtaken the pages before, which
/// perhaps were never written.
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

/// A group whose records may still be needed.
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

/// The past that a log continues when it starts: empty in a new store, else the groups that recovery accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The end of the accepted pages; `None` if there are none.
    pub chain: Option<Chain>,
    /// The groups that were accepted, oldest first. [`crate::wal::Content::release_below`] hands them out like the log's own.
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
