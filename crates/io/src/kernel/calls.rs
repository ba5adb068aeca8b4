//! Table of system calls: every call of this crate to the operating system goes through a function
//! of this module.
//!
//! Each function is just the call. With the feature `faults`, which only campaigns and tests
//! enable, `watch` sees each call first: it may make the call fail or come back short, and it logs
//! the call. Without the feature the functions inline to the calls.
//!
//! A test of the code base (`structure`) refuses calls that bypass the table. Tests of this module
//! show that each function reaches the kernel with its arguments; the log is only as true as that.

#[cfg(feature = "faults")]
pub mod watch;

#[cfg(test)]
mod tests;

pub(super) use super::ffi::{at_fork, close, process_cpu_ns, random_u64};

use super::ffi;
use io_uring::IoUring;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, Stat, StatVfs, Statx,
    StatxFlags,
};
use rustix::io::{Errno, ReadWriteFlags, Result};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::ffi::{CStr, c_void};
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::path::Path;

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `openat`, which may create the file.
    Open,
    /// `pread`
    Read,
    /// `pwrite`
    Write,
    /// `pwritev2` with `RWF_DSYNC`
    DurableWrite,
    /// `fdatasync`
    DataSync,
    /// `fsync`, of a file or a directory
    FullSync,
    /// `msync`, which flushes a raw device
    Flush,
    /// `ftruncate`
    SetLen,
    /// `fallocate` that reserves blocks
    Allocate,
    /// `fallocate` that frees them
    Punch,
    /// `sync_file_range`
    WriteBack,
    /// `stat`, `fstat`, `statx`, `lseek`
    Stat,
    /// `statvfs`
    Space,
    /// `getdents`
    List,
    /// `rename`
    Rename,
    /// `unlink`
    Unlink,
    /// `link`
    Link,
    /// `mkdir`
    MakeDir,
    /// `rmdir`
    RemoveDir,
    /// `flock`
    Lock,
    /// `fcntl`
    Flags,
    /// `mmap` of the page by which a raw device is flushed, and of the page that a child finds
    /// cleared; `madvise` of the latter
    Map,
    /// `io_uring_setup`
    RingSetup,
    /// `io_uring_enter`
    RingSubmit,
    /// Completion of a read of a ring
    RingRead,
    /// Completion of a write of a ring
    RingWrite,
    /// `eventfd`, and the write that signals it
    Event,
    /// `getpriority`, `setpriority`, of the calling thread
    CpuPriority,
    /// `ioprio_set`, of the calling thread
    IoPriority,
}

/// Path that stands for the calling thread in a watch: the kernel shows threads there.
pub const THREADS: &str = "/proc/self/task";

