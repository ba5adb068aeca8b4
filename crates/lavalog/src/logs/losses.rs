//! Records that may be lost: those that a file had which could not be read when the store was opened.
//!
//! The index does not know which records such a file had. So an LSN without a record, up to the end that the log had then, is lost
//! and not absent. A truncation or a new record ends that for its LSNs.

use super::live::LiveRecords;
use crate::entry::Lsn;
use base::{Error, Result};
use std::sync::Arc;

/// The losses of a log: none, or all records up to an LSN that the index does not have, with the reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses(Option<(Lsn, Arc<Error>)>);

impl Losses {
    /// A file cannot be read, and `last` is the present end of the log.
    pub fn set(&mut self, last: Option<Lsn>, why: &Arc<Error>) {
        self.0 = last.map(|last| (last, why.clone()));
    }

    /// The highest LSN that may be lost.
    pub fn last(&self) -> Option<Lsn> {
        self.0.as_ref().map(|(last, _)| *last)
    }

    /// Records above an LSN are gone, and so not lost.
    pub fn truncate_after(&mut self, lsn: Lsn) {
        self.0.iter_mut().for_each(|(last, _)| *last = lsn.min(*last));
    }

    /// The records that may be lost, of a log of this name with these records.
    pub fn of<'a>(&'a self, name: &'a str, live: &'a LiveRecords) -> LostRecords<'a> {
        LostRecords { losses: self, name, live }
    }
}

/// The records of a log that may be lost. See the module.
#[derive(Clone, Copy, Debug)]
pub struct LostRecords<'a> {
    losses: &'a Losses,
    name: &'a str,
    live: &'a LiveRecords,
}

impl LostRecords<'_> {
    /// # Errors
    /// `Corruption`, if the first of these LSNs that has no record may have had one.
    pub fn check(&self, from: Lsn, to: Lsn) -> Result<()> {
        let Some((lost_to, why)) = &self.losses.0 else { return Ok(()) };
        match self.live.gaps(from, to.min(*lost_to), 1).first() {
            Some((first, last)) if from <= *lost_to => {
                let what = format!("records {first} to {last} of log {} may be lost", self.name);
                Err(Error::clone(why).context(what))
            }
            _ => Ok(()),
        }
    }

    /// The first LSN from this one on that may have had a record which is lost.
    pub fn first(&self, from: Lsn) -> Option<Lsn> {
        let lost_to = self.losses.last().filter(|lost_to| from <= *lost_to)?;
        self.live.gaps(from, lost_to, 1).first().map(|(first, _)| *first)
    }

    /// Where records may have been that are lost, as first and last of each run.
    pub fn runs(&self) -> Vec<(Lsn, Lsn)> {
        self.losses.last().map_or_else(Vec::new, |lost_to| self.live.gaps(0, lost_to, usize::MAX))
    }
}
