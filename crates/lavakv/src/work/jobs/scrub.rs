//! The scrub: reads and verifies all files of the store repeatedly, at a limited rate.
//!
//! Damage that is found late may have reached every copy. So with `scrub_bytes_per_s` the store is
//! verified in the background like by `verify` ([`crate::work::verify::walk`]). Each step reads
//! about half a megabyte, and waits until the rate allows it. The scrub is the least urgent job:
//! any other job preempts it between steps. Damage never stops the store; scrub, jobs and readers
//! handle it in the same way.
//!
//! A pass holds only the numbers of the remaining files, and none of that is durable: a restart
//! begins a new pass. A pause between passes avoids constant reads of a small store. A store counts
//! as idle while it is scrubbed.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::plan::in_progress::InProgressSet;
use crate::plan::scrub::SCRUB_PAUSE_NS;
use crate::work::verify::VerifyReport;
use crate::work::verify::walk::Walk;
use base::Result;
use std::sync::Arc;
use store::pacing::RateLimiter;
use store::run::{Job, JobClass, Progress};

/// Maximum wait of a step, nanoseconds, so that a close is noticed.
const WAIT_NS_MAX: u64 = 500_000_000;

/// A pass of the scrub.
pub(crate) struct ScrubJob {
    jobs: Arc<Jobs>,
    /// Created by the first step, because listing all files takes long.
    walk: Option<Walk>,
    rate: RateLimiter,
    /// Dropped last.
    _claim: Claim,
}

/// Claims a pass of the scrub.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> ClaimedJob {
    set.scrub.begin();
    let jobs = jobs.clone();
    let context = jobs.context.clone();
    let claim = Claim::new(&jobs, move |set| {
        context.stats.scrub_files_left.set(0);
        set.scrub.end(context.now_ns(), SCRUB_PAUSE_NS);
    });
    let rate = RateLimiter::new(jobs.context.options.expert.scrub_bytes_per_s);
    Box::new(move || Box::new(ScrubJob { jobs, walk: None, rate, _claim: claim }))
}

impl Job for ScrubJob {
    fn class(&self) -> JobClass {
        JobClass::Scrub
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        let now_ns = jobs.context.env.clock.now_ns();
        match self.rate.wait_ns(now_ns) {
            0 => {}
            ns => return Ok(Progress::Wait(ns.min(WAIT_NS_MAX))),
        }
        let mut report = VerifyReport::default();
        let walk = self.walk.get_or_insert_with(|| Walk::new(jobs));
        let read = walk.step(jobs, &mut report);
        jobs.context.stats.scrub_damages.add(report.damages());
        jobs.context.stats.scrub_files_left.set(walk.files_left());
        match read {
            Some(bytes) => {
                jobs.context.stats.scrub_bytes.add(bytes);
                self.rate.charge(now_ns, bytes);
                Ok(Progress::More)
            }
            None => {
                jobs.context.stats.scrub_passes.add(1);
                Ok(Progress::Done)
            }
        }
    }

    fn abandon(&mut self) {}
}
