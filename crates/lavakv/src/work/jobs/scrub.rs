//! The scrub: everything that the store is read from is read and checked, again and again, at a bounded rate.
//!
//! Damage that nobody meets is found too late: when the other copy is gone as well. So with `scrub_bytes_per_s` the store is
//! walked through in the background as `verify` does it ([`crate::work::verify::walk`]), in steps of about half a megabyte, each of
//! which waits until the ones before have had their time. It is the least urgent of all work: any other job goes first,
//! between two steps. Damage never stops the store; what it leads to is the same whoever finds it.
//!
//! A pass keeps nothing but the numbers of the files to come, and nothing of it is durable: after a restart it begins anew.
//! Between two passes there is a pause, so that a store with little in it is not read all the time. A store at rest counts as
//! idle while it is scrubbed.

use super::claim::Claim;
use super::{Claimed, Jobs};
use crate::plan::in_progress::InProgressSet;
use crate::plan::scrub::SCRUB_PAUSE_NS;
use crate::work::verify::VerifyReport;
use crate::work::verify::walk::Walk;
use base::Result;
use std::sync::Arc;
use store::pacing::Budget;
use store::run::{Job, JobClass, Progress};

/// The longest that a step waits at once, nanoseconds: then it looks whether the store is being closed.
const WAIT_NS_MAX: u64 = 500_000_000;

/// A pass.
pub(crate) struct ScrubJob {
    jobs: Arc<Jobs>,
    /// It begins with a list of all files, which is long: it is made by the first step.
    walk: Option<Walk>,
    rate: Budget,
    /// Dropped last.
    _claim: Claim,
}

/// Claims a pass.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> Claimed {
    set.scrub.begin();
    let jobs = jobs.clone();
    let context = jobs.context.clone();
    let claim = Claim::new(&jobs, move |set| {
        context.stats.scrub_files_left.set(0);
        set.scrub.end(context.now_ns(), SCRUB_PAUSE_NS);
    });
    let rate = Budget::new(jobs.context.options.expert.scrub_bytes_per_s);
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
