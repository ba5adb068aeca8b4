//! One directory over two disks: a file system with the log of a store, and some of its tables and
//! values, on the fast tier.
//!
//! Code that works on the store sees the files of both disks in its directory, under their own
//! names. The disk of a file follows from its kind ([`FileKind::is_on_fast_tier`]). So it is the
//! same for the writer, for concurrent readers, for repair, and after a crash: there is no lookup
//! table that could become stale. The manifest records whether the store has its log on the fast
//! tier, and which disk that is ([`crate::speed`]). It also records the disk of each table and each
//! value file, and thereby the kind of its name. So of two copies only the recorded one is read.
//!
//! * A file has a path on one disk. Errors use that path, so that they name the disk.
//! * A sync of the directory syncs both. The disk of the log comes first, so that files named in an
//!   edit are durable before the edit.
//! * A listing takes from each disk the files that belong there. The disk of the directory may have
//!   leftover log files or tables from before a move. They are hidden once the other disk has an
//!   identity. Before that the other disk is only a place, and all files are in the directory.
//! * The reported free space is that of the disk of the directory. The log handles lack of space on
//!   its own disk by itself.

use crate::names::{self, FileKind};
use base::{Error, ErrorKind, Result};
use io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, ScratchFile, Tiers,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory over two disks: see the module.
#[derive(Debug)]
pub struct TwoDisks {
    dir: PathBuf,
    disks: Tiers,
}

impl TwoDisks {
    /// Joins the store in `dir` of one file system with `speed_dir` of the other, or of the same.
    pub fn new(
        capacity: Arc<dyn FileSystem>,
        dir: &Path,
        speed: Arc<dyn FileSystem>,
        speed_dir: &Path,
    ) -> TwoDisks {
        let disks = Tiers { capacity, speed, speed_dir: speed_dir.to_owned() };
        TwoDisks { dir: dir.to_owned(), disks }
    }

    /// Returns the kind of a file in the directory.
    fn kind(&self, path: &Path) -> Option<FileKind> {
        let inside = path.parent() == Some(&self.dir);
        path.file_name().filter(|_| inside).and_then(|name| names::parse(name.to_str()?))
    }

    /// Returns the file system of a file, and its path there.
    fn place<'a>(&self, path: &'a Path) -> (&Arc<dyn FileSystem>, Cow<'a, Path>) {
        match self.kind(path).filter(|kind| kind.is_on_fast_tier()) {
            Some(kind) => (&self.disks.speed, io::fs::join(&self.disks.speed_dir, &kind.to_string()).into()),
            None => (&self.disks.capacity, path.into()),
        }
    }
}

impl FileSystem for TwoDisks {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let (fs, path) = self.place(path);
        fs.create(&path, options)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        let (fs, path) = self.place(path);
        fs.open(&path, access)
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        let (fs, path) = self.place(path);
        fs.create_in_place(&path, len, access)
    }

    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        let (fs, path) = self.place(path);
        fs.create_in_place_unzeroed(&path, len, access)
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        let (fs, path) = self.place(path);
        fs.open_in_place(&path, access)
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        let (fs, path) = self.place(path);
        fs.create_scratch(&path, len)
    }

    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        let (fs, path) = self.place(path);
        fs.read_all(&path, limit)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let ((fs, from), (other, to)) = (self.place(from), self.place(to));
        match Arc::ptr_eq(fs, other) {
            true => fs.rename(&from, &to),
            false => Err(across(&from)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let (fs, path) = self.place(path);
        fs.remove(&path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let ((fs, from), (other, to)) = (self.place(from), self.place(to));
        match Arc::ptr_eq(fs, other) {
            true => fs.link(&from, &to),
            false => Err(across(&from)),
        }
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        let (fs, path) = self.place(path);
        fs.punch_hole(&path, offset, len)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let mut all = self.disks.capacity.list(dir)?;
        if dir != self.dir {
            return Ok(all);
        }
        let is_there = |entry: &DirEntry| names::parse(&entry.name).is_some_and(FileKind::is_on_fast_tier);
        let of_speed = match self.disks.speed.list(&self.disks.speed_dir) {
            // Later accesses report the missing disk.
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        if of_speed.iter().any(|entry| entry.name == names::SPEED) {
            all.retain(|entry| !is_there(entry));
            all.extend(of_speed.into_iter().filter(is_there));
            all.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(all)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let (fs, path) = self.place(path);
        fs.metadata(&path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let (fs, path) = self.place(path);
        fs.exists(&path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.disks.capacity.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.disks.capacity.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if dir == self.dir {
            self.disks.speed.sync_dir(&self.disks.speed_dir)?;
        }
        self.disks.capacity.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        let (fs, path) = self.place(path);
        fs.lock(&path, holder)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let (fs, path) = self.place(path);
        fs.lock_to_read(&path)
    }

    fn open_files_limit(&self) -> Option<u64> {
        [&self.disks.capacity, &self.disks.speed].into_iter().filter_map(|fs| fs.open_files_limit()).min()
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.disks.capacity.space(dir)
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        let (fs, path) = self.place(path);
        fs.scan_extent_tail(&path)
    }

    fn disks(&self, dir: &Path) -> Option<Tiers> {
        (dir == self.dir).then(|| self.disks.clone())
    }
}

/// Returns the error of a rename or link across disks; the caller copies the file.
fn across(from: &Path) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "cannot rename the file, because its new name is on another disk: copy it instead",
    )
    .at_file(from)
}
