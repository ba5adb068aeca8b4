//! What a user sees: the newest visible version of each key, at a snapshot, in both directions.
//!
//! Under it lies a cursor over internal keys (memtables, tables and levels merged) in which a key may have any number
//! of versions, point tombstones and merge operands, and beside it the range tombstones of the same sources. For each
//! user key the newest entry with a sequence of at most the snapshot decides: a value or a reference is shown, unless
//! a newer visible range tombstone covers it; a tombstone hides the key; a merge operand is folded with what is below.
//!
//! Moving forward, the inner cursor stands on the entry shown, so keys and values are not copied. Moving backward,
//! the versions of a key come oldest first and the decision falls on the last of them, so key and value are kept in
//! buffers and the inner cursor stands on the entry before. A key with more than [`RESEEK_AFTER`] versions to pass is
//! left by a seek instead of steps, so that hot keys do not make scans slow.
//!
//! References are shown as they are (`value_kind` says so): the layer above fetches a separated value when it is asked
//! for it, and a scan that does not look at values never reads them.

use crate::gap;
use crate::operator::{MergeOperator, Operands, fold};
use crate::tombstones::TombstoneView;
use base::key::{self, encode_into};
use base::range_del::FragmentedRangeTombstones;
use base::{Error, ErrorKind, Gap, InternalIterator, MAX_SEQ, Result, SeqNo, ValueKind};
use std::cmp::Ordering;
use std::sync::Arc;

/// After so many steps over versions of one key the iterator seeks past the rest.
pub const RESEEK_AFTER: usize = 8;

/// Fetches the value behind a reference, for merge operands that lie on top of a separated value.
pub trait ReferenceResolver: Send + Sync {
    /// Appends the value of the entry `(user_key, seq)` of kind `kind`, whose encoded reference is `reference`, to
    /// `out`.
    fn resolve(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        reference: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()>;
}

/// What part of the key space is shown, and how.
#[derive(Clone)]
pub struct VisibleOptions {
    /// Entries with larger sequences are not seen.
    pub snapshot: SeqNo,
    /// First user key shown; `None`: no border.
    pub lower: Option<Vec<u8>>,
    /// First user key after those shown; `None`: no border.
    pub upper: Option<Vec<u8>>,
    /// Values are not wanted: `value` is empty, merge operands are not folded.
    pub keys_only: bool,
    /// Folds merge operands; without it an operand is an error.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Fetches separated values below merge operands; without it such a fold is an error.
    pub resolver: Option<Arc<dyn ReferenceResolver>>,
}

impl VisibleOptions {
    /// Everything visible at `snapshot`.
    pub fn at(snapshot: SeqNo) -> Self {
        VisibleOptions {
            snapshot,
            lower: None,
            upper: None,
            keys_only: false,
            operator: None,
            resolver: None,
        }
    }

    /// Narrows the borders to the keys that start with `prefix`.
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        if self.lower.as_deref().is_none_or(|lower| lower < prefix) {
            self.lower = Some(prefix.to_vec());
        }
        if let Some(end) = prefix_end(prefix)
            && self.upper.as_ref().is_none_or(|upper| end < *upper)
        {
            self.upper = Some(end);
        }
        self
    }
}

/// The first user key after all that start with `prefix`; `None` if there is none (the prefix is empty or all 0xff).
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// Where the entry shown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is shown.
    Invalid,
    /// The inner cursor stands on it.
    Inner,
    /// In the buffers; the inner cursor stands on or after the older versions of the key.
    Folded,
    /// In the buffers; the inner cursor stands before every version of the key.
    Backward,
}

/// The user's view of a merged cursor. See the module.
pub struct VisibleIterator<I = crate::MergingIterator> {
    inner: I,
    tombstones: TombstoneView,
    options: VisibleOptions,
    state: State,
    kind: ValueKind,
    seq: SeqNo,
    /// User key: of the entry shown (`Folded`, `Backward`), or the last one left behind.
    key: Vec<u8>,
    value: Vec<u8>,
    target: Vec<u8>,
    operands: Operands,
    hidden: u64,
    /// Moving backward, the inner cursor came to what it cannot read behind the key that is shown.
    deferred: Option<Error>,
    /// Where it last went on behind what it could not read, and in which direction.
    skipped: Option<(bool, Vec<u8>)>,
    /// Going forward, it has left `key` behind: older versions of it are passed.
    has_left: bool,
}

