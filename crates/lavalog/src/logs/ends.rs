//! The highest LSNs of a log.
//!
//! A truncation leaves the highest record that exists, and that is not always known: while a store is opened, the index lacks the
//! records of a file that cannot be read. The bound holds there too. It is at least `last`, and a checkpoint keeps `last` only:
//! when it is written, the index is whole or the loss is known.

use crate::entry::Lsn;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    last: Option<Lsn>,
    /// The highest LSN of a trimmed record, as far as it is known.
    trimmed: Option<Lsn>,
    bound: Option<Lsn>,
}

impl Ends {
    /// The ends of a log, from its description in a checkpoint.
    pub fn restore(last: Option<Lsn>, trimmed_below: Lsn) -> Ends {
        Ends { last, trimmed: last.filter(|last| *last < trimmed_below), bound: last }
    }

    /// The highest LSN that the log has, or had when that was trimmed.
    pub fn last(&self) -> Option<Lsn> {
        self.last
    }

    /// The highest LSN that it may have, if the index lacks some.
    pub fn bound(&self) -> Option<Lsn> {
        self.bound
    }

    /// There is a record of this LSN, or there was one when it was trimmed.
    pub fn reach(&mut self, lsn: Option<Lsn>) {
        self.last = self.last.max(lsn);
        self.bound = self.bound.max(lsn);
    }

    /// A record of this LSN is trimmed.
    pub fn reach_trimmed(&mut self, lsn: Option<Lsn>) {
        self.trimmed = self.trimmed.max(lsn);
    }

    /// Records above an LSN are gone, but for those that came later: `left` is the highest one that is left.
    pub fn truncate_after(&mut self, lsn: Lsn, left: Option<Lsn>) {
        if self.last > Some(lsn) {
            self.last = left.max(self.trimmed);
        }
        self.bound = self.bound.map(|bound| bound.min(lsn)).max(self.last);
    }

    /// The index lacks unknown records: the next append goes behind the bound.
    pub fn lose(&mut self) {
        self.last = self.bound;
    }
}
