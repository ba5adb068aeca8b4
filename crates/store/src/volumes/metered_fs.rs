//! The store's files, counted as they grow: what the directory occupies, known at every moment without listing it.
//!
//! Every file of a store is made, lengthened, renamed and removed through its [`FileSystem`]. This one passes all calls on
//! and keeps, by name, the bytes each file of the store's directory occupies. So nobody who writes has to report it, and
//! no kind of file can be forgotten: tables, vSSTs and outputs of running jobs, log groups in use, spare and free, the
//! log's open pages, manifests, files that wait for their last reader.
//!
//! A file that is being appended to counts with its whole pages, what still lies in its write buffer included, or with
//! the length reserved for it, if that is more. Once it is closed it counts with its pages. So the sum is never less than
//! what the directory occupies, and equal to it while nobody appends. Files of values on a second disk have a sum of their own, since they have
//! a share of it that is asked for before each is made. (What a file system adds for its own use, such as
//! blocks that map a fragmented file, is corrected when the directory is listed ([`Meter::correct`]).)
//!
//! **The ceiling.** Where the store has a limit, a file of data or log that would lift the sum above the ceiling is
//! refused with `NoSpace`, before anything happened: the same answer, at the same place, as that of a volume that is full.
//! Admission ([`crate::space`]) keeps jobs and writers from ever getting here; this is what makes it a limit if an estimate
//! was wrong. A file without which the store is whole (that of metrics) is refused like data. The manifest, `CURRENT` and
//! the log's open pages are counted, but never refused.

use crate::names::{self, FileKind};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result};
use io::{
    Access, AppendFile, CreateOptions, DirEntry, Disks, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    PAGE, ReadFile, ScratchFile, SyncKind,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the files of one directory occupy.
#[derive(Debug)]
pub struct Meter {
    dir: PathBuf,
    /// What each file occupies.
    files: Mutex<Files, rank::Meter>,
    /// The sum of `files`, and of what is being made.
    used_bytes: AtomicU64,
    /// The sum of those of `files` that are values on the second disk. Changed under the lock of `files`.
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
    /// Tells it from others that had its name before: a late handle of one of those must not change it.
    id: u64,
    bytes: u64,
    /// Its length, once nobody appends to it.
    len: Option<u64>,
    /// It holds values, and lies on the second disk.
    is_speed_values: bool,
}

impl Meter {
    /// Of a directory that nobody changes yet.
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

    /// Bytes that all files occupy.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }

    /// Bytes that files of values occupy on the second disk, or have reserved there.
    pub fn speed_value_bytes(&self) -> u64 {
        self.speed_value_bytes.load(Ordering::Acquire)
    }

    /// How often the ceiling refused something.
    #[cfg(test)]
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// From now on data and log may occupy so many bytes, with everything else.
    pub fn set_ceiling(&self, bytes: u64) {
        self.ceiling_bytes.store(bytes, Ordering::Release);
    }

    /// What was set last; `u64::MAX`: nothing.
    pub fn ceiling(&self) -> u64 {
        self.ceiling_bytes.load(Ordering::Acquire)
    }

    fn is_limited(&self) -> bool {
        self.ceiling() < u64::MAX
    }

    /// Takes over the files that are there before anybody changes them.
    pub fn take_over(&self, listing: &[DirEntry]) {
        let mut files = lock(&self.files);
        for entry in listing.iter().filter(|e| !files.is_open(&e.name)).collect::<Vec<_>>() {
            files.insert(self, &entry.name, entry.allocated, Some(entry.len));
        }
    }

    /// Takes over what a listing says of files that have not changed since.
    pub fn correct(&self, listing: &[DirEntry]) {
        // In parts: a listing may have a hundred thousand files, and whoever makes one grow takes this lock.
        for part in listing.chunks(1000) {
            let mut files = lock(&self.files);
            for entry in part {
                let file = files.by_name.get_mut(&entry.name).filter(|file| file.len == Some(entry.len));
                file.map(|file| self.change(file, entry.allocated)).unwrap_or_default();
            }
        }
    }

    /// Bytes that a file occupies; 0 if it is not there.
    pub fn bytes_of(&self, path: &Path) -> u64 {
        let files = lock(&self.files);
        self.name(path).and_then(|name| files.by_name.get(name)).map_or(0, |file| file.bytes)
    }

    /// The name of a file of the directory.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let inside = path.parent() == Some(&self.dir);
        path.file_name().filter(|_| inside).and_then(|name| name.to_str())
    }

    /// The file counts so many bytes from now on. Under the lock of the files.
    fn change(&self, file: &mut FileUse, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.used_bytes.fetch_sub(file.bytes, Ordering::AcqRel);
        self.change_counted(file, bytes);
    }

    /// The same, of a file whose bytes are in the sum of all already.
    fn change_counted(&self, file: &mut FileUse, bytes: u64) {
        if file.is_speed_values {
            self.speed_value_bytes.fetch_add(bytes, Ordering::AcqRel);
            self.speed_value_bytes.fetch_sub(file.bytes, Ordering::AcqRel);
        }
        file.bytes = bytes;
    }

    /// Counts `more` bytes of a file, unless it is bounded and they would lift the sum above the ceiling.
    fn grow(&self, path: &Path, bounded: bool, more: u64) -> Result<()> {
        let ceiling = if bounded { self.ceiling() } else { u64::MAX };
        let sum = self.used_bytes.fetch_add(more, Ordering::AcqRel).saturating_add(more);
        if more == 0 || sum <= ceiling {
            return Ok(());
        }
        self.used_bytes.fetch_sub(more, Ordering::AcqRel);
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let why = format!("the store may occupy {ceiling} bytes: {more} bytes more of this file do not fit");
        Err(Error::new(ErrorKind::NoSpace, why).at_file(path))
    }

    /// A file that counts `bytes` bytes is made by `make`; returns its id.
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

    /// Runs `change` on a file, if it is still the one with this id.
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
    /// True if somebody appends to the file.
    fn is_open(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|file| file.len.is_none())
    }

    /// A file takes a name, and counts.
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

