//! A file up to the length that the manifest has of it.
//!
//! Files of logs are found by their footer, the last bytes that were written. Bytes appended by another program would hide it.

use base::Result;
use io::ReadFile;
use std::path::Path;
use std::sync::Arc;

/// See the module.
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

/// The file as it was recorded, if it is longer now.
pub(crate) fn up_to(file: Arc<dyn ReadFile>, len: u64) -> Arc<dyn ReadFile> {
    match file.len() {
        Ok(now) if now > len => Arc::new(Recorded { file, len }),
        _ => file,
    }
}
