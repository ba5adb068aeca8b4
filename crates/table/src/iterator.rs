//! A cursor over a table: both streams merged.
//!
//! Moving forward, both streams stand at or after the present entry and the smaller is current; moving backward, at or
//! before it and the larger is. Changing direction moves the other stream across the present entry. A table with one
//! stream pays nothing for this. The builder saw all keys in one order, so the streams have no key in common.

use crate::block::InlineCursor;
use crate::file::Role;
use crate::options::{IterOptions, ReadCounters};
use crate::readahead::Borders;
use crate::reader::Ksst;
use crate::reference_block::ReferenceCursor;
use crate::stream_iter::StreamIter;
use base::{InternalIterator, Result, key};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Neither,
    References,
    Inline,
}

/// A cursor over the point entries of a table. It owns its table.
pub struct KsstIter {
    references: Option<StreamIter<ReferenceCursor>>,
    inline: Option<StreamIter<InlineCursor>>,
    current: Current,
    forward: bool,
}

/// Applies a movement to both streams that are there.
macro_rules! both {
    ($self:ident, $stream:ident => $movement:expr) => {{
        $self.current = Current::Neither;
        if let Some($stream) = &mut $self.references {
            $movement?;
        }
        if let Some($stream) = &mut $self.inline {
            $movement?;
        }
    }};
}

impl KsstIter {
    pub(crate) fn new(
        table: Arc<Ksst>,
        options: IterOptions,
        borders: Option<Arc<Borders>>,
        with_inline: bool,
    ) -> KsstIter {
        let references = table
            .references
            .is_some()
            .then(|| StreamIter::new(table.clone(), Role::References, options, borders.clone()));
        let inline = (with_inline && table.inline.is_some())
            .then(|| StreamIter::new(table.clone(), Role::Inline, options, borders));
        KsstIter { references, inline, current: Current::Neither, forward: true }
    }

    /// What the reads of this cursor have cost so far.
    pub fn counters(&self) -> ReadCounters {
        let mut sum = ReadCounters::default();
        self.references.iter().for_each(|s| sum.add(&s.counters));
        self.inline.iter().for_each(|s| sum.add(&s.counters));
        sum
    }

    /// The second since 1970 at which the present entry expires; 0: never.
    pub fn expiry(&self) -> u64 {
        match self.current {
            Current::References => self.references.as_ref().map_or(0, StreamIter::expiry),
            Current::Inline => self.inline.as_ref().map_or(0, StreamIter::expiry),
            Current::Neither => 0,
        }
    }

    /// Stands nowhere from now on.
    pub fn clear(&mut self) {
        self.current = Current::Neither;
    }

    fn choose(&mut self) {
        let references = self.references.as_ref().filter(|s| s.valid());
        let inline = self.inline.as_ref().filter(|s| s.valid());
        self.current = match (references, inline) {
            (None, None) => Current::Neither,
            (Some(_), None) => Current::References,
            (None, Some(_)) => Current::Inline,
            (Some(a), Some(b)) if key::compare(a.key(), b.key()).is_lt() == self.forward => {
                Current::References
            }
            _ => Current::Inline,
        };
    }

    /// Brings the stream that is not current to the other side of the present entry.
    fn turn(&mut self, forward: bool) -> Result<()> {
        self.forward = forward;
        macro_rules! cross {
            ($stream:expr) => {
                match $stream {
                    Some(s) if forward && s.valid() => s.next(),
                    Some(s) if forward => s.seek_to_first(),
                    Some(s) if s.valid() => s.prev(),
                    Some(s) => s.seek_to_last(),
                    None => Ok(()),
                }
            };
        }
        match self.current {
            Current::References => cross!(&mut self.inline),
            Current::Inline => cross!(&mut self.references),
            Current::Neither => Ok(()),
        }
    }

    fn guard(&mut self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.current = Current::Neither;
            self.references.iter_mut().for_each(StreamIter::reset);
            self.inline.iter_mut().for_each(StreamIter::reset);
        }
        result
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if self.forward != forward {
            self.turn(forward)?;
        }
        match self.current {
            Current::References => {
                if let Some(s) = &mut self.references {
                    if forward { s.next()? } else { s.prev()? }
                }
            }
            Current::Inline => {
                if let Some(s) = &mut self.inline {
                    if forward { s.next()? } else { s.prev()? }
                }
            }
            Current::Neither => {}
        }
        self.choose();
        Ok(())
    }

    fn position(&mut self, forward: bool, target: Option<&[u8]>) -> Result<()> {
        self.forward = forward;
        both!(self, s => match target {
            None if forward => s.seek_to_first(),
            None => s.seek_to_last(),
            Some(target) if forward => s.seek(target),
            Some(target) => s.seek_for_prev(target),
        });
        self.choose();
        Ok(())
    }
}

impl InternalIterator for KsstIter {
    fn valid(&self) -> bool {
        self.current != Current::Neither
    }

    fn seek_to_first(&mut self) -> Result<()> {
        let done = self.position(true, None);
        self.guard(done)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let done = self.position(false, None);
        self.guard(done)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let done = self.position(true, Some(target));
        self.guard(done)
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let done = self.position(false, Some(target));
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

    #[inline]
    fn key(&self) -> &[u8] {
        match self.current {
            Current::References => self.references.as_ref().map_or(&[], |s| s.key()),
            Current::Inline => self.inline.as_ref().map_or(&[], |s| s.key()),
            Current::Neither => &[],
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self.current {
            Current::References => self.references.as_ref().map_or(&[], |s| s.value()),
            Current::Inline => self.inline.as_ref().map_or(&[], |s| s.value()),
            Current::Neither => &[],
        }
    }
}
