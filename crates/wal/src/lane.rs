//! Lanes: logs of their own inside one store.
//!
//! A lane has its own groups, page numbers, staging file and durable end; its pages say which lane they are of. What lanes
//! share is the sequence of group numbers, the manifest, and the store. What a crash does to the tail of one is nothing to
//! another. Pages of the first are all of one length; those of the other are as long as what is in them, in whole blocks of the
//! device, since nothing follows in a page that was written. The first lane is the one that there was before there were others: its files and pages look as they did then.

use io::{BLOCK_LEN_MIN, PAGE};

/// A log of its own inside a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

impl Lane {
    /// That of LavaKV, and of every engine that keeps nothing but what it will need again after a crash.
    pub const FIRST: Lane = Lane(0);
    /// That of records which stay: its groups are kept as storage when nobody replays them any more.
    pub const LOG: Lane = Lane(1);
    /// All that this release knows.
    pub const ALL: [Lane; 2] = [Lane::FIRST, Lane::LOG];

    /// True if this release knows it.
    pub fn is_known(self) -> bool {
        Lane::ALL.contains(&self)
    }

    /// True if groups of it may be kept as storage: see the module `store::commit`.
    pub fn retains(self) -> bool {
        self != Lane::FIRST
    }

    /// Bytes for which one page number stands. Where pages are of one length they are numbered one by one; else by the blocks
    /// that they fill, so that numbers are places all the same.
    pub fn unit(self) -> usize {
        if self == Lane::FIRST { PAGE } else { BLOCK_LEN_MIN }
    }

    /// The most numbers that a page has.
    pub(crate) fn page_numbers(self) -> u64 {
        (PAGE / self.unit()) as u64
    }

    /// The name under which a longer staging file is made before it takes the place of the old one.
    pub fn staging_temp_name(self) -> String {
        format!("{}.new", self.staging_name())
    }

    /// The name of its staging file, which keeps its open pages for the next process, in the store's directory.
    pub fn staging_name(self) -> &'static str {
        match self {
            Lane::FIRST => crate::staging::STAGING_NAME,
            _ => "STAGING-1",
        }
    }
}
