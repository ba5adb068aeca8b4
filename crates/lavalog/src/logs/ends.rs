//! The highest LSNs of a log.
//!
//! A truncation must know the highest record that remains. During open the index may lack the
//! records of an unreadable file. The upper bound `bound` stays correct then. It is at least
//! `last`. A checkpoint stores `last` only, because the index is complete, or the loss known, when
//! it is written.

use crate::entry::Lsn;

/// The highest LSNs of a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    last: Option<Lsn>,
    /// Highest known LSN of a trimmed record.
    trimmed: Option<Lsn>,
    bound: Option<Lsn>,
}

impl Ends {
    /// Restores the ends of a log from a checkpoint.
    pub fn restore(last: Option<Lsn>, trimmed_below: Lsn) -> Ends {
        Ends { last, trimmed: last.filter(|last| *last < trimmed_below), bound: last }
    }

    /// Returns the highest LSN with a record, counting trimmed records.
    pub fn last(&self) -> Option<Lsn> {
        self.last
    }

    /// Returns an upper bound of the LSNs that the log may have if the index is incomplete.
    pub fn bound(&self) -> Option<Lsn> {
        self.bound
    }

    /// Raises the ends to an LSN that has a record, or had one when it was trimmed.
    pub fn reach(&mut self, lsn: Option<Lsn>) {
        self.last = self.last.max(lsn);
        self.bound = self.bound.max(lsn);
    }

    /// Notes that the record of this LSN is trimmed.
    pub fn reach_trimmed(&mut self, lsn: Option<Lsn>) {
        self.trimmed = self.trimmed.max(lsn);
    }

    /// Notes that records above an LSN are gone, except for later ones. `left` is the highest
    /// remaining LSN.
    pub fn truncate_after(&mut self, lsn: Lsn, left: Option<Lsn>) {
        if self.last > Some(lsn) {
            self.last = left.max(self.trimmed);
        }
        self.bound = self.bound.map(|bound| bound.min(lsn)).max(self.last);
    }

    /// Notes that the index lacks unknown records, so that the next append goes above the bound.
    pub fn lose(&mut self) {
        self.last = self.bound;
    }
}
