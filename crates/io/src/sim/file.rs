//! Handles of simulated files.

use super::SECTOR;
use super::disk::{Change, Ino};
use super::fault::{EIO, ENOSPC, OpKind, Verdict, os_error};
use super::fs::shown;
use super::world::{SharedWorld, World};
use crate::{
    AlignedBuf, AppendFile, CreateOptions, FileLock, InPlaceFile, PAGE, PartialWrite, ReadFile, ReadRequest,
    ScratchFile, SyncKind,
};
use base::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file. Its contents exist as long as this does, with or without a name.
pub(super) struct OpenFile {
    pub(super) shared: Arc<SharedWorld>,
    pub(super) ino: Ino,
    pub(super) path: PathBuf,
    pub(super) shown: Arc<str>,
}

impl OpenFile {
    pub(super) fn new(shared: Arc<SharedWorld>, world: &mut World, ino: Ino, path: &Path) -> Self {
        world.opened(ino);
        OpenFile { shared, ino, path: path.to_owned(), shown: shown(path) }
    }

    #[track_caller]
    pub(super) fn op<T>(
        &self,
        kind: OpKind,
        path: &Arc<str>,
        range: (u64, u64),
        body: impl FnOnce(&mut World, Verdict) -> Result<T>,
    ) -> Result<T> {
        self.shared.op_of(Some(self.ino), kind, path, range, body)
    }

    pub(super) fn len(&self) -> Result<u64> {
        self.op(OpKind::Metadata, &self.shown, (0, 0), |world, verdict| {
            verdict.all_or_nothing()?;
            Ok(world.disk.file(self.ino).live.len())
        })
    }

