//! The resources of a running job, returned when it ends, also on failure.

use super::Jobs;
use crate::plan::in_progress::InProgressSet;
use base::sync::lock;
use std::sync::Arc;
use store::space::Grant;
use values::PinGuard;
use version::BlobId;

/// Returns the claimed files and levels.
type Release = Box<dyn FnOnce(&mut InProgressSet) + Send + Sync>;

/// A claim on resources, created under the mutex of the work in progress and dropped with the job.
/// It must be the job's last field, so that the job's own references go first: an idle store must
/// not hold any file.
///
/// Never dropped under that mutex, because the drop locks it.
pub(crate) struct Claim {
    jobs: Arc<Jobs>,
    release: Option<Release>,
    /// Names that the job needs, released together with the files.
    pins: Option<PinGuard>,
    grant: Option<Grant>,
}

impl Claim {
    /// Creates a claim that `release` returns.
    pub fn new(jobs: &Arc<Jobs>, release: impl FnOnce(&mut InProgressSet) + Send + Sync + 'static) -> Claim {
        Claim { jobs: jobs.clone(), release: Some(Box::new(release)), pins: None, grant: None }
    }

    /// Adds pinned names, and a space grant.
    pub fn with(mut self, pins: PinGuard, grant: Option<Grant>) -> Claim {
        (self.pins, self.grant) = (Some(pins), grant);
        self
    }

    /// Reduces the pinned names to `names`, once the job knows them.
    pub fn narrow(&mut self, names: impl IntoIterator<Item = BlobId>) {
        if let Some(pins) = &mut self.pins {
            pins.narrow(names);
        }
    }

    /// Returns the space grant.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut set = lock(&self.jobs.in_progress);
        if let Some(release) = self.release.take() {
            release(&mut set);
        }
        self.pins = None;
        self.grant = None;
    }
}
