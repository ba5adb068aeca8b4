//! The quarantine of unreadable data files: the store continues with the other files.
//!
//! A table or value file is set aside if it is missing, has another length, or fails its checksums
//! in a job's read. From then on no job uses it as an input. No data moves across it if that would
//! expose an older version of a key that it may hold (`lsm::policy::set_aside`,
//! docs/decisions/0026-a-damaged-table-is-a-barrier.md). Reads continue: a table with one damaged
//! block still serves all others. A read of the damaged block returns an error that names file,
//! offset and keys ([`in_table`]).
//!
//! `tree::damage` describes the consequences for the family, `work::jobs::verdict` those of a job's
//! failure.
//!
//! **Why no older version appears.** The manifest still has the table's place in the tree, its key
//! range (with the ends of its range tombstones), its sequences, and its references. So the table
//! stays in its place as a *barrier*:
//!
//! * Reads come to the tables in order of age. An entry found above the barrier is newer, and is
//!   the answer. A read that needs the damaged part of the barrier fails. No read continues below
//!   it.
//! * Nothing newer moves below the barrier, and nothing older above it (`lsm::policy::set_aside`).
//! * Tombstones are kept as long as older entries may lie under them. The barrier counts as such.
//! * A collection must know every reference. So the value files that the barrier may reference are
//!   not collected (`tree::damage`).
//!
//! Nothing of this is durable. The next open detects missing files and wrong lengths again, and the
//! next job that reads a damaged block detects that. An unreferenced value file is removed even if
//! it is set aside.

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

/// The files that are set aside, and files that must not be collected.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Files that are set aside, by number.
    files: Mutex<BTreeMap<u64, QuarantinedFile>, rank::Damaged>,
    /// Value files that must not be collected: damaged ones, and those referenced by a damaged
    /// table. A collection must know the references of every table.
    uncollected: Mutex<HashSet<u64>, rank::Uncollected>,
    /// Damage of the log and the manifest, in a store that shows the data before it.
    damage: OnceLock<Vec<Error>>,
}

/// A file that is set aside.
#[derive(Debug)]
pub(crate) struct QuarantinedFile {
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

    /// Sets a file aside. Returns false if it already was.
    pub fn add(&self, number: u64, entry: QuarantinedFile) -> bool {
        lock(&self.files).insert(number, entry).is_none()
    }

    /// Forgets a removed file.
    pub fn forget(&self, number: u64) {
        lock(&self.files).remove(&number);
        lock(&self.uncollected).remove(&number);
    }

    /// Returns all files that are set aside, by number.
    pub fn all(&self) -> Vec<(u64, DamagedFile)> {
        lock(&self.files).iter().map(|(&number, entry)| (number, entry.told.clone())).collect()
    }

    /// Excludes value files from collection.
    pub fn leave_uncollected(&self, numbers: impl IntoIterator<Item = u64>) {
        lock(&self.uncollected).extend(numbers);
    }

    /// Returns whether the value file must not be collected.
    pub fn is_uncollected(&self, number: u64) -> bool {
        lock(&self.uncollected).contains(&number)
    }

    /// Records the damage of log and manifest: the store shows the data before it.
    pub fn set_damage(&self, damage: Vec<Error>) {
        let _ = self.damage.set(damage);
    }

    /// See [`crate::Db::damage`].
    pub fn damage(&self) -> Vec<Error> {
        self.damage.get().cloned().unwrap_or_default()
    }

    /// Returns the tables of a family that are set aside.
    pub fn tables_of(&self, family: FamilyId) -> SetAside {
        let files = lock(&self.files);
        let own = files.values().filter(|entry| entry.family == family);
        SetAside::new(own.filter_map(|entry| entry.table.as_deref()))
    }
}

/// Returns whether the error kind may come from an unreadable file.
pub(crate) fn is_of_reading(error: &Error) -> bool {
    use ErrorKind::{Corruption, Io, NotFound, Unsupported};
    matches!(error.kind(), Corruption | Io | NotFound | Unsupported)
}

/// Returns the kind of a file of the store: in its directory, or on its fast tier, where errors
/// name the path there.
pub(crate) fn kind_of(context: &Context, path: &Path) -> Option<FileKind> {
    let (kind, parent) = (names::parse(path.file_name()?.to_str()?)?, path.parent()?);
    let is_there = || kind.is_on_fast_tier() && is_on_speed_disk(context, path);
    (parent == context.dir || is_there()).then_some(kind)
}

/// Returns whether the path is the fast tier's directory, or directly in it.
pub(crate) fn is_on_speed_disk(context: &Context, path: &Path) -> bool {
    let disks = context.env.fs.disks(&context.dir);
    disks.is_some_and(|disks| path == disks.speed_dir || path.parent() == Some(&disks.speed_dir))
}

/// Returns the number of a data file of the store.
pub(crate) fn number_of(context: &Context, path: &Path) -> Option<u64> {
    kind_of(context, path)?.data()
}

/// Adds to an error in a table the keys that it may affect.
pub(crate) fn in_table<T, E: Stop>(result: Result<T, E>, file: &FileMeta) -> Result<T, E> {
    let say = |e: Error| match is_of_reading(&e) {
        true => e.context(format!(
            "keys from \"{}\" to \"{}\" are unknown, others stay readable: their table cannot be read",
            file.smallest_user_key().escape_ascii(),
            file.largest_user_key().escape_ascii()
        )),
        false => e,
    };
    result.map_err(|stop| stop.map(say))
}

/// Adds to an error behind a reference the key that it affects.
pub(crate) fn in_value<T, E: Stop>(result: Result<T, E>, user_key: &[u8]) -> Result<T, E> {
    let say = |e: Error| match is_of_reading(&e) {
        true => e.context(format!("the value of key \"{}\" cannot be read", user_key.escape_ascii())),
        false => e,
    };
    result.map_err(|stop| stop.map(say))
}
