//! Files of fixed length: those written in place, those mapped, and the lines of locks.
//!
//! Their blocks are written with zeros, and these made durable, before the operation that gives them to the file goes in
//! line. So after a crash they hold zeros or what was written since, never what somebody else wrote there. (A file whose
//! creator can tell what he wrote from what he did not gets its blocks as they are, which saves one write of all of them.)

use crate::core::Live;
use crate::layout::{self, BLOCK, Extent};
use crate::read;
use crate::volume::{Volume, count};
use base::sync::{OnceLock, lock};
use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, FileLock, InPlaceFile, ReadRequest, SharedMapping};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of zeros written at a time.
const ZEROS_LEN: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct LavaInPlaceFile {
    volume: Arc<Volume>,
    live: Arc<Live>,
    path: PathBuf,
    len: u64,
    poison: OnceLock<Error>,
}

/// Writes durable zeros over blocks.
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
    volume.sync_device()
}

impl LavaInPlaceFile {
    pub(crate) fn new(volume: Arc<Volume>, live: Arc<Live>, path: PathBuf, len: u64) -> Self {
        LavaInPlaceFile { volume, live, path, len, poison: OnceLock::new() }
    }

    /// Runs a write or sync; its first failure poisons.
    fn guarded(&self, step: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(first) = self.poison.get() {
            return Err(first.clone().with_kind(ErrorKind::Poisoned).context(
                "an earlier write or sync of this file failed, so what it holds is unknown; reopen the store",
            ));
        }
        self.volume.check_writable(&self.path)?;
        step().map_err(|e| {
            let e = e.at_file(&self.path);
            self.poison.get_or_init(|| e.clone());
            e
        })
    }

    fn check(&self, len: usize, offset: u64) {
        let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK as usize);
        assert!(aligned, "in-place I/O of {len} bytes at {offset} is not in whole pages");
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "in-place write past the end of {}", self.path.display());
    }

    /// Writes to the runs of blocks that the range consists of, each with `write`; how many there were.
    fn each_run(&self, data: &[u8], offset: u64, write: impl Fn(&[u8], u64) -> Result<()>) -> Result<()> {
        let view = self.live.view();
        let pieces = layout::pieces(&view.extents, offset, data.len() as u64);
        for (now, at) in layout::cut(&pieces, data) {
            let at = at.ok_or_else(|| {
                Error::invalid(
                    "the range was punched out of the file, which cannot be written there any more",
                )
            })?;
            write(now, at)?;
        }
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
        self.guarded(|| self.each_run(data.as_slice(), offset, |d, at| self.volume.device.write_at(d, at)))
            .map_err(|e| e.at_offset(offset))
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check(data.len(), offset);
        let durable = |d: &[u8], at| self.volume.poisoned_by(self.volume.device.write_durable(d, at));
        self.guarded(|| self.each_run(data.as_slice(), offset, durable)).map_err(|e| e.at_offset(offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.guarded(|| self.volume.sync_device())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        read::read(&self.volume, &self.live, &self.path, &mut [ReadRequest { offset, buf }])
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Memory backed by the runs of blocks of a file.
#[derive(Debug)]
pub(crate) struct LavaMapping {
    /// Where each begins, in order.
    parts: Vec<(usize, Arc<dyn SharedMapping>)>,
    len: usize,
    /// Keeps the blocks while the memory is in use.
    _live: Arc<Live>,
}

impl LavaMapping {
    pub(crate) fn new(volume: &Volume, live: Arc<Live>, len: usize) -> Result<Self> {
        let mut parts = Vec::new();
        let mut start = 0;
        for extent in live.extents().iter() {
            let part = volume.device.map(extent.offset(), extent.len() as usize)?;
            parts.push((start, part));
            start += extent.len() as usize;
        }
        Ok(LavaMapping { parts, len, _live: live })
    }

    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "access of {len} bytes at {offset} of a mapping of {} bytes", self.len);
    }

    /// The parts that a range touches: the part, where in it, and which bytes of the range.
    fn touched(
        &self,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = (&dyn SharedMapping, usize, std::ops::Range<usize>)> {
        self.parts.iter().filter_map(move |(start, part)| {
            let from = offset.max(*start);
            let to = (offset + len).min(start + part.len());
            (from < to).then(|| (&**part, from - start, from - offset..to - offset))
        })
    }
}

impl SharedMapping for LavaMapping {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        self.touched(offset, data.len()).for_each(|(part, at, range)| part.write(at, &data[range]));
    }

    fn read(&self, offset: usize, buf: &mut [u8]) {
        self.check(offset, buf.len());
        let len = buf.len();
        self.touched(offset, len).for_each(|(part, at, range)| part.read(at, &mut buf[range]));
    }
}

/// A lock; dropping it gives it up.
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
