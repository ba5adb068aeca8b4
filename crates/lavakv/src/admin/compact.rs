//! Compaction of a range on request.

use crate::admin::flush::flush;
use crate::admin::wait::wait_for_jobs;
use crate::tree::family::Family;
use crate::work::jobs::{self, Jobs};
use base::Result;
use std::sync::Arc;

/// Compacts a range level by level, from the top.
pub(crate) fn compact_range(
    jobs: &Arc<Jobs>,
    family: &Arc<Family>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    flush(jobs)?;
    let mut range = lsm::policy::ManualRange::new(start, end);
    wait_for_jobs(jobs, "compaction found no disk space", || {
        Ok(jobs::advance_manual(jobs, family, &mut range))
    })
}
