//! What a file system must offer to the engine: the seam between it and the kernel, LavaFS or the simulator.
//!
//! Four kinds of files, because their promises differ:
//!
//! * [`AppendFile`]: written once from front to back (tables, manifest).
//! * [`ReadFile`]: read at offsets, possibly while an [`AppendFile`] on the same path still grows.
//! * [`InPlaceFile`]: of fixed length, preallocated **and written once**, then written in place (log groups). A data
//!   sync of an extent that was never written is a metadata commit; one that was written is not.
//! * [`ScratchFile`]: what must outlive the process but not the power (the log's open pages). It is written through the
//!   page cache and never synced. (A shared mapping would cost less, but where the file system fails a store into it the
//!   kernel answers with `SIGBUS`, which ends the process: `docs/decisions/0027-no-mapped-files.md`.)
//!
//! Paths are absolute or relative to the process for the kernel; for other file systems the root is the volume.
//! Directories are durable only after [`FileSystem::sync_dir`], file contents only after a sync of the file. A failed
//! sync is never retried: what the device holds is then unknown, and the caller must stop acknowledging.
//!
//! All errors name the path. Kinds: `NotFound`, `AlreadyExists`, `NoSpace`, `ReadOnly`, `Locked`, else `Io`.

use base::{Error, Result};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether the kernel's page cache lies between the engine and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache.
    Buffered,
    /// Around it, where the file system supports that; buffered where it does not (tmpfs).
    Direct,
}

/// How much a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The data, and the metadata needed to read it back (fdatasync).
    Data,
    /// Everything (fsync).
    Full,
}

/// How a new append-only file is made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Page cache or not.
    pub access: Access,
    /// The expected length in bytes (0: unknown): a hint for contiguous allocation, never a limit.
    pub expected_len: u64,
    /// Bytes collected in memory before they are written: a multiple of [`crate::PAGE`], at least one page.
    pub write_buffer_len: usize,
    /// For files written by background jobs: start writing back (or sync) every so many bytes, so that the final sync
    /// does not come as one large burst. 0: never.
    pub sync_every: u64,
    /// The file never takes more room than its bytes need, or than was expected, whatever that costs in pieces: for who counts what files
    /// occupy while they grow. A hint for file systems of our own; the kernel's know best.
    pub exact: bool,
    /// Which of two devices it should lie on, where the file system has two.
    pub placement: Placement,
}

/// A hint at which of two devices a file should lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// As the file system decides, by the name.
    #[default]
    ByName,
    /// The fast one.
    Speed,
    /// The large one.
    Capacity,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            access: Access::Buffered,
            expected_len: 0,
            write_buffer_len: 64 << 10,
            sync_every: 0,
            exact: false,
            placement: Placement::ByName,
        }
    }
}

/// One entry of a directory: plain files only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// File name without its directory.
    pub name: String,
    /// Logical length, bytes.
    pub len: u64,
    /// Bytes allocated on the device.
    pub allocated: u64,
}

/// Size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Logical length, bytes.
    pub len: u64,
    /// Bytes allocated on the device.
    pub allocated: u64,
    /// Names of the file (hard links).
    pub links: u64,
    /// True for a directory.
    pub is_dir: bool,
    /// Device and number of the file, which are the same whatever path leads to it. `None` where one path does: there are no
    /// links to directories, and no `..`.
    pub identity: Option<(u64, u64)>,
}

/// Room on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSpace {
    /// Bytes of the volume.
    pub total: u64,
    /// Bytes that this process may still allocate.
    pub available: u64,
}

/// The two places over which the files of one directory are spread, each as it is by itself.
#[derive(Clone, Debug)]
pub struct Disks {
    /// The file system of the directory.
    pub capacity: Arc<dyn FileSystem>,
    /// The file system of the other place.
    pub speed: Arc<dyn FileSystem>,
    /// The directory there.
    pub speed_dir: PathBuf,
}

