//! Variants of other calls.

use super::Db;
use crate::batch::WriteBatch;
use crate::batch::payload::Payload;
use crate::context::options::{Durability, WriteOptions};
use crate::read::operands;
use crate::read::options::ReadAt;
use crate::read::read_path::Value;
use crate::tree::family::ColumnFamily;
use crate::write::conditions::Conditions;
use crate::write::large_value;
use crate::write::row_locks::LockOwner;
use crate::write::validation::{Pins, ReadSet};
use base::{Result, ValueKind};
use std::ops::Bound;
use std::time::Duration;

impl Db {
    /// Deletes every key of a family between two bounds; see [`WriteBatch::delete_bounds_cf`].
    ///
    /// # Errors
    /// Those of [`Db::delete_range_opt`].
    pub fn delete_bounds_opt(
        &self,
        family: &ColumnFamily,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        options: &WriteOptions,
    ) -> Result<()> {
        if let (Bound::Included(start), Bound::Excluded(end)) = bounds {
            return self.delete_range_opt(family, start, end, options);
        }
        self.own(family)?;
        let mut batch = WriteBatch::new();
        batch.delete_bounds_cf(family, bounds);
        self.write_opt(&batch, options)
    }

    /// Writes a batch under the conditions of a transaction; an empty batch only checks
    /// them.
    ///
    /// # Errors
    /// `Conflict`: a key has changed, or the row locks have expired. Nothing was written.
    /// `InvalidArgument`: the reads are of another store. Those of [`Db::write_opt`].
    pub fn write_if(
        &self,
        batch: &WriteBatch,
        conditions: &Conditions,
        options: &WriteOptions,
    ) -> Result<()> {
        let (_entered, terms) = self.writable(options)?;
        if let Some(reads) = &conditions.reads {
            self.engine().tree.sequence_of(Some(reads.snapshot()))?;
        }
        self.run_write(Payload::batch(batch), terms, Some(conditions))
    }

    /// Adds a merge operand to a key of a family, with options: see [`WriteBatch::merge_cf`].
    ///
    /// # Errors
    /// Those of [`Db::put_opt`]; `InvalidArgument`: the family has no merge operator, or it refuses
    /// the operand.
    pub fn merge_opt(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        operand: &[u8],
        options: &WriteOptions,
    ) -> Result<()> {
        self.change(family, ValueKind::Merge, key, operand, options)
    }

    /// Folds merge operands, the oldest first, into a value, as a read of the family would.
    ///
    /// # Errors
    /// `UserCallback`: the operator failed. `Unsupported`: the family or the program has none.
    pub fn fold(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Value> {
        let options = self.own(family)?.options();
        operands::fold_into(
            operands::operator_of(&self.engine().context.options, &options),
            key,
            base,
            operands,
        )
    }

    /// Deletes a key that is only put and single-deleted, in turn: see
    /// [`WriteBatch::single_delete_cf`].
    ///
    /// # Errors
    /// Those of [`Db::delete_opt`].
    pub fn single_delete_opt(&self, family: &ColumnFamily, key: &[u8], options: &WriteOptions) -> Result<()> {
        self.change(family, ValueKind::SingleDeletion, key, &[], options)
    }

    /// Flushes the memtables of some families in one edit of the manifest: after a crash all their
    /// writes before the call are there, or none of those that no earlier flush has made durable.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; `NotFound`: a family was dropped; `InvalidArgument`: one is of another
    /// store.
    pub fn flush_families(&self, families: &[&ColumnFamily]) -> Result<()> {
        let families: Result<Vec<_>> = families.iter().map(|family| self.own(family).cloned()).collect();
        crate::admin::flush::flush_families(self.served()?, &families?)
    }

    /// Fails if a batch cannot be written as it is, now or later.
    ///
    /// # Errors
    /// `TooLarge`; `InvalidArgument`: an empty key in a store of format 1; `NotFound`: a dropped
    /// family.
    pub fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        large_value::check_batch(&self.engine().writes, batch)
    }

    /// Returns the durability of writes whose options name none.
    pub fn durability(&self) -> Durability {
        self.engine().context.options.durability
    }

    /// Adds an owner of row locks, which end after `expires_after` at the latest.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn lock_owner(&self, expires_after: Option<Duration>) -> Result<LockOwner> {
        let _entered = self.engine().context.enter()?;
        Ok(LockOwner::new(&self.engine().writes, expires_after))
    }

    /// Fails if a key of the set has changed since the snapshot. For keys whose rows
    /// the caller has locked.
    ///
    /// # Errors
    /// `Conflict`. Those of [`Db::get_opt`].
    pub fn check_unchanged(&self, reads: &ReadSet) -> Result<()> {
        self.engine().tree.sequence_of(Some(reads.snapshot()))?;
        reads.check(&self.engine().tree, &Pins::default()).map(drop)
    }

    /// Returns whether a key of a family has a value. A separated value is not read, so damage to
    /// it is not noticed.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn contains_key_at(&self, family: &ColumnFamily, key: &[u8], at: ReadAt<'_>) -> Result<bool> {
        let find = || self.read(family, key, at)?.presence_only().find();
        self.engine().context.times.get.time(|| Ok(find()?.is_some()))
    }
}
