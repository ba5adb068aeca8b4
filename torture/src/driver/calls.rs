//! What every row does with a store: read all of it, compare, make one change.

use super::Model;
use crate::check::{Check, Doing, ensure};
use crate::history::Found;
use crate::machine;
use crate::state::{Change, difference};
use lavastore::sim::SimEnv;
use lavastore::{ColumnFamily, Db, Durability, Error, Options, ReadOptions, WriteBatch, WriteOptions};

/// Handles of all families.
pub(crate) fn families_of(db: &Db) -> Check<Vec<ColumnFamily>> {
    db.column_families()
        .iter()
        .map(|name| db.column_family(name).ok_or_else(|| format!("family {name} is listed but not there")))
        .collect()
}

/// Reads everything, forwards.
pub(crate) fn scan(db: &Db) -> Check<Found> {
    let mut found = Found::new();
    for family in families_of(db)? {
        let entries = db.iter_cf(&family, ReadOptions::default()).doing(|| "iter".into())?.entries();
        let entries: Result<_, Error> = entries.collect();
        found.insert(family.id(), entries.doing(|| format!("scan of family {}", family.name()))?);
    }
    Ok(found)
}

/// Compares all contents with a model.
pub(crate) fn compare(model: &Model, found: &Found) -> Check {
    ensure!(model.keys().eq(found.keys()), "families {:?} instead of {:?}", found.keys(), model.keys());
    for (id, entries) in found {
        difference(model[id].entries(), entries).map_err(|why| format!("family {id}, {why}"))?;
    }
    Ok(())
}

/// Opens a checkpoint and compares it.
pub(crate) fn compare_checkpoint(sim: &SimEnv, dir: &str, options: Options, model: &Model) -> Check {
    let options = Options { create_if_missing: false, ..options };
    let db = Db::open_in(machine::env(sim)?, dir, options).doing(|| format!("open of checkpoint {dir}"))?;
    compare(model, &scan(&db)?).map_err(|why| format!("checkpoint {dir}: {why}"))
}

/// Makes one change through the call for it.
pub(crate) fn write_one(
    db: &Db,
    family: &ColumnFamily,
    change: &Change,
    durability: Durability,
) -> Result<(), Error> {
    let options = WriteOptions { durability: Some(durability) };
    match change {
        Change::Put(key, value) => db.put_opt(family, key, value, &options),
        Change::Delete(key) => db.delete_opt(family, key, &options),
        Change::DeleteRange(start, end) => db.delete_range_cf(family, start, end),
    }
}

/// Adds a change to a batch.
pub(crate) fn add(batch: &mut WriteBatch, family: &ColumnFamily, change: &Change) {
    match change {
        Change::Put(key, value) => batch.put_cf(family, key, value),
        Change::Delete(key) => batch.delete_cf(family, key),
        Change::DeleteRange(start, end) => batch.delete_range_cf(family, start, end),
    }
}
