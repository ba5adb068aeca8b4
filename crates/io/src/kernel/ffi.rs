//! System calls without a safe wrapper: a write-back hint, I/O priority, randomness, CPU time,
//! handlers of `fork`.

use rustix::fd::{AsFd, AsRawFd, RawFd};
use std::io;

/// `IOPRIO_WHO_PROCESS`: a thread id, 0 for the calling thread.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// Class "best effort" (2), in the bits above 13, with its lowest level (7).
const IOPRIO_BEST_EFFORT_LOWEST: libc::c_int = (2 << 13) | 7;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Starts write-back of dirty pages of `[offset, offset + len)`, without waiting.
pub(super) fn start_writeback(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    sync_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until the pages of `[offset, offset + len)` are written back; reports errors of the
/// write-back. Does not make anything durable: neither metadata nor the device's cache is flushed.
pub(super) fn wait_writeback(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(fd, offset, len, all)
}

fn sync_range(fd: impl AsFd, offset: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
    let (Ok(offset), Ok(len)) = (libc::off64_t::try_from(offset), libc::off64_t::try_from(len)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: the descriptor is open for the whole call (it is borrowed); the call accesses no
    // memory of the process.
    check(unsafe { libc::sync_file_range(fd.as_fd().as_raw_fd(), offset, len, flags) })
}

/// Gives the calling thread the lowest best-effort I/O priority.
pub(super) fn lower_io_priority() -> io::Result<()> {
    // SAFETY: three integers go in, one comes out; no memory is touched.
    let result =
        unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_BEST_EFFORT_LOWEST) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the I/O priority of the calling thread, and the one that [`lower_io_priority`] sets.
#[cfg(test)]
pub(super) fn io_priorities() -> (libc::c_long, libc::c_long) {
    // SAFETY: two integers go in, one comes out; no memory is touched.
    let own = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
    (own, libc::c_long::from(IOPRIO_BEST_EFFORT_LOWEST))
}

/// Returns 8 random bytes of the kernel.
pub(super) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    loop {
        // SAFETY: the pointer and length describe `bytes`, which outlives the call.
        let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match n {
            8 => return Ok(u64::from_le_bytes(bytes)),
            // Requests this small are never cut short once the kernel's generator is seeded;
            // before, a signal may interrupt the wait for it.
            n if n >= 0 => continue,
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e => return Err(e),
            },
        }
    }
}

/// Registers `child`, which every child of `fork` calls before `fork` returns there.
pub(super) fn at_fork(child: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function has no arguments and lives as long as the program. For the limits of its
    // actions see `process`.
    match unsafe { libc::pthread_atfork(None, None, Some(child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Closes a descriptor by its number.
///
/// # Safety
///
/// The number is that of an open descriptor, which nothing in this process uses again.
pub(super) unsafe fn close(fd: RawFd) {
    // SAFETY: the caller's promise. A failure has no consequence: the number is free on Linux.
    unsafe { libc::close(fd) };
}

/// Returns the CPU time of all threads of the process, including ended ones, nanoseconds.
pub(super) fn process_cpu_ns() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to for the whole call.
    check(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) })?;
    let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
}
