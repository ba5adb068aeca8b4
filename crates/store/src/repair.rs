//! The common frame of all repairs: it excludes writers from the damaged store, and creates the
//! directory of the new one.
//!
//! The damaged store is opened read-only, under its lock if it has one. The new store is marked as
//! unfinished ([`crate::files::unfinished`]) until all of it is durable. It is never put into a
//! directory with other files, nor into the damaged store, by any path.
//!
//! The module also has the shared tools of repairs. [`open_lane`] reads a lane of the log,
//! [`clipped`] limits a file to its recorded length, and [`FewOpen`] bounds the number of open
//! files. [`RepairDamage`] describes damage. [`SecondaryRepair`] repairs a secondary engine
//! together with its primary engine.

mod few_open;

use crate::files::unfinished::{self, Mark, MarkKind};
use crate::manifest::{EngineId, LogGroupMeta, ManifestState};
use crate::names::{self, FileKind};
use crate::secondary_engine::SecondaryEngine;
use base::{Error, ErrorKind, HashMap, Result, SeqNo, Uid};
pub use few_open::FewOpen;
use io::{Access, Cancel, Env, FileLock, ReadFile};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use wal::Lane;
use wal::salvage::displaced::{self, GroupFound};
pub use wal::salvage::{Batches, LogGap, OnSalvagedBatch, SalvagedLog};
use wal::salvage::{ListedGroup, LogFile};

/// Source and target of a repair.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The damaged store.
    pub from: (&'a Env, &'a Path),
    /// The new one.
    pub into: (&'a Env, &'a Path),
    /// The fast tier of the damaged store is lost.
    pub without_fast_tier: bool,
    /// Cancels the repair.
    pub cancel: Option<&'a Cancel>,
}