/// A file system.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Creates an append-only file. `AlreadyExists` if the path exists.
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>>;

    /// Creates a file of exactly `len` bytes (a multiple of the page), allocates it, writes zeros over all of it and
    /// syncs it (its directory is the caller's to sync). `NoSpace` leaves no file behind.
    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>>;

    /// The same for a caller whose records tell what he wrote from whatever else may be there, what other files held
    /// included: where blocks can be used as they are, only the first page is written; that is zero before the file has a
    /// name that a crash keeps, so that it shows whether the file was ever written under this name. (A kernel's file system has zeros written all the
    /// same, because a data sync of a block that was never written is a metadata commit.)
    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        self.create_in_place(path, len, access)
    }

    /// Opens a file made by [`FileSystem::create_in_place`]. Bytes behind its last whole page are no part of it.
    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>>;

    /// Creates (or truncates to zeros) a file of `len` bytes, with room for all of them where the file system can promise
    /// that. `NoSpace` leaves no file behind.
    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>>;

    /// Reads a whole small file (at most `limit` bytes; longer: `Corruption`).
    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        let file = self.open(path, Access::Buffered)?;
        let len = file.len()?;
        if len > limit as u64 {
            let why = format!("file has {len} bytes, at most {limit} were expected");
            return Err(Error::corruption(why).at_file(path));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Renames atomically, replacing `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file's name; open handles go on reading.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Gives a file a second name. `Unsupported` across file systems (the caller then copies).
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Frees the pages wholly inside `[offset, offset + len)`, which then read as zeros. `Unsupported` where the file
    /// system cannot.
    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()>;

    /// The plain files in a directory, sorted by name. Files that vanish meanwhile are left out.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;

    /// Size and kind of a path.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// True if the path exists.
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == base::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Creates a directory and its parents; fine if it exists.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Makes the names in a directory durable. `NoSpace`: nothing happened, and it may be tried again. After any other failure
    /// names may be lost, although a later sync succeeds.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the exclusive lock of a path (created if missing) and writes `holder` (one line) into it. `Locked`, with
    /// the line of the present holder in the message, if it is taken, also by this very process.
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>>;

    /// Keeps writers away from a path without writing: takes the lock of a file that is there, shared with others who
    /// only read where the system has such locks. Needs no write permission. `Locked` as [`FileSystem::lock`]; `NotFound`
    /// if there is no such file.
    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Room on the volume that holds `dir`.
    fn space(&self, dir: &Path) -> Result<FsSpace>;

    /// The number of bytes at the start of a file that may hold data after a crash. On kernel file systems that is its
    /// length; on a file system whose recorded length may lag behind (LavaFS after a data sync) it is where the file's
    /// own extents end. The reader validates records itself.
    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        Ok(self.metadata(path)?.len)
    }

    /// The number of descriptors that the process may have: its soft limit. `None`: there is no limit, or open files take no descriptors.
    fn open_files_limit(&self) -> Option<u64> {
        None
    }

    /// The places behind a directory whose files are spread over two disks. `None`: there is one.
    fn disks(&self, dir: &Path) -> Option<Disks> {
        let _ = dir;
        None
    }
}

/// A file written from front to back. Dropping it without a sync leaves what was written, durable or not.
pub trait AppendFile: Send {
    /// Appends bytes; they may stay in the write buffer. After `NoSpace` the file has less than all of the bytes appended.
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Takes room on the volume for a length of `len` bytes, until the file is closed: what is appended up to there does
    /// not find it full. After `NoSpace`, or any other error, the file is as it was. A file system that cannot take
    /// room in advance does nothing.
    fn reserve(&mut self, len: u64) -> Result<()> {
        let _ = len;
        Ok(())
    }
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// True if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Hands the write buffer to the file system, so that readers of the path see all that was appended. After `NoSpace` they see less.
    fn flush(&mut self) -> Result<()>;
    /// Waits until at most `most` of the writes that go on behind the caller are on their way: for whoever shares the device with somebody in a
    /// hurry. Their failures are told here as by the next call. Does nothing where writes are waited for in any case.
    fn settle(&mut self, most: usize) -> Result<()> {
        let _ = most;
        Ok(())
    }
    /// Flushes, then makes everything appended so far durable. After an error the file is poisoned: every later call
    /// fails with `Poisoned`.
    fn sync(&mut self, kind: SyncKind) -> Result<()>;
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where in the file.
    pub offset: u64,
    /// Filled whole, or the request fails.
    pub buf: &'a mut [u8],
}

/// One read of a batch over several files.
#[derive(Debug)]
pub struct FileRead<'a> {
    /// The file.
    pub file: &'a Arc<dyn ReadFile>,
    /// Where in the file.
    pub offset: u64,
    /// Filled whole, or the read fails.
    pub buf: &'a mut [u8],
}

/// A file read at offsets.
pub trait ReadFile: Any + Send + Sync + fmt::Debug {
    /// Its length now, bytes.
    fn len(&self) -> Result<u64>;
    /// True if its length is 0 now.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// How many bytes can be read: more than its length where that may lag behind what a data sync made durable (see
    /// [`FileSystem::scan_extent_tail`]). The reader validates records itself.
    fn readable_len(&self) -> Result<u64> {
        self.len()
    }
    /// Fills `buf` from `offset`. `Corruption` if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Fills many buffers, with as many reads in flight as the engine allows. The first error is returned; other
    /// buffers are then unspecified.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|r| self.read_at(r.buf, r.offset))
    }
    /// Tells the system that the range will be read soon. A hint.
    fn will_need(&self, _offset: u64, _len: u64) {}
    /// The path it was opened by.
    fn path(&self) -> &Path;
    /// The file that this one passes its reads to, and who decides how many of them go to the device at once. `None`: it reads itself.
    fn paced(&self) -> Option<PacedFile<'_>> {
        None
    }
}

/// See [`ReadFile::paced`].
#[derive(Clone, Copy, Debug)]
pub struct PacedFile<'a> {
    /// What reads.
    pub inner: &'a Arc<dyn ReadFile>,
    /// What decides when.
    pub pace: &'a dyn ReadPace,
}

/// What reads go on beside that are not given to [`ReadPace::read_files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Reads of the foreground that somebody else paces, of another disk: all are waited for together.
    OtherDisk,
    /// What their thread does meanwhile, for background work.
    OtherWork,
}