/// Object of a call.
#[cfg_attr(not(feature = "faults"), allow(dead_code, reason = "only the test form looks at it"))]
#[derive(Clone, Copy)]
enum Of<'a> {
    Fd(BorrowedFd<'a>),
    Path(&'a Path),
    Paths(&'a Path, &'a Path),
    Nothing,
}

#[cfg(feature = "faults")]
use watch::{judged, judged_open, transferred};

#[cfg(not(feature = "faults"))]
#[inline(always)]
fn judged<T>(_: Call, _: Of<'_>, _: u64, call: impl FnOnce() -> Result<T>) -> Result<T> {
    call()
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
fn judged_open(_: &Path, _: OFlags, call: impl FnOnce() -> Result<OwnedFd>) -> Result<OwnedFd> {
    call()
}

/// `bytes`: the bytes to write, or the number of bytes to read.
#[cfg(not(feature = "faults"))]
#[inline(always)]
fn transferred(
    _: Call,
    _: BorrowedFd<'_>,
    _: u64,
    bytes: Bytes<'_>,
    call: impl FnOnce(usize) -> Result<usize>,
) -> Result<usize> {
    call(bytes.len)
}

/// Bytes of a transfer.
#[cfg_attr(not(feature = "faults"), allow(dead_code, reason = "only the test form looks at the bytes"))]
#[derive(Clone, Copy)]
struct Bytes<'a> {
    len: usize,
    /// The bytes to write; empty for a read.
    data: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn written(data: &'a [u8]) -> Bytes<'a> {
        Bytes { len: data.len(), data }
    }

    fn read(len: usize) -> Bytes<'a> {
        Bytes { len, data: &[] }
    }
}

#[inline]
pub(super) fn open(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    judged_open(path, flags, || rustix::fs::open(path, flags, mode))
}

#[inline]
pub(super) fn pread(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize> {
    let fd = fd.as_fd();
    let len = buf.len();
    transferred(Call::Read, fd, offset, Bytes::read(len), |n| rustix::io::pread(fd, &mut buf[..n], offset))
}

#[inline]
pub(super) fn pwrite(fd: impl AsFd, data: &[u8], offset: u64) -> Result<usize> {
    let fd = fd.as_fd();
    let bytes = Bytes::written(data);
    transferred(Call::Write, fd, offset, bytes, |n| rustix::io::pwrite(fd, &data[..n], offset))
}

/// Writes, durably on return.
#[inline]
pub(super) fn pwrite_durable(fd: impl AsFd, data: &[u8], offset: u64) -> Result<usize> {
    let fd = fd.as_fd();
    let flags = ReadWriteFlags::DSYNC;
    transferred(Call::DurableWrite, fd, offset, Bytes::written(data), |n| {
        rustix::io::pwritev2(fd, &[IoSlice::new(&data[..n])], offset, flags)
    })
}

#[inline]
pub(super) fn fdatasync(fd: impl AsFd) -> Result<()> {
    judged(Call::DataSync, Of::Fd(fd.as_fd()), 0, || rustix::fs::fdatasync(&fd))
}

#[inline]
pub(super) fn fsync(fd: impl AsFd) -> Result<()> {
    judged(Call::FullSync, Of::Fd(fd.as_fd()), 0, || rustix::fs::fsync(&fd))
}

#[inline]
pub(super) fn ftruncate(fd: impl AsFd, len: u64) -> Result<()> {
    judged(Call::SetLen, Of::Fd(fd.as_fd()), len, || rustix::fs::ftruncate(&fd, len))
}

#[inline]
pub(super) fn fallocate(fd: impl AsFd, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    let call = if flags.contains(FallocateFlags::PUNCH_HOLE) { Call::Punch } else { Call::Allocate };
    // Allocation beyond the end makes the file longer, unless `KEEP_SIZE` is set.
    let end = if flags.contains(FallocateFlags::KEEP_SIZE) { 0 } else { offset + len };
    judged(call, Of::Fd(fd.as_fd()), end, || rustix::fs::fallocate(&fd, flags, offset, len))
}

#[inline]
pub(super) fn start_writeback(fd: impl AsFd, offset: u64, len: u64) -> std::io::Result<()> {
    judged(Call::WriteBack, Of::Fd(fd.as_fd()), 0, || ffi::start_writeback(&fd, offset, len).map_err(errno))
        .map_err(Into::into)
}

#[inline]
pub(super) fn wait_writeback(fd: impl AsFd, offset: u64, len: u64) -> std::io::Result<()> {
    judged(Call::WriteBack, Of::Fd(fd.as_fd()), 0, || ffi::wait_writeback(&fd, offset, len).map_err(errno))
        .map_err(Into::into)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[inline]
pub(super) fn fstat(fd: impl AsFd) -> Result<Stat> {
    judged(Call::Stat, Of::Fd(fd.as_fd()), 0, || rustix::fs::fstat(&fd))
}

/// Flag of `statx` for the alignment of direct access (kernel 6.1 or later); rustix has no name for
/// it.
pub(super) const STATX_DIOALIGN: u32 = 0x2000;

#[inline]
pub(super) fn statx_direct(fd: impl AsFd) -> Result<Statx> {
    let mask = StatxFlags::from_bits_retain(STATX_DIOALIGN);
    judged(Call::Stat, Of::Fd(fd.as_fd()), 0, || rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, mask))
}

#[inline]
pub(super) fn stat(path: &Path) -> Result<Stat> {
    judged(Call::Stat, Of::Path(path), 0, || rustix::fs::stat(path))
}

#[inline]
pub(super) fn statat(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Stat> {
    judged(Call::Stat, Of::Fd(dir.as_fd()), 0, || rustix::fs::statat(&dir, name, flags))
}

#[inline]
pub(super) fn seek(fd: impl AsFd, to: SeekFrom) -> Result<u64> {
    judged(Call::Stat, Of::Fd(fd.as_fd()), 0, || rustix::fs::seek(&fd, to))
}

#[inline]
pub(super) fn statvfs(path: &Path) -> Result<StatVfs> {
    judged(Call::Space, Of::Path(path), 0, || rustix::fs::statvfs(path))
}

#[inline]
pub(super) fn read_dir(fd: impl AsFd) -> Result<Dir> {
    judged(Call::List, Of::Fd(fd.as_fd()), 0, || Dir::read_from(&fd))
}

#[inline]
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    judged(Call::Rename, Of::Paths(from, to), 0, || rustix::fs::rename(from, to))
}

#[inline]
pub(super) fn unlink(path: &Path) -> Result<()> {
    judged(Call::Unlink, Of::Path(path), 0, || rustix::fs::unlink(path))
}

#[inline]
pub(super) fn link(from: &Path, to: &Path) -> Result<()> {
    judged(Call::Link, Of::Paths(from, to), 0, || rustix::fs::link(from, to))
}

#[inline]
pub(super) fn mkdir(path: &Path) -> Result<()> {
    judged(Call::MakeDir, Of::Path(path), 0, || rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)))
}

