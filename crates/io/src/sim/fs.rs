//! The simulated [`FileSystem`]: names, and the creation of files.
//!
//! Names are resolved in a tree whose root is the volume; a leading `/` makes no difference. Every
//! call is one numbered operation (creating several directories is one for each).

use super::disk::{Change, Disk, Ino, ROOT, Target};
use super::fault::{EEXIST, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, OpKind, Verdict, os_error};
use super::file::{OpenFile, SimAppendFile, SimInPlaceFile, SimLock, SimReadFile, SimScratchFile};
use super::world::{SharedWorld, World};
use crate::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata, PAGE,
    ReadFile, ScratchFile,
};
use base::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Bytes of a volume without a capacity limit.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// A file system in memory.
pub(super) struct SimFs(pub(super) Arc<SharedWorld>);

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimFs")
    }
}

/// Splits a path into its names.
fn names_of(path: &Path) -> Result<Vec<Arc<str>>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(
                    Error::invalid("the simulated file system has no parent directories").at_file(path)
                );
            }
        }
    }
    Ok(names)
}

/// Returns the absolute form of a path for the record.
pub(super) fn shown(path: &Path) -> Arc<str> {
    let text = path.to_string_lossy();
    if text.starts_with('/') { text.into() } else { format!("/{text}").into() }
}

impl Disk {
    fn dir_at(&self, names: &[Arc<str>], path: &Path) -> Result<Ino> {
        names.iter().try_fold(ROOT, |dir, name| match self.dirs[&dir].live.get(name) {
            Some(Target::Dir(ino)) => Ok(*ino),
            Some(Target::File(_)) => Err(os_error(ENOTDIR, "look up a path", path)),
            None => Err(os_error(ENOENT, "look up a path", path)),
        })
    }

    /// Returns the directory of a path, and the last name.
    pub(super) fn parent(&self, path: &Path) -> Result<(Ino, Arc<str>)> {
        let names = names_of(path)?;
        match names.split_last() {
            Some((last, dirs)) => Ok((self.dir_at(dirs, path)?, last.clone())),
            None => Err(os_error(EISDIR, "use the root as a file", path)),
        }
    }

    /// Returns the target of a path, if it exists.
    pub(super) fn look_up(&self, path: &Path) -> Result<Option<Target>> {
        let names = names_of(path)?;
        let Some((last, dirs)) = names.split_last() else { return Ok(Some(Target::Dir(ROOT))) };
        Ok(self.dirs[&self.dir_at(dirs, path)?].live.get(last).copied())
    }

    /// Returns the file of a path.
    pub(super) fn file_at(&self, path: &Path) -> Result<Ino> {
        match self.look_up(path)? {
            Some(Target::File(ino)) => Ok(ino),
            Some(Target::Dir(_)) => Err(os_error(EISDIR, "use a directory as a file", path)),
            None => Err(os_error(ENOENT, "look up a file", path)),
        }
    }

    /// Returns the directory of a path.
    fn dir(&self, path: &Path) -> Result<Ino> {
        self.dir_at(&names_of(path)?, path)
    }
}

impl World {
    /// Creates an empty file. The name must be free.
    pub(super) fn make_file(&mut self, path: &Path) -> Result<Ino> {
        let (dir, name) = self.disk.parent(path)?;
        if self.disk.dirs[&dir].live.contains_key(&name) {
            return Err(os_error(EEXIST, "create a file", path));
        }
        let ino = self.new_ino();
        self.apply(Change::MakeFile { dir, name, ino });
        Ok(ino)
    }

    fn require_free(&self, needed: u64, path: &Path) -> Result<()> {
        match self.free() {
            Some(free) if free < needed => Err(os_error(ENOSPC, "allocate a file", path)),
            _ => Ok(()),
        }
    }

    fn make_dir(&mut self, path: &Path) -> Result<()> {
        let (dir, name) = self.disk.parent(path)?;
        let ino = self.new_ino();
        self.apply(Change::MakeDir { dir, name, ino });
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let (from_dir, from_name) = self.disk.parent(from)?;
        let (to_dir, to_name) = self.disk.parent(to)?;
        let Some(&target) = self.disk.dirs[&from_dir].live.get(&from_name) else {
            return Err(os_error(ENOENT, "rename", from));
        };
        let replaced = self.disk.dirs[&to_dir].live.get(&to_name).copied();
        if replaced == Some(target) {
            return Ok(());
        }
        if matches!(replaced, Some(Target::Dir(_))) {
            return Err(os_error(EEXIST, "rename onto a directory", to));
        }
        if matches!(target, Target::Dir(_)) && (from_dir != to_dir || replaced.is_some()) {
            let why = "the simulated file system renames directories only in place, onto a free name";
            return Err(Error::new(ErrorKind::Unsupported, why).at_file(from));
        }
        self.apply(Change::Rename { from_dir, from: from_name, to_dir, to: to_name, target });
        Ok(())
    }

