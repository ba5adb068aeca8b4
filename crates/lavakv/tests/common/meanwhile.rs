//! The file system of a reader beside a writer: something happens before it opens a file.

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

/// The same machine, where something happens before each file is opened.
pub fn before_opens(env: Env, happens: impl Fn() + Send + Sync + 'static) -> Env {
    Env { fs: Arc::new(Meanwhile { inner: env.fs.clone(), happens }), ..env }
}

/// The same, with the how many-th file it is, from 0 on; the number so far comes with it.
pub fn before_each_open(env: Env, happens: impl Fn(u64) + Send + Sync + 'static) -> (Env, Arc<AtomicU64>) {
    let opened = Arc::new(AtomicU64::new(0));
    let count = opened.clone();
    (before_opens(env, move || happens(count.fetch_add(1, Ordering::Relaxed))), opened)
}