#[inline]
pub(super) fn rmdir(path: &Path) -> Result<()> {
    judged(Call::RemoveDir, Of::Path(path), 0, || rustix::fs::rmdir(path))
}

#[inline]
pub(super) fn flock(fd: impl AsFd, operation: FlockOperation) -> Result<()> {
    judged(Call::Lock, Of::Fd(fd.as_fd()), 0, || rustix::fs::flock(&fd, operation))
}

#[inline]
pub(super) fn fcntl_getfl(fd: impl AsFd) -> Result<OFlags> {
    judged(Call::Flags, Of::Fd(fd.as_fd()), 0, || rustix::fs::fcntl_getfl(&fd))
}

#[inline]
pub(super) fn fcntl_setfl(fd: impl AsFd, flags: OFlags) -> Result<()> {
    judged(Call::Flags, Of::Fd(fd.as_fd()), 0, || rustix::fs::fcntl_setfl(&fd, flags))
}

/// Gives a hint; its result is ignored.
#[inline]
pub(super) fn fadvise(fd: impl AsFd, offset: u64, len: Option<NonZeroU64>, advice: Advice) {
    let _ = rustix::fs::fadvise(fd, offset, len, advice);
}

/// Maps the first `len` bytes of a file, shared.
#[inline]
pub(super) fn map_shared(fd: impl AsFd, len: usize) -> Result<*mut c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    judged(Call::Map, Of::Fd(fd.as_fd()), 0, || {
        // SAFETY: a new mapping at an address of the kernel's choice cannot overlap memory in use.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &fd, 0) }
    })
}

/// Maps `len` bytes of zeros that belong to no file.
#[inline]
pub(super) fn map_private(len: usize) -> Result<*mut c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    judged(Call::Map, Of::Nothing, 0, || {
        // SAFETY: as in `map_shared`.
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) }
    })
}

/// Makes the kernel clear a mapping in every child.
///
/// # Safety
/// The range is a mapping of [`map_private`] that lives during the call.
#[inline]
pub(super) unsafe fn wipe_on_fork(start: *mut c_void, len: usize) -> Result<()> {
    let advice = rustix::mm::Advice::LinuxWipeOnFork;
    // SAFETY: the caller's promise; the memory of this process stays as it is.
    judged(Call::Map, Of::Nothing, 0, || unsafe { rustix::mm::madvise(start, len, advice) })
}

/// # Safety
/// The range is a mapping that lives during the call.
#[inline]
pub(super) unsafe fn msync(start: *mut c_void, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    judged(Call::Flush, Of::Nothing, 0, || unsafe { rustix::mm::msync(start, len, MsyncFlags::SYNC) })
}

/// # Safety
///
/// The range is a whole mapping, and no reference into it exists any more.
#[inline]
pub(super) unsafe fn munmap(start: *mut c_void, len: usize) {
    // A failure could only mean that it is not a mapping; then there is nothing to give back.
    // SAFETY: the caller's promise.
    let _ = unsafe { rustix::mm::munmap(start, len) };
}

