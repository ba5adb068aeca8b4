//! Updates of one key that no other write can come between.
//!
//! Each call reads the key and writes only if it is unchanged; after a conflict it reads again. So
//! of several callers at once, one succeeds in each round. A bound on the wait of a write holds for
//! each round.

use base::{ErrorKind, Result};
use lavakv::{ColumnFamily, Conditions, Db, ReadAt, ReadSet, Snapshot, Value, WriteBatch, WriteOptions};

/// Sets a key to `new` if it has the value `expected`. `None` stands for an absent key: on the left
/// the key must be absent, on the right it is deleted. Returns false if the key has another value:
/// then nothing is written.
///
/// # Errors
/// Those of a read and a write.
pub fn compare_and_set(
    db: &Db,
    family: &ColumnFamily,
    key: &[u8],
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
    options: &WriteOptions,
) -> Result<bool> {
    let mut differs = false;
    fetch_and_update(db, family, key, options, |old| {
        differs = old != expected;
        if differs { Update::Keep } else { new.map_or(Update::Delete, |new| Update::Set(new.to_vec())) }
    })?;
    Ok(!differs)
}

/// The decision of an update function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Leaves the key as it is, and writes nothing.
    Keep,
    /// Deletes the key.
    Delete,
    /// Sets the key.
    Set(Vec<u8>),
}

/// Replaces the value of a key by the outcome of `update`, which gets the present value and may be
/// called several times. Returns the value before.
///
/// # Errors
/// Those of a read and a write.
pub fn fetch_and_update(
    db: &Db,
    family: &ColumnFamily,
    key: &[u8],
    options: &WriteOptions,
    mut update: impl FnMut(Option<&[u8]>) -> Update,
) -> Result<Option<Value>> {
    loop {
        let snapshot = db.snapshot();
        let old = db.get_at(family, key, ReadAt { snapshot: Some(&snapshot), fill_cache: true })?;
        let mut batch = WriteBatch::new();
        match update(old.as_deref()) {
            Update::Keep => return Ok(old),
            Update::Delete if old.is_none() => return Ok(None),
            Update::Delete => batch.delete_cf(family, key),
            Update::Set(new) => batch.put_cf(family, key, &new),
        }
        if write_unless_changed(db, family, key, (snapshot, &batch), options)? {
            return Ok(old);
        }
    }
}

/// Sets a key if it is absent. Returns false if it exists: then nothing is written. A value in a
/// file of its own is not read.
///
/// # Errors
/// Those of a read and a write.
pub fn put_if_absent(
    db: &Db,
    family: &ColumnFamily,
    key: &[u8],
    value: &[u8],
    options: &WriteOptions,
) -> Result<bool> {
    let mut batch = WriteBatch::new();
    batch.put_cf(family, key, value);
    loop {
        let snapshot = db.snapshot();
        if db.contains_key_at(family, key, ReadAt { snapshot: Some(&snapshot), fill_cache: true })? {
            return Ok(false);
        }
        if write_unless_changed(db, family, key, (snapshot, &batch), options)? {
            return Ok(true);
        }
    }
}

/// Writes a batch, unless the key has changed since the snapshot; then it returns false.
fn write_unless_changed(
    db: &Db,
    family: &ColumnFamily,
    key: &[u8],
    (snapshot, batch): (Snapshot, &WriteBatch),
    options: &WriteOptions,
) -> Result<bool> {
    let mut reads = ReadSet::new(snapshot);
    reads.add(family, key)?;
    match db.write_if(batch, &Conditions { reads: Some(reads), owner: None }, options) {
        Err(e) if e.kind() == ErrorKind::Conflict => Ok(false),
        written => written.map(|()| true),
    }
}