    pub(super) fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let offset = requests.first().map_or(0, |r| r.offset);
        let len = requests.iter().map(|r| r.buf.len() as u64).sum();
        self.op(OpKind::Read, &self.shown, (offset, len), |world, verdict| {
            let flip = matches!(verdict, Verdict::FlippedRead);
            verdict.all_or_nothing()?;
            let further = (requests.len() as u64).saturating_sub(1);
            self.shared.clock.advance(further * world.costs.further_read_ns);
            let file = world.disk.file(self.ino);
            let content = &file.live;
            for request in requests.iter_mut() {
                if let Some(sector) = file.unreadable_in(request.offset, request.buf.len() as u64) {
                    let error =
                        os_error(EIO, "read a sector that was being written at a loss of power", &self.path);
                    return Err(error.at_offset(sector * SECTOR as u64));
                }
                let end = request.offset.checked_add(request.buf.len() as u64);
                if end.is_none_or(|end| end > content.len()) {
                    let (wanted, has) = (request.buf.len(), content.len());
                    let why = format!("the file ends at byte {has}, inside a read of {wanted} bytes");
                    return Err(Error::corruption(why).at_file(&self.path).at_offset(request.offset));
                }
                content.read(request.offset, request.buf);
            }
            if flip && len > 0 {
                let nth = world.rng.below(requests.len() as u64) as usize;
                let buf = &mut *requests[nth].buf;
                let at = world.rng.below(buf.len() as u64) as usize;
                if let Some(byte) = buf.get_mut(at) {
                    *byte ^= 1 << world.rng.below(8);
                }
            }
            Ok(())
        })
    }

    pub(super) fn write(&self, kind: OpKind, offset: u64, data: &[u8]) -> Result<()> {
        let range = (offset, data.len() as u64);
        let durable = kind == OpKind::WriteDurable;
        let put = |world: &mut World, offset, data: &[u8], durable| {
            if !data.is_empty() {
                world.apply(Change::Write { ino: self.ino, offset, data: data.into(), durable });
            }
        };
        // The file system assumes that the bytes of an append exist, even if the device lost them.
        let lengthen = |world: &mut World| {
            if kind == OpKind::Append {
                put(world, offset, &vec![0; data.len()], false);
            }
        };
        self.op(kind, &self.shown, range, |world, verdict| {
            match &verdict {
                Verdict::Refused(_) => {}
                Verdict::Fail(_) | Verdict::Short(_) => {
                    let unit = if kind == OpKind::Append { 1 } else { SECTOR };
                    let units = verdict.written((data.len() / unit) as u64, &mut world.rng) as usize;
                    // A file system without space has not stored all of the bytes.
                    let is_refused = kind == OpKind::Append
                        && matches!(&verdict, Verdict::Fail(e) if e.kind() == ErrorKind::NoSpace);
                    let units =
                        if is_refused { units.min((data.len() / unit).saturating_sub(1)) } else { units };
                    put(world, offset, &data[..units * unit], false);
                }
                Verdict::Lost => lengthen(world),
                Verdict::Misdirected => {
                    lengthen(world);
                    if let Some(elsewhere) = self.elsewhere(world, kind, range) {
                        put(world, elsewhere, data, durable);
                    }
                }
                Verdict::Go | Verdict::FlippedRead => {
                    let fits = world.room_for(self.ino, offset, data.len());
                    put(world, offset, &data[..fits], durable && fits == data.len());
                    if fits < data.len() {
                        return Err(os_error(ENOSPC, "write to a full volume", &self.path));
                    }
                }
            }
            verdict.all_or_nothing()
        })
    }

    /// Writes; a failed write returns how much of it was stored, which is never all.
    pub(super) fn write_scratch(&self, offset: u64, data: &[u8]) -> std::result::Result<(), PartialWrite> {
        let range = (offset, data.len() as u64);
        let mut stored_bytes = 0;
        let written = self.op(OpKind::ScratchWrite, &self.shown, range, |world, verdict| {
            stored_bytes = match &verdict {
                Verdict::Fail(_) | Verdict::Refused(_) | Verdict::Short(_) => {
                    let part = verdict.written(data.len() as u64, &mut world.rng) as usize;
                    part.min(data.len().saturating_sub(1))
                }
                Verdict::Lost | Verdict::Misdirected => 0,
                Verdict::Go | Verdict::FlippedRead => data.len(),
            };
            if stored_bytes > 0 {
                let data = data[..stored_bytes].into();
                world.apply(Change::Write { ino: self.ino, offset, data, durable: false });
            }
            verdict.all_or_nothing()
        });
        written.map_err(|error| PartialWrite { stored_bytes, error })
    }

    /// Returns another place of the file for a misdirected write, if there is one.
    fn elsewhere(&self, world: &mut World, kind: OpKind, (offset, len): (u64, u64)) -> Option<u64> {
        if kind == OpKind::Append {
            // Before the appended bytes, so that the file does not grow twice.
            let last = offset.checked_sub(len)?;
            return Some(world.rng.below(last / SECTOR as u64 + 1) * SECTOR as u64);
        }
        let last = world.disk.file(self.ino).live.len().checked_sub(len)? / PAGE as u64;
        let elsewhere = world.rng.below(last) * PAGE as u64;
        let past_itself = if elsewhere >= offset { elsewhere + PAGE as u64 } else { elsewhere };
        (last > 0).then_some(past_itself)
    }

    pub(super) fn sync(&self, kind: OpKind) -> Result<()> {
        let ino = self.ino;
        self.op(kind, &self.shown, (0, 0), |world, verdict| {
            match &verdict {
                Verdict::Refused(_) | Verdict::Lost => {}
                Verdict::Fail(_) | Verdict::Short(_) => {
                    let seed = world.rng.next_u64();
                    world.apply(Change::SyncFailed { ino, seed });
                }
                _ => world.apply(Change::Sync { ino }),
            }
            verdict.all_or_nothing()
        })
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "simulated file {}", self.shown)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.lock().closed(self.ino);
    }
}

/// A file opened for reading.
#[derive(Debug)]
pub(super) struct SimReadFile(pub(super) OpenFile);

impl ReadFile for SimReadFile {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read(&mut [ReadRequest { offset, buf }])
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.0.read(requests)
    }
    fn path(&self) -> &Path {
        &self.0.path
    }
}

/// A file written from front to back. Bytes in its buffer are lost when it is dropped.
pub(super) struct SimAppendFile {
    handle: OpenFile,
    buffer: Vec<u8>,
    buffer_len: usize,
    /// Bytes handed to the file system.
    written: u64,
    failed: Option<Error>,
}

