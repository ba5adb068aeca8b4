//! A file limited to its length in the manifest.
//!
//! Readers find the footer at the end of the file. Bytes appended by another program would hide it.

use base::Result;
use io::ReadFile;
use std::path::Path;
use std::sync::Arc;

/// A file limited to its length in the manifest.
#[derive(Debug)]
struct Recorded {
    file: Arc<dyn ReadFile>,
    len: u64,
}

impl ReadFile for Recorded {
    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Returns the file, limited to `len` bytes if it is longer.
pub(crate) fn up_to(file: Arc<dyn ReadFile>, len: u64) -> Arc<dyn ReadFile> {
    match file.len() {
        Ok(now) if now > len => Arc::new(Recorded { file, len }),
        _ => file,
    }
}
