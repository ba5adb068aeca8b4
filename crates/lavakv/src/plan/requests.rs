//! Manual work: the waiting calls, and the collections they request. See `admin::collect`.

use super::facts::FamilyFacts;
use crate::context::Context;
use crate::context::family_options::FamilyOptions;
use crate::tree::family::ReadState;
use base::{Error, Result};
use io::Cancel;
use std::sync::Arc;

/// Tells [`crate::Db::collect_garbage`] how much garbage may be left, and makes it cancellable. The
/// default collects as much as the engine does by itself, but now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcRequest {
    /// Collects until exposed garbage is at most this percentage of all separated values, 0 to 100;
    /// 0 collects all of it. Lower values cost more rewrites. A higher number is refused with
    /// `InvalidArgument`. Default: `None`, until each value file (vSST) has less garbage than its
    /// family's [`gc_ratio_percent`](crate::ExpertFamilyOptions::gc_ratio_percent).
    pub until_percent: Option<u32>,
    /// Ends the call early, with `Cancelled`. Completed collections keep their effect. Collections
    /// that run for this call alone end without one. Default: none.
    pub cancel: Option<Cancel>,
}

impl GcRequest {
    pub(crate) fn check(&self) -> Result<()> {
        match self.until_percent {
            Some(percent) if percent > 100 => {
                Err(Error::invalid(format!("until_percent = {percent} is out of range: 0 to 100")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the goal of the request.
    pub(crate) fn goal(&self) -> GcGoal {
        GcGoal { until_percent: self.until_percent }
    }
}

/// The garbage that a request may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GcGoal {
    /// See [`GcRequest::until_percent`].
    pub until_percent: Option<u32>,
}

impl GcGoal {
    /// Returns the threshold of garbage per file in this family, or `None` once the goal is
    /// reached.
    pub fn threshold(&self, exposed: Exposed, family: &FamilyOptions) -> Option<u32> {
        match self.until_percent {
            None => Some(family.expert.gc_ratio_percent),
            Some(percent) => exposed.is_over(percent).then_some(percent),
        }
    }
}

/// A waiting call. Each job that works for the call holds a clone until it ends.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Option<Cancel>>);

impl Caller {
    pub fn new(cancel: Option<Cancel>) -> Caller {
        Caller(Arc::new(cancel))
    }

    /// Checks whether the call should continue.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check(&self, context: &Context) -> Result<()> {
        context.check_call(self.0.as_ref().as_ref())
    }

    /// Returns whether the call is cancelled, so that work for it alone is abandoned.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Returns whether both belong to the same call.
    pub fn is(&self, other: &Caller) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether a job runs for the call, or is queued.
    pub fn has_jobs(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Exposed garbage and records of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exposed {
    pub garbage_bytes: u64,
    pub record_bytes: u64,
}

impl Exposed {
    pub fn of<'a>(read_states: impl Iterator<Item = &'a ReadState>) -> Exposed {
        let mut sum = Exposed::default();
        for read_state in read_states {
            sum.garbage_bytes += read_state.ledger.exposed_bytes();
            sum.record_bytes += read_state.ledger.record_bytes();
        }
        sum
    }

    fn is_over(self, percent: u32) -> bool {
        u128::from(self.garbage_bytes) * 100 > u128::from(self.record_bytes) * u128::from(percent)
    }
}

/// Pending requests, part of the work in progress.
#[derive(Debug, Default)]
pub(crate) struct GcRequests {
    asked: Vec<(GcGoal, Caller)>,
}

impl GcRequests {
    /// Returns whether no call waits for a collection.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Returns the lowest requested threshold of garbage per file in this family.
    pub fn threshold(&self, families: &[FamilyFacts], family: &FamilyOptions) -> Option<u32> {
        if self.asked.is_empty() {
            return None;
        }
        let exposed = Exposed::of(families.iter().map(|family| &*family.read_state));
        self.asked.iter().filter_map(|(goal, _)| goal.threshold(exposed, family)).min()
    }

    /// Adds a request, which stands until it is withdrawn.
    pub fn enter(&mut self, goal: GcGoal, caller: &Caller) {
        self.asked.push((goal, caller.clone()));
    }

    pub fn take_back(&mut self, caller: &Caller) {
        self.asked.retain(|(_, known)| !known.is(caller));
    }

    /// Returns the calls that wait for collections.
    pub fn callers(&self) -> Vec<Caller> {
        self.asked.iter().map(|(_, caller)| caller.clone()).collect()
    }
}