    fn lock_file(&mut self, path: &Path, holder: &str) -> Result<Ino> {
        let ino = match self.disk.look_up(path)? {
            Some(_) => self.disk.file_at(path)?,
            None => self.make_file(path)?,
        };
        self.hold_lock(ino, path, holder)?;
        let line = format!("{holder}\n");
        self.apply(Change::Reset { ino, len: 0 });
        self.apply(Change::Write { ino, offset: 0, data: line.as_bytes().into(), durable: false });
        Ok(ino)
    }

    fn hold_lock(&mut self, ino: Ino, path: &Path, holder: &str) -> Result<()> {
        if let Some(present) = self.locks.get(&ino) {
            let why = format!("the lock is held by {present}; close that store first");
            return Err(Error::new(ErrorKind::Locked, why).at_file(path));
        }
        self.locks.insert(ino, holder.to_owned());
        Ok(())
    }
}

impl SimFs {
    fn op<T>(
        &self,
        kind: OpKind,
        path: &Path,
        len: u64,
        body: impl FnOnce(&mut World) -> Result<T>,
    ) -> Result<T> {
        self.0.op(kind, &shown(path), (0, len), |world, verdict| {
            verdict.all_or_nothing()?;
            body(world)
        })
    }

    /// Runs an operation that opens a file.
    fn opening<T>(
        &self,
        kind: OpKind,
        path: &Path,
        len: u64,
        body: impl FnOnce(&mut World) -> Result<T>,
    ) -> Result<T> {
        self.op(kind, path, len, |world| {
            world.check_handles(path)?;
            body(world)
        })
    }

    fn handle(&self, world: &mut World, ino: Ino, path: &Path) -> OpenFile {
        OpenFile::new(self.0.clone(), world, ino, path)
    }
}

