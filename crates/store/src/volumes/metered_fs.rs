//! The space used by a store's directory, counted as files grow, and known at any moment without a
//! listing.
//!
//! Every file of a store is created, extended, renamed and removed through its [`FileSystem`]. This
//! one forwards all calls and keeps, by name, the bytes that each file of the store directory
//! occupies. So no writer has to report them, and no kind of file can be forgotten. They include
//! tables, vSSTs, outputs of running jobs, all log groups, staging files, manifests, and obsolete
//! files with readers.
//!
//! A file being appended to counts with its whole pages, including its write buffer, or with its
//! reserved length if that is more. A closed file counts with its pages. So the sum is never less
//! than the space used in the directory, and equal to it while no file is being appended to. Value
//! files on the fast tier have a sum of their own, because their share of it is checked before each
//! is created. (Additional bytes of the file system, such as blocks that map a fragmented file, are
//! corrected when the directory is listed ([`Meter::correct`]).)
//!
//! **The ceiling.** Under a limit, a data or log file must not raise the sum above the ceiling. It
//! is refused with `NoSpace` before any effect, like on a full volume. Admission ([`crate::space`])
//! keeps jobs and writers below it; the ceiling enforces the limit if an estimate was wrong. A file
//! that the store can do without (that of metrics) is refused like data. The manifest, `CURRENT`
//! and the log's staging files are counted, but never refused.

use crate::names::{self, FileKind};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result};
use io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata, PAGE,
    ReadFile, ScratchFile, SyncKind, Tiers,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The space used by the files of one directory.
#[derive(Debug)]
pub struct Meter {
    dir: PathBuf,
    /// The bytes of each file.
    files: Mutex<Files, rank::Meter>,
    /// The sum of `files`, and of files in creation.
    used_bytes: AtomicU64,
    /// The sum of the value files on the fast tier. Changed under the lock of `files`.
    speed_value_bytes: AtomicU64,
    /// `u64::MAX`: none.
    ceiling_bytes: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Debug, Default)]
struct Files {
    by_name: HashMap<String, FileUse>,
    next_id: u64,
}

#[derive(Debug)]
struct FileUse {
    /// Distinguishes the file from earlier ones of the same name: a late handle of those must not
    /// change it.
    id: u64,
    bytes: u64,
    /// Its length, once it is closed.
    len: Option<u64>,
    is_speed_values: bool,
}

impl Meter {
    /// Creates the meter of a directory before any file in it changes.
    pub fn new(dir: &Path) -> Meter {
        Meter {
            dir: dir.to_owned(),
            files: Mutex::default(),
            used_bytes: AtomicU64::new(0),
            speed_value_bytes: AtomicU64::new(0),
            ceiling_bytes: AtomicU64::new(u64::MAX),
            refusals: AtomicU64::new(0),
        }
    }

    /// Returns the bytes that all files occupy.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }

    /// Returns the bytes that value files occupy or have reserved on the fast tier.
    pub fn speed_value_bytes(&self) -> u64 {
        self.speed_value_bytes.load(Ordering::Acquire)
    }

    /// Returns the number of refusals by the ceiling.
    #[cfg(test)]
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Sets the ceiling of all files, which bounds data and log files.
    pub fn set_ceiling(&self, bytes: u64) {
        self.ceiling_bytes.store(bytes, Ordering::Release);
    }

    /// Returns the ceiling; `u64::MAX`: none.
    pub fn ceiling(&self) -> u64 {
        self.ceiling_bytes.load(Ordering::Acquire)
    }

    fn is_limited(&self) -> bool {
        self.ceiling() < u64::MAX
    }

    /// Takes over existing files before any of them changes.
    pub fn take_over(&self, listing: &[DirEntry]) {
        let mut files = lock(&self.files);
        for entry in listing.iter().filter(|e| !files.is_open(&e.name)).collect::<Vec<_>>() {
            files.insert(self, &entry.name, entry.allocated, Some(entry.len));
        }
    }

    /// Corrects the bytes of files that have not changed since a listing.
    pub fn correct(&self, listing: &[DirEntry]) {
        // In parts: a listing may have a hundred thousand files, and every growing file takes this
        // lock.
        for part in listing.chunks(1000) {
            let mut files = lock(&self.files);
            for entry in part {
                let file = files.by_name.get_mut(&entry.name).filter(|file| file.len == Some(entry.len));
                file.map(|file| self.change(file, entry.allocated)).unwrap_or_default();
            }
        }
    }

    /// Returns the bytes that a file occupies; 0 if it does not exist.
    pub fn bytes_of(&self, path: &Path) -> u64 {
        let files = lock(&self.files);
        self.name(path).and_then(|name| files.by_name.get(name)).map_or(0, |file| file.bytes)
    }

