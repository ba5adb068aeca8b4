//! One directory over two disks: a file system in which the log of one store, and some of its tables and values, lie elsewhere.
//!
//! Whoever works on the store sees the files of both in its directory, under the names that they have. Which disk a file is on follows
//! from what it is ([`FileKind::is_of_speed_disk`]), so the answer is the same for the process that writes the store, for those that read it
//! beside that, for repair, and after a crash: there is nothing to look up and nothing to get out of step. That the store has its log
//! on this disk at all, and which disk it is, the manifest says ([`crate::speed`]); it says of each table, and of each file of
//! values, on which disk it is, and with that under which kind of name, so that of two copies of one only that one is read.
//!
//! * A file has a path on one disk; errors name it there, so that who reads them knows which disk it was.
//! * A sync of the directory is one of both. The disk of the log comes first: what an edit names on it is durable before.
//! * A listing has of each disk what belongs there. On the disk of the directory files of the log may be left from before they
//!   were moved, or tables; they are not listed once the other disk says that it is one. Before that it is only a place, and everything is where
//!   it always was.
//! * The room that is told is that of the disk of the directory: the log waits for its own by itself.

use crate::names::{self, FileKind};
use base::{Error, ErrorKind, Result};
use io::{
    Access, AppendFile, CreateOptions, DirEntry, Disks, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, ScratchFile,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct TwoDisks {
    dir: PathBuf,
    disks: Disks,
}

impl TwoDisks {
    /// The store in `dir` of one file system, with its log in `speed_dir` of the other, or of the same.
    pub fn new(
        capacity: Arc<dyn FileSystem>,
        dir: &Path,
        speed: Arc<dyn FileSystem>,
        speed_dir: &Path,
    ) -> TwoDisks {
        let disks = Disks { capacity, speed, speed_dir: speed_dir.to_owned() };
        TwoDisks { dir: dir.to_owned(), disks }
    }

    /// What the file at a path of the directory is.
    fn kind(&self, path: &Path) -> Option<FileKind> {
        let inside = path.parent() == Some(&self.dir);
        path.file_name().filter(|_| inside).and_then(|name| names::parse(name.to_str()?))
    }

    /// The file system that has a file, and the path that it has there.
    fn place<'a>(&self, path: &'a Path) -> (&Arc<dyn FileSystem>, Cow<'a, Path>) {
        match self.kind(path).filter(|kind| kind.is_of_speed_disk()) {
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
        let is_there = |entry: &DirEntry| names::parse(&entry.name).is_some_and(FileKind::is_of_speed_disk);
        let of_speed = match self.disks.speed.list(&self.disks.speed_dir) {
            // Who needs it finds out that it is missing.
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

    fn disks(&self, dir: &Path) -> Option<Disks> {
        (dir == self.dir).then(|| self.disks.clone())
    }
}

/// A file cannot have a name on another disk: who asks copies it.
fn across(from: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, "the file is on another disk than its new name").at_file(from)
}
