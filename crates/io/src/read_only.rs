//! Files that were written in place, opened for reading only.
//!
//! [`crate::FileSystem::open_in_place`] needs write permission. A reader lacks it on a read-only
//! mount and for files of another user. It reads the same file through [`crate::FileSystem::open`]
//! instead, and every write is refused.

use crate::{Access, AlignedBuf, BLOCK_LEN_MIN, FileSystem, InPlaceFile, ReadFile};
use base::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
struct ReadOnly {
    file: Arc<dyn ReadFile>,
    len: u64,
}

/// Opens a file made by [`crate::FileSystem::create_in_place`] without permission to write. Writes
/// and syncs of it fail with `ReadOnly`.
///
/// # Errors
/// Those of the file system.
pub fn open_in_place_read_only(
    fs: &dyn FileSystem,
    path: &Path,
    access: Access,
) -> Result<Arc<dyn InPlaceFile>> {
    let file = fs.open(path, access)?;
    let len = file.len()?;
    Ok(Arc::new(ReadOnly { file, len }))
}

impl ReadOnly {
    fn refuse(&self) -> Result<()> {
        Err(Error::new(ErrorKind::ReadOnly, "the file was opened read-only: open it for writing")
            .at_file(self.file.path()))
    }
}

impl InPlaceFile for ReadOnly {
    fn len(&self) -> u64 {
        self.len
    }

    /// Returns the shortest block: there are no writes, reads begin anywhere, and an unreadable
    /// place costs the fewest bytes.
    fn block_len(&self) -> usize {
        BLOCK_LEN_MIN
    }

    fn write_at(&self, _data: &AlignedBuf, _offset: u64) -> Result<()> {
        self.refuse()
    }

    fn write_durable(&self, _data: &AlignedBuf, _offset: u64) -> Result<()> {
        self.refuse()
    }

    fn sync_data(&self) -> Result<()> {
        self.refuse()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}
