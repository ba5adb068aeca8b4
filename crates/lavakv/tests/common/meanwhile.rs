//! File systems of a reader beside a writer: a callback runs before the open of a file.

use super::pass_on;
use lavastore_lavakv::io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, ScratchFile,
};
use lavastore_lavakv::{Env, Result};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Meanwhile<F> {
    inner: Arc<dyn FileSystem>,
    happens: F,
}

impl<F> fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<F: Fn() + Send + Sync> FileSystem for Meanwhile<F> {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        (self.happens)();
        self.inner.open(path, access)
    }
    pass_on! { create(path: &Path, options: &CreateOptions) -> Box<dyn AppendFile>; }
    pass_on!(rest);
}

/// The same machine, with a callback before the open of each file.
pub fn before_opens(env: Env, happens: impl Fn() + Send + Sync + 'static) -> Env {
    Env { fs: Arc::new(Meanwhile { inner: env.fs.clone(), happens }), ..env }
}

/// The same, with the number of the open, from 0 on, as argument; the count so far is returned too.
pub fn before_each_open(env: Env, happens: impl Fn(u64) + Send + Sync + 'static) -> (Env, Arc<AtomicU64>) {
    let opened = Arc::new(AtomicU64::new(0));
    let count = opened.clone();
    (before_opens(env, move || happens(count.fetch_add(1, Ordering::Relaxed))), opened)
}

/// A file system that counts the bytes read.
struct Counting {
    inner: Arc<dyn FileSystem>,
    read_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn ReadFile>,
    read_bytes: Arc<AtomicU64>,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl ReadFile for CountingFile {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn readable_len(&self) -> Result<u64> {
        self.inner.readable_len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(buf, offset)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

impl FileSystem for Counting {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        let (inner, read_bytes) = (self.inner.open(path, access)?, self.read_bytes.clone());
        Ok(Arc::new(CountingFile { inner, read_bytes }))
    }
    pass_on! { create(path: &Path, options: &CreateOptions) -> Box<dyn AppendFile>; }
    pass_on!(rest);
}

/// The same machine, and the count of bytes read from its files.
pub fn counting_reads(env: Env) -> (Env, Arc<AtomicU64>) {
    let read_bytes = Arc::new(AtomicU64::new(0));
    let fs = Counting { inner: env.fs.clone(), read_bytes: read_bytes.clone() };
    (Env { fs: Arc::new(fs), ..env }, read_bytes)
}
