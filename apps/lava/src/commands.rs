//! The commands, and how they open the store.

pub mod bench;
pub mod inspect;
pub mod keys;
pub mod transfer;

use crate::Result;
use crate::output::usage;
use lavastore::{ColumnFamily, Db, Options};
use std::path::PathBuf;

/// The directory that the user named.
pub fn directory(db: Option<PathBuf>) -> Result<PathBuf> {
    match db {
        Some(dir) => Ok(dir),
        None => usage("name the store with --db DIR"),
    }
}

/// Opens the store for reading, also beside a process that writes it.
pub fn open_to_read(db: Option<PathBuf>) -> Result<Db> {
    Ok(Db::open_read_only(directory(db)?, Options::default())?)
}

/// Opens the store for writing; makes it if `create`.
pub fn open_to_write(db: Option<PathBuf>, create: bool) -> Result<Db> {
    let options = Options { create_if_missing: create, ..Options::default() };
    Ok(Db::open_with(directory(db)?, options)?)
}

/// The column family with this name; the default one without a name.
pub fn family(store: &Db, name: Option<&str>) -> Result<ColumnFamily> {
    match name {
        None => Ok(store.default_column_family().clone()),
        Some(name) => store.column_family(name).ok_or_else(|| {
            let known = store.column_families().join(", ");
            format!("there is no column family {name}; there are: {known}").into()
        }),
    }
}
