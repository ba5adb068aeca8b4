//! An iterator over a family of a store with uncommitted changes on top.
//!
//! Two cursors: one of the store, and one of the changed keys. The smaller key in the direction of
//! the move is next. At equal keys the change wins. Deleted keys are passed over; a deleted range
//! is passed by one seek of the store.

use crate::contents::{Contents, Found};
use base::{Error, Result};
use lavakv::{ColumnFamily, Db, DbIterator, ReadOptions, Value};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

/// An iterator over the keys of a family, in both directions, as of one moment of the store and of
/// the changes.
///
/// A new iterator has no position: call one of the `seek` methods.
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is moved"]
pub struct MergedIterator {
    base: DbIterator,
    changes: Changes,
    at: At,
    forward: bool,
    /// Values are not needed, so operands are not folded.
    keys_only: bool,
}

/// The source of the present entry.
#[derive(Clone, Debug)]
enum At {
    Nowhere,
    Base,
    /// A changed key, and its value.
    Change(Arc<[u8]>, Value),
}

/// A cursor over the changed keys within the bounds of the iterator.
#[derive(Debug)]
struct Changes {
    contents: Arc<Contents>,
    family: u32,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    key: Option<Arc<[u8]>>,
}

/// Returns the first key of the bounds and of the prefix, and the first key behind both.
pub(crate) fn bounds(options: &ReadOptions) -> (Vec<u8>, Option<Vec<u8>>) {
    let prefix = options.prefix.as_deref().unwrap_or_default();
    let lower = options.lower_bound.as_deref().unwrap_or_default().max(prefix);
    let behind_prefix = prefix.iter().rposition(|byte| *byte != 0xff).map(|last| {
        let mut behind = prefix[..=last].to_vec();
        behind[last] += 1;
        behind
    });
    let upper = [options.upper_bound.clone(), behind_prefix].into_iter().flatten().min();
    (lower.to_vec(), upper)
}

impl Changes {
    fn includes(&self, key: &[u8]) -> bool {
        self.lower[..] <= *key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }

    /// Moves to the first key at or behind `from`, or behind it if it is `Excluded`.
    fn seek(&mut self, from: std::ops::Bound<&[u8]>) {
        let from = match from {
            Included(key) | Excluded(key) if *key >= self.lower[..] => from,
            _ => Included(&self.lower[..]),
        };
        let key = self.contents.key_from(self.family, from);
        self.key = key.filter(|key| self.includes(key));
    }

    /// Moves to the last key at or before `to`, or before it if it is `Excluded`.
    fn seek_back(&mut self, to: std::ops::Bound<&[u8]>) {
        let to = match (to, self.upper.as_deref()) {
            (Included(key) | Excluded(key), Some(upper)) if key >= upper => Excluded(upper),
            (Unbounded, Some(upper)) => Excluded(upper),
            _ => to,
        };
        let key = self.contents.key_to(self.family, to);
        self.key = key.filter(|key| self.includes(key));
    }
}

impl MergedIterator {
    pub(crate) fn new(
        db: &Db,
        family: &ColumnFamily,
        options: ReadOptions,
        contents: Arc<Contents>,
    ) -> Result<MergedIterator> {
        let (lower, upper) = bounds(&options);
        let changes = Changes { contents, family: family.id(), lower, upper, key: None };
        let keys_only = options.keys_only;
        let base = db.iter_cf(family, options)?;
        Ok(MergedIterator { base, changes, at: At::Nowhere, forward: true, keys_only })
    }

    /// Returns true if it has a position.
    pub fn valid(&self) -> bool {
        !matches!(self.at, At::Nowhere)
    }

    /// Returns the key; empty without a position.
    pub fn key(&self) -> &[u8] {
        match &self.at {
            At::Nowhere => &[],
            At::Base => self.base.key(),
            At::Change(key, _) => key,
        }
    }

    /// Returns the value; empty without a position.
    ///
    /// # Errors
    /// Those of reading a separated value.
    pub fn value(&self) -> Result<&[u8]> {
        match &self.at {
            At::Nowhere => Ok(&[]),
            At::Base => self.base.value(),
            At::Change(_, value) => Ok(value),
        }
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// Those of reading; it then has no position.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.begin(true);
        self.base.seek_to_first()?;
        self.changes.seek(Unbounded);
        self.settle()
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// As [`MergedIterator::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.begin(false);
        self.base.seek_to_last()?;
        self.changes.seek_back(Unbounded);
        self.settle()
    }

