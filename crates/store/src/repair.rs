//! What every repair does around its own work: it keeps writers away from the damaged store, and makes the directory of the new one.
//!
//! The damaged store is opened for reading only, under its lock where it has one. The new one is marked as unfinished
//! ([`crate::files::unfinished`]) until all of it is durable, and is never put where anything is, nor into the damaged one, by
//! whatever path.
//!
//! Here is as well what repairs of any engine read in the same way: a lane of the log ([`open_lane`]), a file that is longer than it was
//! ([`clipped`]); files that are open only while they are read ([`FewOpen`]); how they tell what is damaged ([`RepairDamage`]); and how a host repairs a store together with its guest
//! ([`GuestRepair`]).

mod few_open;

use crate::files::unfinished::{self, Mark, Work};
use crate::guest::Guest;
use crate::manifest::{EngineId, LogGroupMeta, State};
use crate::names::{self, FileKind};
use base::{Error, ErrorKind, HashMap, Result, SeqNo, Uid};
pub use few_open::FewOpen;
use io::{Access, Cancel, Env, FileLock, ReadFile};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use wal::Lane;
use wal::salvage::displaced::{self, GroupFound};
pub use wal::salvage::{Batches, LogGap, OnBatch, SalvagedLog};
use wal::salvage::{ListedGroup, LogFile};

/// Where a repair reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The damaged store.
    pub from: (&'a Env, &'a Path),
    /// The new one.
    pub into: (&'a Env, &'a Path),
    /// The speed disk of the damaged store is lost.
    pub without_speed: bool,
    /// Ends the repair before its time.
    pub cancel: Option<&'a Cancel>,
}

