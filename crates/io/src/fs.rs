//! File system interface of the engine, implemented by the kernel, LavaFS and the simulator.
//!
//! There are four kinds of files, with different guarantees:
//!
//! * [`AppendFile`]: written once from front to back (tables, manifest).
//! * [`ReadFile`]: read at offsets, possibly while an [`AppendFile`] on the same path still grows.
//! * [`InPlaceFile`]: of fixed length, preallocated **and written once**, then written in place
//!   (log groups). A data sync of an extent that was never written is a metadata commit; a data
//!   sync of a written one is not.
//! * [`ScratchFile`]: survives a process crash but not a power loss (the log's open pages). It is
//!   written through the page cache and never synced. (A shared mapping would cost less. But where
//!   the file system fails a store into the mapping, the kernel sends `SIGBUS`, which ends the
//!   process: `docs/decisions/0027-no-mapped-files.md`.)
//!
//! For the kernel, paths are absolute or relative to the process; for other file systems the root
//! is the volume. Directories are durable only after [`FileSystem::sync_dir`], file contents only
//! after a sync of the file. A failed sync is never retried: the contents of the device are then
//! unknown, and the caller must stop acknowledging.
//!
//! All errors name the path. Kinds: `NotFound`, `AlreadyExists`, `NoSpace`, `ReadOnly`, `Locked`,
//! else `Io`.

use base::{Error, Result};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Chooses whether file I/O goes through the page cache of the operating system, which decides
/// where free memory is used: by the system or by the cache of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache: reads may be served from the free memory of the machine.
    Buffered,
    /// Around it, where the file system supports that; buffered where it does not (tmpfs). Memory
    /// use and latency are then predictable.
    Direct,
}

/// Scope of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The data, and the metadata needed to read it back (fdatasync).
    Data,
    /// Everything (fsync).
    Full,
}

/// Options of a new append-only file.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Page cache or not.
    pub access: Access,
    /// The expected length in bytes (0: unknown): a hint for contiguous allocation, never a limit.
    pub expected_len: u64,
    /// Bytes collected in memory before they are written: a multiple of [`crate::PAGE`], at least
    /// one page.
    pub write_buffer_len: usize,
    /// For files written by background jobs: start write-back (or sync) every this many bytes, so
    /// that the final sync is not one large burst. 0: never.
    pub sync_every: u64,
    /// The file never allocates more than its bytes need, or than was expected, even if it becomes
    /// fragmented: for callers that count the allocated bytes of growing files. A hint for LavaFS;
    /// the kernel's file systems ignore it.
    pub exact: bool,
    /// The device for the file, where the file system has two.
    pub placement: Placement,
}

/// Hint for the device of a file, where the file system has two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Chosen by the file system from the name.
    #[default]
    ByName,
    /// The fast tier.
    Fast,
    /// The capacity tier.
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
    /// Device and inode number, which are the same for every path of the file. `None` where there
    /// is only one path: there are no links to directories, and no `..`.
    pub identity: Option<(u64, u64)>,
}

/// Space on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSpace {
    /// Bytes of the volume.
    pub total: u64,
    /// Bytes that this process may still allocate.
    pub available: u64,
}

