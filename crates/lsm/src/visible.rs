//! The user's view: the newest visible version of each key, at a snapshot, in both directions.
//!
//! The view reads a cursor over internal keys (memtables, tables and levels merged). There a key
//! may have any number of versions, point tombstones and merge operands. Beside it are the range
//! tombstones of the same sources. For each user key the newest entry with a sequence of at most
//! the snapshot decides. A value or a reference is shown, unless a newer visible range tombstone
//! covers it. A tombstone hides the key. A merge operand is folded with the versions below.
//!
//! Moving forward, the inner cursor stays on the entry shown, so keys and values are not copied.
//! Moving backward, the versions of a key come oldest first and the last one decides. So key and
//! value are kept in buffers, and the inner cursor stays on the entry before. A key with more than
//! [`RESEEK_AFTER`] versions to pass is left by a seek instead of steps, so that hot keys do not
//! make scans slow.
//!
//! Long runs of hidden keys are passed once: [`empty`].
//!
//! References are shown unresolved (`value_kind` tells). The layer above fetches a separated value
//! on demand, so a scan that does not use values never reads them.

use crate::operator::{MergeOperator, Operands, fold, missing};
use crate::tombstones::TombstoneView;
use base::key;
use base::range_del::FragmentedRangeTombstones;
use base::{Error, ErrorKind, Gap, InternalIterator, Result, SeqNo, ValueKind};
use empty::{EmptyRanges, Walk, successor};
use skips::Skips;
use std::sync::Arc;
use versions::Versions;

/// Number of steps over versions of one key after which the iterator seeks past the rest.
pub const RESEEK_AFTER: usize = 8;

/// Fetches the value behind a reference, for merge operands that lie on top of a separated value.
pub trait ReferenceResolver: Send + Sync {
    /// Appends to `out` the value of the entry `(user_key, seq)` of kind `kind`, whose encoded
    /// reference is `reference`.
    fn resolve(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        reference: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()>;
}

/// Bounds, snapshot and options of a view.
#[derive(Clone)]
pub struct VisibleOptions {
    /// Entries with larger sequences are not visible.
    pub snapshot: SeqNo,
    /// First user key shown; `None`: no lower bound.
    pub lower: Option<Vec<u8>>,
    /// First user key after those shown; `None`: no upper bound.
    pub upper: Option<Vec<u8>>,
    /// Values are not needed: `value` is empty, and merge operands are not folded.
    pub keys_only: bool,
    /// Folds merge operands; without it an operand is an error.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Fetches separated values below merge operands; without it such a fold is an error.
    pub resolver: Option<Arc<dyn ReferenceResolver>>,
    /// Ranges without a visible key that earlier walks found; without it each walk passes all
    /// hidden entries.
    pub empty: Option<Arc<dyn EmptyRanges>>,
}

impl VisibleOptions {
    /// Returns options that show everything visible at `snapshot`.
    pub fn at(snapshot: SeqNo) -> Self {
        VisibleOptions {
            snapshot,
            lower: None,
            upper: None,
            keys_only: false,
            operator: None,
            resolver: None,
            empty: None,
        }
    }

