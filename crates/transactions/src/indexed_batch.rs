//! A batch that can be read, alone or above a store, with savepoints.

use crate::contents::{BatchChange, Contents, Found};
use crate::merged::MergedIterator;
use crate::scan::Scan;
use base::Result;
use lavakv::{ColumnFamily, Db, ReadAt, ReadOptions, Value, WriteBatch};
use std::sync::Arc;

/// Changes that are collected for one atomic write, and found by key before it.
///
/// Keys, values and 128 bytes per change may take as many bytes as a batch of the engine.
#[derive(Clone, Debug)]
pub struct IndexedBatch {
    /// Shared with the iterators that were made since the last change.
    contents: Arc<Contents>,
    overwrites: bool,
    /// Numbers of changes.
    savepoints: Vec<usize>,
}

impl IndexedBatch {
    /// Creates an empty batch. `overwrites`: a later change of a key replaces the earlier one, so
    /// that the batch writes each key once. Otherwise it writes all changes in order.
    pub fn new(overwrites: bool) -> IndexedBatch {
        IndexedBatch { contents: Arc::default(), overwrites, savepoints: Vec::new() }
    }

    /// Sets a key.
    ///
    /// # Errors
    /// `TooLarge`: key, value or batch is over the limits. Nothing was added.
    pub fn put(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        Arc::make_mut(&mut self.contents).put(family, key, value)
    }

    /// Adds a merge operand to a key.
    ///
    /// # Errors
    /// As [`IndexedBatch::put`]. The write: `InvalidArgument`, if the family has no merge operator, or
    /// if it refuses the operand.
    pub fn merge(&mut self, family: &ColumnFamily, key: &[u8], operand: &[u8]) -> Result<()> {
        Arc::make_mut(&mut self.contents).merge(family, key, operand)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As [`IndexedBatch::put`].
    pub fn delete(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        Arc::make_mut(&mut self.contents).delete(family, key)
    }

    /// Deletes all keys from `start` up to `end`; `None`: all from `start` on.
    ///
    /// # Errors
    /// As [`IndexedBatch::put`]; `InvalidArgument`: the end is before the start.
    pub fn delete_range(&mut self, family: &ColumnFamily, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        Arc::make_mut(&mut self.contents).delete_range(family, start, end)
    }

    /// Reads a key of the batch. `None`: the batch does not concern it, or has merge operands for it,
    /// which need the store. `Some(None)`: the batch deletes it.
    pub fn get(&self, family: &ColumnFamily, key: &[u8]) -> Option<Option<Value>> {
        match self.contents.find(family.id(), key) {
            Found::Value(value) => Some(Some(value)),
            Found::Deleted => Some(None),
            Found::Nothing | Found::Merged(..) => None,
        }
    }

    /// Reads a key as if the batch were written to the store already.
    ///
    /// # Errors
    /// Those of a read.
    pub fn get_over(
        &self,
        db: &Db,
        family: &ColumnFamily,
        key: &[u8],
        at: ReadAt<'_>,
    ) -> Result<Option<Value>> {
        let below = || db.get_at(family, key, at);
        self.contents
            .find(family.id(), key)
            .settle(below, |base, operands| db.fold(family, key, base, operands))
    }

    /// Iterates over a family as if the batch were written to the store already. Later changes of
    /// the batch are not seen.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    pub fn iter_over(&self, db: &Db, family: &ColumnFamily, options: ReadOptions) -> Result<MergedIterator> {
        MergedIterator::new(db, family, options, self.contents.clone())
    }

    /// Scans a range of a family in ascending order, as [`IndexedBatch::iter_over`] shows it.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    pub fn scan_over(&self, db: &Db, family: &ColumnFamily, options: ReadOptions) -> Result<Scan<'static>> {
        self.iter_over(db, family, options).map(|iter| Scan::new(iter, None, None))
    }

    /// Returns the changes in order; in a batch that overwrites, without those that later ones
    /// undo.
    pub fn changes(&self) -> impl Iterator<Item = (&ColumnFamily, BatchChange<'_>)> {
        self.contents.iter(self.overwrites)
    }

    /// Returns the number of changes, those that later ones undo included.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Returns true if there is no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a savepoint, to which [`IndexedBatch::roll_back`] returns.
    pub fn set_savepoint(&mut self) {
        self.savepoints.push(self.len());
    }

    /// Removes the changes since the last savepoint, and the savepoint. Returns false if there is
    /// none; then nothing is removed.
    pub fn roll_back(&mut self) -> bool {
        let savepoint = self.savepoints.pop();
        if let Some(len) = savepoint.filter(|len| *len < self.len()) {
            Arc::make_mut(&mut self.contents).truncate(len);
        }
        savepoint.is_some()
    }

    /// Returns the changes as a batch of the engine.
    pub fn to_batch(&self) -> WriteBatch {
        self.contents.to_batch(self.overwrites)
    }
}
