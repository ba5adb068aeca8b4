//! Flush of a raw device: an `msync` of one of its pages, which is mapped only for this.
//!
//! `msync` of a mapping of a device writes the dirty pages of the mapped range, of which there are
//! none, and then makes the device flush its cache. A sync of the whole device also writes all its
//! dirty pages, for which no durability was promised.
//!
//! This is the only mapping of a file. It is never read or written, so it cannot cause a `SIGBUS`.

use super::calls;
use super::handle::Handle;
use crate::BLOCK;
use base::Result;
use std::ffi::c_void;

/// The mapped page.
#[derive(Debug)]
pub(super) struct DeviceFlusher {
    page: *mut c_void,
}

// SAFETY: the mapping is owned by this value alone, is not tied to a thread, and lives until it is
// dropped.
unsafe impl Send for DeviceFlusher {}
// SAFETY: a shared reference allows only `msync`, which any number of threads may call at once; the
// memory itself is never accessed.
unsafe impl Sync for DeviceFlusher {}

impl DeviceFlusher {
    /// Maps the first page of a device.
    pub(super) fn new(handle: &Handle) -> Result<Self> {
        let page = calls::map_shared(&handle.fd, BLOCK)
            .map_err(|e| handle.fail("cannot map the first page of a device, which its syncs need", e))?;
        Ok(DeviceFlusher { page })
    }

    /// Makes all earlier writes to the device that bypassed the page cache durable.
    pub(super) fn flush(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is the mapping made by `new`, whole, which lives as long as `self`.
        unsafe { calls::msync(self.page, BLOCK) }
    }
}

impl Drop for DeviceFlusher {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made by `new`, whole, and no reference into it exists.
        unsafe { calls::munmap(self.page, BLOCK) }
    }
}
