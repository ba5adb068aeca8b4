//! Files written from front to back.
//!
//! Bytes collect in an aligned buffer that is written when it is full. Through the page cache, a
//! flush writes the buffer, which is then empty. With direct access only whole pages can be
//! written. So a flush pads the last page with zeros, writes it, and truncates the file to its true
//! length. The bytes of that page stay in the buffer, and the next write repeats them. Repeating
//! them is safe for durable data: sectors are written whole, and old and new sector begin with the
//! same bytes.
//!
//! ```text
//!   file     0 ........ start ................ on_file       (reserved)
//!   buffer              |== buffered =================|      bytes beyond `on_file` are not in the file yet
//! ```
//!
//! **Write-behind.** With direct access and a ring, full buffers are written while the next one
//! fills. Up to [`WRITES_MAX`] such writes are in flight, so the device stays busy even if a write
//! takes longer than filling a buffer. A flush and a sync wait for all of them; a full buffer waits
//! for the oldest if the limit is reached. The first of these calls reports a failure. So one
//! thread computes and writes at the same time.
//!
//! Invariants: `on_file <= start + buffered` = the length seen by the caller. With direct access
//! `start` is a multiple of the page. A failed write or sync poisons the file, since its contents
//! are then unknown.
//!
//! A length hint reserves blocks beyond the end of the file. Truncating the file releases them, as
//! file systems do. A full sync and the drop of the file cut off unused blocks, so that the
//! allocated space is accurate.

use super::calls;
use super::handle::{Handle, poisoned, retry};
use super::read::Engine;
use super::uring::{Ended, RingPool, TransferOutcome, WRITES_MAX, Writer};
use crate::{Access, AlignedBuf, AppendFile, CreateOptions, PAGE, SyncKind};
use base::{Error, ErrorKind, Result};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, OFlags};
use std::path::Path;
use std::sync::Arc;

pub(super) struct KernelAppendFile {
    handle: Handle,
    buf: AlignedBuf,
    buffered: usize,
    start: u64,
    on_file: u64,
    /// End of the reserved blocks; 0: none.
    reserved: u64,
    /// More blocks may be reserved, by a reservation that ran out of space.
    reserved_in_part: bool,
    writeback: Writeback,
    engine: Arc<Engine>,
    /// A ring, present from the first full buffer on.
    behind: Option<Writer>,
    /// Written buffers for reuse.
    spare: Vec<AlignedBuf>,
    poison: Option<Error>,
}

/// Stepwise write-back of the page cache: waiting for the previous step bounds the work of the
/// final sync.
#[derive(Default)]
struct Writeback {
    step: u64,
    started: u64,
    waited: u64,
}

