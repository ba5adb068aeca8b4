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

use super::{Claims, Jobs};
use crate::run::rate_limit::RateLimit;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::work::verify::VerifyReport;
use crate::work::verify::walk::Walk;
use base::Result;
use base::sync::lock;
use std::sync::Arc;

/// From the end of a pass to the beginning of the next, nanoseconds.
const PAUSE_NS: u64 = 60_000_000_000;
/// The longest that a step waits at once, nanoseconds: then it looks whether the store is being closed.
const WAIT_NS_MAX: u64 = 500_000_000;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// A pass is under way.
    running: bool,
    /// The next one begins then.
    next_ns: u64,
}

/// A pass.
pub(crate) struct ScrubJob {
    jobs: Arc<Jobs>,
    /// It begins with a list of all files, which is not made under the lock of the claims, where the job is.
    walk: Option<Walk>,
    rate: RateLimit,
}

impl ScrubJob {
    /// Begins a pass, if it is time for one.
    pub fn start(jobs: &Arc<Jobs>, claims: &mut Claims) -> Option<ScrubJob> {
        let bytes_per_s = jobs.context.options.scrub_bytes_per_s;
        let turn = &mut claims.scrub;
        if bytes_per_s == 0 || turn.running || jobs.context.env.clock.now_ns() < turn.next_ns {
            return None;
        }
        turn.running = true;
        Some(ScrubJob { jobs: jobs.clone(), walk: None, rate: RateLimit::new(bytes_per_s) })
    }

    fn end(jobs: &Jobs) {
        jobs.context.stats.scrub_files_left.set(0);
        lock(&jobs.claims).scrub =
            Turn { running: false, next_ns: jobs.context.env.clock.now_ns().saturating_add(PAUSE_NS) };
    }
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
        jobs.context.stats.scrub_damages.add(report.errors.len() as u64);
        jobs.context.stats.scrub_files_left.set(walk.files_left());
        match read {
            Some(bytes) => {
                jobs.context.stats.scrub_bytes.add(bytes);
                self.rate.charge(now_ns, bytes);
                Ok(Progress::More)
            }
            None => {
                jobs.context.stats.scrub_passes.add(1);
                Self::end(jobs);
                Ok(Progress::Done)
            }
        }
    }

    fn abandon(&mut self) {
        let jobs = &self.jobs.clone();
        Self::end(jobs);
    }
}
