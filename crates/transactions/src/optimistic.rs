//! Optimistic transactions: no locks, and a check at the commit.
//!
//! Changes are collected in memory. The commit writes them as one batch, if no other write has
//! changed a tracked key since the transaction read or changed it; otherwise it fails with
//! `Conflict` and writes nothing.
//!
//! | isolation | tracked | prevents |
//! |---|---|---|
//! | [`Isolation::Snapshot`] | changed keys, and keys read by `get_for_update` | dirty and fuzzy reads, lost updates, read skew |
//! | [`Isolation::Serializable`] | also each key that was read, and the ranges that were scanned | write skew and phantoms as well |

use crate::indexed_batch::IndexedBatch;
use crate::merged::{MergedIterator, bounds};
use crate::scan::Scan;
use base::Result;
use lavakv::{ColumnFamily, Db, ReadAt, ReadOptions, ReadSet, Snapshot, Value, WriteOptions};

/// The anomalies that a transaction prevents: see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All reads are of one moment, and no change of another transaction is lost.
    #[default]
    Snapshot,
    /// The outcome is that of some order of the transactions, one after the other.
    Serializable,
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionOptions {
    /// The anomalies that it prevents.
    pub isolation: Isolation,
    /// Durability and longest wait of the commit.
    pub write: WriteOptions,
}

/// A transaction without locks: see the module.
#[derive(Debug)]
pub struct OptimisticTransaction {
    db: Db,
    options: TransactionOptions,
    changes: IndexedBatch,
    /// Tracked keys. Its snapshot is the moment of all reads.
    reads: ReadSet,
}

impl OptimisticTransaction {
    /// Begins a transaction, which reads the present state.
    pub fn begin(db: &Db, options: TransactionOptions) -> OptimisticTransaction {
        let reads = ReadSet::new(db.snapshot_named("transaction"));
        OptimisticTransaction { db: db.clone(), options, changes: IndexedBatch::new(true), reads }
    }

    /// Returns the snapshot that it reads.
    pub fn snapshot(&self) -> &Snapshot {
        self.reads.snapshot()
    }

    fn track(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.reads.add(family, key)
    }

    /// Reads a key: its own change, or else the value at its snapshot.
    ///
    /// # Errors
    /// Those of a read; `TooLarge`: it tracks too many keys.
    pub fn get(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        match self.options.isolation {
            Isolation::Snapshot => self.read(family, key),
            Isolation::Serializable => self.get_for_update(family, key),
        }
    }

    /// Reads a key that must stay unchanged until the commit.
    ///
    /// # Errors
    /// As [`OptimisticTransaction::get`].
    pub fn get_for_update(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        self.track(family, key)?;
        self.read(family, key)
    }

    fn read(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        let at = ReadAt { snapshot: Some(self.reads.snapshot()), fill_cache: true };
        self.changes.get_over(&self.db, family, key, at)
    }

    /// Sets a key at the commit.
    ///
    /// # Errors
    /// `TooLarge`: key, value, changes or tracked keys of the transaction are over the limits. Nothing
    /// was added, but the commit may depend on the key.
    pub fn put(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        self.track(family, key)?;
        self.put_untracked(family, key, value)
    }

    /// Sets a key at the commit, also if another write has changed it meanwhile.
    ///
    /// # Errors
    /// As [`OptimisticTransaction::put`].
    pub fn put_untracked(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes.put(family, key, value)
    }

    /// Deletes a key at the commit.
    ///
    /// # Errors
    /// As [`OptimisticTransaction::put`].
    pub fn delete(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.track(family, key)?;
        self.delete_untracked(family, key)
    }

    /// Deletes a key at the commit, also if another write has changed it meanwhile.
    ///
    /// # Errors
    /// As [`OptimisticTransaction::put`].
    pub fn delete_untracked(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.changes.delete(family, key)
    }

    /// Iterates over a range of a family at its snapshot, with its own changes so far, in both
    /// directions. The commit does not depend on it.
    ///
    /// # Errors
    /// Those of an iterator.
    pub fn iter(&self, family: &ColumnFamily, options: ReadOptions) -> Result<MergedIterator> {
        let options = ReadOptions { snapshot: Some(self.reads.snapshot().clone()), ..options };
        self.changes.iter_over(&self.db, family, options)
    }

    /// Scans a range of a family in ascending order. If the transaction is serializable, the commit
    /// depends on the part of the range that the scan shows.
    ///
    /// # Errors
    /// Those of an iterator; `TooLarge`: it tracks too many keys.
    pub fn scan(&mut self, family: &ColumnFamily, options: ReadOptions) -> Result<Scan<'_>> {
        let (lower, upper) = bounds(&options);
        let iter = self.iter(family, options)?;
        let tracked = match self.options.isolation {
            Isolation::Snapshot => None,
            Isolation::Serializable => {
                let range = self.reads.add_range(family, &lower)?;
                Some((&mut self.reads, range))
            }
        };
        Ok(Scan::new(iter, upper, tracked))
    }

    /// Sets a savepoint.
    pub fn set_savepoint(&mut self) {
        self.changes.set_savepoint();
    }

    /// Removes the changes since the last savepoint; the keys stay tracked. Returns false if there
    /// is none.
    pub fn roll_back_to_savepoint(&mut self) -> bool {
        self.changes.roll_back()
    }

    /// Returns the changes so far.
    pub fn changes(&self) -> &IndexedBatch {
        &self.changes
    }

    /// Writes the changes, if all tracked keys are unchanged.
    ///
    /// # Errors
    /// `Conflict`: one was changed, and nothing was written. The errors of a write.
    pub fn commit(self) -> Result<()> {
        self.db.write_if_unchanged(&self.changes.to_batch(), &self.reads, &self.options.write)
    }
}
