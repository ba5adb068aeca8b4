//! Variants of other calls.

use super::Db;
use crate::batch::WriteBatch;
use crate::batch::payload::Payload;
use crate::context::options::WriteOptions;
use crate::large::segments::threshold;
use crate::read::options::ReadAt;
use crate::tree::family::ColumnFamily;
use crate::write::commit::WriteOp;
use crate::write::large_value;
use crate::write::validation::ReadSet;
use base::Result;
use std::ops::Bound;

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

    /// Writes a batch if none of the keys of `reads` has changed since its read; an empty batch
    /// only looks.
    ///
    /// # Errors
    /// `Conflict`: a key has changed, and nothing was written. `InvalidArgument`: the set is of
    /// another store. Those of [`Db::write_opt`].
    pub fn write_if_unchanged(
        &self,
        batch: &WriteBatch,
        reads: &ReadSet,
        options: &WriteOptions,
    ) -> Result<()> {
        let (_entered, terms) = self.writable(options)?;
        let (writes, times) = (&self.engine().writes, &self.engine().context.times);
        self.engine().tree.sequence_of(Some(reads.snapshot()))?;
        if batch.is_empty() {
            return reads.check_now(writes);
        }
        let begun = times.write_batch.begin_as(terms.durability.waits_for_device());
        let written = match batch.longest_value() >= threshold(&self.engine().context.options) {
            true => large_value::write_batch(writes, batch, Some(reads), terms),
            false => {
                let op = WriteOp::new(writes, Payload::batch(batch), terms.durability);
                op.unless_changed(Some(reads)).run(terms.patience)
            }
        };
        times.write_batch.end(begun);
        written
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
