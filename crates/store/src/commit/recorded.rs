//! A group file limited to its length in the manifest.
//!
//! Bytes that another program appended are ignored: the log neither reads nor writes there.

use base::Result;
use io::{AlignedBuf, InPlaceFile};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
struct Recorded {
    file: Arc<dyn InPlaceFile>,
    len: u64,
}

impl InPlaceFile for Recorded {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> usize {
        self.file.block_len()
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_at(data, offset)
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_durable(data, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Limits a file to `len` bytes if it is longer.
pub fn up_to(file: Arc<dyn InPlaceFile>, len: u64) -> Arc<dyn InPlaceFile> {
    if file.len() > len { Arc::new(Recorded { file, len }) } else { file }
}