impl Places<'_> {
    /// Takes the lock of the damaged store, as one who reads; a store whose lock file is gone has nobody who holds it.
    ///
    /// # Errors
    /// `Locked` if a process has the store open; those of [`crate::volumes::identity::check`], but for damage; those of listing the directory, which must
    /// be there.
    pub fn keep_writers_away(&self) -> Result<Option<Box<dyn FileLock>>> {
        let (env, dir) = self.from;
        let held = self.lock()?;
        check_disk(env, dir, self.without_speed)?;
        Ok(held)
    }

    fn lock(&self) -> Result<Option<Box<dyn FileLock>>> {
        let (env, dir) = self.from;
        match env.fs.lock_to_read(&io::fs::join(dir, names::LOCK)) {
            Ok(lock) => Ok(Some(lock)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                // The directory itself must be there.
                env.fs.list(dir).map(|_| None)
            }
            Err(e) => Err(e),
        }
    }

    /// The new store must not be put where anything is, nor into the damaged one, in which nothing is changed.
    ///
    /// # Errors
    /// `InvalidArgument` for a place inside the damaged store, `AlreadyExists` if there is something; those of looking.
    pub fn check_target(&self) -> Result<()> {
        let (env, dir) = self.into;
        let (from_env, from) = self.from;
        let one_volume = std::sync::Arc::ptr_eq(&env.fs, &from_env.fs);
        if one_volume && dir.starts_with(from) || lies_in((env, dir), (from_env, from))? {
            let why = "the repaired store would lie in the damaged one: choose a directory outside";
            return Err(Error::invalid(why).at_file(dir));
        }
        match env.fs.list(dir) {
            // What a repair left that was cut off makes room for the next.
            Ok(entries) if unfinished::of(&entries) == Some(Work::Repair) => Ok(()),
            Ok(entries) if entries.iter().all(|entry| entry.name == names::LOCK) => Ok(()),
            Ok(_) => Err(not_empty(dir)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Removes what a repair has left that failed, and the directory if the repair `made` it, as far as that is possible: what is left, the
    /// next one clears away. Nothing is removed where somebody else has the lock.
    pub fn clear_target(&self, made: bool) {
        let (env, dir) = self.into;
        let lock = io::fs::join(dir, names::LOCK);
        if !env.fs.exists(dir).unwrap_or(false) {
            return;
        }
        let Ok(_held) = env.fs.lock(&lock, "a repair") else { return };
        let cleared = unfinished::clear(&*env.fs, dir, Work::Repair);
        if made && matches!(cleared, Ok(true)) {
            drop(env.fs.remove(&lock).and_then(|()| env.fs.remove_dir(dir)));
        }
    }

    /// Makes the directory of the new store and marks it. Under the lock, so that two repairs do not clear away each other's files:
    /// whenever nobody holds it the mark is there, or the store is whole.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something; `Locked`; those of the file system.
    pub fn mark_target(&self) -> Result<Mark> {
        let (env, dir) = self.into;
        crate::directory::make(env, dir)?;
        let _lock = env.fs.lock(&io::fs::join(dir, names::LOCK), "a repair")?;
        if !unfinished::clear(&*env.fs, dir, Work::Repair)? {
            return Err(not_empty(dir));
        }
        Mark::set(&env.fs, dir, Work::Repair)
    }
}

/// As [`crate::volumes::identity::check`], for a repair, which reads what is there whatever is damaged. `left_out`: it is to do without the disk.
fn check_disk(env: &Env, dir: &Path, left_out: bool) -> Result<()> {
    // A manifest that does not tell it whole tells nothing of a second disk.
    let Ok(state) = crate::manifest::state_of(env, dir) else { return Ok(()) };
    match env.fs.disks(dir) {
        Some(disks) if left_out => {
            let why =
                "the repair is to do without the speed disk, which is given all the same: one or the other";
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

/// True if one directory, which need not be there yet, is or would be in the other, by whatever path: over `..`, over links, over
/// a second mount. Asks the file system for every directory above it.
fn lies_in((env, dir): (&Env, &Path), (of_env, of): (&Env, &Path)) -> Result<bool> {
    let identity = |env: &Env, dir: &Path| env.fs.metadata(dir).map(|found| found.identity);
    let Some(wanted) = identity(of_env, of)? else { return Ok(false) };
    // What is missing will be made in the last directory that is there.
    let is_there = |dir: &&Path| env.fs.metadata(dir).is_ok_and(|found| found.is_dir);
    let Some(mut here) = dir.ancestors().find(is_there).map(Path::to_owned) else { return Ok(false) };
    let missing = dir.strip_prefix(&here).unwrap_or(dir);
    if missing.components().any(|part| part == Component::ParentDir) {
        let why = "the path goes back over `..` from a directory that is not there: name it without";
        return Err(Error::invalid(why).at_file(dir));
    }
    let mut at = identity(env, &here)?;
    loop {
        let above = here.join("..");
        let next = identity(env, &above)?;
        if at == Some(wanted) {
            return Ok(true);
        }
        // The root is above itself.
        if at.is_none() || at == next {
            return Ok(false);
        }
        (here, at) = (above, next);
    }
}

/// Which groups of a lane are read, of those that a state lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// All.
    All,
    /// Those that an open would replay: not those that are kept as storage.
    Replayed,
}

/// A lane of the log, as far as it can be read: the groups that a state lists, or else all files in which there are pages of it; under whatever
/// names, if they begin with such a page. `store`: whose pages they are; without it those of whom most are.
///
/// # Errors
/// `Unsupported` if a newer release wrote it; those of reading what is no page.
pub fn open_lane(
    env: &Env,
    dir: &Path,
    (lane, which): (Lane, Groups),
    state: Option<&State>,
    store: Option<Uid>,
) -> Result<SalvagedLog> {
    let mut here = BTreeMap::new();
    for entry in env.fs.list(dir)? {
        let path = io::fs::join(dir, &entry.name);
        let file = env.fs.open(&path, Access::Buffered).ok();
        let group = file.as_ref().and_then(|file| displaced::group_in(&**file, lane));
        // Of a directory of many tables no more stays open than the log, or there would be no descriptor left for it.
        let is_log = matches!(names::parse(&entry.name), Some(FileKind::Log(_)));
        let file = file.filter(|_| is_log || group.is_some());
        here.insert(entry.name, OnDisk { path, file, group });
    }
    let (mut files, mut exchanged) = (Vec::new(), Vec::new());
    match state {
        Some(state) => {
            let counts = |group: &&LogGroupMeta| {
                let is_read = which == Groups::All || group.retained_bytes.is_none();
                group.lane == lane && !group.discarded && is_read
            };
            // Asked for each group: nobody goes through all files as often as there are groups. Of several the first by its name.
            let mut by_group = HashMap::default();
            for on_disk in here.values() {
                on_disk.group.map(|group| by_group.entry(group).or_insert(on_disk));
            }
            for group in state.log_groups.values().filter(counts) {
                let (file, is_elsewhere) = file_of(group, state.uid, (&here, &by_group), dir);
                if is_elsewhere && let Some(path) = &file.path.file_name() {
                    let why = format!(
                        "{} has log group {}, which belongs here: files were exchanged",
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
                    let why = format!("this is the file of log group {}: files were exchanged", group.ltn);
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

/// A file of the directory, and the group of a lane with whose first page it begins.
struct OnDisk {
    path: PathBuf,
    file: Option<Arc<dyn ReadFile>>,
    group: Option<GroupFound>,
}

/// Where a group is: in its file, or in another one, if only that begins with a page of it, which is told then.
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

/// What a host's repair found out before the guest looks.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// The manifest is whole, as far as is known.
    pub from_manifest: bool,
    /// Which store it is, if anything tells it.
    pub store: Option<Uid>,
}

/// The guest of a store ([`crate::guest`]) in a repair of both halves, which the host makes. It is called in this order:
///
/// 1. [`GuestRepair::look`], once more if it says that the manifest has lost its end: both halves go by the same manifest, or by none.
/// 2. [`GuestRepair::guest`]: with it the new store is opened. Not for a dry run.
/// 3. [`GuestRepair::save`]. The host makes both halves durable, and then it is a store.
pub trait GuestRepair {
    /// The engine.
    fn engine(&self) -> EngineId;

    /// Looks at what the damaged store has of it. Returns why the manifest has lost its end, if the guest's files say so.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote any of it; those of listing the directory. Damage is none.
    fn look(&mut self, places: &Places<'_>, judged: &Judged) -> Result<Option<Error>>;

    /// Batches of its lane below this sequence of its own carry nothing that the host has not in files: a file of the guest's says so, which is
    /// begun only when the host's floor has passed them. 0: nothing says it. After [`GuestRepair::look`].
    fn in_files_below(&self) -> SeqNo;

    /// With which the new store is opened.
    fn guest(&mut self) -> &mut dyn Guest;

    /// Writes what can be saved into the store that was opened, or nowhere if none was, and makes it durable.
    ///
    /// # Errors
    /// Those of writing.
    fn save(&mut self) -> Result<()>;
}

/// A file of which only the first `len` bytes count.
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

/// A file that is damaged or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairDamage {
    /// Its name in the directory of the store.
    pub file: String,
    /// Where the damage is, bytes from the beginning, if it is at one place.
    pub offset: Option<u64>,
    /// What is wrong.
    pub why: String,
}

/// So much damage is told apart.
const DAMAGES_MAX: usize = 10_000;

impl RepairDamage {
    /// What an error says of a file.
    pub fn of(error: &Error) -> RepairDamage {
        let file = error.file().and_then(|path| path.file_name()).unwrap_or_default();
        RepairDamage {
            file: file.to_string_lossy().into_owned(),
            offset: error.offset(),
            why: error.message().to_owned(),
        }
    }

    /// Notes down what an error says, once, and not without end.
    pub fn note(error: &Error, all: &mut Vec<RepairDamage>) {
        let damage = RepairDamage::of(error);
        if !all.contains(&damage) && all.len() < DAMAGES_MAX {
            all.push(damage);
        }
    }
}