    /// Narrows the bounds to the keys that start with `prefix`.
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

/// Returns the first user key after all that start with `prefix`; `None` if there is none (the
/// prefix is empty or all 0xff).
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

/// Place of the entry shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IteratorState {
    /// No entry is shown.
    Invalid,
    /// The inner cursor is on the entry.
    Inner,
    /// The entry is in the buffers; the inner cursor is on or after the older versions of the key.
    Folded,
    /// The entry is in the buffers; the inner cursor is before every version of the key.
    Backward,
}

/// The user's view of a merged cursor: see the module.
pub struct VisibleIterator<I = crate::MergingIterator> {
    versions: Versions<I>,
    tombstones: TombstoneView,
    options: VisibleOptions,
    state: IteratorState,
    kind: ValueKind,
    seq: SeqNo,
    /// User key of the entry shown (`Folded`, `Backward`), or the last one passed.
    key: Vec<u8>,
    value: Vec<u8>,
    operands: Operands,
    skips: Skips,
    walk: Walk,
    /// True if a forward move has passed `key`, so that older versions of it are skipped.
    has_left: bool,
}

impl<I: InternalIterator> VisibleIterator<I> {
    /// Returns the view of `inner` and the range tombstones of the same sources.
    pub fn new(inner: I, tombstones: Vec<Arc<FragmentedRangeTombstones>>, options: VisibleOptions) -> Self {
        VisibleIterator {
            versions: Versions::new(inner),
            tombstones: TombstoneView::new(tombstones, options.snapshot),
            walk: Walk::new(options.empty.clone()),
            options,
            state: IteratorState::Invalid,
            kind: ValueKind::Value,
            seq: 0,
            key: Vec::new(),
            value: Vec::new(),
            operands: Operands::default(),
            skips: Skips::default(),
            has_left: false,
        }
    }

    /// Returns the cursor beneath.
    pub fn inner_mut(&mut self) -> &mut I {
        self.versions.inner_mut()
    }

    /// Continues a forward move that had to wait ([`Error::is_waiting`]). Only without an operator,
    /// since a fold begins again.
    pub fn resume(&mut self) -> Result<()> {
        debug_assert!(
            self.options.operator.is_none() && self.state == IteratorState::Invalid,
            "a fold that waits"
        );
        self.versions.inner_mut().resume()?;
        if self.has_left {
            self.versions.pass_older(&self.key)?;
        }
        self.find_forward()
    }

    /// Returns true while the iterator is on a user key.
    pub fn valid(&self) -> bool {
        self.state != IteratorState::Invalid
    }

    /// Returns the user key. The iterator must be valid.
    pub fn key(&self) -> &[u8] {
        match self.state {
            IteratorState::Invalid => panic!("key of an iterator that is not valid"),
            IteratorState::Inner => key::user_key(self.versions.inner().key()),
            IteratorState::Folded | IteratorState::Backward => &self.key,
        }
    }

    /// Returns the value, or the encoded reference (see [`VisibleIterator::value_kind`]); empty
    /// with `keys_only`. The iterator must be valid.
    pub fn value(&self) -> &[u8] {
        match self.state {
            IteratorState::Invalid => panic!("value of an iterator that is not valid"),
            _ if self.options.keys_only => &[],
            IteratorState::Inner => self.versions.inner().value(),
            IteratorState::Folded | IteratorState::Backward => &self.value,
        }
    }

    /// Returns the kind of [`VisibleIterator::value`]: `Value`, `Reference` or `PlacedReference`.
    /// The iterator must be valid.
    pub fn value_kind(&self) -> ValueKind {
        assert!(self.valid(), "kind of an iterator that is not valid");
        self.kind
    }

    /// Returns the sequence of the version shown. The iterator must be valid.
    pub fn seq(&self) -> SeqNo {
        assert!(self.valid(), "sequence of an iterator that is not valid");
        self.seq
    }

    /// Returns the number of entries passed so far without being shown: tombstones, entries that
    /// they hide, and versions older or newer than the visible one. Large numbers explain slow
    /// scans.
    pub fn hidden_entries(&self) -> u64 {
        self.versions.hidden()
    }

    /// Returns the unread user keys after a failed move, if they are known, and the trailers of the
    /// first and the last entry among them.
    pub fn gap(&self) -> Option<Gap> {
        self.versions.inner().gap()
    }

