//! The space contract: how much a store occupies, and how much it may.
//!
//! * `budget`: the contract; what may be written now. `own_limit`: the caller's limit. `bounds`: limit and ceiling. `claims`: used and claimed
//!   bytes.
//! * `ceiling`: the most that files may occupy. `grant`: what jobs may write. `volume`: how full the volume is.
//! * `gauges`: what the users of the space say of themselves.
//! * `sizes`: how long the pieces are that a store has however little data is in it.
//!
//! Users push their numbers in; the budget asks nobody but the volume.

mod bounds;
mod budget;
mod ceiling;
mod claims;
mod gauges;
mod grant;
mod own_limit;
mod sizes;
mod volume;

pub use budget::SpaceBudget;
pub use ceiling::Ceiling;
pub use claims::Demands;
pub use gauges::{Gauges, Memory, SegmentBytes};
pub use grant::{Grant, Grants};
pub use sizes::{EDITS_BYTES, OUTPUT_BYTES, Sizes, Terms, manifest_bytes, with_overhead};
pub use volume::ASK_NS;

/// How much the files of a store may occupy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceLimit {
    /// So many bytes.
    Bytes(u64),
    /// This part of the volume of the store, in percent, 1 to 100. It follows a volume that grows.
    VolumePercent(u8),
    /// So many times the live data: what tables and the values they refer to occupy, less the estimate of hidden garbage.
    /// Log, memtables and reserve are granted to a small store all the same.
    Ratio(f64),
}

impl SpaceLimit {
    /// Percent of the bytes of a volume.
    pub fn percent_of(percent: u8, total: u64) -> u64 {
        (u128::from(total) * u128::from(percent) / 100) as u64
    }
}
