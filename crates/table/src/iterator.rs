//! A cursor over a table: both streams merged.
//!
//! Moving forward, both streams are at or after the current entry and the smaller is current;
//! moving backward, they are at or before it and the larger is. A change of direction moves the
//! other stream across the current entry. A table with one stream avoids this cost. The builder saw
//! all keys in one order, so the streams have no key in common.
//!
//! A stream that fails at a block is positioned where the index says that the block begins
//! (backward: ends). The cursor fails when it reaches that position, so entries of the other stream
//! before it are not lost. [`InternalIterator::gap`] returns where the block ends, for callers that
//! continue after it.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::BlockKind;
use crate::options::{IterOptions, ReadCounters, SeekTarget};
use crate::readahead::ScanBounds;
use crate::reader::Ksst;
use crate::reference_block::ReferenceCursor;
use crate::source::FetchedBlocks;
use crate::stream::Stream;
use crate::stream_iter::StreamIter;
use base::{Error, Gap, InternalIterator, MAX_SEQ, Result, ValueKind, key};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Neither,
    References,
    Inline,
}

/// The failed read of a stream.
struct Lost {
    stream: Current,
    error: Error,
    gap: Gap,
}

impl Lost {
    /// Returns the position at which a cursor that moves forward (or backward) meets the gap.
    fn end(&self, forward: bool) -> &[u8] {
        if forward { &self.gap.first } else { &self.gap.last }
    }
}

/// A cursor over the point entries of a table. It owns its table.
pub struct KsstIter {
    // Boxed, so that moving a cursor is cheap: a stream is hundreds of bytes, and most tables have
    // one.
    references: Option<Box<StreamIter<ReferenceCursor>>>,
    inline: Option<Box<StreamIter<InlineCursor>>>,
    current: Current,
    forward: bool,
    /// Unreadable parts ahead of the cursor, at most one for each stream.
    lost: Vec<Lost>,
    /// Gap of the last failure.
    gap: Option<Gap>,
    /// Cost of the filters that the creation asked; `None`: the table has no prefixes in them.
    asked: Option<Box<ReadCounters>>,
}

/// Applies a movement to the existing streams.
macro_rules! both {
    ($self:ident, $stream:ident => $movement:expr) => {{
        $self.current = Current::Neither;
        $self.lost.clear();
        $self.gap = None;
        if let Some($stream) = &mut $self.references
            && let Err(e) = $movement
        {
            $self.lose(Current::References, e)?;
        }
        if let Some($stream) = &mut $self.inline
            && let Err(e) = $movement
        {
            $self.lose(Current::Inline, e)?;
        }
    }};
}

/// Returns a gap of all keys.
fn everything() -> Gap {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    key::encode_into(&mut first, &[], MAX_SEQ, ValueKind::Seek);
    key::encode_into(&mut last, &[], 0, ValueKind::Deletion);
    Gap { first, last }
}

impl KsstIter {
    pub(crate) fn new(
        table: Arc<Ksst>,
        options: IterOptions,
        borders: Option<Arc<ScanBounds>>,
        with_inline: bool,
    ) -> KsstIter {
        let mut asked = (table.properties.prefix_code != 0).then(Box::<ReadCounters>::default);
        let mut is_read = |stream: &Option<Stream>| match (stream, &mut asked) {
            (Some(stream), Some(asked)) => table.may_hold(stream, borders.as_deref(), asked),
            (stream, _) => stream.is_some(),
        };
        let (has_references, has_inline) =
            (is_read(&table.references), with_inline && is_read(&table.inline));
        let references = has_references.then(|| {
            Box::new(StreamIter::new(table.clone(), BlockKind::References, options, borders.clone()))
        });
        let inline =
            has_inline.then(|| Box::new(StreamIter::new(table, BlockKind::Inline, options, borders)));
        let (lost, gap) = (Vec::new(), None);
        KsstIter { references, inline, current: Current::Neither, forward: true, lost, gap, asked }
    }

    /// Returns the number of streams that the cursor passes over, because a filter excludes the
    /// prefix of the scanned keys.
    pub fn excluded_streams(&self) -> u64 {
        self.asked.as_ref().map_or(0, |asked| asked.prefix_negatives)
    }

