//! A scan of a transaction: keys and values of a range in ascending order. A serializable
//! transaction then depends on the part of the range that was shown, and on its gaps.

use crate::merged::MergedIterator;
use base::Result;
use lavakv::{RangeId, ReadSet};

/// Keys and values of a range in ascending order, as a transaction sees them. After an error it
/// ends.
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct Scan<'a> {
    iter: MergedIterator,
    upper: Option<Vec<u8>>,
    state: State,
    /// The range on which the commit is to depend.
    tracked: Option<(&'a mut ReadSet, RangeId)>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    New,
    /// At the entry that was returned last.
    Moved,
    Ended,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        iter: MergedIterator,
        upper: Option<Vec<u8>>,
        tracked: Option<(&'a mut ReadSet, RangeId)>,
    ) -> Scan<'a> {
        Scan { iter, upper, state: State::New, tracked }
    }

    fn advance(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.state {
            State::New => self.iter.seek_to_first()?,
            State::Moved => self.iter.next()?,
            State::Ended => return Ok(None),
        }
        let key = self.iter.valid().then(|| self.iter.key().to_vec());
        if let Some((reads, range)) = &mut self.tracked {
            let behind = key.as_ref().map(|key| [key, &[0][..]].concat());
            reads.extend_range(*range, behind.as_deref().or(self.upper.as_deref()))?;
        }
        self.state = if key.is_some() { State::Moved } else { State::Ended };
        key.map(|key| Ok((key, self.iter.value()?.to_vec()))).transpose()
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().inspect_err(|_| self.state = State::Ended).transpose()
    }
}
