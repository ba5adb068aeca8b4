//! What a job holds while it runs, given back when it ends, however it ends.

use super::Jobs;
use crate::plan::in_progress::InProgressSet;
use base::sync::lock;
use std::sync::Arc;
use store::space::Grant;
use values::PinGuard;
use version::BlobId;

/// Gives back what was claimed.
type Release = Box<dyn FnOnce(&mut InProgressSet) + Send + Sync>;

/// Made when a job is claimed, under the lock of what is in progress, and dropped with the job, as its last field: what the
/// job holds goes before. A store in which nothing is in progress is at rest, and must not hold any file.
///
/// Never dropped under that lock, which it takes.
pub(crate) struct Claim {
    jobs: Arc<Jobs>,
    release: Option<Release>,
    /// The names that the job needs: let go of together with what it works on.
    pins: Option<PinGuard>,
    grant: Option<Grant>,
}

impl Claim {
    /// Of what `release` gives back.
    pub fn new(jobs: &Arc<Jobs>, release: impl FnOnce(&mut InProgressSet) + Send + Sync + 'static) -> Claim {
        Claim { jobs: jobs.clone(), release: Some(Box::new(release)), pins: None, grant: None }
    }

    /// With names that are pinned, and the room that was granted.
    pub fn with(mut self, pins: PinGuard, grant: Option<Grant>) -> Claim {
        (self.pins, self.grant) = (Some(pins), grant);
        self
    }

    /// The job knows which names it needs: all others of its family are let go of.
    pub fn narrow(&mut self, names: impl IntoIterator<Item = BlobId>) {
        if let Some(pins) = &mut self.pins {
            pins.narrow(names);
        }
    }

    /// The room that was granted.
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
