//! Grants of space to running jobs.
//!
//! A job starts only if all its outputs fit below the ceiling beside the grants of other jobs. Its
//! own bytes move from the grant to the files as it writes.

use super::bounds::Bounds;
use super::claims::Claims;
use super::sizes::{with_overhead, without_overhead};
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::PathBuf;
use std::sync::Arc;

/// Sums over all running jobs.
#[derive(Debug, Default)]
pub(super) struct Granted {
    granted_bytes: AtomicU64,
    /// Bytes of the unfinished output files of jobs and flushes.
    written_bytes: AtomicU64,
}

impl Granted {
    pub fn granted_bytes(&self) -> u64 {
        self.granted_bytes.load(Relaxed)
    }

    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }
}

/// The space grants: see the module.
#[derive(Debug)]
pub struct Grants {
    claims: Arc<Claims>,
    bounds: Arc<Bounds>,
}

impl Grants {
    pub(super) fn new(claims: &Arc<Claims>, bounds: &Arc<Bounds>) -> Grants {
        Grants { claims: claims.clone(), bounds: bounds.clone() }
    }

    /// Grants space for the outputs of `input_bytes`; `None`: not now. Call it under the lock of
    /// the set of running jobs.
    pub fn grant(&self, input_bytes: u64) -> Option<Grant> {
        let bytes = with_overhead(input_bytes);
        self.fits_job(bytes).then(|| self.granted(bytes))
    }

    /// Returns true if a job with `input_bytes` of input could start.
    pub fn would_grant(&self, input_bytes: u64) -> bool {
        self.fits_job(with_overhead(input_bytes))
    }

    /// Returns a grant of a flush, which needs no room: its bytes were admitted with the writes.
    pub fn watch(&self) -> Grant {
        self.granted(0)
    }

    fn granted(&self, granted_bytes: u64) -> Grant {
        self.claims.jobs.granted_bytes.fetch_add(granted_bytes, Relaxed);
        let (claims, bounds) = (self.claims.clone(), self.bounds.clone());
        Grant { claims, bounds, granted_bytes, written_bytes: AtomicU64::new(0) }
    }

    /// Returns the maximum input of a job that could start now; `u64::MAX` without a limit.
    pub fn job_bytes_max(&self) -> u64 {
        if !self.bounds.is_limited() {
            return u64::MAX;
        }
        let granted = self.claims.jobs.granted_bytes();
        let claimed = self.claims.without_jobs_bytes().saturating_add(granted);
        let room = self.bounds.ceiling_bytes().saturating_sub(claimed);
        without_overhead(room.min(self.claims.free_bytes(granted)))
    }

    /// Returns true if a file of `bytes` may be created that is no output of a job.
    pub fn fits_job(&self, bytes: u64) -> bool {
        let granted = self.claims.jobs.granted_bytes();
        let fits = || bytes <= self.claims.free_bytes(granted);
        self.fits_beside(granted, bytes) && (!self.bounds.is_limited() || fits())
    }

    /// Returns true if a file of `bytes` may be created that stays and frees nothing. The pool of
    /// freeing jobs is left to them.
    pub fn fits_file(&self, bytes: u64) -> bool {
        self.fits_beside(self.claims.pool_bytes(), bytes)
    }

    fn fits_beside(&self, jobs_bytes: u64, bytes: u64) -> bool {
        let needed = || self.claims.without_jobs_bytes().saturating_add(jobs_bytes).saturating_add(bytes);
        !self.bounds.is_limited() || needed() <= self.bounds.ceiling_bytes()
    }

    /// Returns the bytes granted to running jobs, and the bytes that they have written.
    pub fn job_sums(&self) -> (u64, u64) {
        (self.claims.jobs.granted_bytes(), self.claims.jobs.written_bytes())
    }
}

/// A space grant, released on drop.
#[derive(Debug)]
pub struct Grant {
    claims: Arc<Claims>,
    bounds: Arc<Bounds>,
    granted_bytes: u64,
    written_bytes: AtomicU64,
}

impl Grant {
    /// Updates the written bytes from the files that the job has created. Called after each step.
    pub fn wrote(&self, created: impl FnOnce() -> Vec<(u64, PathBuf)>) {
        if self.bounds.is_limited() {
            let files = created();
            self.set_written(files.iter().map(|(_, path)| self.claims.meter.bytes_of(path)).sum());
        }
    }

    fn set_written(&self, bytes: u64) {
        self.claims.jobs.written_bytes.fetch_add(bytes, Relaxed);
        self.claims.jobs.written_bytes.fetch_sub(self.written_bytes.swap(bytes, Relaxed), Relaxed);
    }

    /// Records that the job's files belong to the store from now on.
    pub fn installed(&self) {
        self.set_written(0);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.set_written(0);
        self.claims.jobs.granted_bytes.fetch_sub(self.granted_bytes, Relaxed);
    }
}
