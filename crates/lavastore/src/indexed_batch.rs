//! A batch that can be read before it is written.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::transaction::TransactionIter;
use crate::{Db, Error, Family, Result, Value, WriteOptions};
use transactions::BatchChange;

impl Db {
    /// Begins a batch whose changes can be read before they are written, alone or above the store,
    /// with savepoints. It checks nothing at its write: use [`Db::transaction`] if other writers
    /// may change the same keys, and a [`WriteBatch`](crate::WriteBatch) if nothing is read.
    ///
    /// `overwrites`: a later change of a key replaces the earlier one, so that each key is written
    /// once. Otherwise all changes are kept and written in order.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// let mut batch = db.indexed_batch(true);
    /// batch.put("b", "2")?;
    /// assert_eq!(batch.get_over("a")?.as_deref(), Some(&b"1"[..]));
    /// assert_eq!(batch.get_over("b")?.as_deref(), Some(&b"2"[..]));
    /// batch.write(&lavastore::WriteOptions::durable())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn indexed_batch(&self, overwrites: bool) -> IndexedBatch {
        IndexedBatch {
            inner: transactions::IndexedBatch::new(overwrites),
            family: self.default_handle().clone(),
        }
    }
}

/// Changes that are collected for one atomic write, and found by key before it;
/// [`Db::indexed_batch`](crate::Db::indexed_batch) begins one.
///
/// The methods work on the family `default`, and [`IndexedBatch::in_family`] chooses another one for
/// the calls after it. All changes together take at most
/// [`limits::BATCH_LEN_MAX`](crate::limits::BATCH_LEN_MAX) bytes. A drop discards them.
///
/// ```
/// # let db = lavastore::testing::store();
/// let mut batch = db.indexed_batch(false);
/// batch.put("a", "1")?;
/// batch.set_savepoint();
/// batch.delete("a")?;
/// assert!(batch.roll_back());
/// assert_eq!(batch.get("a"), Some(Some(b"1".to_vec().into())));
/// # Ok::<(), lavastore::Error>(())
/// ```
#[must_use = "it writes nothing until it is written"]
pub struct IndexedBatch {
    inner: transactions::IndexedBatch,
    family: FamilyHandle,
}

impl IndexedBatch {
    /// Chooses the family of the following calls.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// let mut batch = db.indexed_batch(true);
    /// batch.in_family(&names)?.put("ada", "7")?;
    /// assert_eq!(batch.len(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: the family is of another store.
    pub fn in_family(&mut self, family: &Family) -> Result<&mut Self> {
        if family.handle().store() != self.family.store() {
            return Err(Error::invalid("the batch is of another store than the column family"));
        }
        self.family = family.handle().clone();
        Ok(self)
    }

    /// Sets a key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.indexed_batch(true).put("key", "value")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TooLarge`: key, value, or all changes are over the limits. Nothing was added.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner.put(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Adds a merge operand to a key; [`IndexedBatch::get_over`] folds it.
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::append(b","));
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let tags = db.create_family("tags", &options)?;
    /// tags.put("ada", "math")?;
    /// let mut batch = db.indexed_batch(true);
    /// batch.in_family(&tags)?.merge("ada", "poetry")?;
    /// assert_eq!(batch.get_over("ada")?.as_deref(), Some(&b"math,poetry"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`IndexedBatch::put`]. The write: `InvalidArgument`, if the family has no merge operator, or
    /// if it refuses the operand.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.inner.merge(self.family.inner(), key.as_ref(), operand.as_ref())
    }

    /// Deletes a key; an absent key is no error.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.indexed_batch(true).delete("key")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`IndexedBatch::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.inner.delete(self.family.inner(), key.as_ref())
    }

    /// Deletes all keys of a range, those of the batch and those of the store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut batch = db.indexed_batch(true);
    /// batch.put("user/1", "ada")?;
    /// batch.delete_range("user/".."user0")?;
    /// assert_eq!(batch.get("user/1"), Some(None));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`IndexedBatch::put`]; `InvalidArgument`: the end is before the start.
    pub fn delete_range(&mut self, range: impl KeyRange) -> Result<()> {
        let (start, end) = half_open(&range);
        self.inner.delete_range(self.family.inner(), &start.unwrap_or_default(), end.as_deref())
    }

    /// Reads a key of the batch alone. `None`: the batch does not concern it. `Some(None)`: the
    /// batch deletes it.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.indexed_batch(true).get("key"), None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Option<Value>> {
        self.inner.get(self.family.inner(), key.as_ref())
    }

    /// Reads a key as if the batch were written already: its own change, or the present value of
    /// the store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.indexed_batch(true).get_over("key")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`](crate::Db::get).
    pub fn get_over(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let at = lavakv::ReadOptions::default();
        self.inner.get_over(self.family.kv(), self.family.inner(), key.as_ref(), at.at())
    }

    /// Returns keys and values of a range in ascending order as if the batch were written already.
    /// Changes after the call are not seen.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// let mut batch = db.indexed_batch(true);
    /// batch.put("b", "2")?;
    /// assert_eq!(batch.range_over(..)?.count(), 2);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption`, `Io`: a table cannot be opened. `Closed`, `Forked`: open the store again.
    pub fn range_over(&self, range: impl KeyRange) -> Result<TransactionIter<'static>> {
        let (lower_bound, upper_bound) = half_open(&range);
        let options = lavakv::ReadOptions { lower_bound, upper_bound, ..Default::default() };
        self.inner.scan_over(self.family.kv(), self.family.inner(), options).map(TransactionIter)
    }

    /// Returns the changes in order as they will be written, with their families, for example to
    /// send them to a replica.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::BatchChange;
    /// let mut batch = db.indexed_batch(true);
    /// batch.put("key", "old")?;
    /// batch.put("key", "new")?;
    /// let changes: Vec<_> = batch.changes().collect();
    /// assert_eq!(changes, [("default", BatchChange::Put(b"key", b"new"))]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn changes(&self) -> impl Iterator<Item = (&str, BatchChange<'_>)> {
        self.inner.changes().map(|(family, change)| (family.name(), change))
    }

    /// Returns the number of changes, those that later ones replace included.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.indexed_batch(true).len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns true if there is no change.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.indexed_batch(true).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Sets a savepoint, to which [`IndexedBatch::roll_back`] returns. Savepoints nest.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.indexed_batch(true).set_savepoint();
    /// ```
    pub fn set_savepoint(&mut self) {
        self.inner.set_savepoint();
    }

    /// Discards the changes since the last savepoint, and the savepoint. Returns false, and
    /// discards nothing, if there is none.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(!db.indexed_batch(true).roll_back());
    /// ```
    pub fn roll_back(&mut self) -> bool {
        self.inner.roll_back()
    }

    /// Writes all changes as one batch. The batch stays as it is and may be written again.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut batch = db.indexed_batch(true);
    /// batch.put("key", "value")?;
    /// batch.write(&lavastore::WriteOptions::durable())?;
    /// assert!(db.get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn write(&self, options: &WriteOptions) -> Result<()> {
        self.family.kv().write_opt(&self.inner.to_batch(), options)
    }
}

impl std::fmt::Debug for IndexedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexedBatch({} changes)", self.len())
    }
}