impl Places<'_> {
    /// Takes the lock of the damaged store, as a reader. A store without a lock file has no holder.
    ///
    /// # Errors
    /// `Locked` if a process has the store open. Errors of [`crate::volumes::identity::check`],
    /// except damage. Errors of listing the directory, which must exist.
    pub fn keep_writers_away(&self) -> Result<Option<Box<dyn FileLock>>> {
        let (env, dir) = self.from;
        let held = self.lock()?;
        check_disk(env, dir, self.without_fast_tier)?;
        Ok(held)
    }

    fn lock(&self) -> Result<Option<Box<dyn FileLock>>> {
        let (env, dir) = self.from;
        match env.fs.lock_to_read(&io::fs::join(dir, names::LOCK)) {
            Ok(lock) => Ok(Some(lock)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                // The directory itself must exist.
                env.fs.list(dir).map(|_| None)
            }
            Err(e) => Err(e),
        }
    }

    /// Checks that the target directory is empty, and not inside the damaged store, which must stay
    /// unchanged.
    ///
    /// # Errors
    /// `InvalidArgument` for a place inside the damaged store, `AlreadyExists` if there are other
    /// files; file system errors.
    pub fn check_target(&self) -> Result<()> {
        let (env, dir) = self.into;
        let (from_env, from) = self.from;
        let one_volume = std::sync::Arc::ptr_eq(&env.fs, &from_env.fs);
        if one_volume && dir.starts_with(from) || lies_in((env, dir), (from_env, from))? {
            let why = "the directory for the repaired store is inside the damaged store: choose \
                       one outside";
            return Err(Error::invalid(why).at_file(dir));
        }
        match env.fs.list(dir) {
            // The leftovers of an interrupted repair may be replaced.
            Ok(entries) if unfinished::of(&entries) == Some(MarkKind::Repair) => Ok(()),
            Ok(entries) if entries.iter().all(|entry| entry.name == names::LOCK) => Ok(()),
            Ok(_) => Err(not_empty(dir)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Removes the files of a failed repair, as far as possible, and the directory if the repair
    /// `made` it. The next repair clears the rest. Nothing is removed while another process holds
    /// the lock.
    pub fn clear_target(&self, made: bool) {
        let (env, dir) = self.into;
        let lock = io::fs::join(dir, names::LOCK);
        if !env.fs.exists(dir).unwrap_or(false) {
            return;
        }
        let Ok(_held) = env.fs.lock(&lock, "a repair") else { return };
        let cleared = unfinished::clear(&*env.fs, dir, MarkKind::Repair);
        if made && matches!(cleared, Ok(true)) {
            drop(env.fs.remove(&lock).and_then(|()| env.fs.remove_dir(dir)));
        }
    }

    /// Creates the directory of the new store and marks it. Under the lock, so that two repairs do
    /// not clear away each other's files: while the lock is free the mark exists, or the store is
    /// whole.
    ///
    /// # Errors
    /// `AlreadyExists` if there are other files; `Locked`; file system errors.
    pub fn mark_target(&self) -> Result<Mark> {
        let (env, dir) = self.into;
        crate::directory::make(env, dir)?;
        let _lock = env.fs.lock(&io::fs::join(dir, names::LOCK), "a repair")?;
        if !unfinished::clear(&*env.fs, dir, MarkKind::Repair)? {
            return Err(not_empty(dir));
        }
        Mark::set(&env.fs, dir, MarkKind::Repair)
    }
}

/// As [`crate::volumes::identity::check`], for a repair, which reads despite damage. `left_out`:
/// the repair must do without the fast tier.
fn check_disk(env: &Env, dir: &Path, left_out: bool) -> Result<()> {
    // A damaged manifest proves nothing about a fast tier.
    let Ok(state) = crate::manifest::state_of(env, dir) else { return Ok(()) };
    match env.fs.disks(dir) {
        Some(disks) if left_out => {
            let why = "the repair both excludes and names the fast tier: choose one of the two";
            Err(Error::invalid(why).at_file(&disks.speed_dir))
        }
        None if left_out => Ok(()),
        _ => match state.check_disk(env, dir, true) {
            Err(e) if e.is_corruption() => Ok(()),
            checked => checked,
        },
    }
}

fn not_empty(dir: &Path) -> Error {
    let why = "the directory for the repaired store is not empty: choose another";
    Error::new(ErrorKind::AlreadyExists, why).at_file(dir)
}

/// Returns true if one directory, which need not exist, is or would be in the other by any path:
/// over `..`, over links, over a second mount. Asks the file system for every directory above it.
fn lies_in((env, dir): (&Env, &Path), (of_env, of): (&Env, &Path)) -> Result<bool> {
    let identity = |env: &Env, dir: &Path| env.fs.metadata(dir).map(|found| found.identity);
    let Some(wanted) = identity(of_env, of)? else { return Ok(false) };
    // The missing part will be created in the last existing directory.
    let is_there = |dir: &&Path| env.fs.metadata(dir).is_ok_and(|found| found.is_dir);
    let Some(mut here) = dir.ancestors().find(is_there).map(Path::to_owned) else { return Ok(false) };
    let missing = dir.strip_prefix(&here).unwrap_or(dir);
    if missing.components().any(|part| part == Component::ParentDir) {
        let why = "the path has `..` behind a directory that does not exist: name it without `..`";
        return Err(Error::invalid(why).at_file(dir));
    }
    let mut at = identity(env, &here)?;
    loop {
        let above = here.join("..");
        let next = identity(env, &above)?;
        if at == Some(wanted) {
            return Ok(true);
        }
        // The root is its own parent.
        if at.is_none() || at == next {
            return Ok(false);
        }
        (here, at) = (above, next);
    }
}

/// The groups of a lane to read, among those that a state lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSelection {
    /// All.
    All,
    /// The groups that an open would replay, without the retained ones.
    Replayed,
}

/// Opens a lane of the log as far as it is readable: the groups that a state lists. Without a state
/// it opens all files that begin with a page of the lane, under any name. `store`: the owner of the
/// pages; without it the store with the most pages.
///
/// # Errors
/// `Unsupported` if a newer release wrote it; errors of reading files that hold no pages.
pub fn open_lane(
    env: &Env,
    dir: &Path,
    (lane, which): (Lane, GroupSelection),
    state: Option<&ManifestState>,
    store: Option<Uid>,
) -> Result<SalvagedLog> {
    let mut here = BTreeMap::new();
    for entry in env.fs.list(dir)? {
        let path = io::fs::join(dir, &entry.name);
        let file = env.fs.open(&path, Access::Buffered).ok();
        let group = file.as_ref().and_then(|file| displaced::group_in(&**file, lane));
        // Only log files stay open: the tables of a large directory would use all descriptors.
        let is_log = matches!(names::parse(&entry.name), Some(FileKind::Log(_)));
        let file = file.filter(|_| is_log || group.is_some());
        here.insert(entry.name, OnDisk { path, file, group });
    }
    let (mut files, mut exchanged) = (Vec::new(), Vec::new());
    match state {
        Some(state) => {
            let counts = |group: &&LogGroupMeta| {
                let is_read = which == GroupSelection::All || group.retained_bytes.is_none();
                group.lane == lane && !group.discarded && is_read
            };
            // An index of files by group, so that a search for each group is not a pass over all
            // files. The first by name wins.
            let mut by_group = HashMap::default();
            for on_disk in here.values() {
                on_disk.group.map(|group| by_group.entry(group).or_insert(on_disk));
            }
            for group in state.log_groups.values().filter(counts) {
                let (file, is_elsewhere) = file_of(group, state.uid, (&here, &by_group), dir);
                if is_elsewhere && let Some(path) = &file.path.file_name() {
                    let why = format!(
                        "{} has log group {}, which belongs in this file: files were exchanged, and the \
                         repair reads the group there",
                        path.display(),
                        group.ltn
                    );
                    exchanged
                        .push(Error::corruption(why).at_file(io::fs::join(dir, &names::log(group.file))));
                }
                files.push(file);
            }
        }
        None => {
            for (name, OnDisk { path, file, group }) in here {
                let is_log = matches!(names::parse(&name), Some(FileKind::Log(_)));
                if let Some(group) = group.filter(|_| !is_log) {
                    let why = format!(
                        "this file has log group {}, but no name of a log file: files were exchanged, and \
                         the repair reads the group here",
                        group.ltn
                    );
                    exchanged.push(Error::corruption(why).at_file(&path));
                }
                if is_log || group.is_some() {
                    files.push(LogFile { path, file, listed: None });
                }
            }
        }
    }
    let mut log = wal::salvage::salvage(env, dir, lane, store, files)?;
    log.displaced = exchanged;
    log.end_is_open = state.is_none();
    Ok(log)
}

/// A file of the directory, and the group of the lane that its first page names.
struct OnDisk {
    path: PathBuf,
    file: Option<Arc<dyn ReadFile>>,
    group: Option<GroupFound>,
}

/// Returns the file of a group: its own, or another one if only that begins with a page of the
/// group. The flag reports the latter.
fn file_of(
    group: &LogGroupMeta,
    store: Uid,
    (here, by_group): (&BTreeMap<String, OnDisk>, &HashMap<GroupFound, &OnDisk>),
    dir: &Path,
) -> (LogFile, bool) {
    let name = names::log(group.file);
    let listed = ListedGroup {
        ltn: group.ltn,
        uid: group.uid,
        sealed_end: group.sealed_end,
        len: group.len,
        store: group.store,
        retained_bytes: group.retained_bytes,
        begin: group.begin,
    };
    let found = GroupFound { ltn: group.ltn, uid: group.uid, store: group.store.unwrap_or(store) };
    let own = here.get(&name);
    let is_own = own.is_some_and(|own| own.group == Some(found));
    let other = by_group.get(&found).copied().filter(|_| !is_own);
    let path = io::fs::join(dir, &name);
    let (path, file) = match other.or(own) {
        Some(on_disk) => (on_disk.path.clone(), on_disk.file.clone()),
        None => (path, None),
    };
    (LogFile { file, path, listed: Some(listed) }, other.is_some())
}

/// Findings of the primary engine's repair before the secondary engine's.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// The manifest is whole, as far as known.
    pub from_manifest: bool,
    /// The identity of the store, if known.
    pub store: Option<Uid>,
}

