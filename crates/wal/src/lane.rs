//! Lanes: separate logs inside one store.
//!
//! A lane has its own groups, page numbers, staging file and durable end; its pages carry its
//! number. Lanes share the sequence of group numbers, the manifest, and the store. A crash that
//! tears the tail of one lane does not affect another. Pages of the first lane all have the same
//! length. Pages of other lanes are as long as their content, in whole blocks of the device, since
//! a written page is never appended to. The first lane is the only one of earlier releases: its
//! files and pages keep their format.
//!
//! The block of a page is the device's unit of writes, its physical block
//! ([`io::InPlaceFile::block_len`]). A device with logical blocks of 512 bytes on physical ones of
//! 4,096 rewrites the bytes around a shorter write, and may lose them at a power failure. These
//! bytes are the end of the previous commit, which was acknowledged. So on such a device pages are
//! padded to 4 KB. The same holds through the page cache, on a file system with blocks of 4 KB, and
//! where the system does not report the physical block.

use io::{BLOCK_LEN_MIN, PAGE};

/// A separate log inside a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

impl Lane {
    /// The lane of LavaKV, and of every engine that needs its records only until they are in
    /// tables.
    pub const FIRST: Lane = Lane(0);
    /// The lane of permanent records: its groups are kept as storage after replay needs them no
    /// longer.
    pub const LOG: Lane = Lane(1);
    /// All lanes that this release knows.
    pub const ALL: [Lane; 2] = [Lane::FIRST, Lane::LOG];

    /// Returns true if this release knows the lane.
    pub fn is_known(self) -> bool {
        Lane::ALL.contains(&self)
    }

    /// Returns true if groups of the lane may be kept as storage: see the module `store::commit`.
    pub fn retains(self) -> bool {
        self != Lane::FIRST
    }

    /// Returns the bytes for which one page number stands. Pages of equal length are numbered one
    /// by one. Other pages are numbered by their blocks, so that a number is a place in the file
    /// all the same.
    pub fn unit(self) -> usize {
        if self == Lane::FIRST { PAGE } else { BLOCK_LEN_MIN }
    }

    /// Returns the most page numbers that one page takes.
    pub(crate) fn page_numbers(self) -> u64 {
        (PAGE / self.unit()) as u64
    }

    /// Returns the name of a longer staging file until it replaces the old one.
    pub fn staging_temp_name(self) -> String {
        format!("{}.new", self.staging_name())
    }

    /// Returns the name of the staging file, which keeps the lane's open pages for the next
    /// process, in the store's directory.
    pub fn staging_name(self) -> &'static str {
        match self {
            Lane::FIRST => crate::staging::STAGING_NAME,
            _ => "STAGING-1",
        }
    }
}
