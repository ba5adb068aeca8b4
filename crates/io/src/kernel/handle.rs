//! Open files: exact reads and writes, with direct access or through the page cache.
//!
//! **Exact.** The kernel may cut a read or write short or interrupt it with a signal; both are
//! resumed here. A read beyond the end of the file is `Corruption`: the engine only reads ranges
//! that its metadata names.
//!
//! **Direct access** (`O_DIRECT`) needs an aligned memory address, offset and length. A page
//! satisfies every device in use; a caller with shorter writes asks for the block
//! ([`Handle::learn_block`]). Direct access is enabled after the open, with `fcntl`: an open with
//! the flag may create the file and then fail. File systems refuse it then, or a few only at the
//! first transfer, both with `EINVAL`. The file is then read and written through the page cache,
//! which only affects the speed.
//!
//! Invariant: while `direct` is true every transfer is aligned, so `EINVAL` means a refusal of the
//! file system, not an invalid request.

use super::pool::BufPool;
use super::{block, calls};
use crate::{Access, AlignedBuf, PAGE, PartialWrite, SyncKind};
use base::process::{Process, forked};
use base::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// How often one transfer may return without usable progress before it fails.
const STALLS_MAX: u32 = 16;

/// Returns the error of a failed system call.
pub(super) fn fail(action: &str, path: &Path, errno: impl Into<std::io::Error>) -> Error {
    match errno.into() {
        e if e.raw_os_error() == Some(NOT_HERE.raw_os_error()) => forked().at_file(path),
        e => Error::from_io(action, path, e),
    }
}

/// Error number for a refused call in a child process. No file call returns it: it is for mutexes.
pub(super) const NOT_HERE: Errno = Errno::OWNERDEAD;

/// Repeats a system call while signals interrupt it.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Returns the directory for the system: an empty path is the current directory.
pub(super) fn dir_or_current(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// Refuses a path that is no file: a directory, or a pipe, whose open would block forever. If the
/// lookup fails, the open gives a better error.
pub(super) fn must_be_plain(path: &Path) -> Result<()> {
    match calls::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Err(_) | Ok(FileType::RegularFile | FileType::CharacterDevice) => Ok(()),
        Ok(other) => {
            let why = format!("a {} is in the place of a plain file", noun(other));
            let remedy = "move it away; if the store lacks the file then, restore it from a backup";
            Err(Error::corruption(why).with_remedy(remedy).at_file(path))
        }
    }
}

/// Returns the name of a file type for an error text.
fn noun(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "plain file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "file of unknown type",
    }
}

/// Returns true if direct access may transfer between `buf` and `offset`, on any device.
pub(super) fn is_aligned(buf: &[u8], offset: u64) -> bool {
    is_aligned_to(PAGE, buf, offset)
}

fn is_aligned_to(block: usize, buf: &[u8], offset: u64) -> bool {
    (buf.as_ptr() as usize).is_multiple_of(block)
        && buf.len().is_multiple_of(block)
        && offset.is_multiple_of(block as u64)
}

/// Returns the start and the length of the pages around `[offset, offset + len)`.
pub(super) fn covering_pages(offset: u64, len: usize) -> (u64, usize) {
    let start = offset - offset % PAGE as u64;
    let skipped = (offset - start) as usize;
    (start, (skipped + len).next_multiple_of(PAGE))
}

/// An open file and its path.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    /// Unit of direct transfers: a page, unless [`Handle::learn_block`] found a shorter one.
    block: usize,
    direct: AtomicBool,
    /// The file system does not support durable writes.
    dsync_refused: AtomicBool,
    /// The process that opened it: a child neither reads nor writes.
    process: Process,
}

impl Handle {
    /// Opens `path`; `flags` give the kind of access.
    pub(super) fn open(action: &str, path: &Path, flags: OFlags, access: Access) -> Result<Handle> {
        let mode = Mode::from_raw_mode(0o666);
        let fd =
            retry(|| calls::open(path, flags | OFlags::CLOEXEC, mode)).map_err(|e| fail(action, path, e))?;
        let direct = access == Access::Direct && switch_direct(&fd, true).is_ok();
        Ok(Handle {
            fd,
            path: path.to_owned(),
            block: PAGE,
            direct: AtomicBool::new(direct),
            dsync_refused: AtomicBool::new(false),
            process: Process::here(),
        })
    }