    /// Returns the name of a file of the directory.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let inside = path.parent() == Some(&self.dir);
        path.file_name().filter(|_| inside).and_then(|name| name.to_str())
    }

    /// Sets the bytes of a file. Call it under the lock of the files.
    fn change(&self, file: &mut FileUse, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.used_bytes.fetch_sub(file.bytes, Ordering::AcqRel);
        self.change_counted(file, bytes);
    }

    /// As `change`, for a file whose bytes are in the total sum already.
    fn change_counted(&self, file: &mut FileUse, bytes: u64) {
        if file.is_speed_values {
            self.speed_value_bytes.fetch_add(bytes, Ordering::AcqRel);
            self.speed_value_bytes.fetch_sub(file.bytes, Ordering::AcqRel);
        }
        file.bytes = bytes;
    }

    /// Adds `more` bytes of a file, unless it is bounded and the sum would exceed the ceiling.
    fn grow(&self, path: &Path, bounded: bool, more: u64) -> Result<()> {
        let ceiling = if bounded { self.ceiling() } else { u64::MAX };
        let sum = self.used_bytes.fetch_add(more, Ordering::AcqRel).saturating_add(more);
        if more == 0 || sum <= ceiling {
            return Ok(());
        }
        self.used_bytes.fetch_sub(more, Ordering::AcqRel);
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let why = format!(
            "{more} bytes more of this file would raise all files to {sum} bytes, over the space limit of \
             {ceiling} bytes: delete data, or raise the limit"
        );
        Err(Error::new(ErrorKind::NoSpace, why).at_file(path))
    }

    /// Creates a file with `bytes` counted bytes by `make`; returns its id.
    fn make<T>(
        &self,
        path: &Path,
        (bytes, len): (u64, Option<u64>),
        make: impl FnOnce() -> Result<T>,
    ) -> Result<(T, u64)> {
        let Some(name) = self.name(path) else { return Ok((make()?, 0)) };
        self.grow(path, is_bounded(name), bytes)?;
        let made = make();
        let mut files = lock(&self.files);
        if made.is_ok() {
            files.insert(self, name, bytes, len);
        }
        self.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
        Ok((made?, files.next_id))
    }

    /// Runs `change` on a file, if its id is still the same.
    fn with(&self, path: &Path, id: u64, change: impl FnOnce(&mut FileUse)) {
        let Some(name) = self.name(path) else { return };
        let mut files = lock(&self.files);
        files.by_name.get_mut(name).filter(|file| file.id == id).map(change).unwrap_or_default();
    }

    fn forget(&self, path: &Path) {
        let Some(name) = self.name(path) else { return };
        if let Some(mut file) = lock(&self.files).by_name.remove(name) {
            self.change(&mut file, 0);
        }
    }

    fn rename(&self, from: &Path, to: &Path) {
        self.forget(to);
        let Some(name) = self.name(from) else { return };
        let mut files = lock(&self.files);
        let Some(mut file) = files.by_name.remove(name) else { return };
        let Some(name) = self.name(to) else { return self.change(&mut file, 0) };
        let bytes = file.bytes;
        self.change_counted(&mut file, 0);
        file.is_speed_values = is_speed_values(name);
        self.change_counted(&mut file, bytes);
        files.by_name.insert(name.to_owned(), file);
    }
}

impl Files {
    /// Returns true if the file is being appended to.
    fn is_open(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|file| file.len.is_none())
    }

    /// Adds a file under a name, and counts it.
    fn insert(&mut self, meter: &Meter, name: &str, bytes: u64, len: Option<u64>) {
        self.next_id += 1;
        let is_speed_values = is_speed_values(name);
        let mut file = FileUse { id: self.next_id, bytes: 0, len, is_speed_values };
        meter.change(&mut file, bytes);
        if let Some(mut former) = self.by_name.insert(name.to_owned(), file) {
            meter.change(&mut former, 0);
        }
    }
}

/// A file system with a [`Meter`]: see the module.
#[derive(Debug)]
pub struct MeteredFs {
    /// The underlying file system.
    pub inner: Arc<dyn FileSystem>,
    /// The meter.
    pub meter: Arc<Meter>,
}

/// Returns true for files that the ceiling may refuse: data, log, and unknown files.
fn is_bounded(name: &str) -> bool {
    use FileKind::{Engine, Log, Room, Tail};
    let is_bounded =
        |kind: FileKind| kind.data().is_some() || matches!(kind, Log(_) | Room(_) | Tail(_) | Engine { .. });
    names::parse(name).is_none_or(is_bounded)
}

