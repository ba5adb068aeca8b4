//! The store directory: its syncs, and the first failed one.
//!
//! A file is in the store only once its name is durable. So every creator of a file syncs the
//! directory before an edit or the log names the file. When such a sync fails, the file system may
//! have dropped the names it could not write, and not report that again. So a second sync proves
//! nothing, for any caller and any file. Therefore all syncs of the directory go through here. They
//! run one after the other, so that none begins before the outcome of the previous one is known.
//! The first failure is kept for good: after it nothing is synced, and no edit is accepted.
//! [`super::Manifest::commit_with`] checks that under the manifest's lock. A job whose own sync
//! succeeded before the failure cannot be affected: its names are durable.
//!
//! Overlapping syncs would break this. The failing sync takes the error with it. Another sync,
//! begun after that and ended before any thread noted the failure, would succeed and prove nothing.
//!
//! A refusal for want of space or of a descriptor is no failure: it comes before anything is
//! written. (An `ENOSPC` of the kernel from a sync means that data was lost, and is reported as
//! `Io`.)

use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, ErrorKind, Result};
use io::FileSystem;
use std::path::PathBuf;

/// The store directory: see the module.
#[derive(Debug, Default)]
pub(super) struct StoreDir {
    pub path: PathBuf,
    /// Held across each sync.
    one_at_a_time: Mutex<(), rank::DirectorySync>,
    failed: OnceLock<Error>,
}

impl StoreDir {
    pub(super) fn new(path: PathBuf) -> Self {
        StoreDir { path, ..StoreDir::default() }
    }

    /// Makes the names in the directory durable: see [`super::Manifest::sync_dir`].
    pub(super) fn sync(&self, fs: &dyn FileSystem) -> Result<()> {
        self.run(|| fs.sync_dir(&self.path))
    }

    /// Runs a sync of the directory, after all earlier ones.
    ///
    /// # Errors
    /// Errors of the sync; without space or a descriptor nothing happened, and the call may be
    /// repeated. `Poisoned` after any other failure.
    fn run(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _turn = lock(&self.one_at_a_time);
        self.check()?;
        sync().inspect_err(|e| {
            if !e.is_refusal() {
                let _ = self.failed.set(e.clone());
            }
        })
    }

    /// Fails if a sync ever failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(first) => Err(Error::new(
                ErrorKind::Poisoned,
                "an earlier sync of the store's directory failed, so a crash may lose names of new files \
                 in it",
            )
            .at_file(&self.path)
            .caused_by(first.clone())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests are about threads")]
mod tests {
    use super::*;
    use base::sync::atomic::{AtomicUsize, Ordering};

    fn eio() -> Result<()> {
        Err(Error::new(ErrorKind::Io, "injected"))
    }

    #[test]
    fn only_the_first_failure_other_than_no_space_is_kept() {
        let syncs = StoreDir::default();
        syncs.run(|| Ok(())).unwrap();
        let full = || Err(Error::new(ErrorKind::NoSpace, "injected"));
        assert_eq!(syncs.run(full).unwrap_err().kind(), ErrorKind::NoSpace);
        syncs.run(|| Ok(())).unwrap();
        assert_eq!(syncs.run(eio).unwrap_err().kind(), ErrorKind::Io);
        let again = syncs.run(|| panic!("a failed sync is not tried again"));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(syncs.check().unwrap_err().kind(), ErrorKind::Poisoned);
    }

    /// In any schedule, syncs do not overlap, and none begins after a failed one.
    #[test]
    fn directory_syncs_of_threads_are_serialized() {
        for fails_at in 0..40 {
            let (syncs, under_way, begun) = (StoreDir::default(), AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..10 {
                            let _ = syncs.run(|| {
                                assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0);
                                std::thread::yield_now();
                                under_way.fetch_sub(1, Ordering::SeqCst);
                                if begun.fetch_add(1, Ordering::SeqCst) == fails_at { eio() } else { Ok(()) }
                            });
                        }
                    });
                }
            });
            assert_eq!(begun.load(Ordering::SeqCst), fails_at + 1);
        }
    }
}
