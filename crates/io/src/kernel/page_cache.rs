//! What the page cache holds of files, for benchmarks: without it the next reader has to ask the device.

use super::calls;
use super::handle::fail;
use base::Result;
use rustix::fs::{Advice, Mode, OFlags};
use std::path::Path;

/// Has the page cache forget a file. What was written to it goes to the device first, since pages that wait for that are kept.
///
/// # Errors
/// Those of opening and syncing it. Whether the kernel took the hint is not told.
pub fn forget(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = calls::open(path, flags, Mode::empty()).map_err(|e| fail("cannot open a file", path, e))?;
    calls::fdatasync(&fd).map_err(|e| fail("cannot sync a file", path, e))?;
    calls::fadvise(&fd, 0, None, Advice::DontNeed);
    Ok(())
}
