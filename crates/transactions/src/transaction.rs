//! Transactions, optimistic or with row locks.
//!
//! Changes are collected in memory, and the commit writes them as one batch. Two ways keep other
//! writes from coming between a read and the commit:
//!
//! * *Optimistic*: the commit fails with `Conflict` if a key on which it depends has changed since
//!   the transaction read or changed it.
//! * *With row locks* ([`TransactionOptions::locks`]): the row is locked at once, and other writes
//!   of it wait. A locked read shows the newest value.
//!
//! | isolation | the commit depends on, or a lock protects | prevents |
//! |---|---|---|
//! | [`Isolation::Snapshot`] | changed keys, and keys read by `get_for_update` | dirty and fuzzy reads, lost updates, read skew |
//! | [`Isolation::Serializable`] | also each key that was read, and the ranges that were scanned | write skew and phantoms as well |
//!
//! **The moment of the reads.** An optimistic transaction reads its begin. One with locks reads the
//! moment of its first read without a lock. Until then it has seen locked rows alone, which are the
//! same at its commit. From then on it can lock a row only if the row has not changed since:
//! otherwise its reads would be of two moments, and it gets `Conflict`. `set_snapshot` moves on to
//! the present, if all that the commit depends on is unchanged.
//!
//! Ranges have no locks. A serializable transaction with locks checks the ranges that it has
//! scanned at its commit, as an optimistic one does.

use crate::indexed_batch::IndexedBatch;
use crate::merged::{MergedIterator, bounds};
use crate::scan::Scan;
use base::Result;
use lavakv::{
    ColumnFamily, Conditions, Db, LockMode, ReadAt, ReadOptions, ReadSet, Requests, Value, WriteOptions,
    WriteRequest,
};
use std::time::Duration;

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
    /// Row locks; `None`: it is optimistic. Default: none.
    pub locks: Option<LockOptions>,
    /// Durability and longest wait of the commit.
    pub write: WriteOptions,
}

/// Options of the row locks of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// Longest wait for one lock. Default: a second.
    pub wait_at_most: Duration,
    /// The locks end after this time, and the commit fails with `Conflict`. It begins with the
    /// first lock. Default: none, they end with the transaction.
    pub expires_after: Option<Duration>,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { wait_at_most: Duration::from_secs(1), expires_after: None }
    }
}

/// The terms of a read on which the commit depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForUpdate {
    /// The lock; an optimistic transaction has none.
    pub lock: LockMode,
    /// Fail if the key has changed since the snapshot of the transaction. Without it, a transaction
    /// with locks reads the newest value, and an optimistic one does not depend on the key.
    pub validate: bool,
}

impl Default for ForUpdate {
    fn default() -> Self {
        ForUpdate { lock: LockMode::Exclusive, validate: true }
    }
}

/// A transaction: see the module.
#[derive(Debug)]
pub struct Transaction {
    db: Db,
    options: TransactionOptions,
    changes: IndexedBatch,
    /// The conditions of the commit. The snapshot of the read set is the moment of all reads without
    /// a lock. The owner is added with the first lock.
    conditions: Conditions,
}

impl Transaction {
    /// Begins a transaction.
    pub fn begin(db: &Db, options: TransactionOptions) -> Transaction {
        let (changes, conditions) = (IndexedBatch::new(true), Conditions::default());
        let mut transaction = Transaction { db: db.clone(), options, changes, conditions };
        if options.locks.is_none() {
            transaction.reads();
        }
        transaction
    }

    /// Returns the read set. The first call fixes the moment of the reads.
    fn reads(&mut self) -> &mut ReadSet {
        let Transaction { db, conditions, .. } = self;
        conditions.reads.get_or_insert_with(|| ReadSet::new(db.snapshot_named("transaction")))
    }

