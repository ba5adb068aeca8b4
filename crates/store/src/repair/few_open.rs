//! The files of the damaged store, with few of them open at once.
//!
//! A repair reads every file of a store, and some of them again and again, in an order that depends
//! on the damage. So it uses files as if all of them were open. Behind that each is opened when it
//! is read, and the least recently used are closed again. No process removes or renames one
//! meanwhile, because the store is locked or has no owner.
//!
//! A repair takes unreadable files for damage, and continues. A transient refusal is no damage:
//! after one, the outcome is void ([`FewOpen::check`]). So is that of a cancelled repair, which
//! reads nothing from then on and soon ends.

use crate::descriptors::open_max;
use crate::files::OpenFiles;
use base::sync::OnceLock;
use base::sync::statistic::{AtomicU64, Ordering};
use base::{Error, ErrorKind, Result};
use io::{
    Access, AppendFile, Cancel, CreateOptions, DirEntry, Env, FileLock, FileSystem, FsSpace, InPlaceFile,
    Metadata, ReadFile, ReadRequest, ScratchFile,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPEN_MAX: usize = 64;

/// Access to the damaged store: see the module.
#[derive(Debug)]
pub struct FewOpen {
    /// The environment to read the store through.
    pub env: Env,
    few: Arc<Few>,
}

#[derive(Debug)]
struct Few {
    inner: Arc<dyn FileSystem>,
    open: OpenFiles<Arc<dyn ReadFile>>,
    /// Number of files handed out.
    asked: AtomicU64,
    /// The first transient refusal, or the cancellation.
    refused: OnceLock<Error>,
    cancel: Option<Cancel>,
}

impl FewOpen {
    /// Wraps the file system of an environment. Once the token is cancelled no file is read.
    pub fn over(env: &Env, cancel: Option<&Cancel>) -> FewOpen {
        let few = Arc::new(Few {
            inner: env.fs.clone(),
            open: OpenFiles::new(open_max(&*env.fs, OPEN_MAX, 1)),
            asked: AtomicU64::new(0),
            refused: OnceLock::default(),
            cancel: cancel.cloned(),
        });
        FewOpen { env: Env { fs: Arc::new(FewFs(few.clone())), ..env.clone() }, few }
    }

    /// Checks that every unreadable file is damaged.
    ///
    /// # Errors
    /// The first transient refusal: the repair must be repeated. `Cancelled`.
    pub fn check(&self) -> Result<()> {
        io::cancel::check(self.few.cancel.as_ref())?;
        match self.few.refused.get() {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }
}

/// A file that is opened on each read, unless it is cached.
#[derive(Debug)]
struct FewFile {
    few: Arc<Few>,
    id: u64,
    path: PathBuf,
    access: Access,
}

impl FewFile {
    fn with<T>(&self, read: impl FnOnce(&dyn ReadFile) -> Result<T>) -> Result<T> {
        let find = |()| self.few.open.find(self.id, || self.few.inner.open(&self.path, self.access));
        let opened = io::cancel::check(self.few.cancel.as_ref()).and_then(find);
        let done = opened.and_then(|file| read(&*file));
        if let Err(e) = &done
            && (e.is_passing() || e.kind() == ErrorKind::Cancelled)
        {
            // Keeps the first one.
            let _ = self.few.refused.set(e.clone());
        }
        done
    }
}

impl Drop for FewFile {
    fn drop(&mut self) {
        self.few.open.forget(self.id);
    }
}

impl ReadFile for FewFile {
    fn len(&self) -> Result<u64> {
        self.with(|file| file.len())
    }

    fn readable_len(&self) -> Result<u64> {
        self.with(|file| file.readable_len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.with(|file| file.read_at(buf, offset))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.with(|file| file.read_batch(requests))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The file system, with lazily opened files for reading.
#[derive(Debug)]
struct FewFs(Arc<Few>);

impl FileSystem for FewFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        let id = self.0.asked.fetch_add(1, Ordering::Relaxed);
        let file = FewFile { few: self.0.clone(), id, path: path.to_owned(), access };
        // The open reports a missing file at once.
        file.with(|_| Ok(()))?;
        Ok(Arc::new(file))
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        self.0.inner.create(path, options)
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.0.inner.create_in_place(path, len, access)
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.0.inner.open_in_place(path, access)
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.0.inner.create_scratch(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.inner.remove(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.inner.link(from, to)
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.0.inner.punch_hole(path, offset, len)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.0.inner.list(dir)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.0.inner.metadata(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.0.inner.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.0.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        self.0.inner.lock(path, holder)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.0.inner.lock_to_read(path)
    }

    fn open_files_limit(&self) -> Option<u64> {
        self.0.inner.open_files_limit()
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.0.inner.space(dir)
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        self.0.inner.scan_extent_tail(path)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};

    fn made(sim: &SimEnv, n: usize) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = (0..n).map(|n| format!("/{n}").into()).collect();
        for (n, path) in paths.iter().enumerate() {
            let mut file = sim.env().fs.create(path, &CreateOptions::default()).unwrap();
            file.append(&(n as u64).to_le_bytes()).unwrap();
            file.flush().unwrap();
        }
        paths
    }

    #[test]
    fn many_files_are_read_with_few_open() {
        let sim = SimEnv::new(1);
        let paths = made(&sim, 3 * OPEN_MAX);
        sim.set_open_max(Some(OPEN_MAX as u64 + 1));
        let few = FewOpen::over(&sim.env(), None);
        let open = |path: &PathBuf| few.env.fs.open(path, Access::Buffered).unwrap();
        let files: Vec<Arc<dyn ReadFile>> = paths.iter().map(open).collect();
        for turn in 0..3 {
            for (n, file) in files.iter().enumerate() {
                let mut bytes = [0; 8];
                match turn {
                    0 => file.read_at(&mut bytes, 0).unwrap(),
                    _ => file.read_batch(&mut [ReadRequest { offset: 0, buf: &mut bytes }]).unwrap(),
                }
                assert_eq!((u64::from_le_bytes(bytes), file.len().unwrap()), (n as u64, 8));
                assert_eq!((file.readable_len().unwrap(), file.path()), (8, &*paths[n]));
            }
        }
        few.check().unwrap();
        drop(files);
        assert_eq!(sim.open_now(), 0, "what nobody asks for any more is closed");
        few.env.fs.open(Path::new("/none"), Access::Buffered).unwrap_err();
        few.check().unwrap();
    }

    #[test]
    fn a_transient_refusal_is_no_damage() {
        let sim = SimEnv::new(1);
        let paths = made(&sim, 1);
        let few = FewOpen::over(&sim.env(), None);
        for effect in [FaultEffect::Eio, FaultEffect::NoDescriptor, FaultEffect::Eio] {
            sim.inject(FaultPlan::nth(0, effect).kinds(&[OpKind::Open]));
            few.env.fs.open(&paths[0], Access::Buffered).unwrap_err();
            let is_told = few.check().is_err_and(|e| e.is_passing());
            assert_eq!(is_told, effect == FaultEffect::NoDescriptor || few.few.refused.get().is_some());
        }
        assert!(few.check().unwrap_err().is_passing());
    }
}
