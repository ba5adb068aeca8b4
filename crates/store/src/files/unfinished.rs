//! The mark of a directory that is not yet a store: the file `UNFINISHED`.
//!
//! The mark is durable before anything else is in the directory, and is removed once everything is
//! durable. Its length names the work, a checkpoint or a repair: see [`MarkKind`]. A checkpoint
//! writes `CURRENT` last, so beside `CURRENT` its mark means nothing, and the first open for
//! writing removes it. A repair fills a store by the ordinary write path and has `CURRENT` from the
//! beginning. As long as its mark exists no other caller opens the store.
//!
//! A reader checks for `CURRENT` first and for the mark second, because the mark was there before.
//!
//! A torn mark means that the crash came before anything else was in the directory. With some of
//! its bytes it reads as `Repair`, like a whole one; with none of them as `Checkpoint` without
//! `CURRENT`. Either way there is no store.

use crate::names;
use base::{Error, ErrorKind, Result};
use io::{CreateOptions, DirEntry, FileSystem, SyncKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Contents of the mark of a repair. The mark of a checkpoint is empty in all releases.
const REPAIR: &[u8] = b"repair\n";

/// The unfinished work in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A checkpoint, which writes `CURRENT` last.
    Checkpoint,
    /// A repair, which has `CURRENT` before the records.
    Repair,
}

/// A mark that was set.
#[derive(Debug)]
pub struct Mark {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
}

impl Mark {
    /// Sets the mark in an existing directory, durably.
    pub fn set(fs: &Arc<dyn FileSystem>, dir: &Path, work: MarkKind) -> Result<Mark> {
        let write = || {
            let mut file = fs.create(&path(dir), &CreateOptions::default())?;
            if work == MarkKind::Repair {
                file.append(REPAIR)?;
            }
            file.sync(SyncKind::Full)?;
            fs.sync_dir(dir)
        };
        // An empty mark would read as that of a checkpoint.
        write().inspect_err(|_| drop(fs.remove(&path(dir))))?;
        Ok(Mark { fs: fs.clone(), dir: dir.to_owned() })
    }

    /// Removes the mark. Everything else in the directory is durable.
    pub fn finish(self) -> Result<()> {
        let removed = self.fs.remove(&path(&self.dir)).and_then(|()| self.fs.sync_dir(&self.dir));
        removed.map_err(|e| {
            e.context(
                "the store is complete and durable, but its file UNFINISHED could not be \
                 removed: remove that file by hand",
            )
        })
    }
}

/// Returns true if there is nothing in a directory but a lock file.
fn is_empty(files: &[DirEntry]) -> bool {
    files.iter().all(|f| f.name == names::LOCK)
}

/// Returns true if these files are the leftovers of interrupted work of this kind.
fn is_left_by(files: &[DirEntry], work: MarkKind) -> bool {
    files.iter().all(|f| names::parse(&f.name).is_some()) && of(files) == Some(work)
}

/// Returns true if the work may begin in a directory with these files.
pub fn is_free(files: &[DirEntry], work: MarkKind) -> bool {
    is_empty(files) || is_left_by(files, work)
}

/// Removes the leftovers of the same work, the mark last. Returns true if the directory is empty
/// then, except for a lock file. The caller holds the lock of the directory: otherwise the files
/// might belong to another process that is still at work.
pub fn clear(fs: &dyn FileSystem, dir: &Path, work: MarkKind) -> Result<bool> {
    let files = fs.list(dir)?;
    if !is_left_by(&files, work) {
        return Ok(is_empty(&files));
    }
    let rest = files.iter().filter(|f| f.name != names::LOCK);
    let (mark, rest): (Vec<_>, Vec<_>) = rest.partition(|f| f.name == names::UNFINISHED);
    rest.into_iter().try_for_each(|file| fs.remove(&io::fs::join(dir, &file.name)))?;
    // A file removed before the mark must not come back without the mark.
    fs.sync_dir(dir)?;
    mark.into_iter().try_for_each(|file| fs.remove(&io::fs::join(dir, &file.name)))?;
    Ok(true)
}

/// Returns the unfinished work in a directory with these files.
pub fn of(files: &[DirEntry]) -> Option<MarkKind> {
    let find = |name: &str| files.iter().find(|f| f.name == name);
    match find(names::UNFINISHED)?.len {
        0 if find(names::CURRENT).or(find(names::CURRENT_COPY)).is_some() => None,
        0 => Some(MarkKind::Checkpoint),
        _ => Some(MarkKind::Repair),
    }
}

/// Refuses a directory with `CURRENT` and the mark of a repair.
pub fn refuse_beside_current(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    match fs.metadata(&path(dir)) {
        Ok(mark) if mark.len > 0 => Err(refusal(dir, MarkKind::Repair)),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Returns the error that says why the directory is no store.
pub fn refusal(dir: &Path, work: MarkKind) -> Error {
    let why = match work {
        MarkKind::Checkpoint => {
            "a checkpoint into this directory was interrupted (or a repair before it wrote \
             anything), so there is no store here: remove the directory, or take a checkpoint \
             into it again"
        }
        MarkKind::Repair => {
            "a repair into this directory is in progress or was interrupted, so the store here \
             is incomplete: the damaged store is unchanged, repair it into this directory again, \
             or remove the directory; only if the repair reported that just the file UNFINISHED \
             was left, remove that file"
        }
    };
    Error::not_found(why).at_file(dir)
}

fn path(dir: &Path) -> PathBuf {
    io::fs::join(dir, names::UNFINISHED)
}
