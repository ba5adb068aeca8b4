//! A file system with a hook for each sync of a file: to delay it, to slow it down, to fail it
//! after it was done. All other calls pass through.

use lavastore_lavakv::io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, ScratchFile, SyncKind,
};
use lavastore_lavakv::{Env, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The hook in place of a sync of an appended file, with its path; the second argument performs the
/// sync.
type Around = dyn Fn(&Path, &mut dyn FnMut() -> Result<()>) -> Result<()> + Send + Sync;

/// The machine, with `around` in place of each sync of an appended file.
pub fn around_syncs(
    around: impl Fn(&Path, &mut dyn FnMut() -> Result<()>) -> Result<()> + Send + Sync + 'static,
) -> Env {
    let kernel = Env::kernel();
    Env { fs: Arc::new(Fs { inner: kernel.fs.clone(), around: Arc::new(around) }), ..kernel }
}

struct Fs {
    inner: Arc<dyn FileSystem>,
    around: Arc<Around>,
}

struct File {
    inner: Box<dyn AppendFile>,
    path: PathBuf,
    around: Arc<Around>,
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl AppendFile for File {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.inner.append(data)
    }
    fn reserve(&mut self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        self.inner.wait_for_writes(most)
    }
    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        let File { inner, path, around } = self;
        around(path, &mut || inner.sync(kind))
    }
}

/// Passes calls to `self.inner`: the named ones, or with `rest` all of a file system except
/// `create` and `open`.
macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$out> {
            self.inner.$name($($arg),*)
        })*
    };
    (rest) => {
        pass_on! {
            create_in_place(path: &Path, len: u64, access: Access) -> Arc<dyn InPlaceFile>;
            open_in_place(path: &Path, access: Access) -> Arc<dyn InPlaceFile>;
            create_scratch(path: &Path, len: usize) -> Arc<dyn ScratchFile>;
            rename(from: &Path, to: &Path) -> ();
            remove(path: &Path) -> ();
            link(from: &Path, to: &Path) -> ();
            punch_hole(path: &Path, offset: u64, len: u64) -> ();
            list(dir: &Path) -> Vec<DirEntry>;
            metadata(path: &Path) -> Metadata;
            create_dir_all(dir: &Path) -> ();
            remove_dir(dir: &Path) -> ();
            sync_dir(dir: &Path) -> ();
            lock(path: &Path, holder: &str) -> Box<dyn FileLock>;
            lock_to_read(path: &Path) -> Box<dyn FileLock>;
            space(dir: &Path) -> FsSpace;
        }
    };
}
pub(crate) use pass_on;

impl FileSystem for Fs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let inner = self.inner.create(path, options)?;
        Ok(Box::new(File { inner, path: path.to_owned(), around: self.around.clone() }))
    }
    pass_on! { open(path: &Path, access: Access) -> Arc<dyn ReadFile>; }
    pass_on!(rest);
}
