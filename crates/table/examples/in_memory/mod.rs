//! Files in memory, so that only the format is measured.

use base::Result;
use io::{AppendFile, ReadFile, SyncKind};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A file for writing.
pub struct Memory(pub Arc<Mutex<Vec<u8>>>);

impl AppendFile for Memory {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self, _: SyncKind) -> Result<()> {
        Ok(())
    }
}

/// A file for reading.
#[derive(Debug)]
pub struct Stored(pub Vec<u8>);

impl ReadFile for Stored {
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn path(&self) -> &Path {
        Path::new("memory")
    }
}