    /// Returns the cost of the reads of this cursor so far.
    pub fn counters(&self) -> ReadCounters {
        let mut sum = self.asked.as_deref().copied().unwrap_or_default();
        self.references.iter().for_each(|s| sum.add(&s.cost()));
        self.inline.iter().for_each(|s| sum.add(&s.cost()));
        sum
    }

    /// Returns the expiry time of the current entry, in seconds since 1970; 0: never.
    pub fn expiry(&self) -> u64 {
        match self.current {
            Current::References => self.references.as_ref().map_or(0, |s| s.cursor().expiry()),
            Current::Inline => self.inline.as_ref().map_or(0, |s| s.cursor().expiry()),
            Current::Neither => 0,
        }
    }

    /// Makes the cursor not valid.
    pub fn clear(&mut self) {
        self.current = Current::Neither;
    }

    /// Records the failure of a stream. If the stream knows its gap, the cursor fails only on
    /// reaching it.
    #[cold]
    fn lose(&mut self, stream: Current, error: Error) -> Result<()> {
        let gap = match stream {
            Current::References => self.references.as_mut().and_then(|s| s.take_gap()),
            Current::Inline => self.inline.as_mut().and_then(|s| s.take_gap()),
            Current::Neither => None,
        };
        let gap = match gap {
            Some(gap) => gap,
            // The place is unknown: the gap may begin at the next entry.
            None if error.is_waiting() => everything(),
            None => return Err(error),
        };
        self.lost.push(Lost { stream, error, gap });
        Ok(())
    }

    /// Fails if an unreadable part comes before the chosen entry.
    #[cold]
    fn meet_lost(&mut self) -> Result<()> {
        let forward = self.forward;
        let comes_first = |a: &[u8], b: &[u8]| key::compare(a, b).is_lt() == forward;
        let mut first = 0;
        for at in 1..self.lost.len() {
            if comes_first(self.lost[at].end(forward), self.lost[first].end(forward)) {
                first = at;
            }
        }
        if self.valid() && comes_first(self.key(), self.lost[first].end(forward)) {
            return Ok(());
        }
        let (error, gap) = (self.lost[first].error.clone(), self.lost[first].gap.clone());
        if !error.is_waiting() {
            self.lost.swap_remove(first);
        }
        self.gap = Some(gap);
        Err(error)
    }

    #[inline]
    fn choose(&mut self) -> Result<()> {
        self.choose_entry();
        if self.lost.is_empty() { Ok(()) } else { self.meet_lost() }
    }

    fn choose_entry(&mut self) {
        let references = self.references.as_ref().filter(|s| s.cursor().valid());
        let inline = self.inline.as_ref().filter(|s| s.cursor().valid());
        self.current = match (references, inline) {
            (None, None) => Current::Neither,
            (Some(_), None) => Current::References,
            (None, Some(_)) => Current::Inline,
            (Some(a), Some(b))
                if key::compare(a.cursor().key(), b.cursor().key()).is_lt() == self.forward =>
            {
                Current::References
            }
            _ => Current::Inline,
        };
    }

    /// Moves the stream that is not current to the other side of the current entry.
    fn turn(&mut self, forward: bool) -> Result<()> {
        self.forward = forward;
        let lost = self.lost.pop().map(|_| self.key().to_vec());
        macro_rules! cross {
            ($stream:expr) => {
                match $stream {
                    // The stream is at its unreadable part, not at its end.
                    Some(s) if lost.is_some() => {
                        let key = lost.as_deref().unwrap_or_default();
                        if forward { s.seek(key) } else { s.seek_for_prev(key) }
                    }
                    Some(s) if forward && s.cursor().valid() => s.next(),
                    Some(s) if forward => s.seek_to_first(),
                    Some(s) if s.cursor().valid() => s.prev(),
                    Some(s) => s.seek_to_last(),
                    None => Ok(()),
                }
            };
        }
        let (other, crossed) = match self.current {
            Current::References => (Current::Inline, cross!(&mut self.inline)),
            Current::Inline => (Current::References, cross!(&mut self.references)),
            Current::Neither => (Current::Neither, Ok(())),
        };
        crossed.or_else(|e| self.lose(other, e))
    }

