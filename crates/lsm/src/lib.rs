//! The log-structured merge tree's moving parts: iterators that merge, and the job that rewrites sorted runs.
//!
//! * [`merging`]: many sorted cursors as one.
//! * [`cursor`]: what is merged, and what of it says beforehand what a seek reads.
//! * [`level`]: the disjoint files of a level as one cursor.
//! * [`sources`]: the cursors and range tombstones of a version, or of a job's inputs.
//! * [`policy`]: what to compact next.
//! * [`merge_job`]: the engine of flush and compaction.
//! * [`below`]: what may lie in the levels under a job's output.
//! * [`visible`]: what a user sees of a merged cursor at a snapshot.
//! * [`operator`]: the merge operator, called so that its panics stay its own.
//! * [`tombstones`]: range tombstones as a scan asks for them.
//! * [`vec_iter`]: sorted entries in memory as a cursor.

pub mod below;
pub mod cursor;
mod gap;
mod ksst_output;
pub mod level;
pub mod merge_job;
pub mod merging;
#[cfg(test)]
mod model;
pub mod operator;
pub mod policy;
pub mod sources;
pub mod tombstones;
pub mod vec_iter;
pub mod visible;

pub use below::{Anything, Below, DeeperLevels};
pub use cursor::Cursor;
pub use ksst_output::file_meta;
pub use level::{Bounds, LevelIterator, TableSource};
pub use merge_job::{
    DropObserver, DropReason, Hooks, MergeJob, MergeOptions, MergeOutput, MergeStats, OutputCutter,
    OutputFile, OutputFiles, OutputSize, OutputTable, Rewrite, SizeCutter, Step, ValueHook,
};
pub use merging::{MergingIterator, ReadTogether};
pub use operator::MergeOperator;
pub use sources::{Sources, Visibility};
pub use visible::{ReferenceResolver, VisibleIterator, VisibleOptions};
