//! Separated values: who references them, which of them are garbage, and how garbage is collected.
//!
//! A value of some size is written once, into a vSST, and the tree keeps a reference to it: compaction then moves a few
//! bytes instead of the value. References name a vSST by a stable blob id; the version knows which file that is now
//! (LavaStore's and TerarkDB's inheritance of file numbers). Garbage collection is decoupled from compaction: it copies
//! the live records of some files into a new one and lets the names of the old files lead there, without touching a
//! reference.
//!
//! * [`drop_cache`]: which keys were overwritten lately, so that hot and cold values go to files of their own.
//! * [`series`]: writes values into vSSTs and makes the references (flush, and merges that change values).
//! * [`ledger`]: how much of each file is garbage: derived from the tables of a version, never counted.
//! * [`mod@pick`]: which files to collect next.
//! * [`job`]: the collection, in bounded steps.
//! * [`pins`]: which names running jobs may still emit, and the pruning of names and files that nothing needs.
//! * [`meta`]: what a version is to know of a vSST just written.
//! * `scale`: what all that costs in a store of terabytes, measured without its data.
//!
//! Everything that decides is a pure function of a version. This crate and `lsm` do not know each other: what they
//! tell each other passes through the engine above.

pub mod drop_cache;
pub mod job;
pub mod ledger;
pub mod meta;
mod outputs;
pub mod pick;
pub mod pins;
#[doc(hidden)]
pub mod scale;
pub mod series;

pub use drop_cache::{DropCache, Parting};
pub use job::{GcJob, GcOutcome, GcStats, GcStep, GcWorld, LookupForecast, Measured};
pub use ledger::{FileGarbage, Ledger};
pub use meta::vsst_meta;
pub use outputs::OutputVsst;
pub use pick::{Gc, GcOptions, Lookups, of_files, pick};
pub use pins::{PinGuard, Pins, names_to_pin, outline, prune, used_names};
pub use series::VsstSeries;