impl SimAppendFile {
    pub(super) fn new(handle: OpenFile, options: &CreateOptions) -> Self {
        SimAppendFile {
            handle,
            buffer: Vec::new(),
            buffer_len: options.write_buffer_len.max(PAGE).next_multiple_of(PAGE),
            written: 0,
            failed: None,
        }
    }

    fn usable(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(first) => {
                let why = "an earlier write or sync of this file failed; what it holds is unknown";
                let error = Error::new(ErrorKind::Poisoned, why).at_file(&self.handle.path);
                Err(error.caused_by(first.clone()))
            }
        }
    }

    fn remember<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.handle.write(OpKind::Append, self.written, &self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.remember(result)
    }
}

impl Drop for SimAppendFile {
    fn drop(&mut self) {
        self.handle.shared.lock().release(self.handle.ino);
    }
}

impl AppendFile for SimAppendFile {
    fn append(&mut self, mut data: &[u8]) -> Result<()> {
        self.usable()?;
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(self.buffer_len - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            data = later;
            if self.buffer.len() == self.buffer_len {
                self.hand_over()?;
            }
        }
        Ok(())
    }
    fn reserve(&mut self, len: u64) -> Result<()> {
        self.usable()?;
        let handle = &self.handle;
        handle.shared.op(OpKind::Reserve, &handle.shown, (0, len), |world, verdict| {
            verdict.all_or_nothing()?;
            world.reserve(handle.ino, len, &handle.path)
        })
    }
    fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
    fn flush(&mut self) -> Result<()> {
        self.usable()?;
        self.hand_over()
    }
    fn sync(&mut self, _kind: SyncKind) -> Result<()> {
        self.flush()?;
        let result = self.handle.sync(OpKind::Sync);
        self.remember(result)
    }
}

/// A file written in place.
#[derive(Debug)]
pub(super) struct SimInPlaceFile {
    handle: OpenFile,
    len: u64,
    block_len: usize,
}

impl SimInPlaceFile {
    pub(super) fn new(handle: OpenFile, len: u64, block_len: usize) -> Self {
        SimInPlaceFile { handle, len, block_len }
    }

    fn check(&self, offset: u64, len: usize) {
        let aligned = offset.is_multiple_of(self.block_len as u64) && len.is_multiple_of(self.block_len);
        assert!(aligned, "in-place I/O of {len} bytes at {offset} is not in whole blocks");
    }

    fn check_write(&self, offset: u64, len: usize) {
        self.check(offset, len);
        assert!(offset + len as u64 <= self.len, "in-place write past the end of {:?}", self.handle);
    }
}

impl InPlaceFile for SimInPlaceFile {
    fn len(&self) -> u64 {
        self.len
    }
    fn block_len(&self) -> usize {
        self.block_len
    }
    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check_write(offset, data.len());
        self.handle.write(OpKind::WriteAt, offset, data.as_slice())
    }
    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check_write(offset, data.len());
        self.handle.write(OpKind::WriteDurable, offset, data.as_slice())
    }
    fn sync_data(&self) -> Result<()> {
        self.handle.sync(OpKind::SyncData)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check(offset, buf.len());
        self.handle.read(&mut [ReadRequest { offset, buf }])
    }
    fn path(&self) -> &Path {
        &self.handle.path
    }
}

/// A scratch file.
#[derive(Debug)]
pub(super) struct SimScratchFile {
    handle: OpenFile,
    len: usize,
}

impl SimScratchFile {
    pub(super) fn new(handle: OpenFile, len: usize) -> Self {
        SimScratchFile { handle, len }
    }
}

impl ScratchFile for SimScratchFile {
    fn len(&self) -> usize {
        self.len
    }
    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), PartialWrite> {
        let fits = offset.checked_add(data.len()).is_some_and(|end| end <= self.len);
        assert!(fits, "a write of {} bytes at {offset} of a scratch file of {} bytes", data.len(), self.len);
        self.handle.write_scratch(offset as u64, data)
    }
}

/// A lock; dropping it releases it.
#[derive(Debug)]
pub(super) struct SimLock(pub(super) OpenFile);

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.shared.lock().locks.remove(&self.0.ino);
    }
}
