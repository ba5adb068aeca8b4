//! Work that callers asked for: which calls wait, and the collections among them. See `admin::collect`.

use super::facts::FamilyFacts;
use crate::context::Context;
use crate::context::family_options::FamilyOptions;
use crate::tree::family::ReadState;
use base::{Error, Result};
use io::Cancel;
use std::sync::Arc;

/// How much garbage [`crate::Db::collect_garbage`] is to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcRequest {
    /// Collect until exposed garbage is at most so many percent of the records in all vSSTs. `None`: until no vSST has as
    /// much as the `gc_ratio_percent` of its family.
    pub until_percent: Option<u32>,
    /// Ends the call before its time. Collections that have ended keep their effect; those that run for this call alone end without
    /// one.
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

    /// What is to be reached.
    pub(crate) fn goal(&self) -> GcGoal {
        GcGoal { until_percent: self.until_percent }
    }
}

/// How much garbage a request leaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GcGoal {
    /// See [`GcRequest::until_percent`].
    pub until_percent: Option<u32>,
}

impl GcGoal {
    /// From how much garbage on a file of the family is rewritten, if anything is still to be done.
    pub fn threshold(&self, exposed: Exposed, family: &FamilyOptions) -> Option<u32> {
        match self.until_percent {
            None => Some(family.expert.gc_ratio_percent),
            Some(percent) => exposed.is_over(percent).then_some(percent),
        }
    }
}

/// A call that waits for jobs. Each job that works for it holds a clone to its end.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Option<Cancel>>);

impl Caller {
    pub fn new(cancel: Option<Cancel>) -> Caller {
        Caller(Arc::new(cancel))
    }

    /// Fails once the call is to end.
    ///
    /// # Errors
    /// `Closed`; `Cancelled`.
    pub fn check(&self, context: &Context) -> Result<()> {
        context.check_call(self.0.as_ref().as_ref())
    }

    /// True once the call is cancelled: what is done for it alone is given up.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// True if both are of one call.
    pub fn is(&self, other: &Caller) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True while a job works for the call, or waits to.
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

/// Requests under way. Part of what is in progress.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    asked: Vec<(GcGoal, Caller)>,
}

impl Requests {
    /// True if nobody waits for a collection.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// From how much garbage on somebody wants a file of the family rewritten.
    pub fn threshold(&self, families: &[FamilyFacts], family: &FamilyOptions) -> Option<u32> {
        if self.asked.is_empty() {
            return None;
        }
        let exposed = Exposed::of(families.iter().map(|family| &*family.read_state));
        self.asked.iter().filter_map(|(goal, _)| goal.threshold(exposed, family)).min()
    }

    /// Another that stands until it is taken back.
    pub fn enter(&mut self, goal: GcGoal, caller: &Caller) {
        self.asked.push((goal, caller.clone()));
    }

    pub fn take_back(&mut self, caller: &Caller) {
        self.asked.retain(|(_, known)| !known.is(caller));
    }

    /// The calls that wait for collections.
    pub fn callers(&self) -> Vec<Caller> {
        self.asked.iter().map(|(_, caller)| caller.clone()).collect()
    }
}