    /// Skips the unreadable part after a failed move, or the key whose operands were not folded, and
    /// continues in the same direction. Always
    /// moves beyond the last position, even if a damaged index says that the unreadable part ends
    /// earlier. Returns false if its end is unknown.
    pub fn skip_gap(&mut self, forward: bool) -> Result<bool> {
        if std::mem::take(&mut self.skips.is_unfolded) {
            return self.skip_unfolded(forward).map(|()| true);
        }
        let Some(gap) = self.gap() else { return Ok(false) };
        self.state = IteratorState::Invalid;
        self.versions.forget_deferred();
        // The buffer is empty if no key was passed, and also after passing the empty key.
        let passed = Some(self.key.as_slice()).filter(|key| self.has_left || !key.is_empty());
        let Some(border) = self.skips.border(&gap, passed, &self.options, forward) else { return Ok(false) };
        let inner = self.versions.inner_mut();
        if forward { inner.seek(border) } else { inner.seek_for_prev(border) }?;
        if forward { self.find_forward() } else { self.find_backward() }.map(|()| true)
    }

    fn skip_unfolded(&mut self, forward: bool) -> Result<()> {
        if forward {
            self.has_left = true;
            // A gap behind the key stops this move.
            self.versions.take_deferred()?;
            self.versions.pass_older(&self.key)?;
            return self.find_forward();
        }
        self.versions.forget_deferred();
        self.versions.leave_backward(&self.key)?;
        self.find_backward()
    }

    /// Resets the state for a new seek.
    fn restart(&mut self) {
        self.state = IteratorState::Invalid;
        self.versions.forget_deferred();
        self.skips.restart();
        self.has_left = false;
        self.key.clear();
    }

    /// Moves to the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.restart();
        match &self.options.lower {
            Some(lower) => {
                self.versions.seek(lower, self.options.snapshot, ValueKind::Seek)?;
            }
            None => self.versions.inner_mut().seek_to_first()?,
        }
        self.find_forward()
    }

