//! Eviction from the page cache, for benchmarks: the next read then goes to the device.

use super::calls;
use super::handle::fail;
use base::Result;
use rustix::fs::{Advice, Mode, OFlags};
use std::path::Path;

/// Evicts a file from the page cache. Syncs it first, since dirty pages are kept.
///
/// # Errors
/// Those of opening and syncing the file. It is unknown whether the kernel followed the hint.
pub fn forget(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = calls::open(path, flags, Mode::empty()).map_err(|e| fail("cannot open a file", path, e))?;
    calls::fdatasync(&fd).map_err(|e| fail("cannot sync a file", path, e))?;
    calls::fadvise(&fd, 0, None, Advice::DontNeed);
    Ok(())
}
