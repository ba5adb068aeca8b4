//! The groups that a log continues when it starts, and the end of their pages.

use crate::lane::Lane;
use crate::tenant::{Spans, TenantId};

/// The link of a group to the one before it: the end of the earlier pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The group that ends here.
    pub ltn: u64,
    /// One more than the number of its last page.
    pub end_lpn: u64,
    /// Bytes used in that page.
    pub used: u16,
}

/// Beginning of the log in its oldest group, if that is not the first page of the group. The pages
/// before are superseded by flushes, and may never have been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBegin {
    /// The first page of the group.
    pub first_lpn: u64,
    /// The first page of the log.
    pub lpn: u64,
    /// Bytes used in the page before it; of no meaning if it is the first of the group.
    pub used: u16,
}

impl LogBegin {
    /// Returns the offset of the first page in the file of the group.
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
    /// Offset of the first page of the log in its file, bytes: 0 unless the log begins inside the
    /// group ([`LogBegin`]).
    pub begins: u64,
    /// Bytes of pages in its file, now or when recovery read it. For a read-only recovery some of
    /// the pages may be in staging.
    pub filled: u64,
    /// The sequences of its batches.
    pub seqs: Spans,
}

/// The groups that a log continues when it starts: none in a new store, else those that recovery
/// accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The end of the accepted pages; `None` if there are none.
    pub chain: Option<Chain>,
    /// The accepted groups, oldest first. [`crate::wal::Content::release_below`] returns them like
    /// the log's own.
    pub groups: Vec<PriorGroup>,
}

impl History {
    /// Releases the oldest groups up to the first that a tenant needs by its floor, before a log
    /// continues this history. All pages are durable. Returns the numbers of the released groups.
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
