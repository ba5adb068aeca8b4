//! Transactions, indexed batches and atomic updates, above `lavakv`.
//!
//! * `contents`: the changes of a transaction before its commit, in order and by key.
//! * [`merged`]: an iterator over a store with such changes on top.
//! * [`indexed_batch`]: a batch that can be read, with savepoints.
//! * `scan`: the scan of a transaction.
//! * [`transaction`]: transactions that check at the commit whether the keys that they have read
//!   are unchanged, or lock them before.
//! * [`prepared`]: two-phase commit.
//! * [`atomic`]: compare and set, put if absent, fetch and update.
//!
//! The engine has two hooks for all of it: [`lavakv::Db::write_if`], a write that fails with
//! `Conflict` if a key has changed since its read, and row locks ([`lavakv::LockOwner`]).

pub mod atomic;
mod contents;
pub mod indexed_batch;
pub mod merged;
pub mod prepared;
mod scan;
pub mod transaction;

pub use contents::BatchChange;
pub use indexed_batch::IndexedBatch;
pub use lavakv;
pub use merged::MergedIterator;
pub use prepared::{PreparedTransaction, PreparedTransactions};
pub use scan::Scan;
pub use transaction::{ForUpdate, Isolation, LockOptions, Transaction, TransactionOptions};