/// The secondary engine of a store ([`crate::secondary_engine`]) in a repair of both engines,
/// driven by the primary engine. The primary engine calls in this order:
///
/// 1. [`SecondaryRepair::look`]. Once more if it reports that the manifest has lost its end: both
///    engines use the same manifest, or none.
/// 2. [`SecondaryRepair::secondary`]: the new store is opened with it. Not in a dry run.
/// 3. [`SecondaryRepair::save`]. The primary engine makes both engines durable, which completes the
///    store.
pub trait SecondaryRepair {
    /// Returns the engine.
    fn engine(&self) -> EngineId;

    /// Examines the secondary engine's part of the damaged store. Returns the reason if the
    /// secondary engine's files prove that the manifest has lost its end.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote any of it; errors of listing the directory. Damage is
    /// no error.
    fn look(&mut self, places: &Places<'_>, judged: &Judged) -> Result<Option<Error>>;

    /// Returns the secondary engine's sequence below which no batch of its lane has an embedded
    /// batch that the primary engine lacks in files. A file of the secondary engine proves it: it
    /// is begun only once the primary engine's floor has passed these batches. 0: no proof. After
    /// [`SecondaryRepair::look`].
    fn in_files_below(&self) -> SeqNo;

    /// Returns the secondary engine to open the new store with.
    fn secondary(&mut self) -> &mut dyn SecondaryEngine;

    /// Writes all recoverable data into the open store, durably. Without an open store (dry run) it
    /// writes nothing.
    ///
    /// # Errors
    /// Errors of writing.
    fn save(&mut self) -> Result<()>;
}

/// Limits a file to its first `len` bytes.
pub fn clipped(inner: Arc<dyn ReadFile>, len: u64) -> Arc<dyn ReadFile> {
    Arc::new(Clipped { inner, len })
}

#[derive(Debug)]
struct Clipped {
    inner: Arc<dyn ReadFile>,
    len: u64,
}

impl ReadFile for Clipped {
    fn len(&self) -> Result<u64> {
        Ok(self.len.min(self.inner.len()?))
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// Names a damaged or missing file that a repair met, to examine the device. It need not have cost
/// data: the report lists losses apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairDamage {
    /// File name in the store directory.
    pub file: String,
    /// Offset of the damage in the file, bytes, if it is at one place.
    pub offset: Option<u64>,
    /// Description of the damage, for people.
    pub why: String,
}

/// Maximum number of reported damages.
const DAMAGES_MAX: usize = 10_000;

impl RepairDamage {
    /// Returns the damage that an error reports, with its file and offset.
    pub fn of(error: &Error) -> RepairDamage {
        let file = error.file().and_then(|path| path.file_name()).unwrap_or_default();
        RepairDamage {
            file: file.to_string_lossy().into_owned(),
            offset: error.offset(),
            why: error.message().to_owned(),
        }
    }

    /// Adds the damage of an error to a list, once, up to the maximum.
    pub fn note(error: &Error, all: &mut Vec<RepairDamage>) {
        let damage = RepairDamage::of(error);
        if !all.contains(&damage) && all.len() < DAMAGES_MAX {
            all.push(damage);
        }
    }
}
