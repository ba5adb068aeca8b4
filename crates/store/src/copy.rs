//! A copy of a store in another directory, which is a store of its own: the common part of the
//! checkpoints of all engines.
//!
//! Immutable files are linked into the new directory, or copied if the file system cannot link. The
//! manifest of the copy comes last. The copy has its own identity, so that neither store takes
//! later files of the other for its own. The copy's numbers continue those of its source.
//!
//! Until `CURRENT` exists the directory is no store. An empty file `UNFINISHED`
//! ([`crate::files::unfinished`]) marks it. The mark comes first. The end of the checkpoint removes
//! it, or the first open, which finds `CURRENT` beside it. Another checkpoint may replace one that
//! was cut off. The copy holds the lock of the new directory, so that a concurrent checkpoint into
//! it is refused.
//!
//! Invariant: neither store ever writes a linked file again. Their engines ensure that.

use crate::context::Context;
use crate::directory;
use crate::files::unfinished::{self, Mark, MarkKind};
use crate::manifest::{LogGroupMeta, Manifest, ManifestState};
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

/// Appends the first `len` bytes of a file to another one, without a sync.
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

/// A copy in progress. Dropped before its end, it removes its files, and the directory if it made
/// that, as far as possible. The next copy clears the rest.
pub struct Copy {
    context: Arc<Context>,
    dir: PathBuf,
    uid: Uid,
    cancel: Option<Cancel>,
    made_dir: bool,
    /// `None`: the copy is finished, or its end has begun.
    mark: Option<Mark>,
    /// Held to the end: another checkpoint would take these files for those of one that was cut
    /// off.
    _lock: Box<dyn FileLock>,
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copy({})", self.dir.display())
    }
}

impl Copy {
    /// Refuses a directory with other files in it, before a copy begins.
    ///
    /// # Errors
    /// `AlreadyExists`; file system errors.
    pub fn check_vacant(env: &Env, dir: &Path) -> Result<()> {
        match env.fs.metadata(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(meta) if meta.is_dir && unfinished::is_free(&env.fs.list(dir)?, MarkKind::Checkpoint) => {
                Ok(())
            }
            Ok(_) => Err(not_empty(dir)),
        }
    }

    /// Begins a copy of the store of `context`, in a directory that is new, empty, or left by a
    /// copy that was cut off. The token is checked before each linked or copied file.
    ///
    /// # Errors
    /// `AlreadyExists`; `Locked`; `Cancelled`; file system errors.
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
            // A failed sync of the parent directory may lose every name there that was not synced
            // before. So no other checkpoint syncs the parent between this one's name and its sync.
            let _one_at_a_time = lock(one_at_a_time);
            directory::make(env, dir)?;
        }
        let held = env.fs.lock(&io::fs::join(dir, names::LOCK), "a checkpoint")?;
        if !unfinished::clear(&*env.fs, dir, MarkKind::Checkpoint)? {
            return Err(not_empty(dir));
        }
        let mark = Mark::set(&env.fs, dir, MarkKind::Checkpoint)
            .inspect_err(|_| drop(unfinished::clear(&*env.fs, dir, MarkKind::Checkpoint)));
        let mark = Some(mark?);
        let (context, dir, cancel) = (context.clone(), dir.to_owned(), cancel.cloned());
        Ok(Copy { uid: env.new_uid(), context, dir, cancel, made_dir, mark, _lock: held })
    }

    /// Fails once the copy must end.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check(&self) -> Result<()> {
        self.context.check_call(self.cancel.as_ref())
    }

    /// Links a store file, or copies it if it cannot be linked. Returns true if it has two names
    /// now.
    ///
    /// # Errors
    /// File system errors.
    pub fn link(&self, name: &str, access: Access) -> Result<bool> {
        self.link_as(name, name, access)
    }

    /// As [`Copy::link`], for a file with another name in the copy, because a copy has a single
    /// disk.
    ///
    /// # Errors
    /// As [`Copy::link`].
    pub fn link_as(&self, name: &str, there: &str, access: Access) -> Result<bool> {
        self.check()?;
        match self.context.env.fs.link(&self.context.path(name), &io::fs::join(&self.dir, there)) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                self.copy(name, there, access, u64::MAX).map(|_| false)
            }
            linked => linked.map(|()| true),
        }
    }

    /// As [`Copy::link`], for a log group with `filled` valid bytes. Returns the length of the file
    /// in the copy, and whether it has two names.
    ///
    /// # Errors
    /// File system errors.
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

    /// Copies at most `most` bytes from the start of a file, and returns their number.
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

    /// Makes the directory a store: it holds all files that `state` lists, and these log groups.
    ///
    /// # Errors
    /// Manifest and file system errors.
    pub fn finish(mut self, state: &ManifestState, groups: Vec<LogGroupMeta>) -> Result<()> {
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
            let cleared = unfinished::clear(fs, &self.dir, MarkKind::Checkpoint);
            if self.made_dir && matches!(cleared, Ok(true)) {
                let lock = io::fs::join(&self.dir, names::LOCK);
                drop(fs.remove(&lock).and_then(|()| fs.remove_dir(&self.dir)));
            }
        }
    }
}

fn not_empty(dir: &Path) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "the directory of the checkpoint is not empty: name a new or empty one; nothing was copied",
    )
    .at_file(dir)
}
