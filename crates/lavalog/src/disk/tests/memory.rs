//! In-memory files for tests of file contents: writes are visible at once, and reads are counted.
#![allow(dead_code, reason = "each test program uses its own part")]

use base::{Error, Result};
use io::{AppendFile, ReadFile, SyncKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) const PATH: &str = "000000000007.e1-3";

/// A file being written. Clones share the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    /// Length at which appends fail.
    pub(crate) full_at: Option<u64>,
}

impl Written {
    /// Takes the written bytes out of the file.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap()
    }

    pub(crate) fn boxed(&self) -> Box<dyn AppendFile> {
        Box::new(self.clone())
    }
}

impl AppendFile for Written {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let mut bytes = self.lock();
        if self.full_at.is_some_and(|full| (bytes.len() + data.len()) as u64 > full) {
            return Err(Error::new(base::ErrorKind::NoSpace, "full"));
        }
        bytes.extend_from_slice(data);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.lock().len() as u64
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
pub(crate) struct Stored {
    bytes: Vec<u8>,
    reads: AtomicU64,
}

impl Stored {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Stored> {
        Arc::new(Stored { bytes, reads: AtomicU64::new(0) })
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl ReadFile for Stored {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(offset).ok();
        let bytes = at.and_then(|at| self.bytes.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or_else(|| Error::corruption("the file ends before"))?);
        Ok(())
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}
