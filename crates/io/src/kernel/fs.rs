//! The kernel's file system behind [`FileSystem`].
//!
//! Names that are not UTF-8 are not from LavaStore and are left out of listings. An empty directory
//! path is the current directory (the parent of a bare file name).

use super::append::KernelAppendFile;
use super::calls;
use super::handle::{dir_or_current, fail, must_be_plain, retry};
use super::inplace::KernelInPlaceFile;
use super::lock;
use super::pool::BufPool;
use super::read::{Engine, KernelReadFile};
use super::scratch::KernelScratchFile;
use super::uring::RingPool;
use crate::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata, PAGE,
    ReadFile, ScratchFile,
};
use base::process::Process;
use base::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Unit of the kernel's allocated blocks, on any file system.
const STAT_BLOCK: u64 = 512;

/// Files of the kernel.
#[derive(Debug)]
pub(super) struct KernelFs {
    engine: Arc<Engine>,
    /// The owner process.
    process: Process,
}

impl KernelFs {
    pub(super) fn new(rings: Option<RingPool>) -> Self {
        KernelFs { engine: Arc::new(Engine { pool: BufPool::default(), rings }), process: Process::here() }
    }
}

/// Returns an error that is `Unsupported` when the file system lacks the operation.
fn fail_optional(action: &str, path: &Path, errno: Errno, lacking: &[Errno]) -> Error {
    let error = fail(action, path, errno);
    let remedy = "use a file system that supports the operation, such as ext4 or XFS";
    if lacking.contains(&errno) { error.with_kind(ErrorKind::Unsupported).with_remedy(remedy) } else { error }
}

#[allow(clippy::unnecessary_cast, reason = "the width of these fields depends on the architecture")]
fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        len: u64::try_from(stat.st_size).unwrap_or(0),
        allocated: (stat.st_blocks as u64).saturating_mul(STAT_BLOCK),
        links: stat.st_nlink as u64,
        is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        identity: Some((stat.st_dev as u64, stat.st_ino as u64)),
    }
}

fn open_dir(action: &str, dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry(|| calls::open(dir_or_current(dir), flags, Mode::empty())).map_err(|e| fail(action, dir, e))
}

/// Makes a directory and its missing parents.
fn make_dirs(dir: &Path) -> rustix::io::Result<()> {
    match retry(|| calls::mkdir(dir)) {
        Err(Errno::NOENT) => {
            let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).ok_or(Errno::NOENT)?;
            make_dirs(above)?;
            match retry(|| calls::mkdir(dir)) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            }
        }
        // A file with that name is detected when something is created in it.
        Err(Errno::EXIST) if calls::stat(dir).is_ok_and(|found| metadata(&found).is_dir) => Ok(()),
        made => made,
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    let action = "cannot sync a directory";
    let fd = open_dir(action, dir)?;
    // File systems that cannot make names durable return EINVAL: a store there would lose
    // acknowledged writes.
    retry(|| calls::fsync(&fd)).map_err(|e| match fail_optional(action, dir, e, &[Errno::INVAL]) {
        // The kernel wrote as much as it could, and will not try again.
        e if e.kind() == ErrorKind::NoSpace => e.with_kind(ErrorKind::Io),
        e => e,
    })
}

impl FileSystem for KernelFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        self.process.check()?;
        Ok(Box::new(KernelAppendFile::create(path, options, self.engine.clone())?))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        self.process.check()?;
        Ok(Arc::new(KernelReadFile::open(path, access, &self.engine)?))
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.process.check()?;
        Ok(Arc::new(KernelInPlaceFile::create(path, len, access, &self.engine)?))
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.process.check()?;
        Ok(Arc::new(KernelInPlaceFile::open(path, access, &self.engine)?))
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.process.check()?;
        Ok(Arc::new(KernelScratchFile::create(path, len)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.process.check()?;
        calls::rename(from, to)
            .map_err(|e| fail(&format!("cannot rename a file to {}", to.display()), from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.process.check()?;
        calls::unlink(path).map_err(|e| fail("cannot remove a file", path, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.process.check()?;
        // File systems without hard links return EPERM; EMLINK means that this file has too many.
        let lacking = [Errno::XDEV, Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP, Errno::NOSYS];
        calls::link(from, to)
            .map_err(|e| fail_optional(&format!("cannot link a file as {}", to.display()), from, e, &lacking))
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.process.check()?;
        let page = PAGE as u64;
        let end = offset.saturating_add(len) / page * page;
        let start = offset.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        if start >= end {
            return Ok(());
        }
        let action = "cannot free a part of a file";
        let fd = retry(|| calls::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()))
            .map_err(|e| fail(action, path, e))?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry(|| calls::fallocate(&fd, flags, start, end - start))
            .map_err(|e| fail_optional(action, path, e, &[Errno::OPNOTSUPP, Errno::NOSYS]).at_offset(offset))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.process.check()?;
        let action = "cannot list a directory";
        let fd = open_dir(action, dir)?;
        let mut found = Vec::new();
        for entry in calls::read_dir(&fd).map_err(|e| fail(action, dir, e))? {
            let entry = entry.map_err(|e| fail(action, dir, e))?;
            let stat = match calls::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(fail(action, dir, e)),
            };
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if let (true, Ok(name)) = (is_file, entry.file_name().to_str()) {
                let Metadata { len, allocated, .. } = metadata(&stat);
                found.push(DirEntry { name: name.to_owned(), len, allocated });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.process.check()?;
        let stat = calls::stat(dir_or_current(path)).map_err(|e| fail("cannot look up a file", path, e))?;
        Ok(metadata(&stat))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        make_dirs(dir_or_current(dir)).map_err(|e| fail("cannot create a directory", dir, e))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        calls::rmdir(dir).map_err(|e| fail("cannot remove a directory", dir, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        self.process.check()?;
        lock::lock(path, holder)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.process.check()?;
        must_be_plain(path)?;
        lock::lock_contents(path, true)
    }

    fn open_files_limit(&self) -> Option<u64> {
        calls::open_files_limit()
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.process.check()?;
        let found = retry(|| calls::statvfs(dir_or_current(dir)))
            .map_err(|e| fail("cannot read the free space of a volume", dir, e))?;
        Ok(FsSpace {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}
