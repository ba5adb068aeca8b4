//! The space limit of a store: used, claimed and allowed bytes.
//!
//! * `budget`: admission of writes. `own_limit`: the configured limit. `bounds`: limit and ceiling.
//!   `claims`: used and claimed bytes.
//! * `ceiling`: maximum bytes of the files. `grant`: space grants of jobs. `volume`: fill of the
//!   volume.
//! * `gauges`: byte counts that other parts of the store report.
//! * `sizes`: sizes of a store's fixed parts, however little data it has.
//!
//! Other parts push their numbers in; the budget queries only the volume.

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

/// Bounds the space of all files of a store, kept at every moment; choose it if the disk has other
/// users.
///
/// A write that finds no room waits or fails with `NoSpace` (`Options::space_policy`), and deletes
/// proceed. A limit out of range is refused at open with `InvalidArgument`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceLimit {
    /// A number of bytes, for a fixed quota; at least about 1.3 MB.
    Bytes(u64),
    /// Percentage of the store's volume, 1 to 100, for a volume that grows: the limit follows it.
    VolumePercent(u8),
    /// Multiple of the live data, 1.05 to 1000, to bound garbage instead of the data. Live data are
    /// the bytes of tables and of the values they refer to, less the estimate of unexposed garbage.
    /// A small store gets log, memtables and reserve in addition.
    Ratio(f64),
}

impl SpaceLimit {
    /// Returns a percentage of the bytes of a volume, rounded down, as
    /// [`SpaceLimit::VolumePercent`] computes it. It reads no volume: pass its bytes.
    pub fn percent_of(percent: u8, total: u64) -> u64 {
        (u128::from(total) * u128::from(percent) / 100) as u64
    }
}