/// Creates an event that a ring can wait for.
#[inline]
pub(super) fn event() -> Result<OwnedFd> {
    judged(Call::Event, Of::Nothing, 0, || rustix::event::eventfd(0, EventfdFlags::CLOEXEC))
}

/// Signals an event. It stays signaled until it is read, however often it is signaled meanwhile.
#[inline]
pub(super) fn signal(event: impl AsFd) -> Result<()> {
    judged(Call::Event, Of::Nothing, 0, || rustix::io::write(&event, &1u64.to_ne_bytes()).map(drop))
}

/// Returns the nice value of the calling thread.
#[inline]
pub(super) fn niceness() -> Result<i32> {
    // On Linux "this process" (`None`) means the calling thread.
    let of = Of::Path(Path::new(THREADS));
    judged(Call::CpuPriority, of, 0, || rustix::process::getpriority_process(None))
}

/// Sets the nice value. Raising it needs no privilege.
#[inline]
pub(super) fn set_niceness(nice: i32) -> Result<()> {
    let of = Of::Path(Path::new(THREADS));
    judged(Call::CpuPriority, of, 0, || rustix::process::setpriority_process(None, nice))
}

/// Gives the calling thread the lowest I/O priority that is not idle.
#[inline]
pub(super) fn lower_io_priority() -> Result<()> {
    let of = Of::Path(Path::new(THREADS));
    judged(Call::IoPriority, of, 0, || ffi::lower_io_priority().map_err(errno))
}

/// Returns the soft limit of the descriptors of the process.
#[inline]
pub(super) fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns how late the kernel may wake the calling thread to batch wake-ups, nanoseconds; 0:
/// unknown.
#[inline]
pub(super) fn timer_slack_ns() -> u64 {
    rustix::thread::current_timer_slack().unwrap_or(0)
}

/// Sets the timer slack. The result is ignored: without it a sleep is somewhat longer.
#[inline]
pub(super) fn set_timer_slack(ns: NonZeroU64) {
    let _ = rustix::thread::set_current_timer_slack(Some(ns));
}

#[inline]
pub(super) fn ring_setup(depth: u32) -> std::io::Result<IoUring> {
    let mut made = None;
    let ring = judged(Call::RingSetup, Of::Nothing, 0, || {
        made = Some(IoUring::new(depth));
        Ok(())
    });
    ring?;
    made.unwrap_or_else(|| Err(std::io::Error::other("no ring was set up")))
}

/// Sets up a ring whose completions are polled at the device.
#[inline]
pub(super) fn ring_setup_polled(depth: u32) -> std::io::Result<IoUring> {
    let mut made = None;
    let ring = judged(Call::RingSetup, Of::Nothing, 0, || {
        made = Some(IoUring::builder().setup_iopoll().build(depth));
        Ok(())
    });
    ring?;
    made.unwrap_or_else(|| Err(std::io::Error::other("no ring was set up")))
}

/// Submits the pushed entries, and waits for `wait` completions. `of`: a file of the transfers.
#[inline]
pub(super) fn ring_submit(ring: &IoUring, of: BorrowedFd<'_>, wait: usize) -> std::io::Result<usize> {
    judged(Call::RingSubmit, Of::Fd(of), 0, || ring.submit_and_wait(wait).map_err(errno)).map_err(Into::into)
}

/// Converts the result of a ring's read: bytes, or a negative error.
#[inline]
pub(super) fn ring_read(fd: BorrowedFd<'_>, offset: u64, len: usize, result: i32) -> Result<usize> {
    let done = || usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()));
    transferred(Call::RingRead, fd, offset, Bytes::read(len), |n| done().map(|done| done.min(n)))
}

/// Converts the result of a ring's write.
#[inline]
pub(super) fn ring_write(fd: BorrowedFd<'_>, offset: u64, data: &[u8], result: i32) -> Result<usize> {
    let done = || usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()));
    transferred(Call::RingWrite, fd, offset, Bytes::written(data), |n| done().map(|done| done.min(n)))
}