/// Returns true for value files on the fast tier.
fn is_speed_values(name: &str) -> bool {
    names::parse(name).is_some_and(|kind| matches!(kind, FileKind::FastVsst(_)))
}

/// Rounds `len` up to whole pages.
pub fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
}

/// Returns the counted bytes of a closed file of this length, and its length.
fn whole(len: u64) -> (u64, Option<u64>) {
    (pages(len), Some(len))
}

impl FileSystem for MeteredFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let reserved = pages(options.expected_len);
        // Under a limit a file must not grow ahead of its counted bytes. A manifest exists before
        // the limit is set.
        let is_manifest = self.meter.name(path).is_some_and(|name| !is_bounded(name));
        let options = &CreateOptions { exact: is_manifest || self.meter.is_limited(), ..*options };
        let (file, id) = self.meter.make(path, (reserved, None), || self.inner.create(path, options))?;
        let bounded = self.meter.name(path).map(is_bounded);
        let (meter, path) = (self.meter.clone(), path.to_owned());
        Ok(Box::new(MeteredFile { inner: Some(file), len: 0, meter, path, bounded, id, counted: reserved }))
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        Ok(self.meter.make(path, whole(len), || self.inner.create_in_place(path, len, access))?.0)
    }

    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        let make = || self.inner.create_in_place_unzeroed(path, len, access);
        Ok(self.meter.make(path, whole(len), make)?.0)
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        Ok(self.meter.make(path, whole(len as u64), || self.inner.create_scratch(path, len))?.0)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)?;
        self.meter.rename(from, to);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)?;
        self.meter.forget(path);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        // The store links its files into other directories only.
        self.inner.link(from, to)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        Ok(self.meter.make(path, whole(PAGE as u64), || self.inner.lock(path, holder))?.0)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock_to_read(path)
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(path, offset, len)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        self.inner.open(path, access)
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.inner.open_in_place(path, access)
    }

    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        self.inner.read_all(path, limit)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.inner.metadata(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.inner.space(dir)
    }

    fn open_files_limit(&self) -> Option<u64> {
        self.inner.open_files_limit()
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        self.inner.scan_extent_tail(path)
    }

    fn disks(&self, dir: &Path) -> Option<Tiers> {
        self.inner.disks(dir)
    }
}

/// A file that is counted as it grows.
struct MeteredFile {
    /// Taken on drop.
    inner: Option<Box<dyn AppendFile>>,
    len: u64,
    meter: Arc<Meter>,
    path: PathBuf,
    /// Whether the ceiling may refuse it; `None`: the file is in another directory, and is not
    /// counted.
    bounded: Option<bool>,
    id: u64,
    counted: u64,
}

impl MeteredFile {
    /// Raises the counted bytes to those of `len` bytes.
    fn grow_to(&mut self, len: u64) -> Result<()> {
        let wanted = pages(len);
        let Some(bounded) = self.bounded.filter(|_| wanted > self.counted) else { return Ok(()) };
        let more = wanted - self.counted;
        self.meter.grow(&self.path, bounded, more)?;
        self.counted = wanted;
        let mut there = false;
        self.meter.with(&self.path, self.id, |file| {
            self.meter.change_counted(file, file.bytes + more);
            there = true;
        });
        if !there {
            // The name is gone, so its further bytes are not found in the directory.
            self.meter.used_bytes.fetch_sub(more, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Lowers the counted bytes after a failed growth.
    fn shrink_to(&mut self, counted: u64) {
        let less = self.counted.saturating_sub(counted);
        self.counted -= less;
        self.meter.with(&self.path, self.id, |file| self.meter.change(file, file.bytes.saturating_sub(less)));
    }

    fn inner(&mut self) -> &mut dyn AppendFile {
        &mut **self.inner.as_mut().expect("only the drop takes it away")
    }
}

impl AppendFile for MeteredFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.grow_to(self.len.saturating_add(data.len() as u64))?;
        self.inner().append(data)?;
        self.len += data.len() as u64;
        Ok(())
    }

    fn reserve(&mut self, len: u64) -> Result<()> {
        let before = self.counted;
        self.grow_to(len)?;
        self.inner().reserve(len).inspect_err(|_| self.shrink_to(before))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn flush(&mut self) -> Result<()> {
        self.inner().flush()
    }

    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        self.inner().wait_for_writes(most)
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.inner().sync(kind)
    }
}

impl Drop for MeteredFile {
    fn drop(&mut self) {
        // The close releases the space reserved beyond its end.
        self.inner = None;
        self.meter.with(&self.path, self.id, |file| {
            file.len = Some(self.len);
            self.meter.change(file, pages(self.len));
        });
    }
}

#[cfg(test)]
mod tests;