/// Who decides how many reads go to the device at once.
pub trait ReadPace: Send + Sync + fmt::Debug {
    /// Has all of them done by `read`, in as many calls and parts as it sees fit.
    ///
    /// # Errors
    /// The first of `read`.
    fn read_files(
        &self,
        reads: &mut [FileRead<'_>],
        read: &dyn Fn(&mut [FileRead<'_>]) -> Result<()>,
    ) -> Result<()>;

    /// So many reads, of so many bytes together, begin beside something else, and are not waited for by themselves. `false`: they wait for their turn now, so they are
    /// to be given to [`ReadPace::read_files`], and nothing was booked.
    fn begins_beside(&self, what: Beside, reads: usize, bytes: u64) -> bool;

    /// So many of these have ended, as far as anybody has noticed.
    fn ends_beside(&self, what: Beside, reads: usize);

    /// Background work has waited so long for so many bytes of reads that went on beside it. What was there when it looked is not told.
    fn waited_for(&self, bytes: u64, waited_ns: u64);

    /// A read of the foreground, of so many bytes, begins that nobody waits for meanwhile; `None`: it is not timed.
    fn read_begins(&self, len: usize) -> Option<ReadBegun>;

    /// It has ended.
    fn read_ends(&self, read: ReadBegun);

    /// What is known of what reads cost.
    fn costs(&self) -> ReadCosts {
        ReadCosts::default()
    }
}

/// What is known of what reads of a disk cost. `None`: nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCosts {
    /// Bytes that cost as much as a request does beside others: a gap that is no longer is read over rather than left out.
    pub gap_bytes: Option<u64>,
    /// Bytes that have to be in flight so that the device moves some all the time.
    pub window_bytes: Option<u64>,
}

impl ReadCosts {
    /// Of reads of a file.
    pub fn of(file: &dyn ReadFile) -> ReadCosts {
        file.paced().map_or_else(ReadCosts::default, |paced| paced.pace.costs())
    }
}

/// A read that has begun, as what paces reads saw it.
#[derive(Clone, Copy, Debug)]
pub struct ReadBegun {
    /// When, in clock nanoseconds.
    pub at_ns: u64,
    /// When background work was last seen, if nothing of it was at the device.
    pub idle: Option<u64>,
}

/// The shortest block that a device has, bytes.
pub const BLOCK_LEN_MIN: usize = 512;

/// A file of fixed length that is written in place. Its length is a multiple of [`crate::PAGE`]; offsets and lengths of
/// writes are multiples of [`InPlaceFile::block_len`].
pub trait InPlaceFile: Send + Sync + fmt::Debug {
    /// Its fixed length, bytes.
    fn len(&self) -> u64;
    /// What is written as one: a write changes whole blocks of so many bytes, and no power failure while it is made takes what
    /// stands in another block. A power of two from [`BLOCK_LEN_MIN`] to [`crate::PAGE`]. Reads of whole blocks need no copy.
    fn block_len(&self) -> usize {
        crate::PAGE
    }
    /// True if its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes without making durable. Atomic per 512 B at best; a crash may tear, drop or reorder it.
    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()>;
    /// Writes, and returns when this write (and only this one) is on stable media. After an error nothing is known
    /// about the range; the caller poisons the log and never retries.
    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()>;
    /// Makes all earlier writes of this file durable.
    fn sync_data(&self) -> Result<()>;
    /// Fills `buf`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// The path it was opened by.
    fn path(&self) -> &Path;
}

use crate::buf::AlignedBuf;

/// A file of fixed length whose bytes survive the death of the process, not the loss of power.
pub trait ScratchFile: Send + Sync + fmt::Debug {
    /// Its length, bytes.
    fn len(&self) -> usize;
    /// True if its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes `data` at `offset`; on return it survives the process. Panics if it does not fit (a bug of the caller). Two
    /// calls must not overlap in time and range; a process killed in the middle leaves a prefix.
    ///
    /// # Errors
    /// `NoSpace` on a copy-on-write file system that is full: behind the part that was stored the file is as it was, and the
    /// write may be made again. What was stored has its room: it can be written again at once.
    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), PartialWrite>;
}

/// A write that failed, after it had stored a part, which is never all.
#[derive(Clone, Debug)]
pub struct PartialWrite {
    /// Bytes that were stored, from the first on.
    pub stored_bytes: usize,
    /// Why the others were not.
    pub error: Error,
}

impl From<PartialWrite> for Error {
    fn from(partial: PartialWrite) -> Error {
        partial.error
    }
}

/// An exclusive lock; dropping it gives it up.
pub trait FileLock: Send + Sync + fmt::Debug {}

/// The path a store uses for a file name (kept here so that only this crate joins paths for I/O).
pub fn join(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
