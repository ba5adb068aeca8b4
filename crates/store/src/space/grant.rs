//! What a running job may write, and what it has written.

use super::budget::SpaceBudget;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::PathBuf;
use std::sync::Arc;

/// Given back when it is dropped.
#[derive(Debug)]
pub struct Grant {
    space: Arc<SpaceBudget>,
    granted_bytes: u64,
    written_bytes: AtomicU64,
}

/// What all running jobs may write, and have written.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// What they may write in all.
    pub granted_bytes: AtomicU64,
    /// What the files that they (flushes, too) have begun occupy.
    pub written_bytes: AtomicU64,
}

impl Grant {
    pub(super) fn new(space: &Arc<SpaceBudget>, granted_bytes: u64) -> Grant {
        space.jobs.granted_bytes.fetch_add(granted_bytes, Relaxed);
        Grant { space: space.clone(), granted_bytes, written_bytes: AtomicU64::new(0) }
    }

    /// `created` are the files the job has made so far. After each step.
    pub fn wrote(&self, created: impl FnOnce() -> Vec<(u64, PathBuf)>) {
        if self.space.is_limited() {
            let files = created();
            self.set_written(files.iter().map(|(_, path)| self.space.meter().bytes_of(path)).sum());
        }
    }

    fn set_written(&self, bytes: u64) {
        self.space.jobs.written_bytes.fetch_add(bytes, Relaxed);
        self.space.jobs.written_bytes.fetch_sub(self.written_bytes.swap(bytes, Relaxed), Relaxed);
    }

    /// Its files are the store's from now on.
    pub fn installed(&self) {
        self.set_written(0);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.set_written(0);
        self.space.jobs.granted_bytes.fetch_sub(self.granted_bytes, Relaxed);
    }
}
