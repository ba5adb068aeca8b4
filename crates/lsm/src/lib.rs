//! The core of the log-structured merge tree: merging iterators, and the job that rewrites sorted
//! runs.
//!
//! * [`merging`]: merges many sorted cursors into one.
//! * [`cursor`]: the children of a merging iterator.
//! * [`level`]: one cursor over the disjoint files of a level.
//! * [`sources`]: the cursors and range tombstones of a version, or of a job's inputs.
//! * [`policy`]: chooses the next compaction.
//! * [`merge_job`]: the engine of flush and compaction.
//! * [`below`]: tells whether older entries may exist in the levels under a job's output.
//! * [`visible`]: the user's view of a merged cursor at a snapshot.
//! * [`filter`]: compaction filters; contains their panics.
//! * [`operator`]: merge operators; contains their panics.
//! * [`tombstones`]: a view of range tombstones for scans.
//! * [`vec_iter`]: a cursor over sorted entries in memory.

pub mod below;
pub mod cursor;
pub mod filter;
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

pub use below::{AssumeOlderEntries, DeeperLevels, OlderEntryCheck};
pub use cursor::Cursor;
pub use filter::{
    CompactionFilter, CompactionFilters, FilterDecision, FilterRun, FilteredCompaction, FilteredEntry,
    JobFilter,
};
pub use ksst_output::file_meta;
pub use level::{Bounds, LevelIterator, TableSource};
pub use merge_job::{
    DropObserver, DropReason, JobEnv, MergeJob, MergeOptions, MergeOutput, MergeStats, OutputCutter,
    OutputFile, OutputFiles, OutputSize, OutputTable, Rewrite, SizeCutter, Step, ValueHook,
};
pub use merging::{MergingIterator, ReadTogether};
pub use operator::MergeOperator;
pub use operator::named::{MergeChoice, MergeOperators};
pub use sources::{Sources, Visibility};
pub use visible::{ReferenceResolver, VisibleIterator, VisibleOptions};
