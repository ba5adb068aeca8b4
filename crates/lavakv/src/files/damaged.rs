//! Files of data that cannot be read are set aside: the store goes on with the rest.
//!
//! A table or a value file that is missing, has another length, or fails its checksums where a job reads it, is entered
//! here. From then on no job takes it for an input, and nothing is moved across it that would let a reader come by an
//! older version of what it may hold (`lsm::policy::set_aside`, docs/decisions/0026-a-damaged-table-is-a-barrier.md).
//! Readers are not stopped: a table whose damage is in one block still answers for all others, and what cannot be read
//! gives an error that names file, offset and keys ([`in_table`]).
//!
//! What a job's failure means is decided in one place ([`job_failed`]):
//!
//! * It passes by itself (no descriptor, no memory, interrupted) and concerns a file of data, or one that nothing names yet (a
//!   new group of the log, a new manifest): the job is tried again a while later. What it wrote is thrown away, so nothing
//!   is in doubt.
//! * It comes from reading a file that the manifest lists: the file is set aside. A failure that says that stored bytes
//!   are wrong and names no file sets all of the job's inputs aside.
//! * Anything else poisons the store, as what was written is in doubt.
//!
//! Nothing of this is durable: missing files and wrong lengths are found again by the next open, damage inside a file by
//! the next job that meets it. A value file that is set aside goes like any other once nothing refers to it.

use crate::context::event::{DamagedFile, Event};
use crate::engine::Engine;
use crate::files::obsolete::DataFile;
use crate::tree::family::Family;
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, ErrorKind, Result, key};
use lsm::policy::SetAside;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::SegmentReference;
use version::names::{self, FileKind};
use version::{FamilyId, FileMeta, Place, State, Version, VsstMeta};

/// The files that are set aside, by number.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// By number.
    files: Mutex<BTreeMap<u64, Entry>, rank::Damaged>,
    /// What of log and manifest cannot be read, in a store that shows what is before.
    damage: OnceLock<Vec<Error>>,
}

#[derive(Debug)]
struct Entry {
    family: FamilyId,
    told: DamagedFile,
    /// Set for a table.
    table: Option<Arc<FileMeta>>,
}

impl Quarantine {
    /// True if the file is set aside.
    pub fn has(&self, number: u64) -> bool {
        lock(&self.files).contains_key(&number)
    }

    /// The file is removed.
    pub fn forget(&self, number: u64) {
        lock(&self.files).remove(&number);
    }

    /// The store shows what is before this.
    pub fn set_damage(&self, damage: Vec<Error>) {
        let _ = self.damage.set(damage);
    }

    /// See [`crate::Db::damage`].
    pub fn damage(&self) -> Vec<Error> {
        self.damage.get().cloned().unwrap_or_default()
    }

    fn tables_of(&self, family: FamilyId) -> SetAside {
        let files = lock(&self.files);
        let own = files.values().filter(|entry| entry.family == family);
        SetAside::new(own.filter_map(|entry| entry.table.as_deref()))
    }
}

/// The files that are set aside and still part of the store.
pub(crate) fn list(engine: &Engine) -> Vec<DamagedFile> {
    let state = engine.manifest.state();
    let files: Vec<(u64, DamagedFile)> = {
        let files = lock(&engine.tables.quarantine.files);
        files.iter().map(|(&number, entry)| (number, entry.told.clone())).collect()
    };
    let known = |number: u64| state.place_of(number).is_some() || engine.segments.holds(number);
    files.into_iter().filter(|(number, _)| known(*number)).map(|(_, told)| told).collect()
}

/// The family of a file of data, and what it is.
fn find(state: &State, number: u64) -> Option<(FamilyId, DataFile)> {
    let (Place::Table { family, .. } | Place::Vsst { family }) = state.place_of(number)?;
    Some((family, DataFile::find(state, number)?))
}

/// Sets a file aside that `error` was met in. False if the manifest lists no such file of data.
pub(crate) fn set_aside(engine: &Engine, number: u64, error: &Error) -> bool {
    let Some((id, found)) = find(&engine.manifest.state(), number) else { return false };
    if engine.tables.quarantine.has(number) {
        return true;
    }
    let Some(family) = engine.family(id) else { return true };
    let entry = Entry::new(&family, &found, error);
    let told = entry.told.clone();
    if lock(&engine.tables.quarantine.files).insert(number, entry).is_some() {
        return true;
    }
    family.set_aside(engine.tables.quarantine.tables_of(id));
    leave_uncollected(engine, &family.view().version, &found);
    engine.stats.files_set_aside.add(1);
    engine.tell(&Event::FileSetAside { file: told });
    true
}

/// Sets the segment of a large value aside to which only the log refers so far.
pub(crate) fn set_segment_aside(
    engine: &Engine,
    family: &Family,
    user_key: &[u8],
    reference: &SegmentReference,
    error: &Error,
) {
    let told = DamagedFile {
        file: names::vsst(reference.file),
        family: family.name.clone(),
        is_table: false,
        bytes: reference.stored_len,
        first_key: user_key.to_vec(),
        last_key: user_key.to_vec(),
        error: error.clone(),
    };
    let entry = Entry { family: family.id, told: told.clone(), table: None };
    lock(&engine.tables.quarantine.files).insert(reference.file, entry);
    engine.stats.files_set_aside.add(1);
    engine.tell(&Event::FileSetAside { file: told });
}

