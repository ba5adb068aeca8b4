//! A reference to a data file, in a version or in the list of obsolete files.
//!
//! Versions hold files by reference counts. A file that was moved or marked as shared has several
//! descriptions, one in each of the versions before and after; they count as one
//! ([`FileMeta::copies`]).

use std::sync::Arc;
use store::files::Retired;
use version::names::FileKind;
use version::{FileMeta, FileOwner, State, Version, VsstMeta};

/// A data file, as held by a version or by the list of obsolete files.
#[derive(Debug)]
pub(crate) enum DataFile {
    Table(Arc<FileMeta>),
    Vsst(Arc<VsstMeta>),
}

impl DataFile {
    /// Returns all files of a version.
    pub fn all_of(version: &Version) -> impl Iterator<Item = DataFile> + '_ {
        let tables = version.levels.iter().flatten().cloned().map(DataFile::Table);
        tables.chain(version.vssts.values().cloned().map(DataFile::Vsst))
    }

    /// Finds a live data file by its number. A log group yields `None`.
    pub fn find(state: &State, number: u64) -> Option<DataFile> {
        match state.place_of(number)? {
            FileOwner::Table { .. } => state.table(number).cloned().map(DataFile::Table),
            FileOwner::Vsst { family } => {
                let version = &state.families.get(&family)?.version;
                version.vssts.get(&number).cloned().map(DataFile::Vsst)
            }
        }
    }

    /// Returns the kind and number of the file, which form its name.
    pub fn kind(&self) -> FileKind {
        match self {
            DataFile::Table(meta) => meta.kind(),
            DataFile::Vsst(meta) => meta.kind(),
        }
    }

    pub fn number(&self) -> u64 {
        match self {
            DataFile::Table(meta) => meta.number,
            DataFile::Vsst(meta) => meta.number,
        }
    }

    /// True if the file ever had a second hard link.
    pub fn is_shared(&self) -> bool {
        match self {
            DataFile::Table(meta) => meta.shared,
            DataFile::Vsst(meta) => meta.shared,
        }
    }
}

impl Retired for DataFile {
    /// Returns whether no version holds the file, under any of its descriptions.
    fn is_unread(&self) -> bool {
        let (holders, copies) = match self {
            DataFile::Table(meta) => (Arc::strong_count(meta), &meta.copies),
            DataFile::Vsst(meta) => (Arc::strong_count(meta), &meta.copies),
        };
        holders == 1 && Arc::strong_count(copies) == 1
    }
}
