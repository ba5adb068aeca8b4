//! Transactions, indexed batches and atomic updates, above `lavakv`.
//!
//! * `contents`: the changes of a transaction before its commit, in order and by key.
//! * [`merged`]: an iterator over a store with such changes on top.
//! * [`indexed_batch`]: a batch that can be read, with savepoints.
//! * `scan`: the scan of a transaction.
//! * [`optimistic`]: transactions that check at the commit whether the keys that they have read
//!   are unchanged.
//! * [`atomic`]: compare and set, put if absent, fetch and update.
//!
//! The engine has one hook for all of it: [`lavakv::Db::write_if_unchanged`], a write that fails
//! with `Conflict` if a key has changed since its read.

pub mod atomic;
mod contents;
pub mod indexed_batch;
pub mod merged;
pub mod optimistic;
mod scan;

pub use contents::BatchChange;
pub use indexed_batch::IndexedBatch;
pub use lavakv;
pub use merged::MergedIterator;
pub use optimistic::{Isolation, OptimisticTransaction, TransactionOptions};
pub use scan::Scan;
