//! Files of data that cannot be read are set aside: the store goes on with the rest.
//!
//! A table or a value file that is missing, has another length, or fails its checksums where a job reads it, is entered
//! here. From then on no job takes it for an input, and nothing is moved across it that would let a reader come by an
//! older version of what it may hold (`lsm::policy::set_aside`, docs/decisions/0026-a-damaged-table-is-a-barrier.md).
//! Readers are not stopped: a table whose damage is in one block still answers for all others, and what cannot be read
//! gives an error that names file, offset and keys ([`in_table`]).
//!
//! What it means for a family that one of its files is set aside is said in `tree::damage`; what a job's failure means, in
//! `work::verdict`.
//!
//! Nothing of this is durable: missing files and wrong lengths are found again by the next open, damage inside a file by
//! the next job that meets it. A value file that is set aside goes like any other once nothing refers to it.

use crate::context::Context;
use crate::context::event::DamagedFile;
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, ErrorKind, HashSet, Result};
use lsm::policy::SetAside;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::Stop;
use version::names::{self, FileKind};
use version::{FamilyId, FileMeta};

/// The files that are set aside, by number.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// By number.
    files: Mutex<BTreeMap<u64, Entry>, rank::Damaged>,
    /// Files of values that are never collected: damaged ones, and those that a damaged table refers to. A collection has to
    /// know what every table refers to.
    uncollected: Mutex<HashSet<u64>, rank::Uncollected>,
    /// What of log and manifest cannot be read, in a store that shows what is before.
    damage: OnceLock<Vec<Error>>,
}

/// A file that is set aside.
#[derive(Debug)]
pub(crate) struct Entry {
    pub family: FamilyId,
    pub told: DamagedFile,
    /// Set for a table.
    pub table: Option<Arc<FileMeta>>,
}

impl Quarantine {
    /// True if the file is set aside.
    pub fn has(&self, number: u64) -> bool {
        lock(&self.files).contains_key(&number)
    }

    /// Sets a file aside. False if it was.
    pub fn add(&self, number: u64, entry: Entry) -> bool {
        lock(&self.files).insert(number, entry).is_none()
    }

    /// The file is removed.
    pub fn forget(&self, number: u64) {
        lock(&self.files).remove(&number);
        lock(&self.uncollected).remove(&number);
    }

    /// All that are set aside, by number.
    pub fn all(&self) -> Vec<(u64, DamagedFile)> {
        lock(&self.files).iter().map(|(&number, entry)| (number, entry.told.clone())).collect()
    }

    /// Files of values that are not to be collected.
    pub fn leave_uncollected(&self, numbers: impl IntoIterator<Item = u64>) {
        lock(&self.uncollected).extend(numbers);
    }

    /// True if the file of values is not to be collected.
    pub fn is_uncollected(&self, number: u64) -> bool {
        lock(&self.uncollected).contains(&number)
    }

    /// The store shows what is before this.
    pub fn set_damage(&self, damage: Vec<Error>) {
        let _ = self.damage.set(damage);
    }

    /// See [`crate::Db::damage`].
    pub fn damage(&self) -> Vec<Error> {
        self.damage.get().cloned().unwrap_or_default()
    }

    /// The tables of a family that are set aside.
    pub fn tables_of(&self, family: FamilyId) -> SetAside {
        let files = lock(&self.files);
        let own = files.values().filter(|entry| entry.family == family);
        SetAside::new(own.filter_map(|entry| entry.table.as_deref()))
    }
}

/// True for the kinds of errors that come of a file that cannot be read.
pub(crate) fn is_of_reading(error: &Error) -> bool {
    use ErrorKind::{Corruption, Io, NotFound, Unsupported};
    matches!(error.kind(), Corruption | Io | NotFound | Unsupported)
}

/// What the file is, if it is one of the store's: in its directory, or on its second disk, where errors name what lies there.
pub(crate) fn kind_of(context: &Context, path: &Path) -> Option<FileKind> {
    let (kind, parent) = (names::parse(path.file_name()?.to_str()?)?, path.parent()?);
    let is_there = || kind.is_of_speed_disk() && is_on_speed_disk(context, path);
    (parent == context.dir || is_there()).then_some(kind)
}

/// True if the path is one of the second disk's own.
pub(crate) fn is_on_speed_disk(context: &Context, path: &Path) -> bool {
    let disks = context.env.fs.disks(&context.dir);
    disks.is_some_and(|disks| path == disks.speed_dir || path.parent() == Some(&disks.speed_dir))
}

/// The number of a file of data of the store.
pub(crate) fn number_of(context: &Context, path: &Path) -> Option<u64> {
    kind_of(context, path)?.data()
}

/// Says of an error met in a table which keys it may concern.
pub(crate) fn in_table<T, E: Stop>(result: Result<T, E>, file: &FileMeta) -> Result<T, E> {
    let say = |e: Error| match is_of_reading(&e) {
        true => e.context(format!(
            "keys from \"{}\" to \"{}\" may be in a table that cannot be read, or not here",
            file.smallest_user_key().escape_ascii(),
            file.largest_user_key().escape_ascii()
        )),
        false => e,
    };
    result.map_err(|stop| stop.map(say))
}

/// Says of an error met behind a reference which key it concerns.
pub(crate) fn in_value<T, E: Stop>(result: Result<T, E>, user_key: &[u8]) -> Result<T, E> {
    let say = |e: Error| match is_of_reading(&e) {
        true => e.context(format!("the value of key \"{}\" cannot be read", user_key.escape_ascii())),
        false => e,
    };
    result.map_err(|stop| stop.map(say))
}
