//! The space contract: how much a store occupies, and how much it may.
//!
//! * `budget`: limit, reserve, ceiling; what may be written now.
//! * `gauges`: what the users of the space say of themselves. `grant`: what a running job may write.
//! * `sizes`: how long the pieces are that a store has however little data is in it.
//!
//! Users push their numbers in; the budget asks nobody but the volume.

mod budget;
mod gauges;
mod grant;
mod sizes;

pub use budget::{ASK_NS, Demands, SpaceBudget};
pub use gauges::{Gauges, Memory, SegmentBytes};
pub use grant::Grant;
pub use sizes::{EDITS_BYTES, OUTPUT_BYTES, Sizes, Terms, manifest_bytes, with_overhead};

/// How much the files of a store may occupy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceLimit {
    /// So many bytes.
    Bytes(u64),
    /// So many times the live data: what tables and the values they refer to occupy, less the estimate of hidden garbage.
    /// Log, memtables and reserve are granted to a small store all the same.
    Ratio(f64),
}