impl<I: InternalIterator> VisibleIterator<I> {
    /// The view of `inner` and the range tombstones of the same sources.
    pub fn new(inner: I, tombstones: Vec<Arc<FragmentedRangeTombstones>>, options: VisibleOptions) -> Self {
        VisibleIterator {
            inner,
            tombstones: TombstoneView::new(tombstones, options.snapshot),
            options,
            state: State::Invalid,
            kind: ValueKind::Value,
            seq: 0,
            key: Vec::new(),
            value: Vec::new(),
            target: Vec::new(),
            operands: Operands::default(),
            hidden: 0,
            deferred: None,
            skipped: None,
            has_left: false,
        }
    }

    /// The cursor beneath.
    pub fn inner_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// After a move forward that had to wait ([`Error::is_waiting`]): goes on with it. Only without an operator, since a fold begins anew.
    pub fn resume(&mut self) -> Result<()> {
        debug_assert!(self.options.operator.is_none() && self.state == State::Invalid, "a fold that waits");
        self.inner.resume()?;
        if self.has_left {
            self.skip_older()?;
        }
        self.find_forward()
    }

    /// True while it stands on a user key.
    pub fn valid(&self) -> bool {
        self.state != State::Invalid
    }

    /// The user key. Must be valid.
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Invalid => panic!("key of an iterator that is not valid"),
            State::Inner => key::user_key(self.inner.key()),
            State::Folded | State::Backward => &self.key,
        }
    }

    /// The value, or the encoded reference (see [`VisibleIterator::value_kind`]); empty with `keys_only`. Must be
    /// valid.
    pub fn value(&self) -> &[u8] {
        match self.state {
            State::Invalid => panic!("value of an iterator that is not valid"),
            _ if self.options.keys_only => &[],
            State::Inner => self.inner.value(),
            State::Folded | State::Backward => &self.value,
        }
    }

    /// `Value`, `Reference` or `SegmentReference`: what [`VisibleIterator::value`] holds. Must be valid.
    pub fn value_kind(&self) -> ValueKind {
        assert!(self.valid(), "kind of an iterator that is not valid");
        self.kind
    }

    /// The sequence of the version shown. Must be valid.
    pub fn seq(&self) -> SeqNo {
        assert!(self.valid(), "sequence of an iterator that is not valid");
        self.seq
    }

    /// How many entries were passed so far without being shown: tombstones, what they hide, and versions that are
    /// older or newer than the visible one. Large numbers explain slow scans.
    pub fn hidden_entries(&self) -> u64 {
        self.hidden
    }

    /// After a move that failed: the user keys that were not read, if that is known, and the trailers of the first and the
    /// last entry among them.
    pub fn gap(&self) -> Option<Gap> {
        self.inner.gap()
    }

    /// After a move that failed: goes on behind what could not be read, in the same direction, and always further than it has
    /// been, even where a damaged index says that what cannot be read ends before. False if nobody knows where that ends.
    pub fn skip_gap(&mut self, forward: bool) -> Result<bool> {
        let Some(gap) = self.gap() else { return Ok(false) };
        (self.state, self.deferred) = (State::Invalid, None);
        let border = self.border_behind(&gap, forward);
        let last = self.skipped.take().filter(|(way, _)| *way == forward);
        let further = if forward { Ordering::Greater } else { Ordering::Less };
        if last.is_some_and(|(_, last)| key::compare(&border, &last) != further) {
            return Ok(false);
        }
        let moved = if forward { self.inner.seek(&border) } else { self.inner.seek_for_prev(&border) };
        self.skipped = Some((forward, border));
        moved?;
        if forward { self.find_forward() } else { self.find_backward() }.map(|()| true)
    }

    /// Where to seek for what is behind the gap, within the borders and beyond the user key that was passed last.
    fn border_behind(&self, gap: &Gap, forward: bool) -> Vec<u8> {
        // Without a key that was passed the buffer is empty, and so it is behind the empty key.
        let passed = Some(self.key.as_slice()).filter(|key| self.has_left || !key.is_empty());
        let (mut border, mut other) = (Vec::new(), Vec::new());
        if forward {
            let (user_key, trailer) = key::split(&gap.last);
            // A table that ends with a range tombstone does not have the key where that ends.
            let behind = if trailer == u64::MAX { user_key.to_vec() } else { [user_key, &[0]].concat() };
            let passed = passed.map(|key| [key, &[0]].concat());
            let behind = Some(behind).max(passed).max(self.options.lower.clone()).unwrap_or_default();
            fill(&mut border, &behind, self.options.snapshot, ValueKind::Seek);
            return border;
        }
        match key::split(&gap.first) {
            // The gap begins behind the key.
            (user_key, 0) => fill(&mut border, user_key, 0, ValueKind::Deletion),
            (user_key, _) => fill(&mut border, user_key, MAX_SEQ, ValueKind::Seek),
        }
        for limit in passed.into_iter().chain(self.options.upper.as_deref()) {
            fill(&mut other, limit, MAX_SEQ, ValueKind::Seek);
            if key::compare(&other, &border).is_lt() {
                border.clone_from(&other);
            }
        }
        border
    }

    /// A seek begins anew: nothing was passed.
    fn restart(&mut self) {
        (self.state, self.deferred, self.skipped) = (State::Invalid, None, None);
        self.has_left = false;
        self.key.clear();
    }

    /// Moves to the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.restart();
        match &self.options.lower {
            Some(lower) => {
                fill(&mut self.target, lower, self.options.snapshot, ValueKind::Seek);
                self.inner.seek(&self.target)?;
            }
            None => self.inner.seek_to_first()?,
        }
        self.find_forward()
    }

    /// Moves to the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.restart();
        match &self.options.upper {
            Some(upper) => {
                fill(&mut self.target, upper, MAX_SEQ, ValueKind::Seek);
                self.inner.seek_for_prev(&self.target)?;
            }
            None => self.inner.seek_to_last()?,
        }
        self.find_backward()
    }

    /// Moves to the first visible key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        if self.options.lower.as_deref().is_some_and(|lower| user_key < lower) {
            return self.seek_to_first();
        }
        self.restart();
        fill(&mut self.target, user_key, self.options.snapshot, ValueKind::Seek);
        self.inner.seek(&self.target)?;
        self.find_forward()
    }

    /// Moves to the last visible key at or before `user_key`.
    pub fn seek_for_prev(&mut self, user_key: &[u8]) -> Result<()> {
        if self.options.upper.as_deref().is_some_and(|upper| upper <= user_key) {
            return self.seek_to_last();
        }
        self.restart();
        fill(&mut self.target, user_key, 0, ValueKind::Deletion);
        self.inner.seek_for_prev(&self.target)?;
        self.find_backward()
    }

    /// Moves to the next visible key. Must be valid.
    #[expect(clippy::should_implement_trait, reason = "a cursor in both directions, which may fail")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Invalid) {
            State::Invalid => panic!("moved an iterator that is not valid"),
            State::Inner => {
                save_user_key(&mut self.key, &self.inner);
                self.has_left = true;
                self.inner.next()?;
            }
            State::Folded => self.deferred.take().map_or(Ok(()), Err)?,
            State::Backward => {
                self.deferred = None;
                fill(&mut self.target, &self.key, 0, ValueKind::Deletion);
                self.inner.seek(&self.target)?;
            }
        }
        self.skip_older()?;
        self.find_forward()
    }

    /// Moves to the previous visible key. Must be valid.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Invalid) {
            State::Invalid => panic!("moved an iterator that is not valid"),
            State::Backward => self.deferred.take().map_or(Ok(()), Err)?,
            before => {
                if before == State::Inner {
                    save_user_key(&mut self.key, &self.inner);
                }
                self.deferred = None;
                self.leave_backward()?;
            }
        }
        self.find_backward()
    }

    /// Passes, forward, the versions of `self.key` that the inner cursor stands on.
    #[inline]
    fn skip_older(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.on_key() {
            self.hidden += 1;
            steps += 1;
            if steps == RESEEK_AFTER {
                fill(&mut self.target, &self.key, 0, ValueKind::Deletion);
                self.inner.seek(&self.target)?;
            } else {
                self.inner.next()?;
            }
        }
        Ok(())
    }

    /// Puts the inner cursor on the last entry before every version of `self.key`.
    fn leave_backward(&mut self) -> Result<()> {
        fill(&mut self.target, &self.key, MAX_SEQ, ValueKind::Seek);
        self.inner.seek_for_prev(&self.target)
    }

    #[inline]
    fn on_key(&self) -> bool {
        self.inner.valid() && key::user_key(self.inner.key()) == self.key
    }

    /// From an inner cursor on the newest version not yet considered of a key: the first visible key from there on.
    fn find_forward(&mut self) -> Result<()> {
        let mut invisible = 0;
        while self.inner.valid() {
            let (user_key, trailer) = key::split(self.inner.key());
            if self.options.upper.as_deref().is_some_and(|upper| upper <= user_key) {
                return Ok(());
            }
            let seq = trailer >> 8;
            if seq > self.options.snapshot {
                self.hidden += 1;
                invisible += 1;
                if invisible == RESEEK_AFTER {
                    invisible = 0;
                    fill(&mut self.target, user_key, self.options.snapshot, ValueKind::Seek);
                    self.inner.seek(&self.target)?;
                } else {
                    self.inner.next()?;
                }
                continue;
            }
            invisible = 0;
            let kind = entry_kind(trailer)?;
            if !kind.is_tombstone() && !self.tombstones.covers(user_key, seq) {
                self.seq = seq;
                if kind == ValueKind::Merge && !self.options.keys_only {
                    return self.fold_from_here();
                }
                self.kind = if kind == ValueKind::Merge { ValueKind::Value } else { kind };
                self.state = State::Inner;
                return Ok(());
            }
            self.hidden += 1;
            save_user_key(&mut self.key, &self.inner);
            self.has_left = true;
            self.inner.next()?;
            self.skip_older()?;
        }
        Ok(())
    }

    /// From an inner cursor on the newest visible entry of a key, an operand: folds it with what is below.
    fn fold_from_here(&mut self) -> Result<()> {
        let Some(operator) = self.options.operator.clone() else {
            let why = "a merge operand was found, but the column family has no merge operator: set the one it was \
                       written with";
            return Err(Error::new(ErrorKind::Unsupported, why));
        };
        save_user_key(&mut self.key, &self.inner);
        self.operands.clear();
        self.operands.push_older(self.inner.value());
        let mut resolved = Vec::new();
        let mut base = None;
        let moved = self.inner.next();
        self.before_the_rest(moved)?;
        while self.on_key() {
            let (_, trailer) = key::split(self.inner.key());
            let seq = trailer >> 8;
            if self.tombstones.covers(&self.key, seq) {
                break;
            }
            match entry_kind(trailer)? {
                ValueKind::Merge => self.operands.push_older(self.inner.value()),
                ValueKind::Value => {
                    base = Some(self.inner.value());
                    break;
                }
                kind @ (ValueKind::Reference | ValueKind::PlacedReference) => {
                    let Some(resolver) = &self.options.resolver else {
                        let why = "a merge operand lies on a separated value that this iterator cannot fetch";
                        return Err(Error::new(ErrorKind::Unsupported, why));
                    };
                    resolver.resolve(&self.key, seq, kind, self.inner.value(), &mut resolved)?;
                    base = Some(&resolved);
                    break;
                }
                _ => break,
            }
            let moved = self.inner.next();
            self.before_the_rest(moved)?;
        }
        fold(&*operator, &self.key, base, &self.operands, &mut self.value)?;
        self.kind = ValueKind::Value;
        self.state = State::Folded;
        Ok(())
    }

    /// From an inner cursor on the oldest version of a key: the last visible key from there back.
    fn find_backward(&mut self) -> Result<()> {
        while self.inner.valid() {
            save_user_key(&mut self.key, &self.inner);
            if self.options.lower.as_deref().is_some_and(|lower| self.key.as_slice() < lower) {
                return Ok(());
            }
            let Some(kind) = self.newest_backward()? else { continue };
            if kind.is_tombstone() || self.tombstones.covers(&self.key, self.seq) {
                continue;
            }
            self.kind = kind;
            if kind == ValueKind::Merge {
                self.kind = ValueKind::Value;
                if !self.options.keys_only {
                    fill(&mut self.target, &self.key, self.options.snapshot, ValueKind::Seek);
                    self.inner.seek(&self.target)?;
                    let seq = self.seq;
                    self.fold_from_here()?;
                    (self.state, self.deferred) = (State::Invalid, None);
                    self.seq = seq;
                    let moved = self.leave_backward();
                    self.behind_the_key(moved)?;
                }
            }
            self.state = State::Backward;
            return Ok(());
        }
        self.deferred.take().map_or(Ok(()), Err)
    }

    /// Passes, backward, all versions of `self.key`; its newest visible one ends up in the buffers.
    fn newest_backward(&mut self) -> Result<Option<ValueKind>> {
        let mut newest = None;
        let mut steps = 0;
        while self.on_key() {
            let (_, trailer) = key::split(self.inner.key());
            if trailer >> 8 <= self.options.snapshot {
                newest = Some(self.record(trailer)?);
            }
            self.hidden += 1;
            steps += 1;
            if steps < RESEEK_AFTER {
                let moved = self.inner.prev();
                self.behind_the_key(moved)?;
                continue;
            }
            // Too many versions: go to the visible one directly (if there is one at all), then before the key.
            fill(&mut self.target, &self.key, self.options.snapshot, ValueKind::Seek);
            self.inner.seek(&self.target)?;
            if self.on_key() {
                let (_, trailer) = key::split(self.inner.key());
                newest = Some(self.record(trailer)?);
            }
            let moved = self.leave_backward();
            self.behind_the_key(moved)?;
            break;
        }
        self.hidden -= u64::from(newest.is_some_and(|k| !k.is_tombstone()));
        Ok(newest)
    }

    /// A gap that begins behind the key stops the next move, not this one.
    fn behind_the_key(&mut self, moved: Result<()>) -> Result<()> {
        match moved {
            Err(e) if self.inner.gap().is_some_and(|gap| gap::ends_before(&gap, &self.key)) => {
                self.deferred = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// The same forward.
    fn before_the_rest(&mut self, moved: Result<()>) -> Result<()> {
        match moved {
            Err(e) if self.inner.gap().is_some_and(|gap| gap::begins_behind(&gap, &self.key)) => {
                self.deferred = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Copies the inner entry, which has `trailer`, into the buffers.
    fn record(&mut self, trailer: u64) -> Result<ValueKind> {
        let kind = entry_kind(trailer)?;
        self.seq = trailer >> 8;
        if !self.options.keys_only && !kind.is_tombstone() && kind != ValueKind::Merge {
            self.value.clear();
            self.value.extend_from_slice(self.inner.value());
        }
        Ok(kind)
    }
}

/// The kind of a point entry.
#[inline]
fn entry_kind(trailer: u64) -> Result<ValueKind> {
    match ValueKind::from_u8(trailer as u8) {
        Some(
            kind @ (ValueKind::Deletion
            | ValueKind::Value
            | ValueKind::Merge
            | ValueKind::SingleDeletion
            | ValueKind::Reference
            | ValueKind::PlacedReference),
        ) => Ok(kind),
        _ => Err(Error::corruption(format!(
            "an entry of kind {} among point entries: check the store and restore the damaged table",
            trailer as u8
        ))),
    }
}

#[inline]
fn save_user_key(key: &mut Vec<u8>, inner: &impl InternalIterator) {
    key.clear();
    key.extend_from_slice(key::user_key(inner.key()));
}

fn fill(target: &mut Vec<u8>, user_key: &[u8], seq: SeqNo, kind: ValueKind) {
    target.clear();
    encode_into(target, user_key, seq, kind);
}

#[cfg(test)]
mod tests;
