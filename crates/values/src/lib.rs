//! Separated values: references, garbage, and garbage collection.
//!
//! A value above a size limit is written once, into a vSST, and the tree keeps a reference to it.
//! Then compaction moves a few bytes instead of the value. References name a vSST by a stable blob
//! id, which the version maps to the current file (LavaStore's and TerarkDB's inheritance of file
//! numbers). Garbage collection is decoupled from compaction: it copies the live records of some
//! files into a new one, and lets the blob ids of the old files resolve to it, without changing any
//! reference.
//!
//! * [`drop_cache`]: remembers recently overwritten keys, so that hot and cold values go to
//!   separate files.
//! * [`series`]: writes values into vSSTs and returns the references (flush, and merges that change
//!   values).
//! * [`ledger`]: the amount of garbage in each file, computed from the tables of a version.
//! * [`mod@pick`]: chooses the next files to collect.
//! * [`job`]: the collection, in bounded steps.
//! * [`pins`]: blob ids that running jobs may still emit, and the pruning of unneeded blob ids and
//!   files.
//! * [`meta`]: the version's metadata of a new vSST.
//! * `scale`: measures the cost of all this in a store of terabytes, without its data.
//!
//! Every decision is a pure function of a version. This crate and `lsm` do not know each other: the
//! engine above passes data between them.

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

pub use drop_cache::{DropCache, HotColdSplit};
pub use job::{GcEnv, GcJob, GcOutcome, GcStats, GcStep, LookupForecast, Measured};
pub use ledger::{FileGarbage, Ledger};
pub use meta::vsst_meta;
pub use outputs::OutputVsst;
pub use pick::{Gc, GcOptions, Lookups, of_files, pick};
pub use pins::{PinGuard, Pins, names_to_pin, outline, prune, used_names};
pub use series::VsstSeries;
