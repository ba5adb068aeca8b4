//! Files of fixed length that are written in place: the log's groups.
//!
//! Creating one reserves its blocks and writes zeros over all of them. Only then a later data sync
//! does not touch the file's metadata: a block that is reserved but was never written is marked as
//! such, and the first write to it commits a transaction of the file system.
//!
//! A durable write is one `pwritev2(RWF_DSYNC)`: the kernel makes only that range durable, with a
//! forced write (FUA) where the device supports it. File systems without the flag get a write and
//! `fdatasync`.
//!
//! **Blocks.** With direct access, the file system reports its smallest unit, and the device its
//! atomic unit: its *physical* block, which may be longer than the logical one. The device then
//! reads and rewrites the rest of the block around a shorter write, and a power failure may damage
//! that. The longer of both is the block. Through the page cache, and where either is unknown, it
//! is a page.
//!
//! Invariant: after a failed write or sync the file accepts no further one. The kernel reports lost
//! pages once; a second sync would succeed without meaning. The exception is a plain write that
//! finds no space on a copy-on-write file system: it was never part of a sync, so the caller may
//! write the same range again.

use super::calls;
use super::handle::{Handle, must_be_plain, poisoned};
use super::read::Engine;
use crate::{Access, AlignedBuf, InPlaceFile, PAGE, SyncKind};
use base::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(super) struct KernelInPlaceFile {
    handle: Handle,
    len: u64,
    block_len: usize,
    engine: Arc<Engine>,
    poison: OnceLock<Error>,
}

impl KernelInPlaceFile {
    pub(super) fn create(path: &Path, len: u64, access: Access, engine: &Arc<Engine>) -> Result<Self> {
        if !len.is_multiple_of(PAGE as u64) {
            let why =
                format!("a file written in place has {len} bytes, but needs a multiple of {PAGE} bytes");
            return Err(Error::invalid(why).at_file(path));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let mut handle = Handle::open("cannot create a file", path, flags, access)?;
        handle.learn_block();
        let made = handle
            .allocate(len)
            .and_then(|()| handle.write_zeros(0..len))
            .and_then(|()| handle.sync(SyncKind::Full))
            .map_err(|e| handle.fail("cannot allocate a file", e));
        if let Err(e) = made {
            // The first error is the one to report; a file left behind is removed when the store is
            // next opened.
            let _ = calls::unlink(path);
            return Err(e);
        }
        Ok(Self::new(handle, len, engine))
    }

    pub(super) fn open(path: &Path, access: Access, engine: &Arc<Engine>) -> Result<Self> {
        must_be_plain(path)?;
        let mut handle = Handle::open("cannot open a file", path, OFlags::RDWR, access)?;
        handle.learn_block();
        let len = handle.len()?;
        Ok(Self::new(handle, len - len % PAGE as u64, engine))
    }

    fn new(handle: Handle, len: u64, engine: &Arc<Engine>) -> Self {
        let block_len = handle.block_len();
        KernelInPlaceFile { handle, len, block_len, engine: engine.clone(), poison: OnceLock::new() }
    }

    fn check(&self, data: &AlignedBuf, offset: u64) {
        let block = self.block_len as u64;
        let len = data.len() as u64;
        assert!(
            len.is_multiple_of(block) && offset.is_multiple_of(block),
            "in-place write of parts of blocks"
        );
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "in-place write past the end");
    }

    fn usable(&self) -> Result<()> {
        self.handle.check_process()?;
        self.poison.get().map_or(Ok(()), |first| Err(poisoned(first)))
    }

    /// Runs a write or sync; its first failure poisons the file.
    fn guarded(&self, action: &str, step: impl FnOnce() -> rustix::io::Result<()>) -> Result<()> {
        self.usable()?;
        step().map_err(|e| self.poison(self.handle.fail(action, e)))
    }

    fn poison(&self, failure: Error) -> Error {
        self.poison.get_or_init(|| failure.clone());
        failure
    }
}

impl InPlaceFile for KernelInPlaceFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check(data, offset);
        self.usable()?;
        let action = "cannot write a file in place";
        let written = self.handle.write_all_at(data.as_slice(), offset);
        written.map_err(|e| match e {
            Errno::NOSPC | Errno::DQUOT => self.handle.fail(action, e).at_offset(offset),
            e => self.poison(self.handle.fail(action, e).at_offset(offset)),
        })
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.check(data, offset);
        self.guarded("cannot write a file durably in place", || {
            self.handle.write_durable_at(data.as_slice(), offset)
        })
        .map_err(|e| e.at_offset(offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.guarded("cannot sync a file", || self.handle.sync(SyncKind::Data))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.handle.read_exact_at(&self.engine.pool, buf, offset)
    }

    fn path(&self) -> &Path {
        &self.handle.path
    }
}
