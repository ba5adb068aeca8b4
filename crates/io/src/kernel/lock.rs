//! Exclusive locks that name their holder.
//!
//! The lock is `flock` on a file, which the kernel releases at any end of the process. The file
//! contains one line about the holder, for the error message of the next process. In addition, a
//! table in this process lists the files it holds, by device and inode: network file systems turn
//! `flock` into record locks, which do not conflict within a process.
//!
//! The table is the only process-wide state: two environments of one process share its locks. A
//! child process begins with an empty table, and the locks of its parent are to it those of another
//! process.

use super::calls;
use super::handle::{fail, must_be_plain, retry};
use super::process::{GivenUp, PerProcess};
use crate::FileLock;
use base::process::Process;
use base::sync::leaf::{Mutex, MutexGuard};
use base::sync::rank;
use base::{Error, ErrorKind, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;

/// The longest line that is written, in characters of up to 4 bytes.
const HOLDER_CHARS_MAX: usize = 250;
const HOLDER_BYTES_MAX: usize = 4 * HOLDER_CHARS_MAX;
/// How often the file may be replaced during an attempt before the attempt fails.
const REPLACED_MAX: u32 = 16;

/// Device and inode of a locked file.
type FileId = (u64, u64);

/// The locks of this process, with their holders.
static HELD: PerProcess<Mutex<BTreeMap<FileId, String>, rank::KernelLocks>> = PerProcess::new();

#[derive(Debug)]
struct KernelLock {
    id: FileId,
    /// Present until the drop.
    fd: Option<(GivenUp, OwnedFd)>,
    /// The file holds only the holder's line.
    has_line: bool,
    /// The owner process.
    process: Process,
}

impl KernelLock {
    fn new(id: FileId, fd: OwnedFd, has_line: bool) -> KernelLock {
        let fd = Some((GivenUp::new(fd.as_raw_fd()), fd));
        KernelLock { id, fd, has_line, process: Process::here() }
    }
}

impl FileLock for KernelLock {}

fn held() -> MutexGuard<'static, BTreeMap<FileId, String>> {
    base::sync::leaf::lock(HELD.get())
}

#[allow(clippy::unnecessary_cast, reason = "the width of these fields depends on the architecture")]
fn id(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

fn one_line(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(HOLDER_CHARS_MAX).collect::<String>().trim().to_owned()
}

fn locked(path: &Path, holder: &str) -> Error {
    let holder = if holder.is_empty() { "an unknown process" } else { holder };
    let why = format!("the lock is held by {holder}; close it first, or open a copy");
    Error::new(ErrorKind::Locked, why).at_file(path)
}

fn read_holder(fd: &OwnedFd) -> String {
    let mut bytes = [0; HOLDER_BYTES_MAX];
    let len = retry(|| calls::pread(fd, &mut bytes, 0)).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..len]);
    one_line(text.lines().next().unwrap_or(""))
}

/// Takes the lock of `path`.
pub(super) fn lock(path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
    let action = "cannot lock a file";
    // The table stays locked meanwhile, so that two threads cannot both find a file free.
    let mut held = held();
    for _ in 0..REPLACED_MAX {
        // A lock of this process is found by its path, without opening the file: on some network
        // file systems, closing a second descriptor would release the lock of the first.
        if let Some(line) = calls::stat(path).ok().and_then(|stat| held.get(&id(&stat))) {
            return Err(locked(path, line));
        }
        must_be_plain(path)?;
        // Through a link, the lock would truncate and write a foreign file.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| calls::open(path, flags, Mode::from_raw_mode(0o666)))
            .map_err(|e| fail(action, path, e))?;
        match retry(|| calls::flock(&fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(locked(path, &read_holder(&fd))),
            Err(e) => return Err(fail(action, path, e)),
        }
        let opened = id(&calls::fstat(&fd).map_err(|e| fail(action, path, e))?);
        // The former holder may have removed the file between the open and the lock.
        if calls::stat(path).is_ok_and(|named| id(&named) == opened) {
            let line = one_line(holder);
            // Best effort: the line is only for messages, and a full disk must not keep a store
            // from being opened.
            let _ = write_holder(&fd, &line);
            held.insert(opened, line);
            return Ok(Box::new(KernelLock::new(opened, fd, true)));
        }
    }
    Err(Error::new(ErrorKind::Busy, "the lock file is being replaced repeatedly; try again").at_file(path))
}

/// Takes the lock of a file with contents of its own, which stay unchanged: a device or an image.
/// `shared`: compatible with other shared locks.
pub(super) fn lock_contents(path: &Path, shared: bool) -> Result<Box<dyn FileLock>> {
    let action = "cannot lock a device";
    let mut held = held();
    if let Some(line) = calls::stat(path).ok().and_then(|stat| held.get(&id(&stat))) {
        return Err(locked(path, line));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = retry(|| calls::open(path, flags, Mode::empty())).map_err(|e| fail(action, path, e))?;
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match retry(|| calls::flock(&fd, operation)) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(locked(path, "another process that has it open")),
        Err(e) => return Err(fail(action, path, e)),
    }
    let opened = id(&calls::fstat(&fd).map_err(|e| fail(action, path, e))?);
    if !shared {
        held.insert(opened, format!("this process ({})", std::process::id()));
    }
    Ok(Box::new(KernelLock::new(opened, fd, false)))
}

fn write_holder(fd: &OwnedFd, line: &str) -> rustix::io::Result<()> {
    retry(|| calls::ftruncate(fd, 0))?;
    retry(|| calls::pwrite(fd, format!("{line}\n").as_bytes(), 0)).map(|_| ())
}

impl Drop for KernelLock {
    fn drop(&mut self) {
        let Some((given_up, fd)) = self.fd.take() else { return };
        if !self.process.is_here() {
            // The child's start closed this descriptor, whose number may now belong to another
            // file; the lock is the parent's.
            std::mem::forget((given_up, fd));
            return;
        }
        let mut held = held();
        if self.has_line {
            // Best effort: a stale line is only for messages, since the lock itself is free.
            let _ = calls::ftruncate(&fd, 0);
        }
        // Closing alone is not enough: a child that another thread has just forked shares the lock
        // until its `exec`. If unlocking fails, closing still releases the lock a moment later.
        let _ = calls::flock(&fd, FlockOperation::Unlock);
        // The kernel's lock first, so that the next caller does not meet it after the table said
        // free.
        drop(given_up);
        drop(fd);
        held.remove(&self.id);
    }
}