    fn guard(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            self.current = Current::Neither;
            if e.is_waiting() {
                return result;
            }
            self.lost.clear();
            self.references.iter_mut().for_each(|s| s.reset());
            self.inline.iter_mut().for_each(|s| s.reset());
        }
        result
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if self.forward != forward {
            self.turn(forward)?;
        }
        let moved = match (self.current, &mut self.references, &mut self.inline) {
            (Current::References, Some(s), _) => s.step(forward),
            (Current::Inline, _, Some(s)) => s.step(forward),
            _ => Ok(()),
        };
        if let Err(e) = moved {
            self.lose(self.current, e)?;
        }
        self.choose()
    }

    /// Resumes the streams that wait.
    fn go_on(&mut self) -> Result<()> {
        let lost = std::mem::take(&mut self.lost);
        let (waiting, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(|lost| lost.error.is_waiting());
        self.lost = lost;
        for Lost { stream, .. } in waiting {
            let moved = match stream {
                Current::References => self.references.as_mut().map_or(Ok(()), |s| s.resume()),
                Current::Inline => self.inline.as_mut().map_or(Ok(()), |s| s.resume()),
                Current::Neither => Ok(()),
            };
            if let Err(e) = moved {
                self.lose(stream, e)?;
            }
        }
        self.choose()
    }

    /// Visits the read buffers of each stream, for callers that perform the reads.
    pub fn each_fetched(&mut self, visit: &mut dyn FnMut(&mut FetchedBlocks)) {
        self.references.as_mut().and_then(|s| s.fetched()).into_iter().for_each(&mut *visit);
        self.inline.as_mut().and_then(|s| s.fetched()).into_iter().for_each(visit);
    }

    /// Returns the bytes of blocks that the caller read and the cursor holds.
    pub fn held_bytes(&self) -> u64 {
        self.references.as_ref().map_or(0, |s| s.held_bytes())
            + self.inline.as_ref().map_or(0, |s| s.held_bytes())
    }

    fn position(&mut self, place: SeekTarget<'_>) -> Result<()> {
        self.forward = place.is_forward();
        both!(self, s => match place {
            SeekTarget::First => s.seek_to_first(),
            SeekTarget::Last => s.seek_to_last(),
            SeekTarget::From(target) => s.seek(target),
            SeekTarget::UpTo(target) => s.seek_for_prev(target),
        });
        self.choose()
    }

    /// Prepares a seek to `place`, which must follow. Loads the first block into memory, or
    /// requests it through `fetched`; then the same call continues once the block was delivered. It
    /// reports no error: the seek itself meets the same error at the same place. The cursor is not
    /// valid until the seek.
    pub fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        self.current = Current::Neither;
        self.references.iter_mut().for_each(|s| s.prepare(place, fetched));
        self.inline.iter_mut().for_each(|s| s.prepare(place, fetched));
    }
}

impl InternalIterator for KsstIter {
    fn valid(&self) -> bool {
        self.current != Current::Neither
    }

    fn seek_to_first(&mut self) -> Result<()> {
        let done = self.position(SeekTarget::First);
        self.guard(done)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let done = self.position(SeekTarget::Last);
        self.guard(done)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let done = self.position(SeekTarget::From(target));
        self.guard(done)
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let done = self.position(SeekTarget::UpTo(target));
        self.guard(done)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid(), "next on an iterator that is not valid");
        let done = self.step(true);
        self.guard(done)
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid(), "prev on an iterator that is not valid");
        let done = self.step(false);
        self.guard(done)
    }

    fn resume(&mut self) -> Result<()> {
        let done = self.go_on();
        self.guard(done)
    }

    fn gap(&self) -> Option<Gap> {
        self.gap.clone()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self.current {
            Current::References => self.references.as_ref().map_or(&[], |s| s.cursor().key()),
            Current::Inline => self.inline.as_ref().map_or(&[], |s| s.cursor().key()),
            Current::Neither => &[],
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self.current {
            Current::References => self.references.as_ref().map_or(&[], |s| s.cursor().value()),
            Current::Inline => self.inline.as_ref().map_or(&[], |s| s.cursor().value()),
            Current::Neither => &[],
        }
    }
}