    /// Moves to the first key at or behind `key`.
    ///
    /// # Errors
    /// As [`MergedIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin(true);
        self.base.seek(key)?;
        self.changes.seek(Included(key));
        self.settle()
    }

    /// Moves to the last key at or before `key`.
    ///
    /// # Errors
    /// As [`MergedIterator::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.begin(false);
        self.base.seek_for_prev(key)?;
        self.changes.seek_back(Included(key));
        self.settle()
    }

    /// Moves to the next key.
    ///
    /// # Errors
    /// `InvalidArgument` if it has no position; those of [`MergedIterator::seek_to_first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor, as `prev` is")]
    pub fn next(&mut self) -> Result<()> {
        self.step(true)
    }

    /// Moves to the previous key.
    ///
    /// # Errors
    /// As [`MergedIterator::next`].
    pub fn prev(&mut self) -> Result<()> {
        self.step(false)
    }

    fn begin(&mut self, forward: bool) {
        (self.at, self.forward) = (At::Nowhere, forward);
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if !self.valid() {
            return Err(Error::invalid("the iterator has no position: seek first, and check valid()"));
        }
        let key = self.key().to_vec();
        let turns = forward != self.forward;
        self.begin(forward);
        if turns {
            match forward {
                true => self.base.seek(&key)?,
                false => self.base.seek_for_prev(&key)?,
            }
        }
        if self.base.valid() && self.base.key() == key {
            self.move_base()?;
        }
        self.move_changes(&key);
        self.settle()
    }

    fn move_base(&mut self) -> Result<()> {
        if self.forward { self.base.next() } else { self.base.prev() }
    }

    /// Moves the cursor of the changes beyond a key.
    fn move_changes(&mut self, key: &[u8]) {
        match self.forward {
            true => self.changes.seek(Excluded(key)),
            false => self.changes.seek_back(Excluded(key)),
        }
    }

    /// Passes deleted keys, up to the next entry in the direction.
    fn settle(&mut self) -> Result<()> {
        loop {
            let change = self.changes.key.clone();
            let base = self.base.valid().then(|| self.base.key());
            let order = match (base, &change) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(base), Some(change)) if self.forward => base.cmp(change),
                (Some(base), Some(change)) => (**change).cmp(base),
            };
            if order.is_lt() {
                if self.is_base_deleted()? {
                    continue;
                }
                self.at = At::Base;
                return Ok(());
            }
            let Some(key) = change else { return Ok(()) };
            let base = order.is_eq().then_some(&self.base);
            let below = || base.map(|base| base.value().map(|value| Value::from(value.to_vec()))).transpose();
            let fold = |base: Option<&[u8]>, operands: &[&[u8]]| self.base.fold(&key, base, operands);
            let found = match self.changes.contents.find(self.changes.family, &key) {
                // Of the changed keys it hides the one in the store.
                Found::Nothing => None,
                Found::Merged(..) if self.keys_only => Some(Value::from(Vec::new())),
                found => found.settle(below, fold)?,
            };
            if let Some(value) = found {
                self.at = At::Change(key, value);
                return Ok(());
            }
            if order.is_eq() {
                self.move_base()?;
            }
            self.move_changes(&key);
        }
    }

    /// If the key of the store is in a deleted range, moves the cursor of the store beyond it, and
    /// returns true.
    fn is_base_deleted(&mut self) -> Result<bool> {
        let Changes { contents, family, .. } = &self.changes;
        let Some((start, end)) = contents.deleted_around(*family, self.base.key()) else {
            return Ok(false);
        };
        match (self.forward, end) {
            (true, Some(end)) => self.base.seek(end)?,
            // No key follows: a move beyond the last one ends the iterator.
            (true, None) => {
                self.base.seek_to_last()?;
                self.base.next()?;
            }
            (false, _) => {
                self.base.seek_for_prev(start)?;
                if self.base.valid() && self.base.key() == start {
                    self.base.prev()?;
                }
            }
        }
        Ok(true)
    }
}
