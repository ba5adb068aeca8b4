//! Records that may be lost because a file was unreadable when the store was opened.
//!
//! The index does not know the records of such a file. So a missing LSN, up to the end of the log
//! at that time, counts as lost, not absent. A truncation or a new record resolves the loss of its
//! LSNs.

use super::live::LiveRecords;
use crate::entry::Lsn;
use base::{Error, Result};
use std::sync::Arc;

/// Losses of a log: none, or all missing records up to an LSN, with the reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses(Option<(Lsn, Arc<Error>)>);

impl Losses {
    /// Marks a loss because of an unreadable file. `last` is the current end of the log.
    pub fn set(&mut self, last: Option<Lsn>, why: &Arc<Error>) {
        self.0 = last.map(|last| (last, why.clone()));
    }

    /// Returns the highest LSN that may be lost.
    pub fn last(&self) -> Option<Lsn> {
        self.0.as_ref().map(|(last, _)| *last)
    }

    /// Ends the losses above a truncation.
    pub fn truncate_after(&mut self, lsn: Lsn) {
        self.0.iter_mut().for_each(|(last, _)| *last = lsn.min(*last));
    }

    /// Returns the possibly lost records of the log with this name and these live records.
    pub fn of<'a>(&'a self, name: &'a str, live: &'a LiveRecords) -> PossibleLosses<'a> {
        PossibleLosses { losses: self, name, live }
    }
}

/// The records of a log that may be lost.
#[derive(Clone, Copy, Debug)]
pub struct PossibleLosses<'a> {
    losses: &'a Losses,
    name: &'a str,
    live: &'a LiveRecords,
}

impl PossibleLosses<'_> {
    /// Checks that no record in a range may be lost.
    ///
    /// # Errors
    /// `Corruption` if the first missing LSN of the range may have had a record.
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

    /// Returns the first LSN, from `from` on, whose record may be lost.
    pub fn first(&self, from: Lsn) -> Option<Lsn> {
        let lost_to = self.losses.last().filter(|lost_to| from <= *lost_to)?;
        self.live.gaps(from, lost_to, 1).first().map(|(first, _)| *first)
    }

    /// Returns the runs of LSNs whose records may be lost, each as first and last LSN.
    pub fn runs(&self) -> Vec<(Lsn, Lsn)> {
        self.losses.last().map_or_else(Vec::new, |lost_to| self.live.gaps(0, lost_to, usize::MAX))
    }
}