    /// Fails in a child of the process that opened it.
    pub(super) fn check_process(&self) -> Result<()> {
        self.process.check().map_err(|e| e.at_file(&self.path))
    }

    /// As [`Handle::check_process`], with the error of a call.
    fn here(&self) -> rustix::io::Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(NOT_HERE) }
    }

    /// Learns the shortest unit of the file system and the device, for callers that write less than
    /// a page.
    pub(super) fn learn_block(&mut self) {
        if self.is_direct() {
            self.block = block::of(&self.fd).unwrap_or(PAGE);
        }
    }

    /// Returns the unit for transfers. Shorter ones through the page cache would write the page
    /// around them.
    pub(super) fn block_len(&self) -> usize {
        if self.is_direct() { self.block } else { PAGE }
    }

    /// Returns true while transfers bypass the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Disables direct access after the file system refused it. Returns false if it was not
    /// enabled.
    fn leave_direct(&self) -> bool {
        if !self.is_direct() || switch_direct(&self.fd, false).is_err() {
            return false;
        }
        self.direct.store(false, Ordering::Relaxed);
        true
    }

    /// Returns the error of a failed operation on this file.
    pub(super) fn fail(&self, action: &str, errno: impl Into<std::io::Error>) -> Error {
        fail(action, &self.path, errno)
    }

    /// Returns its present length.
    pub(super) fn len(&self) -> Result<u64> {
        let stat = calls::fstat(&self.fd).map_err(|e| self.fail("cannot read the length of a file", e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Refuses ranges that no file can have (an offset from damaged bytes).
    pub(super) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= i64::MAX as u64 - PAGE as u64);
        if end.is_some() { Ok(()) } else { Err(self.ends_early(offset, len)) }
    }

    fn ends_early(&self, offset: u64, len: usize) -> Error {
        let end = self.len().map_or_else(|_| "an unknown offset".to_owned(), |end| end.to_string());
        let why = format!(
            "the file ends at byte {end}, inside a read of {len} bytes at this offset: the file was cut off, \
             or the bytes that name this place are damaged"
        );
        Error::corruption(why).at_file(&self.path).at_offset(offset)
    }

    /// Fills `buf` from `offset`, through an aligned buffer of `pool` where direct access needs
    /// one.
    pub(super) fn read_exact_at(&self, pool: &BufPool, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_range(offset, buf.len())?;
        if buf.is_empty() {
            return Ok(());
        }
        let asked = offset..offset + buf.len() as u64;
        if !self.is_direct() || is_aligned_to(self.block, buf, offset) {
            return self.fill(buf, offset, 0, asked);
        }
        let (start, span) = covering_pages(offset, buf.len());
        let skipped = (offset - start) as usize;
        let mut bounce = pool.take(span);
        let result = self.fill(bounce.as_mut_slice(), start, 0, asked);
        if result.is_ok() {
            buf.copy_from_slice(&bounce.as_slice()[skipped..skipped + buf.len()]);
        }
        pool.put(bounce);
        result
    }

    /// Reads into `buf`, which represents the file from `start` on, until all of `asked` is
    /// present; its first `done` bytes are present already.
    pub(super) fn fill(&self, buf: &mut [u8], start: u64, mut done: usize, asked: Range<u64>) -> Result<()> {
        let wanted = (asked.end - start) as usize;
        assert!(done <= buf.len() && wanted <= buf.len(), "read past its buffer");
        self.check_process()?;
        let ends_early = || self.ends_early(asked.start, (asked.end - asked.start) as usize);
        let mut stalls = 0;
        while done < wanted {
            if self.is_direct() && !done.is_multiple_of(self.block) {
                // A direct read stops inside a page only at the end of the file. If the file has
                // grown since, the page is read again; no other read can be resumed at an unaligned
                // offset.
                stalls += 1;
                if self.len()? <= start + done as u64 || stalls > STALLS_MAX {
                    return Err(ends_early());
                }
                done -= done % self.block;
            }
            match calls::pread(&self.fd, &mut buf[done..], start + done as u64) {
                Ok(0) => return Err(ends_early()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if stalls < STALLS_MAX => stalls += 1,
                Err(Errno::INVAL) if self.leave_direct() => {}
                Err(e) => return Err(self.fail("cannot read a file", e).at_offset(asked.start)),
            }
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`.
    pub(super) fn write_all_at(&self, data: &[u8], offset: u64) -> rustix::io::Result<()> {
        self.write_from(data, offset, false).map_err(|(_, e)| e)
    }

    /// Writes all of `data` at `offset`. An error comes with the number of bytes written before.
    fn write_from(&self, data: &[u8], offset: u64, durable: bool) -> std::result::Result<(), (usize, Errno)> {
        self.here().map_err(|e| (0, e))?;
        let (mut done, mut stalls) = (0, 0);
        while done < data.len() {
            let at = offset + done as u64;
            let rest = &data[done..];
            let result = match durable {
                true => calls::pwrite_durable(&self.fd, rest, at),
                false => calls::pwrite(&self.fd, rest, at),
            };
            match result {
                Ok(0) => return Err((done, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if stalls < STALLS_MAX => stalls += 1,
                Err(Errno::INVAL) if is_aligned_to(self.block, rest, at) && self.leave_direct() => {}
                Err(e) => return Err((done, e)),
            }
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`; an error has the number of bytes written before.
    pub(super) fn write_counted(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite> {
        self.write_from(data, offset, false).map_err(|failed| partial_write(self, failed, offset))
    }

    /// Writes all of `data` at `offset` and returns when this range is durable: with a forced write
    /// where the file system and the device support it, else with a sync of the file.
    pub(super) fn write_durable_at(&self, data: &[u8], offset: u64) -> rustix::io::Result<()> {
        if !self.dsync_refused.load(Ordering::Relaxed) {
            match self.write_from(data, offset, true).map_err(|(_, e)| e) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.dsync_refused.store(true, Ordering::Relaxed),
                result => return result,
            }
        }
        self.write_all_at(data, offset)?;
        self.sync(SyncKind::Data)
    }

    /// Writes zeros over a range, which begins at a page.
    pub(super) fn write_zeros(&self, Range { start, end }: Range<u64>) -> rustix::io::Result<()> {
        const STEP: u64 = 1 << 20;
        let zeros = AlignedBuf::zeroed(STEP.min(end.saturating_sub(start)) as usize);
        let mut offset = start;
        while offset < end {
            let step = STEP.min(end - offset) as usize;
            self.write_all_at(&zeros.as_slice()[..step], offset)?;
            offset += step as u64;
        }
        Ok(())
    }

    /// Reserves blocks for `[0, len)` and sets the length. On file systems without reservations
    /// this does nothing: the zeros written next allocate too.
    pub(super) fn allocate(&self, len: u64) -> rustix::io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.here()?;
        match retry(|| calls::fallocate(&self.fd, rustix::fs::FallocateFlags::empty(), 0, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => result,
        }
    }

    /// Sets the length.
    pub(super) fn set_len(&self, len: u64) -> rustix::io::Result<()> {
        self.here()?;
        retry(|| calls::ftruncate(&self.fd, len))
    }

    /// Makes the file durable. Must not be repeated after an error: the kernel reports a lost page
    /// once.
    pub(super) fn sync(&self, kind: SyncKind) -> rustix::io::Result<()> {
        self.here()?;
        retry(|| match kind {
            SyncKind::Data => calls::fdatasync(&self.fd),
            SyncKind::Full => calls::fsync(&self.fd),
        })
    }
}

fn switch_direct(fd: &OwnedFd, on: bool) -> rustix::io::Result<()> {
    let mut flags = calls::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, on);
    calls::fcntl_setfl(fd, flags)
}

/// Returns the error of every call after the first failure.
pub(super) fn poisoned(first: &Error) -> Error {
    first
        .clone()
        .with_kind(ErrorKind::Poisoned)
        .context("an earlier write or sync of this file failed, so its contents are unknown")
}

/// Returns the error of a write that began at `offset` and failed after `stored_bytes` bytes.
fn partial_write(handle: &Handle, (stored_bytes, e): (usize, Errno), offset: u64) -> PartialWrite {
    PartialWrite { stored_bytes, error: handle.fail("cannot write a file", e).at_offset(offset) }
}