impl KernelAppendFile {
    pub(super) fn create(path: &Path, options: &CreateOptions, engine: Arc<Engine>) -> Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let handle = Handle::open("cannot create a file", path, flags, options.access)?;
        let capacity = options.write_buffer_len.max(PAGE).next_multiple_of(PAGE);
        let step = if options.access == Access::Buffered { options.sync_every } else { 0 };
        let mut file = KernelAppendFile {
            handle,
            buf: AlignedBuf::zeroed(capacity),
            buffered: 0,
            start: 0,
            on_file: 0,
            reserved: 0,
            reserved_in_part: false,
            writeback: Writeback { step, ..Writeback::default() },
            engine,
            behind: None,
            spare: Vec::new(),
            poison: None,
        };
        file.reserve_expected(options.expected_len);
        Ok(file)
    }

    fn reserve_expected(&mut self, len: u64) {
        // A hint: a file system without reservations, or without enough space, continues without
        // it.
        let keep = FallocateFlags::KEEP_SIZE;
        if len == 0 {
            return;
        }
        if retry(|| calls::fallocate(&self.handle.fd, keep, 0, len)).is_ok() {
            self.reserved = len;
        } else {
            // The file system may have reserved a part before it ran out of space.
            let _ = self.handle.set_len(0);
        }
    }

    /// Runs a step that changes the file; its first failure poisons the file.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.handle.check_process()?;
        if let Some(first) = &self.poison {
            return Err(poisoned(first));
        }
        let result = step(self);
        if let Err(e) = &result {
            self.poison = Some(e.clone());
        }
        result
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        let result = self.handle.write_all_at(data, offset);
        result.map_err(|e| self.handle.fail("cannot write a file", e).at_offset(offset))
    }

    /// Sets the file's length to the appended length, which also frees reserved blocks behind it.
    fn cut(&mut self, len: u64) -> Result<()> {
        self.handle.set_len(len).map_err(|e| self.handle.fail("cannot set the length of a file", e))?;
        (self.reserved, self.reserved_in_part) = (0, false);
        Ok(())
    }

    fn append_bytes(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if self.buffered == 0 && data.len() >= self.buf.capacity() && !self.handle.is_direct() {
                self.write(data, self.start)?;
                self.advance(data.len());
                return self.write_back();
            }
            let room = self.buf.capacity() - self.buffered;
            let (now, later) = data.split_at(room.min(data.len()));
            self.buf.as_mut_slice()[self.buffered..][..now.len()].copy_from_slice(now);
            self.buffered += now.len();
            data = later;
            if self.buffered == self.buf.capacity() {
                self.write_full()?;
                self.buffered = 0;
                self.advance(self.buf.capacity());
                self.write_back()?;
            }
        }
        Ok(())
    }

    /// Writes the full buffer, or starts its write.
    fn write_full(&mut self) -> Result<()> {
        self.wait_behind(WRITES_MAX - 1)?;
        if self.handle.is_direct() && self.behind.is_none() {
            self.behind = self.engine.rings.as_ref().and_then(RingPool::writer);
        }
        let Some(behind) = self.behind.as_mut().filter(|_| self.handle.is_direct()) else {
            return self.write(self.buf.as_slice(), self.start);
        };
        let capacity = self.buf.capacity();
        let empty = self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        let full = std::mem::replace(&mut self.buf, empty);
        match behind.start(self.handle.fd.as_fd(), full, capacity, self.start) {
            Ok(()) => Ok(()),
            Err(full) => {
                self.spare.push(std::mem::replace(&mut self.buf, full));
                self.write(self.buf.as_slice(), self.start)
            }
        }
    }

    /// Waits until at most `most` writes are in flight, the oldest first. An incomplete write is
    /// finished here, which gives the exact error.
    fn wait_behind(&mut self, most: usize) -> Result<()> {
        while let Some(behind) = self.behind.as_mut().filter(|behind| behind.in_flight() > most) {
            let Some(Ended { buf, offset, outcome }) = behind.finish() else { return Ok(()) };
            let done = match outcome {
                TransferOutcome::Done(n) => n.min(buf.len()),
                TransferOutcome::NotRun | TransferOutcome::Failed(_) => 0,
            };
            // Direct writes begin at pages.
            let done = done - done % PAGE;
            let result = self.write(&buf.as_slice()[done..], offset + done as u64);
            self.spare.push(buf);
            result?;
        }
        Ok(())
    }

    /// Moves an empty buffer past `n` bytes that were just written.
    fn advance(&mut self, n: usize) {
        assert_eq!(self.buffered, 0, "bytes left in the buffer");
        self.start += n as u64;
        self.on_file = self.start;
    }

    fn write_back(&mut self) -> Result<()> {
        let w = &mut self.writeback;
        if w.step == 0 || self.start - w.started < w.step {
            return Ok(());
        }
        let (waited, started, end) = (w.waited, w.started, self.start);
        (w.waited, w.started) = (started, end);
        let mut result = calls::start_writeback(&self.handle.fd, started, end - started);
        if result.is_ok() && started > waited {
            result = calls::wait_writeback(&self.handle.fd, waited, started - waited);
        }
        match result {
            // On a file system without the call the final sync does all the work.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                self.writeback.step = 0;
                Ok(())
            }
            result => result.map_err(|e| {
                self.handle.fail("cannot write the cached pages of a file back", e).at_offset(waited)
            }),
        }
    }

    fn flush_buffer(&mut self) -> Result<()> {
        self.wait_behind(0)?;
        let len = self.len();
        if self.on_file == len {
            return Ok(());
        }
        if !self.handle.is_direct() {
            self.write(&self.buf.as_slice()[..self.buffered], self.start)?;
            let n = std::mem::take(&mut self.buffered);
            self.advance(n);
            return self.write_back();
        }
        let padded = self.buffered.next_multiple_of(PAGE);
        self.buf.as_mut_slice()[self.buffered..padded].fill(0);
        self.write(&self.buf.as_slice()[..padded], self.start)?;
        if padded != self.buffered {
            // `NoSpace` would claim that bytes are missing.
            self.cut(len).map_err(|e| e.with_kind(ErrorKind::Io))?;
        }
        let whole = self.buffered - self.buffered % PAGE;
        self.buf.as_mut_slice().copy_within(whole..padded, 0);
        self.start += whole as u64;
        self.buffered -= whole;
        self.on_file = len;
        Ok(())
    }
}

impl AppendFile for KernelAppendFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.guarded(|f| f.append_bytes(data))
    }

    fn reserve(&mut self, len: u64) -> Result<()> {
        self.handle.check_process()?;
        let from = self.reserved.max(self.on_file);
        let Some(more) = len.checked_sub(from).filter(|more| *more > 0) else { return Ok(()) };
        match retry(|| calls::fallocate(&self.handle.fd, FallocateFlags::KEEP_SIZE, from, more)) {
            Ok(()) => {
                self.reserved = len;
                Ok(())
            }
            // A partial reservation is released with the rest, at the end.
            Err(e @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => {
                self.reserved_in_part = true;
                Err(self.handle.fail("cannot reserve space for a file", e))
            }
            Err(_) => Ok(()),
        }
    }

    fn len(&self) -> u64 {
        self.start + self.buffered as u64
    }

    fn flush(&mut self) -> Result<()> {
        self.guarded(Self::flush_buffer)
    }

    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        self.guarded(|f| f.wait_behind(most))
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.guarded(|f| {
            f.flush_buffer()?;
            if kind == SyncKind::Full && (f.reserved > f.len() || f.reserved_in_part) {
                f.cut(f.len())?;
            }
            f.handle.sync(kind).map_err(|e| f.handle.fail("cannot sync a file", e))
        })
    }
}

impl Drop for KernelAppendFile {
    fn drop(&mut self) {
        if self.handle.check_process().is_err() {
            return;
        }
        let settled = self.wait_behind(0);
        if let (Some(rings), Some(mut writer)) = (&self.engine.rings, self.behind.take()) {
            // After a failure the other results do not matter, but the kernel must be done with the
            // buffers.
            while writer.finish().is_some() {}
            rings.put_writer(writer);
        }
        if settled.is_err() {
            return;
        }
        if self.poison.is_none() && (self.reserved > self.on_file || self.reserved_in_part) {
            // Best effort: a failure leaves blocks reserved until the file is removed, and nothing
            // else.
            let _ = self.handle.set_len(self.on_file);
        }
    }
}
