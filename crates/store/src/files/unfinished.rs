//! The mark of a directory that is to become a store, and is not one yet: the file `UNFINISHED`.
//!
//! It is durable before anything else is in the directory, and goes when everything is. What is made (a checkpoint, a
//! repair) is told by its length: see [`Work`]. A checkpoint writes `CURRENT` last, so beside `CURRENT` its mark says
//! nothing, and the first open for writing removes it. A repair fills a store by the ordinary write path and so has
//! `CURRENT` from the beginning: as long as its mark is there the store is opened by nobody else.
//!
//! Who looks whether there is a store looks for `CURRENT` first and for the mark then: the mark was there before.
//!
//! A mark that is torn: the crash came before anything else was in the directory. With some of its bytes it says `Repair` like a
//! whole one, with none of them `Checkpoint`, and beside it is no `CURRENT`; either way there is no store.

use crate::names;
use base::{Error, ErrorKind, Result};
use io::{CreateOptions, DirEntry, FileSystem, SyncKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a mark's file holds when a repair made it; that of a checkpoint is empty, as it has always been.
const REPAIR: &[u8] = b"repair\n";

/// What is made in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `CURRENT` comes last.
    Checkpoint,
    /// `CURRENT` is there before the records are.
    Repair,
}

/// A mark that was set.
#[derive(Debug)]
pub struct Mark {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
}

impl Mark {
    /// Sets it in a directory that is there, durably.
    pub fn set(fs: &Arc<dyn FileSystem>, dir: &Path, work: Work) -> Result<Mark> {
        let write = || {
            let mut file = fs.create(&path(dir), &CreateOptions::default())?;
            if work == Work::Repair {
                file.append(REPAIR)?;
            }
            file.sync(SyncKind::Full)?;
            fs.sync_dir(dir)
        };
        // One that is empty would be that of a checkpoint.
        write().inspect_err(|_| drop(fs.remove(&path(dir))))?;
        Ok(Mark { fs: fs.clone(), dir: dir.to_owned() })
    }

    /// Removes it: everything else in the directory is durable.
    pub fn finish(self) -> Result<()> {
        let removed = self.fs.remove(&path(&self.dir)).and_then(|()| self.fs.sync_dir(&self.dir));
        removed.map_err(|e| {
            e.context(
                "all is saved and durable, and only the mark of what is unfinished could not be removed: remove the file \
                 UNFINISHED by hand, and the store is whole",
            )
        })
    }
}

/// True if there is nothing in a directory but a lock file.
fn is_empty(files: &[DirEntry]) -> bool {
    files.iter().all(|f| f.name == names::LOCK)
}

/// True if these files are what was left behind where the work was cut off.
fn is_left_by(files: &[DirEntry], work: Work) -> bool {
    files.iter().all(|f| names::parse(&f.name).is_some()) && of(files) == Some(work)
}

/// True if the work may be done in a directory with these files.
pub fn is_free(files: &[DirEntry], work: Work) -> bool {
    is_empty(files) || is_left_by(files, work)
}

/// Removes what was left behind where the same work was cut off; its mark goes last. True if the directory is empty then,
/// but for a lock file. Under its lock: what is there may be what somebody else is about to make.
pub fn clear(fs: &dyn FileSystem, dir: &Path, work: Work) -> Result<bool> {
    let files = fs.list(dir)?;
    if !is_left_by(&files, work) {
        return Ok(is_empty(&files));
    }
    let rest = files.iter().filter(|f| f.name != names::LOCK);
    let (mark, rest): (Vec<_>, Vec<_>) = rest.partition(|f| f.name == names::UNFINISHED);
    rest.into_iter().try_for_each(|file| fs.remove(&io::fs::join(dir, &file.name)))?;
    // What goes without its mark must not come back without it.
    fs.sync_dir(dir)?;
    mark.into_iter().try_for_each(|file| fs.remove(&io::fs::join(dir, &file.name)))?;
    Ok(true)
}

/// What was not finished in a directory with these files.
pub fn of(files: &[DirEntry]) -> Option<Work> {
    let find = |name: &str| files.iter().find(|f| f.name == name);
    match find(names::UNFINISHED)?.len {
        0 if find(names::CURRENT).or(find(names::CURRENT_COPY)).is_some() => None,
        0 => Some(Work::Checkpoint),
        _ => Some(Work::Repair),
    }
}

/// Refuses a directory with `CURRENT` in which a repair has not come to its end.
pub fn refuse_beside_current(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    match fs.metadata(&path(dir)) {
        Ok(mark) if mark.len > 0 => Err(refusal(dir, Work::Repair)),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Says what the directory is, which is no store.
pub fn refusal(dir: &Path, work: Work) -> Error {
    let why = match work {
        Work::Checkpoint => {
            "a checkpoint into this directory was cut off (or a repair before it wrote anything), so there is no store \
             here: remove the directory, or take a checkpoint into it again"
        }
        Work::Repair => {
            "a repair into this directory is under way or was cut off, so there is no whole store here: the damaged \
             store is as it was, repair it into this directory again, or remove the directory; only if the repair said that \
             nothing but its mark was left, remove the file UNFINISHED"
        }
    };
    Error::not_found(why).at_file(dir)
}

fn path(dir: &Path) -> PathBuf {
    io::fs::join(dir, names::UNFINISHED)
}