    /// Moves to the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.restart();
        match &self.options.upper {
            Some(upper) => self.versions.leave_backward(upper)?,
            None => self.versions.inner_mut().seek_to_last()?,
        }
        self.find_backward()
    }

    /// Moves to the first visible key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        if self.options.lower.as_deref().is_some_and(|lower| user_key < lower) {
            return self.seek_to_first();
        }
        self.restart();
        self.versions.seek(user_key, self.options.snapshot, ValueKind::Seek)?;
        self.find_forward()
    }

    /// Moves to the last visible key at or before `user_key`.
    pub fn seek_for_prev(&mut self, user_key: &[u8]) -> Result<()> {
        if self.options.upper.as_deref().is_some_and(|upper| upper <= user_key) {
            return self.seek_to_last();
        }
        self.restart();
        self.versions.seek_for_prev(user_key, 0, ValueKind::Deletion)?;
        self.find_backward()
    }

    /// Moves to the next visible key. The iterator must be valid.
    #[expect(clippy::should_implement_trait, reason = "a cursor in both directions, which may fail")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, IteratorState::Invalid) {
            IteratorState::Invalid => panic!("moved an iterator that is not valid"),
            IteratorState::Inner => {
                save_user_key(&mut self.key, self.versions.inner());
                self.has_left = true;
                self.versions.inner_mut().next()?;
            }
            IteratorState::Folded => self.versions.take_deferred()?,
            IteratorState::Backward => {
                self.versions.forget_deferred();
                self.versions.seek(&self.key, 0, ValueKind::Deletion)?;
            }
        }
        self.versions.pass_older(&self.key)?;
        self.find_forward()
    }

    /// Moves to the previous visible key. The iterator must be valid.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, IteratorState::Invalid) {
            IteratorState::Invalid => panic!("moved an iterator that is not valid"),
            IteratorState::Backward => self.versions.take_deferred()?,
            before => {
                if before == IteratorState::Inner {
                    save_user_key(&mut self.key, self.versions.inner());
                }
                self.versions.forget_deferred();
                self.versions.leave_backward(&self.key)?;
            }
        }
        self.find_backward()
    }

    /// Finds the next visible key. The inner cursor must be on the newest version of a key that was
    /// not considered yet.
    fn find_forward(&mut self) -> Result<()> {
        let mut invisible = 0;
        self.walk.begin();
        while self.versions.inner().valid() {
            let (user_key, trailer) = key::split(self.versions.inner().key());
            if self.options.upper.as_deref().is_some_and(|upper| upper <= user_key) {
                self.walk.end_forward(self.options.upper.as_deref(), self.options.snapshot);
                return Ok(());
            }
            let seq = trailer >> 8;
            if seq > self.options.snapshot {
                invisible += 1;
                if invisible == RESEEK_AFTER {
                    invisible = 0;
                    self.versions.pass_newer(self.options.snapshot)?;
                } else {
                    self.versions.pass()?;
                }
                continue;
            }
            invisible = 0;
            let kind = entry_kind(trailer)?;
            if !kind.is_tombstone() && !self.tombstones.covers(user_key, seq) {
                self.seq = seq;
                self.walk.end_forward(Some(user_key), self.options.snapshot);
                if kind == ValueKind::Merge && !self.options.keys_only {
                    return self.fold_from_here();
                }
                self.kind = if kind == ValueKind::Merge { ValueKind::Value } else { kind };
                self.state = IteratorState::Inner;
                return Ok(());
            }
            save_user_key(&mut self.key, self.versions.inner());
            self.has_left = true;
            self.versions.pass()?;
            self.versions.pass_older(&self.key)?;
            if let Some(range) = self.walk.pass(&self.key, self.options.snapshot) {
                let is_within = |high: &Vec<u8>| self.options.upper.as_ref().is_none_or(|upper| high < upper);
                let Some(high) = range.high.filter(is_within) else { return Ok(()) };
                self.versions.seek(&high, self.options.snapshot, ValueKind::Seek)?;
            }
        }
        // Tables behind the bound are left out, so nothing is known of them.
        self.walk.end_forward(self.options.upper.as_deref(), self.options.snapshot);
        Ok(())
    }

    /// Folds a merge operand with the versions below. The inner cursor must be on the operand, the
    /// newest visible entry of its key.
    fn fold_from_here(&mut self) -> Result<()> {
        save_user_key(&mut self.key, self.versions.inner());
        let operator = self.options.operator.clone().ok_or_else(missing);
        self.skips.is_unfolded = operator.is_err();
        let operator = operator?;
        self.operands.clear();
        self.operands.push_older(self.versions.inner().value());
        let mut resolved = Vec::new();
        let mut base = None;
        self.versions.next_of(&self.key)?;
        while self.versions.is_on(&self.key) {
            let (_, trailer) = key::split(self.versions.inner().key());
            let seq = trailer >> 8;
            if self.tombstones.covers(&self.key, seq) {
                break;
            }
            match entry_kind(trailer)? {
                ValueKind::Merge => self.operands.push_older(self.versions.inner().value()),
                ValueKind::Value => {
                    base = Some(self.versions.inner().value());
                    break;
                }
                kind @ (ValueKind::Reference | ValueKind::PlacedReference) => {
                    let Some(resolver) = &self.options.resolver else {
                        let why = "a merge operand applies to a value in a value file, which this iterator \
                                   cannot read: give it a resolver";
                        return Err(Error::new(ErrorKind::Unsupported, why));
                    };
                    let reference = self.versions.inner().value();
                    let read = resolver.resolve(&self.key, seq, kind, reference, &mut resolved);
                    self.skips.is_unfolded = read.is_err();
                    read?;
                    base = Some(&resolved);
                    break;
                }
                _ => break,
            }
            self.versions.next_of(&self.key)?;
        }
        let folded = fold(&*operator, &self.key, base, &self.operands, &mut self.value);
        self.skips.is_unfolded = folded.is_err();
        folded?;
        self.kind = ValueKind::Value;
        self.state = IteratorState::Folded;
        Ok(())
    }

    /// Finds the previous visible key. The inner cursor must be on the oldest version of a key.
    fn find_backward(&mut self) -> Result<()> {
        self.walk.begin();
        while self.versions.inner().valid() {
            save_user_key(&mut self.key, self.versions.inner());
            if let Some(lower) = self.options.lower.as_deref().filter(|lower| self.key.as_slice() < *lower) {
                self.walk.end_backward(|| lower.to_vec(), self.options.snapshot);
                return Ok(());
            }
            let Some(kind) = self.newest_backward()? else { continue };
            if kind.is_tombstone() || self.tombstones.covers(&self.key, self.seq) {
                if self.leave_empty_range()? {
                    return Ok(());
                }
                continue;
            }
            self.walk.end_backward(|| successor(self.key.clone()), self.options.snapshot);
            self.kind = kind;
            if kind == ValueKind::Merge {
                self.kind = ValueKind::Value;
                if !self.options.keys_only {
                    self.versions.seek(&self.key, self.options.snapshot, ValueKind::Seek)?;
                    let seq = self.seq;
                    self.fold_from_here()?;
                    self.state = IteratorState::Invalid;
                    self.versions.forget_deferred();
                    self.seq = seq;
                    self.versions.leave_shown(&self.key)?;
                }
            }
            self.state = IteratorState::Backward;
            return Ok(());
        }
        self.versions.take_deferred()?;
        let lower = self.options.lower.as_deref().unwrap_or_default();
        self.walk.end_backward(|| lower.to_vec(), self.options.snapshot);
        Ok(())
    }

    /// Skips the known empty range around the hidden `self.key` in a backward move, if there is
    /// one. If the inner cursor has failed, its failure is reported first. Returns true if the range
    /// reaches the lower bound.
    fn leave_empty_range(&mut self) -> Result<bool> {
        let Some(range) = self.walk.pass(&self.key, self.options.snapshot) else { return Ok(false) };
        if !self.versions.inner().valid() {
            return Ok(false);
        }
        let is_last = self.options.lower.as_ref().is_some_and(|lower| range.low <= *lower);
        if !is_last {
            self.versions.leave_backward(&range.low)?;
        }
        Ok(is_last)
    }

    /// Passes all versions of `self.key` backward, and copies its newest visible one into the
    /// buffers.
    fn newest_backward(&mut self) -> Result<Option<ValueKind>> {
        let mut newest = None;
        let mut steps = 0;
        while self.versions.is_on(&self.key) {
            let (_, trailer) = key::split(self.versions.inner().key());
            if trailer >> 8 <= self.options.snapshot {
                newest = Some(self.record(trailer)?);
            }
            steps += 1;
            if steps < RESEEK_AFTER {
                self.versions.pass_back(&self.key)?;
                continue;
            }
            // Too many versions: seek to the visible one directly (if there is one at all), then
            // before the key.
            self.versions.pass_to_newest(&self.key, self.options.snapshot)?;
            if self.versions.is_on(&self.key) {
                let (_, trailer) = key::split(self.versions.inner().key());
                newest = Some(self.record(trailer)?);
            }
            self.versions.leave_shown(&self.key)?;
            break;
        }
        if newest.is_some_and(|k| !k.is_tombstone()) {
            self.versions.show();
        }
        Ok(newest)
    }

    /// Copies the inner entry, which has `trailer`, into the buffers.
    fn record(&mut self, trailer: u64) -> Result<ValueKind> {
        let kind = entry_kind(trailer)?;
        self.seq = trailer >> 8;
        if !self.options.keys_only && !kind.is_tombstone() && kind != ValueKind::Merge {
            self.value.clear();
            self.value.extend_from_slice(self.versions.inner().value());
        }
        Ok(kind)
    }
}

/// Decodes the kind of a point entry.
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
            "a key table has an entry with sequence {} of kind {}, which is no value, deletion or merge \
             operand",
            trailer >> 8,
            trailer as u8
        ))),
    }
}

#[inline]
fn save_user_key(key: &mut Vec<u8>, inner: &impl InternalIterator) {
    key.clear();
    key.extend_from_slice(key::user_key(inner.key()));
}

pub mod empty;
mod skips;
#[cfg(test)]
mod tests;
mod versions;
