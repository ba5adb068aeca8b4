//! Common calls of all rows: read everything, compare, make one change.

use super::Model;
use crate::check::{Check, Doing, ensure};
use crate::history::FamilyEntries;
use crate::machine;
use crate::state::{Change, difference};
use lavastore::testing::SimEnv;
use lavastore::{
    Db, Durability, Error, Family, Options, ReadOptions, Reader, Snapshot, WriteBatch, WriteOptions,
};

/// Returns handles of all families.
pub(crate) fn families_of(db: &Db) -> Check<Vec<Family>> {
    db.family_names()
        .iter()
        .map(|name| db.open_family(name).doing(|| "a family that is listed".into()))
        .collect()
}

/// Reads everything forward.
pub(crate) fn scan(db: &Db) -> Check<FamilyEntries> {
    let mut found = FamilyEntries::new();
    for family in families_of(db)? {
        let entries: Result<_, Error> = family.iter().collect();
        found.insert(family.id(), entries.doing(|| format!("scan of family {}", family.name()))?);
    }
    Ok(found)
}

/// Compares all contents with a model.
pub(crate) fn compare(model: &Model, found: &FamilyEntries) -> Check {
    ensure!(model.keys().eq(found.keys()), "families {:?} instead of {:?}", found.keys(), model.keys());
    for (id, entries) in found {
        difference(model[id].entries(), entries).map_err(|why| format!("family {id}, {why}"))?;
    }
    Ok(())
}

/// Opens a checkpoint and compares it.
pub(crate) fn compare_checkpoint(sim: &SimEnv, dir: &str, options: Options, model: &Model) -> Check {
    // A copy has one disk.
    let options = Options { create_if_missing: false, ..options }.expert(|expert| {
        expert.fast_tier_values_bytes_max = 0;
        expert.fast_tier_values_flushed = false;
    });
    let db = Db::open_in(&machine::env(sim)?, dir, &options).doing(|| format!("open of checkpoint {dir}"))?;
    compare(model, &scan(&db)?).map_err(|why| format!("checkpoint {dir}: {why}"))
}

/// Returns a reader of a family as of a snapshot, or as of now.
pub(crate) fn at<'a>(
    family: &'a Family,
    snapshot: Option<&'a Snapshot>,
    options: &'a ReadOptions,
) -> Reader<'a> {
    match snapshot {
        Some(snapshot) => snapshot.family(family).reading(options),
        None => family.reading(options),
    }
}

/// Makes one change through its own call.
pub(crate) fn write_one(family: &Family, change: &Change, durability: Durability) -> Result<(), Error> {
    write_with(family, change, &WriteOptions { durability: Some(durability), ..WriteOptions::default() })
}

/// Same as [`write_one`], with all options.
pub(crate) fn write_with(family: &Family, change: &Change, options: &WriteOptions) -> Result<(), Error> {
    match change {
        Change::Put(key, value) => family.writing(options).put(key, value),
        Change::Merge(key, operand) => family.writing(options).merge(key, operand),
        Change::Delete(key) => family.writing(options).delete(key),
        Change::SingleDelete(key) => family.writing(options).single_delete(key),
        Change::DeleteRange(start, end) => family.writing(options).delete_range(start..end),
    }
}

/// Adds a change to a batch.
pub(crate) fn add(batch: &mut WriteBatch, family: &Family, change: &Change) {
    match change {
        Change::Put(key, value) => batch.family(family).put(key, value),
        Change::Merge(key, operand) => batch.family(family).merge(key, operand),
        Change::Delete(key) => batch.family(family).delete(key),
        Change::SingleDelete(key) => batch.family(family).single_delete(key),
        Change::DeleteRange(start, end) => batch.family(family).delete_range(start..end),
    };
}