/// Sets a file aside in which values were placed that only the log refers to, and that are lost.
pub(crate) fn set_placed_aside(engine: &Engine, family: &Family, meta: &VsstMeta, error: &Error) {
    if engine.tables.quarantine.has(meta.number) {
        return;
    }
    let entry = Entry::new(family, &DataFile::Vsst(Arc::new(meta.clone())), error);
    let told = entry.told.clone();
    lock(&engine.tables.quarantine.files).insert(meta.number, entry);
    lock(&engine.claims).abandoned.insert(meta.number, u64::MAX);
    engine.stats.files_set_aside.add(1);
    engine.tell(&Event::FileSetAside { file: told });
}

/// A collection has to know what every table refers to: the files that a damaged one refers to stay as they are, and so
/// does a damaged file of values.
fn leave_uncollected(engine: &Engine, version: &Version, found: &DataFile) {
    let numbers: Vec<u64> = match found {
        DataFile::Vsst(meta) => vec![meta.number],
        DataFile::Table(meta) => {
            let names = meta.dependencies.iter().map(|d| d.blob_id);
            names.flat_map(|name| version.resolve_all(name)).map(|vsst| vsst.number).collect()
        }
    };
    let never = numbers.into_iter().map(|number| (number, u64::MAX));
    lock(&engine.claims).abandoned.extend(never);
}

impl Entry {
    fn new(family: &Family, found: &DataFile, error: &Error) -> Entry {
        let (kind, bytes, ends, table) = match found {
            DataFile::Table(f) => {
                (FileKind::Ksst(f.number), f.len, (&f.smallest, &f.largest), Some(f.clone()))
            }
            DataFile::Vsst(v) => (FileKind::Vsst(v.number), v.len, (&v.smallest, &v.largest), None),
        };
        let told = DamagedFile {
            file: kind.to_string(),
            family: family.name.clone(),
            is_table: table.is_some(),
            bytes,
            first_key: key::user_key(ends.0).to_vec(),
            last_key: key::user_key(ends.1).to_vec(),
            error: error.clone(),
        };
        // A copy that does not count as a use of the file.
        let table = table.map(|f| Arc::new(FileMeta { copies: Arc::default(), ..FileMeta::clone(&f) }));
        Entry { family: family.id, told, table }
    }
}

/// What the error of a failed job means for the store. `inputs`: the files it read.
pub(crate) fn job_failed(engine: &Arc<Engine>, error: Error, inputs: &[u64]) {
    if error.is_passing() && error.file().is_some_and(|path| is_thrown_away(engine, path)) {
        engine.health.busy_at(engine.env.clock.now_ns(), &error);
    } else if !sets_aside(engine, &error, inputs) {
        return engine.background_failed(error);
    }
    engine.stats.background_errors.add(1);
    engine.tell(&Event::BackgroundError { error });
    engine.scheduler.notify_progress();
}

/// True if what a job writes to a file is nobody's before the job has come to its end.
fn is_thrown_away(engine: &Engine, path: &Path) -> bool {
    match kind_of(&engine.dir, path) {
        Some(FileKind::Ksst(_) | FileKind::Vsst(_) | FileKind::CurrentTemp) => true,
        Some(FileKind::Log(number)) => engine.manifest.state().store.log_group_in(number).is_none(),
        Some(FileKind::Manifest(number)) => {
            !engine.manifest.live_manifest_files().contains(&names::manifest(number))
        }
        _ => false,
    }
}

/// Sets the files aside that a job's error concerns. False if there are none: then it is not damage.
fn sets_aside(engine: &Engine, error: &Error, inputs: &[u64]) -> bool {
    if !is_of_reading(error) {
        return false;
    }
    match error.file() {
        Some(path) => number_of(&engine.dir, path).is_some_and(|number| set_aside(engine, number, error)),
        None => {
            let all = inputs.iter().filter(|&&number| set_aside(engine, number, error)).count();
            error.is_corruption() && all > 0
        }
    }
}

/// True for the kinds of errors that come of a file that cannot be read.
pub(crate) fn is_of_reading(error: &Error) -> bool {
    use ErrorKind::{Corruption, Io, NotFound, Unsupported};
    matches!(error.kind(), Corruption | Io | NotFound | Unsupported)
}

/// What the file is, if it is one of the store's directory.
fn kind_of(dir: &Path, path: &Path) -> Option<FileKind> {
    names::parse(path.file_name()?.to_str().filter(|_| path.parent() == Some(dir))?)
}

/// The number of a file of data of the store.
fn number_of(dir: &Path, path: &Path) -> Option<u64> {
    match kind_of(dir, path)? {
        FileKind::Ksst(number) | FileKind::Vsst(number) => Some(number),
        _ => None,
    }
}

/// Says of an error met in a table which keys it may concern.
pub(crate) fn in_table<T>(result: Result<T>, file: &FileMeta) -> Result<T> {
    result.map_err(|e| match is_of_reading(&e) {
        true => e.context(format!(
            "keys from \"{}\" to \"{}\" may be in a table that cannot be read, or not here",
            file.smallest_user_key().escape_ascii(),
            file.largest_user_key().escape_ascii()
        )),
        false => e,
    })
}

/// Says of an error met behind a reference which key it concerns.
pub(crate) fn in_value<T>(result: Result<T>, user_key: &[u8]) -> Result<T> {
    result.map_err(|e| match is_of_reading(&e) {
        true => e.context(format!("the value of key \"{}\" cannot be read", user_key.escape_ascii())),
        false => e,
    })
}