    /// Moves the moment of the reads to the present.
    ///
    /// # Errors
    /// `Conflict`: a key on which the commit depends has changed. Those of reading.
    pub fn set_snapshot(&mut self) -> Result<()> {
        let now = self.db.snapshot_named("transaction");
        match &mut self.conditions.reads {
            Some(reads) => {
                self.db.check_unchanged(reads)?;
                reads.move_to(now);
            }
            none => *none = Some(ReadSet::new(now)),
        }
        Ok(())
    }

    /// Makes the commit depend on a key, or locks it.
    fn protect(&mut self, family: &ColumnFamily, key: &[u8], terms: ForUpdate) -> Result<()> {
        let Some(locks) = self.options.locks else {
            return if terms.validate { self.reads().add(family, key) } else { Ok(()) };
        };
        if self.conditions.owner.is_none() {
            self.conditions.owner = Some(self.db.lock_owner(locks.expires_after)?);
        }
        if let Some(owner) = &self.conditions.owner {
            owner.lock(family, key, terms.lock, locks.wait_at_most)?;
        }
        match &self.conditions.reads {
            Some(reads) if terms.validate => {
                let mut of_key = ReadSet::new(reads.snapshot().clone());
                of_key.add(family, key)?;
                self.db.check_unchanged(&of_key)
            }
            _ => Ok(()),
        }
    }

    /// Reads a key: its own change, or else the value in the store.
    ///
    /// # Errors
    /// Those of a read. A serializable transaction: those of [`Transaction::get_for_update`].
    pub fn get(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        match self.options.isolation {
            Isolation::Snapshot => self.read_snapshot(family, key),
            Isolation::Serializable => {
                self.get_for_update(family, key, ForUpdate { lock: LockMode::Shared, validate: true })
            }
        }
    }

    /// Reads a key that must stay unchanged until the commit.
    ///
    /// # Errors
    /// Those of a read. `TooLarge`: it depends on too many keys. With locks, those of
    /// [`lavakv::LockOwner::lock`]; `Conflict`: the key has changed since the snapshot.
    pub fn get_for_update(
        &mut self,
        family: &ColumnFamily,
        key: &[u8],
        terms: ForUpdate,
    ) -> Result<Option<Value>> {
        self.protect(family, key, terms)?;
        self.read_protected(family, key)
    }

