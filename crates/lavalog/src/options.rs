//! What a user may set.

use base::{Error, Result};
use io::Access;
use store::commit::{Durability, LogTerms, shortest_bytes};

/// How a store of logs is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the acknowledgement of a write promises that does not say so itself: `Durable` or `Buffered`. Default `Durable`.
    pub durability: Durability,
    /// Bytes of a group of the log: the unit in which room is taken and given back. Default 256 MiB.
    pub group_bytes: u64,
    /// Whether the page cache lies between the engine and the device. Default: no.
    pub access: Access,
    /// Threads beside the one for the log. Default 1.
    pub background_threads: usize,
    /// A group or cold file is collected when this part of it is garbage, percent. Default 50.
    pub garbage_percent: u32,
    /// Files of rows that are kept open. Default 512.
    pub open_files_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Durable,
            group_bytes: 256 << 20,
            access: Access::Direct,
            background_threads: 1,
            garbage_percent: 50,
            open_files_max: 512,
        }
    }
}

/// The shortest group, bytes.
pub const GROUP_BYTES_MIN: u64 = 256 << 10;
/// The longest one.
pub const GROUP_BYTES_MAX: u64 = 4 << 30;

/// What is told to who asks for a write that is in no log.
#[cold]
pub(crate) fn never_volatile() -> Error {
    Error::invalid("a record of a log is always in the log: ask for Durable or Buffered, not Volatile")
}

impl Options {
    /// # Errors
    /// `InvalidArgument` for what is out of its range.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!("{name} is {min} to {max}, not {value}"))),
        };
        if self.durability == Durability::Volatile {
            return Err(never_volatile());
        }
        range("group_bytes", self.group_bytes, GROUP_BYTES_MIN, GROUP_BYTES_MAX)?;
        range("background_threads", self.background_threads as u64, 1, 64)?;
        range("garbage_percent", self.garbage_percent.into(), 1, 100)?;
        range("open_files_max", self.open_files_max as u64, 8, 1 << 20)
    }

    /// Of the lane of records.
    pub(crate) fn lane_terms(&self) -> LogTerms {
        LogTerms { access: self.access, group_bytes: self.group_bytes, free_groups_max: 2 }
    }

    /// Of the first lane, to which this engine writes nothing.
    pub(crate) fn first_lane_terms(&self) -> LogTerms {
        LogTerms { access: self.access, group_bytes: shortest_bytes(GROUP_BYTES_MIN), free_groups_max: 1 }
    }
}