impl FileSystem for SimFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        self.opening(OpKind::Create, path, 0, |world| {
            let ino = world.make_file(path)?;
            Ok(Box::new(SimAppendFile::new(self.handle(world, ino, path), options)) as _)
        })
    }

    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn ReadFile>> {
        self.opening(OpKind::Open, path, 0, |world| {
            let ino = world.disk.file_at(path)?;
            Ok(Arc::new(SimReadFile(self.handle(world, ino, path))) as _)
        })
    }

    fn create_in_place(&self, path: &Path, len: u64, _access: Access) -> Result<Arc<dyn InPlaceFile>> {
        if !len.is_multiple_of(PAGE as u64) {
            let why =
                format!("a file written in place has {len} bytes, but needs a multiple of {PAGE} bytes");
            return Err(Error::invalid(why).at_file(path));
        }
        self.opening(OpKind::CreateInPlace, path, len, |world| {
            world.require_free(len, path)?;
            let ino = world.make_file(path)?;
            world.apply(Change::Preallocate { ino, len });
            Ok(Arc::new(SimInPlaceFile::new(self.handle(world, ino, path), len, world.block_len)) as _)
        })
    }

    fn open_in_place(&self, path: &Path, _access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.opening(OpKind::OpenInPlace, path, 0, |world| {
            let ino = world.disk.file_at(path)?;
            let len = world.disk.file(ino).live.len();
            let len = len - len % PAGE as u64;
            Ok(Arc::new(SimInPlaceFile::new(self.handle(world, ino, path), len, world.block_len)) as _)
        })
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.opening(OpKind::CreateScratch, path, len as u64, |world| {
            let ino = match world.disk.look_up(path)? {
                Some(_) => world.disk.file_at(path)?,
                None => world.make_file(path)?,
            };
            let present = world.disk.file(ino).live.allocated_pages() * PAGE as u64;
            world.require_free((len as u64).saturating_sub(present), path)?;
            world.apply(Change::Reset { ino, len: len as u64 });
            Ok(Arc::new(SimScratchFile::new(self.handle(world, ino, path), len)) as _)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.op(OpKind::Rename, to, 0, |world| world.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.op(OpKind::Remove, path, 0, |world| {
            world.disk.file_at(path)?;
            let (dir, name) = world.disk.parent(path)?;
            world.apply(Change::Remove { dir, name });
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.op(OpKind::Link, to, 0, |world| {
            let target = Target::File(world.disk.file_at(from)?);
            let (dir, name) = world.disk.parent(to)?;
            if world.disk.dirs[&dir].live.contains_key(&name) {
                return Err(os_error(EEXIST, "link", to));
            }
            world.apply(Change::Link { dir, name, target });
            Ok(())
        })
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.op(OpKind::PunchHole, path, 0, |world| {
            let ino = world.disk.file_at(path)?;
            world.apply(Change::Punch { ino, offset, len });
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.op(OpKind::List, dir, 0, |world| {
            let dir = world.disk.dir(dir)?;
            let names = world.disk.dirs[&dir].live.iter();
            let files = names.filter_map(|(name, target)| match target {
                Target::File(ino) => Some((name, &world.disk.file(*ino).live)),
                Target::Dir(_) => None,
            });
            let entry = |(name, content): (&Arc<str>, &super::content::Content)| DirEntry {
                name: name.to_string(),
                len: content.len(),
                allocated: content.allocated_pages() * PAGE as u64,
            };
            Ok(files.map(entry).collect())
        })
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.op(OpKind::Metadata, path, 0, |world| match world.disk.look_up(path)? {
            Some(Target::Dir(_)) => {
                Ok(Metadata { len: 0, allocated: 0, links: 1, is_dir: true, identity: None })
            }
            Some(Target::File(ino)) => {
                let content = &world.disk.file(ino).live;
                Ok(Metadata {
                    len: content.len(),
                    allocated: content.allocated_pages() * PAGE as u64,
                    links: world.disk.links(ino),
                    is_dir: false,
                    identity: None,
                })
            }
            None => Err(os_error(ENOENT, "read metadata", path)),
        })
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let missing: Vec<&Path> = {
            let world = self.0.lock();
            let above = dir.ancestors().filter(|p| !matches!(world.disk.look_up(p), Ok(Some(_))));
            above.collect()
        };
        for path in missing.into_iter().rev() {
            self.op(OpKind::CreateDir, path, 0, |world| world.make_dir(path))?;
        }
        // Detects a file in place of the directory.
        self.0.lock().disk.dir(dir).map(|_| ())
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.op(OpKind::RemoveDir, dir, 0, |world| {
            let ino = world.disk.dir(dir)?;
            if !world.disk.dirs[&ino].live.is_empty() {
                return Err(os_error(ENOTEMPTY, "remove a directory", dir));
            }
            let (dir, name) = world.disk.parent(dir)?;
            world.apply(Change::Remove { dir, name });
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.op(OpKind::SyncDir, &shown(dir), (0, 0), |world, verdict| {
            let ino = match verdict {
                Verdict::Refused(error) => return Err(error),
                _ => world.disk.dir(dir)?,
            };
            match verdict {
                Verdict::Fail(error) | Verdict::Short(error) => {
                    let seed = world.rng.next_u64();
                    world.apply(Change::SyncDirFailed { dir: ino, seed });
                    // After any failure the sync must not be repeated.
                    Err(error.with_kind(ErrorKind::Io))
                }
                Verdict::Lost => Ok(()),
                _ => {
                    world.apply(Change::SyncDir { dir: ino });
                    Ok(())
                }
            }
        })
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        self.opening(OpKind::Lock, path, 0, |world| {
            let ino = world.lock_file(path, holder)?;
            Ok(Box::new(SimLock(self.handle(world, ino, path))) as _)
        })
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.opening(OpKind::Lock, path, 0, |world| {
            let ino = world.disk.file_at(path)?;
            world.hold_lock(ino, path, "a reader")?;
            Ok(Box::new(SimLock(self.handle(world, ino, path))) as _)
        })
    }

    fn open_files_limit(&self) -> Option<u64> {
        self.0.lock().handles.max
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.op(OpKind::Space, dir, 0, |world| {
            let total = world.capacity.unwrap_or(UNLIMITED_BYTES);
            Ok(FsSpace { total, available: total.saturating_sub(world.used()) })
        })
    }
}