/// A file system that keeps a [`Meter`]. See the module.
#[derive(Debug)]
pub struct MeteredFs {
    /// What does it.
    pub inner: Arc<dyn FileSystem>,
    /// What counts it.
    pub meter: Arc<Meter>,
}

/// True for data, log, and what is no part of the store: what the ceiling may refuse.
fn is_bounded(name: &str) -> bool {
    use FileKind::{Engine, Log, Room, Tail};
    let is_bounded =
        |kind: FileKind| kind.data().is_some() || matches!(kind, Log(_) | Room(_) | Tail(_) | Engine { .. });
    names::parse(name).is_none_or(is_bounded)
}

/// True for files of values that lie on the second disk.
fn is_speed_values(name: &str) -> bool {
    names::parse(name).is_some_and(|kind| matches!(kind, FileKind::SpeedVsst(_)))
}

/// The bytes of `len` in whole pages.
pub fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
}

/// What a file of this length counts that nobody appends to, and its length.
fn whole(len: u64) -> (u64, Option<u64>) {
    (pages(len), Some(len))
}

impl FileSystem for MeteredFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let reserved = pages(options.expected_len);
        // What is counted is what the bytes need: under a limit a file is not to grow ahead of them. A manifest is there before its limit.
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
        // The store gives its files names in other directories only.
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

    fn disks(&self, dir: &Path) -> Option<Disks> {
        self.inner.disks(dir)
    }
}

/// A file that is counted as it grows.
struct MeteredFile {
    /// Gone when this is dropped.
    inner: Option<Box<dyn AppendFile>>,
    len: u64,
    meter: Arc<Meter>,
    path: PathBuf,
    /// Whether the ceiling may refuse it; `None`: it is in another directory, and does not count.
    bounded: Option<bool>,
    id: u64,
    /// What it counts.
    counted: u64,
}

impl MeteredFile {
    /// Counts the file as one of `len` bytes, if that is more than it counts.
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
            // Its name is gone; nothing it still takes in is found in the directory.
            self.meter.used_bytes.fetch_sub(more, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Counts less again, after it could not grow.
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

    fn settle(&mut self, most: usize) -> Result<()> {
        self.inner().settle(most)
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.inner().sync(kind)
    }
}

impl Drop for MeteredFile {
    fn drop(&mut self) {
        // Closing it gives up what was reserved beyond its end.
        self.inner = None;
        self.meter.with(&self.path, self.id, |file| {
            file.len = Some(self.len);
            self.meter.change(file, pages(self.len));
        });
    }
}

#[cfg(test)]
mod tests;
