//! Variants of other calls.

use super::Db;
use crate::batch::WriteBatch;
use crate::context::options::WriteOptions;
use crate::read::options::ReadAt;
use crate::tree::family::ColumnFamily;
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
