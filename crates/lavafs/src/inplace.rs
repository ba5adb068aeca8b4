//! Files of fixed length: in-place files, scratch files, and lock files.
//!
//! Their blocks are filled with durable zeros before the operation that assigns them to the file is
//! queued. Therefore they hold zeros or later writes after a crash, never data of another file. (A
//! creator that can recognize its own data may skip this for all blocks but the first, which saves
//! one write of every block.)

use crate::core::OpenFileState;
use crate::layout::{self, BLOCK, Extent};
use crate::read;
use crate::volume::{Volume, count};
use base::sync::{OnceLock, lock};
use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, FileLock, InPlaceFile, PartialWrite, ReadRequest, ScratchFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of one write of zeros, in bytes.
const ZEROS_LEN: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct LavaInPlaceFile {
    volume: Arc<Volume>,
    live: Arc<OpenFileState>,
    path: PathBuf,
    len: u64,
    poison: OnceLock<Error>,
}

/// Fills blocks with durable zeros.
pub(crate) fn write_zeros(volume: &Volume, extents: &[Extent]) -> Result<()> {
    let longest = extents.iter().map(|e| e.len()).max().unwrap_or(0).min(ZEROS_LEN);
    let zeros = AlignedBuf::zeroed(longest as usize);
    for extent in extents {
        let mut done = 0;
        while done < extent.len() {
            let n = ZEROS_LEN.min(extent.len() - done);
            volume.device.write_at(&zeros.as_slice()[..n as usize], extent.offset() + done)?;
            done += n;
        }
    }
    volume.sync_devices_of(extents)
}

impl LavaInPlaceFile {
    pub(crate) fn new(volume: Arc<Volume>, live: Arc<OpenFileState>, path: PathBuf, len: u64) -> Self {
        LavaInPlaceFile { volume, live, path, len, poison: OnceLock::new() }
    }

    fn usable(&self) -> Result<()> {
        if let Some(first) = self.poison.get() {
            return Err(first
                .clone()
                .with_kind(ErrorKind::Poisoned)
                .context("an earlier write or sync of this file failed, so its contents are unknown"));
        }
        self.volume.check_writable(&self.path)
    }

    fn poison(&self, failure: Error) -> Error {
        let failure = failure.at_file(&self.path);
        self.poison.get_or_init(|| failure.clone());
        failure
    }

    /// Runs a write or sync. The first failure poisons the file.
    fn guarded(&self, step: impl FnOnce() -> Result<()>) -> Result<()> {
        self.usable()?;
        step().map_err(|e| self.poison(e))
    }

    fn check(&self, len: usize, offset: u64) {
        let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK as usize);
        assert!(aligned, "in-place I/O of {len} bytes at {offset} is not in whole pages");
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "in-place write past the end of {}", self.path.display());
    }

    /// Calls `write` for each extent of the range.
    fn each_run(&self, data: &[u8], offset: u64, write: impl Fn(&[u8], u64) -> Result<()>) -> Result<()> {
        let view = self.live.view();
        let pieces = layout::pieces(&view.extents, offset, data.len() as u64);
        let written = layout::cut(&pieces, data).try_for_each(|(now, at)| {
            let at = at.ok_or_else(|| {
                Error::invalid(format!(
                    "the range of {} bytes at this offset has freed (punched) blocks, and cannot be written again: write a new file",
                    data.len()
                ))
                .at_offset(offset)
                .with_remedy("the part before the freed blocks may be written")
            })?;
            write(now, at)
        });
        self.volume.forget_pages(&self.live, offset, data.len() as u64);
        written?;
        count(&self.volume.counters.data_bytes, data.len() as u64);
        Ok(())
    }
}

impl InPlaceFile for LavaInPlaceFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check(data.len(), offset);
        let write = || self.each_run(data.as_slice(), offset, |d, at| self.volume.device.write_at(d, at));
        self.usable()?;
        write().map_err(|e| match e.kind() {
            // The device is an image on a full file system, which may have space later. No sync has
            // covered this write.
            ErrorKind::NoSpace => e.at_file(&self.path).at_offset(offset),
            _ => self.poison(e).at_offset(offset),
        })
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check(data.len(), offset);
        let durable =
            |d: &[u8], at| self.volume.durability.poisoned_by(self.volume.device.write_durable(d, at));
        self.guarded(|| self.each_run(data.as_slice(), offset, durable)).map_err(|e| e.at_offset(offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.guarded(|| self.volume.sync_devices_of(&self.live.extents()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        read::read(&self.volume, &self.live, &self.path, &mut [ReadRequest { offset, buf }])
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A scratch file. Its contents survive the process but not a power loss.
#[derive(Debug)]
pub(crate) struct LavaScratchFile {
    volume: Arc<Volume>,
    live: Arc<OpenFileState>,
    path: PathBuf,
    len: usize,
}

impl LavaScratchFile {
    pub(crate) fn new(volume: Arc<Volume>, live: Arc<OpenFileState>, path: PathBuf, len: usize) -> Self {
        LavaScratchFile { volume, live, path, len }
    }
}

impl ScratchFile for LavaScratchFile {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), PartialWrite> {
        let fits = offset.checked_add(data.len()).is_some_and(|end| end <= self.len);
        assert!(fits, "a write of {} bytes at {offset} of a scratch file of {} bytes", data.len(), self.len);
        let fail =
            |stored_bytes, error: Error| PartialWrite { stored_bytes, error: error.at_file(&self.path) };
        self.volume.check_writable(&self.path).map_err(|e| fail(0, e))?;
        let view = self.live.view();
        let pieces = layout::pieces(&view.extents, offset as u64, data.len() as u64);
        let mut stored_bytes = 0;
        for (now, at) in layout::cut(&pieces, data) {
            let at = at.ok_or_else(|| {
                let why = "the range of the write has a hole of the scratch file: write elsewhere";
                let remedy = "the bytes before the hole are written";
                fail(stored_bytes, Error::invalid(why).at_offset(offset as u64).with_remedy(remedy))
            })?;
            let written = self.volume.device.write_scratch(now, at);
            self.volume.forget_pages(&self.live, offset as u64, data.len() as u64);
            written.map_err(|e| fail(stored_bytes + e.stored_bytes, e.error))?;
            stored_bytes += now.len();
        }
        Ok(())
    }
}

/// A held lock. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct LavaLock {
    pub volume: Arc<Volume>,
    pub ino: crate::op::Ino,
}

impl FileLock for LavaLock {}

impl Drop for LavaLock {
    fn drop(&mut self) {
        lock(&self.volume.core).locks.remove(&self.ino);
    }
}
