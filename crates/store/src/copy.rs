//! A copy of a store in another directory, which is a store of its own: what the checkpoints of all engines have in common.
//!
//! Files that are written once are linked into the new directory, or copied where the file system cannot link; a manifest that says what the
//! copy is comes last. The copy has an identity of its own, so that nothing that either store makes from then on is taken for the
//! other's. Its numbers go on where those of its source are.
//!
//! Until `CURRENT` is there the directory is no store, and known for what it is by an empty file `UNFINISHED`
//! ([`crate::files::unfinished`]), which comes first and is removed at the end (or by the first open, which finds `CURRENT` beside
//! it); another checkpoint may be taken in the place of one that was cut off. The lock of the new directory is held meanwhile, so that
//! of two checkpoints into it one is refused.
//!
//! Invariant: nothing that is linked is ever written again, by either store. Their engines see to that.

use crate::context::Context;
use crate::directory;
use crate::files::unfinished::{self, Mark, Work};
use crate::manifest::{LogGroupMeta, Manifest, State};
use crate::names;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, Uid};
use io::{Access, AppendFile, Cancel, CreateOptions, Env, FileLock, ReadFile, SyncKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod lane;

pub use lane::LaneCopy;

/// Bytes copied at a time.
pub(crate) const COPY_LEN: usize = 1 << 20;

/// Appends the first `len` bytes of a file to another, which is not synced.
pub(crate) fn copy_bytes(
    source: &dyn ReadFile,
    target: &mut dyn AppendFile,
    len: u64,
    cancel: Option<&Cancel>,
) -> Result<()> {
    let (mut buf, mut offset) = (vec![0; COPY_LEN], 0);
    while offset < len {
        io::cancel::check(cancel)?;
        let piece = buf.get_mut(..COPY_LEN.min((len - offset) as usize)).unwrap_or_default();
        source.read_at(piece, offset)?;
        target.append(piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// A copy that is being made. Dropped before its end, it removes its files, and the directory if it made that, as far as that is
/// possible: what is left, the next one clears away.
pub struct Copy {
    context: Arc<Context>,
    dir: PathBuf,
    uid: Uid,
    cancel: Option<Cancel>,
    /// The directory was not there before.
    made_dir: bool,
    /// `None`: it is finished, or its end has begun.
    mark: Option<Mark>,
    /// To the end: another checkpoint would take the files of this one for those of one that was cut off.
    _lock: Box<dyn FileLock>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copy({})", self.dir.display())
    }
}

impl Copy {
    /// Refuses a directory in which there is something, before anything is done for a copy.
    ///
    /// # Errors
    /// `AlreadyExists`; those of the file system.
    pub fn check_vacant(env: &Env, dir: &Path) -> Result<()> {
        match env.fs.metadata(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(meta) if meta.is_dir && unfinished::is_free(&env.fs.list(dir)?, Work::Checkpoint) => Ok(()),
            Ok(_) => Err(not_empty(dir)),
        }
    }

    /// Begins one of the store of `context`, in a directory that is new, empty, or left by a copy that was cut off. Each file that it
    /// links or copies comes after a look at the token.
    ///
    /// # Errors
    /// `AlreadyExists`; `Locked`; `Cancelled`; those of the file system.
    pub fn begin(
        context: &Arc<Context>,
        one_at_a_time: &Mutex<(), rank::Checkpoint>,
        dir: &Path,
        cancel: Option<&Cancel>,
    ) -> Result<Copy> {
        let env = &context.env;
        io::cancel::check(cancel)?;
        Copy::check_vacant(env, dir)?;
        let made_dir = !env.fs.exists(dir)?;
        {
            // A sync of the directory above that fails may lose whatever was named there and not synced by then. So nobody else
            // syncs it for a checkpoint between this one's name and its sync.
            let _one_at_a_time = lock(one_at_a_time);
            directory::make(env, dir)?;
        }
        let held = env.fs.lock(&io::fs::join(dir, names::LOCK), "a checkpoint")?;
        if !unfinished::clear(&*env.fs, dir, Work::Checkpoint)? {
            return Err(not_empty(dir));
        }
        let mark = Mark::set(&env.fs, dir, Work::Checkpoint)
            .inspect_err(|_| drop(unfinished::clear(&*env.fs, dir, Work::Checkpoint)));
        let mark = Some(mark?);
        let (context, dir, cancel) = (context.clone(), dir.to_owned(), cancel.cloned());
        Ok(Copy { uid: env.new_uid(), context, dir, cancel, made_dir, mark, _lock: held })
    }

    /// Fails once the copy is to end.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check(&self) -> Result<()> {
        self.context.check_call(self.cancel.as_ref())
    }

    /// Links a file of the store, or copies it where that is not possible. True if it has two names now.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn link(&self, name: &str, access: Access) -> Result<bool> {
        self.link_as(name, name, access)
    }

    /// The same, of a file that has another name in the copy: a copy has one disk.
    ///
    /// # Errors
    /// As there.
    pub fn link_as(&self, name: &str, there: &str, access: Access) -> Result<bool> {
        self.check()?;
        match self.context.env.fs.link(&self.context.path(name), &io::fs::join(&self.dir, there)) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                self.copy(name, there, access, u64::MAX).map(|_| false)
            }
            linked => linked.map(|()| true),
        }
    }

    /// As [`Copy::link`], of a group of the log, of which only `filled` bytes count. The length that the file has in the copy, and whether
    /// it has two names.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn link_group(&self, name: &str, access: Access, len: u64, filled: u64) -> Result<(u64, bool)> {
        self.check()?;
        match self.context.env.fs.link(&self.context.path(name), &io::fs::join(&self.dir, name)) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                let most = filled.next_multiple_of(io::PAGE as u64).min(len);
                self.copy(name, name, access, most).map(|len| (len, false))
            }
            linked => linked.map(|()| (len, true)),
        }
    }

    /// Copies the first bytes of a file, so many at most. How many it were.
    fn copy(&self, name: &str, there: &str, access: Access, most: u64) -> Result<u64> {
        let fs = &self.context.env.fs;
        let source = fs.open(&self.context.path(name), access)?;
        let len = source.len()?.min(most);
        let options = CreateOptions { expected_len: len, ..CreateOptions::default() };
        let mut target = fs.create(&io::fs::join(&self.dir, there), &options)?;
        copy_bytes(&*source, &mut *target, len, self.cancel.as_ref())?;
        target.sync(SyncKind::Full)?;
        Ok(len)
    }

    /// Everything is there that `state` lists, and these groups of the log: makes a store of it.
    ///
    /// # Errors
    /// Those of the manifest and of the file system.
    pub fn finish(mut self, state: &State, groups: Vec<LogGroupMeta>) -> Result<()> {
        let env = &self.context.env;
        env.fs.sync_dir(&self.dir)?;
        self.check()?;
        Manifest::create_with(env, &self.dir, state.without_log(self.uid).with_log(groups)?)?;
        self.mark.take().map_or(Ok(()), Mark::finish)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A copy with `CURRENT` is a store, which this leaves alone. The mark goes last.
        if self.mark.is_some() {
            let fs = &*self.context.env.fs;
            let cleared = unfinished::clear(fs, &self.dir, Work::Checkpoint);
            if self.made_dir && matches!(cleared, Ok(true)) {
                let lock = io::fs::join(&self.dir, names::LOCK);
                drop(fs.remove(&lock).and_then(|()| fs.remove_dir(&self.dir)));
            }
        }
    }
}

fn not_empty(dir: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "a checkpoint needs a new or empty directory").at_file(dir)
}
