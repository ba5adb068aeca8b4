//! The log-structured merge tree's moving parts: iterators that merge, and the job that rewrites sorted runs.
//!
//! * [`merging`]: many sorted cursors as one.
//! * [`visible`]: what a user sees of a merged cursor at a snapshot.
//! * [`operator`]: the merge operator, called so that its panics stay its own.
//! * [`tombstones`]: range tombstones as a scan asks for them.
//! * [`vec_iter`]: sorted entries in memory as a cursor.

pub mod merging;
#[cfg(test)]
mod model;
pub mod operator;
pub mod tombstones;
pub mod vec_iter;
pub mod visible;

pub use merging::MergingIterator;
pub use operator::MergeOperator;
pub use visible::{ReferenceResolver, VisibleIterator, VisibleOptions};
