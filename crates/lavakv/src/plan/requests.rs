//! Collections that somebody asked for. See `admin::collect`.

use super::facts::FamilyFacts;
use crate::context::family_options::FamilyOptions;
use crate::tree::family::ReadState;
use base::{Error, Result};

/// How much garbage [`crate::Db::collect_garbage`] is to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcRequest {
    /// Collect until exposed garbage is at most so many percent of the records in all vSSTs. `None`: until no vSST has as
    /// much as the `gc_ratio_percent` of its family.
    pub until_percent: Option<u32>,
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

    /// From how much garbage on a file of the family is rewritten, if anything is still to be done.
    pub(crate) fn threshold(&self, exposed: Exposed, family: &FamilyOptions) -> Option<u32> {
        match self.until_percent {
            None => Some(family.expert.gc_ratio_percent),
            Some(percent) => exposed.is_over(percent).then_some(percent),
        }
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
    asked: Vec<(u64, GcRequest)>,
    next_id: u64,
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
        self.asked.iter().filter_map(|(_, request)| request.threshold(exposed, family)).min()
    }

    /// Another that stands until it is taken back; its number.
    pub fn enter(&mut self, request: GcRequest) -> u64 {
        self.next_id += 1;
        self.asked.push((self.next_id, request));
        self.next_id
    }

    pub fn take_back(&mut self, id: u64) {
        self.asked.retain(|(known, _)| *known != id);
    }
}