/// The two tiers that hold the files of one directory.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// The file system of the directory.
    pub capacity: Arc<dyn FileSystem>,
    /// The file system of the fast tier.
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

    /// Creates a file of exactly `len` bytes (a multiple of the page), allocates it, writes zeros
    /// over all of it and syncs it; the caller syncs the directory. `NoSpace` leaves no file
    /// behind.
    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>>;

    /// As [`FileSystem::create_in_place`], for a caller whose records are distinguishable from any
    /// other contents, including those of other files. Where blocks can be used as they are, only
    /// the first page is zeroed. It is zero before the file has a name that survives a crash, so
    /// that it shows whether the file was ever written under this name. (A kernel file system still
    /// writes all zeros, because a data sync of a block that was never written is a metadata
    /// commit.)
    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        self.create_in_place(path, len, access)
    }

    /// Opens a file made by [`FileSystem::create_in_place`]. A partial page at its end is ignored.
    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>>;

    /// Creates (or truncates to zeros) a file of `len` bytes, with space for all of them where the
    /// file system can guarantee it. `NoSpace` leaves no file behind.
    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>>;

    /// Reads a whole small file (at most `limit` bytes; longer: `Corruption`).
    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        let file = self.open(path, Access::Buffered)?;
        let len = file.len()?;
        if len > limit as u64 {
            let why = format!(
                "the file has {len} bytes, over the limit of {limit} bytes for a file of this name: it is damaged, or another file"
            );
            return Err(Error::corruption(why).at_file(path));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Renames atomically, replacing `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file's name; open handles can still read.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Gives a file a second name. `Unsupported` across file systems (the caller then copies).
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Frees the pages wholly inside `[offset, offset + len)`, which then read as zeros.
    /// `Unsupported` where the file system cannot.
    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()>;

    /// Lists the plain files in a directory, sorted by name. Files that vanish meanwhile are left
    /// out.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;

    /// Returns the size and kind of a path.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// Returns true if the path exists.
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == base::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Creates a directory and its missing parents; succeeds if it exists.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Makes the names in a directory durable. `NoSpace`: nothing changed, and the call can be
    /// repeated. After any other failure names may be lost, even if a later sync succeeds.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the exclusive lock of a path (created if missing) and writes `holder` (one line) into
    /// it. `Locked`, with the line of the present holder in the message, if it is taken, even by
    /// this process.
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>>;

    /// Keeps writers away from a path without writing: takes the lock of an existing file, shared
    /// with other readers where the system has shared locks. Needs no write permission. `Locked` as
    /// [`FileSystem::lock`]; `NotFound` if there is no such file.
    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Returns the space on the volume that holds `dir`.
    fn space(&self, dir: &Path) -> Result<FsSpace>;

    /// Returns the number of bytes at the start of a file that may hold data after a crash. On
    /// kernel file systems this is the length of the file. Where the recorded length may lag behind
    /// (LavaFS after a data sync), it is the end of the file's extents. The reader validates
    /// records itself.
    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        Ok(self.metadata(path)?.len)
    }

    /// Returns the soft limit of descriptors of the process. `None`: there is no limit, or open
    /// files take no descriptors.
    fn open_files_limit(&self) -> Option<u64> {
        None
    }

    /// Returns the two tiers of a directory whose files are spread over them. `None`: there is one.
    fn disks(&self, dir: &Path) -> Option<Tiers> {
        let _ = dir;
        None
    }
}

/// A file written from front to back. Dropping it without a sync leaves the written bytes in the
/// file, durable or not.
pub trait AppendFile: Send {
    /// Appends bytes; they may stay in the write buffer. After `NoSpace` only a part of the bytes
    /// is appended.
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Reserves space for a length of `len` bytes until the file is closed, so that appends up to
    /// there do not fail with `NoSpace`. After an error the file is unchanged. A file system that
    /// cannot reserve space does nothing.
    fn reserve(&mut self, len: u64) -> Result<()> {
        let _ = len;
        Ok(())
    }
    /// Returns the bytes appended so far.
    fn len(&self) -> u64;
    /// Returns true if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes the buffer to the file system, so that readers of the path see all appended bytes.
    /// After `NoSpace` they see fewer.
    fn flush(&mut self) -> Result<()>;
    /// Waits until at most `most` asynchronous writes are in flight, so that foreground I/O on the
    /// same device is not delayed. Their failures are reported here, as by the next call. Does
    /// nothing where writes are synchronous.
    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        let _ = most;
        Ok(())
    }
    /// Flushes, then makes all appended bytes durable. After an error the file is poisoned: every
    /// later call fails with `Poisoned`.
    fn sync(&mut self, kind: SyncKind) -> Result<()>;
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in the file.
    pub offset: u64,
    /// Filled completely, or the request fails.
    pub buf: &'a mut [u8],
}

/// One read of a batch over several files.
#[derive(Debug)]
pub struct FileRead<'a> {
    /// The file.
    pub file: &'a Arc<dyn ReadFile>,
    /// Offset in the file.
    pub offset: u64,
    /// Filled completely, or the read fails.
    pub buf: &'a mut [u8],
}

/// A file read at offsets.
pub trait ReadFile: Any + Send + Sync + fmt::Debug {
    /// Returns its present length, bytes.
    fn len(&self) -> Result<u64>;
    /// Returns true if its length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Returns how many bytes can be read: more than its length where that may lag behind a data
    /// sync (see [`FileSystem::scan_extent_tail`]). The reader validates records itself.
    fn readable_len(&self) -> Result<u64> {
        self.len()
    }
    /// Fills `buf` from `offset`. `Corruption` if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Fills many buffers, with as many reads in flight as the engine allows. Returns the first
    /// error; the other buffers are then unspecified.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|r| self.read_at(r.buf, r.offset))
    }
    /// Announces that the range will be read soon. A hint.
    fn will_need(&self, _offset: u64, _len: u64) {}
    /// Returns the path it was opened by.
    fn path(&self) -> &Path;
    /// Returns the file below this one, and the limiter of its concurrent reads. `None`: this file
    /// reads directly.
    fn paced(&self) -> Option<PacedFile<'_>> {
        None
    }
}

/// A file with a read limiter: see [`ReadFile::paced`].
#[derive(Clone, Copy, Debug)]
pub struct PacedFile<'a> {
    /// The file that does the reads.
    pub inner: &'a Arc<dyn ReadFile>,
    /// The limiter of concurrent reads.
    pub pace: &'a dyn ReadConcurrencyLimiter,
}

/// Kinds of reads in flight that [`ReadConcurrencyLimiter::read_files`] does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlimitedReadKind {
    /// Foreground reads on another disk, under another limiter: one call waits for all of them
    /// together.
    OtherDisk,
    /// Background reads in flight while their thread does other work.
    OtherWork,
}

/// Limiter of the concurrent reads of a disk.
pub trait ReadConcurrencyLimiter: Send + Sync + fmt::Debug {
    /// Runs all reads by `read`, in as many calls and parts as the limiter decides.
    ///
    /// # Errors
    /// The first of `read`.
    fn read_files(
        &self,
        reads: &mut [FileRead<'_>],
        read: &dyn Fn(&mut [FileRead<'_>]) -> Result<()>,
    ) -> Result<()>;

    /// Registers `reads` reads of `bytes` bytes in total that begin beside other work, without a
    /// wait of their own. `false`: they must wait for their turn, so the caller passes them to
    /// [`ReadConcurrencyLimiter::read_files`]; nothing was registered.
    fn begin_unlimited(&self, what: UnlimitedReadKind, reads: usize, bytes: u64) -> bool;

    /// Records that this many of those reads have ended, as far as noticed.
    fn end_unlimited(&self, what: UnlimitedReadKind, reads: usize);

    /// Records that background work waited `waited_ns` for `bytes` bytes of such reads. Reads that
    /// had already completed when it checked are not included.
    fn waited_for(&self, bytes: u64, waited_ns: u64);

    /// Records the start of an asynchronous foreground read of `len` bytes; `None`: it is not
    /// timed.
    fn read_begins(&self, len: usize) -> Option<ReadBegun>;

    /// Records the end of such a read.
    fn read_ends(&self, read: ReadBegun);

    /// Returns the measured costs of reads.
    fn costs(&self) -> ReadCosts {
        ReadCosts::default()
    }
}

/// Measured costs of the reads of a disk. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCosts {
    /// Bytes that cost as much as one more concurrent request: a shorter gap is read rather than
    /// skipped.
    pub gap_bytes: Option<u64>,
    /// Bytes in flight that keep the device busy all the time.
    pub window_bytes: Option<u64>,
}

impl ReadCosts {
    /// Returns the costs for a file.
    pub fn of(file: &dyn ReadFile) -> ReadCosts {
        file.paced().map_or_else(ReadCosts::default, |paced| paced.pace.costs())
    }
}

/// A read in flight, as its limiter saw it begin.
#[derive(Clone, Copy, Debug)]
pub struct ReadBegun {
    /// Its start, in clock nanoseconds.
    pub at_ns: u64,
    /// The last time that background work was seen, if none of it was at the device.
    pub idle: Option<u64>,
}

/// Shortest block of any device, bytes.
pub const BLOCK_LEN_MIN: usize = 512;

/// A file of fixed length that is written in place. Its length is a multiple of [`crate::PAGE`];
/// offsets and lengths of writes are multiples of [`InPlaceFile::block_len`].
pub trait InPlaceFile: Send + Sync + fmt::Debug {
    /// Returns its fixed length, bytes.
    fn len(&self) -> u64;
    /// Returns the atomic unit of writes. A write changes whole blocks of this length, and a power
    /// failure during the write does not damage other blocks. A power of two from [`BLOCK_LEN_MIN`]
    /// to [`crate::PAGE`]. Reads of whole blocks need no copy.
    fn block_len(&self) -> usize {
        crate::PAGE
    }
    /// Returns true if its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes without making durable. Atomic per 512 B at best; a crash may tear, drop or reorder
    /// the write.
    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()>;
    /// Writes, and returns when this write (and only this one) is on stable media. After an error
    /// the contents of the range are unknown; the caller poisons the log and never retries.
    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()>;
    /// Makes all earlier writes of this file durable.
    fn sync_data(&self) -> Result<()>;
    /// Fills `buf`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Returns the path it was opened by.
    fn path(&self) -> &Path;
}

use crate::buf::AlignedBuf;

/// A file of fixed length whose bytes survive a process crash, but not a power loss.
pub trait ScratchFile: Send + Sync + fmt::Debug {
    /// Returns its length, bytes.
    fn len(&self) -> usize;
    /// Returns true if its length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes `data` at `offset`; on return the data survive the process. Panics if they do not fit
    /// (a bug of the caller). Two calls must not overlap in time and range. A process killed during
    /// the write leaves a prefix.
    ///
    /// # Errors
    /// `NoSpace` on a full copy-on-write file system: bytes behind the stored part are unchanged,
    /// and the write can be repeated. The stored part keeps its space, so it can be rewritten at
    /// once.
    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), PartialWrite>;
}

/// A failed write that stored only a part of its data.
#[derive(Clone, Debug)]
pub struct PartialWrite {
    /// Length of the stored prefix, bytes.
    pub stored_bytes: usize,
    /// The failure of the rest.
    pub error: Error,
}

impl From<PartialWrite> for Error {
    fn from(partial: PartialWrite) -> Error {
        partial.error
    }
}

/// An exclusive lock, released when dropped.
pub trait FileLock: Send + Sync + fmt::Debug {}

/// Joins a directory and a file name of a store (here so that only this crate joins paths for I/O).
pub fn join(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