    /// Reads several keys that must stay unchanged until the commit. The locks are taken in the
    /// order of the keys, so that two such calls cannot wait for each other.
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`], of any of the keys.
    pub fn multi_get_for_update(
        &mut self,
        family: &ColumnFamily,
        keys: &[&[u8]],
        terms: ForUpdate,
    ) -> Result<Vec<Option<Value>>> {
        let mut in_order = keys.to_vec();
        in_order.sort_unstable();
        in_order.dedup();
        in_order.into_iter().try_for_each(|key| self.protect(family, key, terms))?;
        keys.iter().map(|key| self.read_protected(family, key)).collect()
    }

    /// Reads a protected key: the newest value with locks, otherwise that of the snapshot.
    fn read_protected(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        match self.options.locks {
            None => self.read_snapshot(family, key),
            Some(_) => {
                let newest = ReadAt { snapshot: None, fill_cache: true };
                self.changes.get_over(&self.db, family, key, newest)
            }
        }
    }

    fn read_snapshot(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        self.reads();
        let snapshot = self.conditions.reads.as_ref().map(ReadSet::snapshot);
        self.changes.get_over(&self.db, family, key, ReadAt { snapshot, fill_cache: true })
    }

    /// Sets a key at the commit.
    ///
    /// # Errors
    /// `TooLarge`: key, value, changes or tracked keys of the transaction are over the limits. Nothing
    /// was added, but the commit may depend on the key. With locks, those of
    /// [`Transaction::get_for_update`].
    pub fn put(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        self.protect(family, key, ForUpdate::default())?;
        self.changes.put(family, key, value)
    }

    /// Sets a key at the commit, also if another write has changed it since the snapshot.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_untracked(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        self.protect(family, key, ForUpdate { validate: false, ..ForUpdate::default() })?;
        self.changes.put(family, key, value)
    }

    /// Adds a merge operand to a key at the commit, also if another write has changed the key since
    /// the snapshot: the operand applies to any value.
    ///
    /// # Errors
    /// As [`Transaction::put`]. The commit: `InvalidArgument`, if the family has no merge operator, or
    /// if it refuses the operand.
    pub fn merge(&mut self, family: &ColumnFamily, key: &[u8], operand: &[u8]) -> Result<()> {
        self.protect(family, key, ForUpdate { validate: false, ..ForUpdate::default() })?;
        self.changes.merge(family, key, operand)
    }

    /// Deletes a key at the commit.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.protect(family, key, ForUpdate::default())?;
        self.changes.delete(family, key)
    }

    /// Deletes a key at the commit, also if another write has changed it since the snapshot.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_untracked(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.protect(family, key, ForUpdate { validate: false, ..ForUpdate::default() })?;
        self.changes.delete(family, key)
    }

    /// Iterates over a range of a family at the snapshot, with its own changes so far, in both
    /// directions. The commit does not depend on it.
    ///
    /// # Errors
    /// Those of an iterator.
    pub fn iter(&mut self, family: &ColumnFamily, options: ReadOptions) -> Result<MergedIterator> {
        let options = ReadOptions { snapshot: Some(self.reads().snapshot().clone()), ..options };
        self.changes.iter_over(&self.db, family, options)
    }

    /// Scans a range of a family in ascending order. If the transaction is serializable, the commit
    /// depends on the part of the range that the scan shows.
    ///
    /// # Errors
    /// Those of an iterator; `TooLarge`: it depends on too many keys.
    pub fn scan(&mut self, family: &ColumnFamily, options: ReadOptions) -> Result<Scan<'_>> {
        let (lower, upper) = bounds(&options);
        let iter = self.iter(family, options)?;
        let tracked = match self.options.isolation {
            Isolation::Snapshot => None,
            Isolation::Serializable => {
                let reads = self.reads();
                let range = reads.add_range(family, &lower)?;
                Some((reads, range))
            }
        };
        Ok(Scan::new(iter, upper, tracked))
    }

    /// Sets a savepoint.
    pub fn set_savepoint(&mut self) {
        self.changes.set_savepoint();
    }

    /// Removes the changes since the last savepoint. The commit still depends on their keys, and
    /// locks stay. Returns false if there is no savepoint.
    pub fn roll_back_to_savepoint(&mut self) -> bool {
        self.changes.roll_back()
    }

    /// Returns the changes so far.
    pub fn changes(&self) -> &IndexedBatch {
        &self.changes
    }

    /// Returns the options with which it began.
    pub fn options(&self) -> &TransactionOptions {
        &self.options
    }

    /// Writes the changes, if all that the commit depends on is unchanged.
    ///
    /// # Errors
    /// `Conflict`: a key was changed, or the locks have expired. Nothing was written. The errors of
    /// a write.
    pub fn commit(self) -> Result<()> {
        let write = self.options.write;
        let (db, batch, conditions) = self.into_parts();
        db.write_if(&batch, &conditions, &write)
    }

    /// Submits the commit. The request resolves twice: when the changes are visible, and when they
    /// are durable. Durability and longest wait are those of the requests.
    ///
    /// # Errors
    /// Those of [`Requests::write`]. The errors of [`Transaction::commit`] are those of the request.
    pub fn commit_async(self, requests: &Requests) -> Result<WriteRequest> {
        let (_, batch, conditions) = self.into_parts();
        requests.write_if(batch, conditions)
    }

    /// Returns the store, the changes, and the conditions of their write.
    pub fn into_parts(self) -> (Db, lavakv::WriteBatch, Conditions) {
        let Transaction { db, changes, mut conditions, .. } = self;
        // A snapshot alone is no condition.
        conditions.reads.take_if(|reads| reads.is_empty());
        (db, changes.to_batch(), conditions)
    }
}
