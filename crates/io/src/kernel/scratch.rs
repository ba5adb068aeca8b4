//! Files that survive a process crash, but not a power loss.
//!
//! A write to the page cache is in the file when it returns, and survives any end of the process,
//! even `SIGKILL`. After a power loss nothing is guaranteed, since the file is never synced.
//!
//! Blocks are reserved at creation, so that a full disk is met there and not by a write. Where
//! writing in place allocates new blocks all the same (copy-on-write file systems, reflinked
//! files), a write may fail with `NoSpace`.

use super::calls;
use super::handle::{Handle, must_be_plain};
use crate::{Access, PartialWrite, ScratchFile};
use base::{Error, Result};
use rustix::fs::OFlags;
use std::path::Path;

#[derive(Debug)]
pub(super) struct KernelScratchFile {
    handle: Handle,
    len: usize,
}

impl KernelScratchFile {
    pub(super) fn create(path: &Path, len: usize) -> Result<Self> {
        if len == 0 || i64::try_from(len).is_err() {
            return Err(Error::invalid(format!(
                "a scratch file cannot have {len} bytes: its length must be 1 to {} bytes",
                i64::MAX
            ))
            .at_file(path));
        }
        must_be_plain(path)?;
        // Through a link, the call would truncate and write a foreign file.
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::NOFOLLOW;
        let handle = Handle::open("cannot create a file", path, flags, Access::Buffered)?;
        let made = handle.allocate(len as u64).and_then(|()| handle.set_len(len as u64));
        if let Err(e) = made {
            // The first error is the one to report; the file holds nothing.
            let _ = calls::unlink(path);
            return Err(handle.fail("cannot allocate a file", e));
        }
        Ok(KernelScratchFile { handle, len })
    }

    fn fits(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl ScratchFile for KernelScratchFile {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), PartialWrite> {
        assert!(self.fits(offset, data.len()), "a write past the end of a scratch file");
        self.handle.write_counted(data, offset as u64)
    }
}
