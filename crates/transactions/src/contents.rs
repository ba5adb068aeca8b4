//! The changes of a batch or transaction before its commit: in order, and found by key.
//!
//! All changes are in one list. Each point change links to the previous one of its key, and a map
//! leads from a key to its last one. Range deletions are in a map of disjoint fragments, each with
//! the position of the last range deletion that covers it ([`fragments`]). A key is deleted if the
//! position of its fragment is above that of its last change.
//!
//! Merge operands are changes of their own. A lookup collects those of a key down to its last put or
//! delete, and the reader folds them.
//!
//! So a change and a lookup cost the logarithm of the changes, and a rollback costs the changes
//! that it removes; only a rollback over a range deletion makes the fragments again.

mod fragments;

use base::{Error, ErrorKind, Result, limits};
use fragments::Fragments;
use lavakv::{ColumnFamily, Value, WriteBatch};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a change beside key and value in memory, for the limit.
const CHANGE_BYTES: usize = 128;

/// The id of a family.
type FamilyId = u32;

/// A change. `previous`: the position of the previous change of the key.
#[derive(Clone, Debug)]
enum Change {
    Put { key: Arc<[u8]>, value: Value, previous: Option<u32> },
    Merge { key: Arc<[u8]>, operand: Value, previous: Option<u32> },
    Delete { key: Arc<[u8]>, previous: Option<u32> },
    DeleteRange { start: Vec<u8>, end: Option<Vec<u8>> },
}

impl Change {
    fn bytes(&self) -> usize {
        CHANGE_BYTES
            + match self {
                Change::Put { key, value, .. } | Change::Merge { key, operand: value, .. } => {
                    key.len() + value.len()
                }
                Change::Delete { key, .. } => key.len(),
                // The batch of the engine has the largest key twice in place of a missing end.
                Change::DeleteRange { start, end } => {
                    start.len() + end.as_ref().map_or(2 * limits::KEY_LEN_MAX, Vec::len)
                }
            }
    }
}

/// The state of a key in the changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Value(Value),
    Deleted,
    /// The changes do not concern the key.
    Nothing,
    /// Merge operands, the oldest first, and the state of the key below them.
    Merged(Box<Found>, Vec<Value>),
}

impl Found {
    /// Returns the value of the key. `below` returns its value in the store, and `fold` folds operands
    /// into a base.
    pub fn settle(
        self,
        below: impl FnOnce() -> Result<Option<Value>>,
        fold: impl FnOnce(Option<&[u8]>, &[&[u8]]) -> Result<Value>,
    ) -> Result<Option<Value>> {
        match self {
            Found::Value(value) => Ok(Some(value)),
            Found::Deleted => Ok(None),
            Found::Nothing => below(),
            Found::Merged(base, operands) => {
                let base = match *base {
                    Found::Value(value) => Some(value),
                    Found::Nothing => below()?,
                    _ => None,
                };
                let operands: Vec<&[u8]> = operands.iter().map(|operand| &**operand).collect();
                fold(base.as_deref(), &operands).map(Some)
            }
        }
    }
}

/// A change of [`crate::IndexedBatch::changes`], borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchChange<'a> {
    /// A key gets a value.
    Put(&'a [u8], &'a [u8]),
    /// A key gets a merge operand.
    Merge(&'a [u8], &'a [u8]),
    /// A key is deleted.
    Delete(&'a [u8]),
    /// All keys from the first one up to the second one are deleted; `None`: all from the first on.
    DeleteRange(&'a [u8], Option<&'a [u8]>),
}

/// The changes of a family, by key.
#[derive(Clone, Debug, Default)]
struct OfFamily {
    /// The position of the last point change.
    last: BTreeMap<Arc<[u8]>, u32>,
    deleted: Fragments,
}

/// The changes of all families: see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    changes: Vec<(ColumnFamily, Change)>,
    families: BTreeMap<FamilyId, OfFamily>,
    bytes: usize,
}

impl Contents {
    /// Sets a key.
    ///
    /// # Errors
    /// `TooLarge`: key, value, or all changes together are over the limits. Nothing was added.
    pub fn put(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        check_len("value", value.len() as u64, limits::LARGE_VALUE_LEN_MAX)?;
        let value = Value::from(value.to_vec());
        self.push_point(family, key, value.len(), |key, previous| Change::Put { key, value, previous })
    }

    /// Adds a merge operand to a key.
    ///
    /// # Errors
    /// As [`Contents::put`].
    pub fn merge(&mut self, family: &ColumnFamily, key: &[u8], operand: &[u8]) -> Result<()> {
        check_len("merge operand", operand.len() as u64, limits::VALUE_LEN_MAX as u64)?;
        let operand = Value::from(operand.to_vec());
        self.push_point(family, key, operand.len(), |key, previous| Change::Merge { key, operand, previous })
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As [`Contents::put`].
    pub fn delete(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.push_point(family, key, 0, |key, previous| Change::Delete { key, previous })
    }

    /// Deletes all keys from `start` up to `end`; `None`: all from `start` on.
    ///
    /// # Errors
    /// As [`Contents::put`]; `InvalidArgument`: the end is before the start.
    pub fn delete_range(&mut self, family: &ColumnFamily, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        [Some(start), end].into_iter().flatten().try_for_each(check_key)?;
        if end.is_some_and(|end| end < start) {
            return Err(Error::invalid("delete_range: the start is after the end: swap the two keys"));
        }
        if end == Some(start) {
            return Ok(());
        }
        let change = Change::DeleteRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
        let position = self.check_room(change.bytes())?;
        self.families.entry(family.id()).or_default().deleted.cover(start, end, position);
        self.push(family, change);
        Ok(())
    }

    fn push_point(
        &mut self,
        family: &ColumnFamily,
        key: &[u8],
        value_len: usize,
        change: impl FnOnce(Arc<[u8]>, Option<u32>) -> Change,
    ) -> Result<()> {
        check_key(key)?;
        let position = self.check_room(CHANGE_BYTES + key.len() + value_len)?;
        let last = &mut self.families.entry(family.id()).or_default().last;
        let (key, previous) = match last.get_key_value(key) {
            Some((key, previous)) => (key.clone(), Some(*previous)),
            None => (Arc::from(key), None),
        };
        last.insert(key.clone(), position);
        self.push(family, change(key, previous));
        Ok(())
    }

    /// Returns the position of the next change, if it has room.
    fn check_room(&self, bytes: usize) -> Result<u32> {
        check_len("transaction", (self.bytes + bytes) as u64, limits::BATCH_LEN_MAX as u64)?;
        Ok(self.changes.len() as u32)
    }

    fn push(&mut self, family: &ColumnFamily, change: Change) {
        self.bytes += change.bytes();
        self.changes.push((family.clone(), change));
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Removes the changes behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let mut fragments_of = BTreeSet::new();
        while self.changes.len() > len {
            let Some((family, change)) = self.changes.pop() else { break };
            self.bytes -= change.bytes();
            let Some(of_family) = self.families.get_mut(&family.id()) else { continue };
            match change {
                Change::Put { key, previous, .. }
                | Change::Merge { key, previous, .. }
                | Change::Delete { key, previous } => {
                    match previous {
                        Some(previous) => of_family.last.insert(key, previous),
                        None => of_family.last.remove(&key),
                    };
                }
                Change::DeleteRange { .. } => drop(fragments_of.insert(family.id())),
            }
        }
        for id in fragments_of {
            let deleted = Fragments::of(self.ranges(id));
            if let Some(of_family) = self.families.get_mut(&id) {
                of_family.deleted = deleted;
            }
        }
    }

    /// Returns the range deletions of a family, with their positions.
    fn ranges(&self, id: FamilyId) -> impl Iterator<Item = (&[u8], Option<&[u8]>, u32)> {
        (0u32..).zip(&self.changes).filter_map(move |(position, (family, change))| match change {
            Change::DeleteRange { start, end } if family.id() == id => {
                Some((&start[..], end.as_deref(), position))
            }
            _ => None,
        })
    }

    /// Looks a key up.
    pub fn find(&self, id: FamilyId, key: &[u8]) -> Found {
        let Some(of_family) = self.families.get(&id) else { return Found::Nothing };
        let deleted = of_family.deleted.at(key).map(|fragment| fragment.position);
        match of_family.last.get(key) {
            Some(position) if deleted.is_none_or(|deleted| deleted < *position) => {
                self.value_at(*position, deleted)
            }
            None if deleted.is_none() => Found::Nothing,
            _ => Found::Deleted,
        }
    }

    /// Returns the state of a key whose last change is at `position`, above the range deletion at
    /// `deleted`.
    fn value_at(&self, position: u32, deleted: Option<u32>) -> Found {
        let mut operands = Vec::new();
        let mut base = if deleted.is_some() { Found::Deleted } else { Found::Nothing };
        for position in self.effective(position, deleted) {
            match self.changes.get(position as usize) {
                Some((_, Change::Put { value, .. })) => base = Found::Value(value.clone()),
                Some((_, Change::Merge { operand, .. })) => operands.push(operand.clone()),
                _ => base = Found::Deleted,
            }
        }
        if operands.is_empty() {
            return base;
        }
        operands.reverse();
        Found::Merged(Box::new(base), operands)
    }

    /// Returns the positions of the changes of a key that count, from its last one down: merge
    /// operands, and the put or delete below them, above the range deletion at `deleted`.
    fn effective(&self, last: u32, deleted: Option<u32>) -> impl Iterator<Item = u32> {
        let is_above = move |position: &u32| deleted.is_none_or(|deleted| deleted < *position);
        let below = move |position: &u32| match self.changes.get(*position as usize) {
            Some((_, Change::Merge { previous, .. })) => previous.filter(is_above),
            _ => None,
        };
        std::iter::successors(Some(last).filter(is_above), below)
    }

    /// Returns the first changed key within a bound and the next one.
    pub fn key_from(&self, id: FamilyId, from: Bound<&[u8]>) -> Option<Arc<[u8]>> {
        let last = &self.families.get(&id)?.last;
        last.range::<[u8], _>((from, Bound::Unbounded)).next().map(|(key, _)| key.clone())
    }

    /// Returns the last changed key within a bound.
    pub fn key_to(&self, id: FamilyId, to: Bound<&[u8]>) -> Option<Arc<[u8]>> {
        let last = &self.families.get(&id)?.last;
        last.range::<[u8], _>((Bound::Unbounded, to)).next_back().map(|(key, _)| key.clone())
    }

    /// Returns the bounds of the deleted fragment with a key: the first key, and the one behind.
    pub fn deleted_around(&self, id: FamilyId, key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let fragment = self.families.get(&id)?.deleted.at(key)?;
        Some((fragment.start, fragment.end))
    }

    /// Returns the changes in order. `overwrites`: without those that later ones undo.
    pub fn iter(&self, overwrites: bool) -> impl Iterator<Item = (&ColumnFamily, BatchChange<'_>)> {
        let effective = overwrites.then(|| self.all_effective());
        let counts = move |position: usize| effective.as_ref().is_none_or(|all| all[position]);
        self.changes.iter().enumerate().filter_map(move |(position, (family, change))| {
            let change = match change {
                Change::DeleteRange { start, end } => BatchChange::DeleteRange(start, end.as_deref()),
                _ if !counts(position) => return None,
                Change::Put { key, value, .. } => BatchChange::Put(key, value),
                Change::Merge { key, operand, .. } => BatchChange::Merge(key, operand),
                Change::Delete { key, .. } => BatchChange::Delete(key),
            };
            Some((family, change))
        })
    }

    /// Returns for each change whether it counts; range deletions always do.
    fn all_effective(&self) -> Vec<bool> {
        let mut all = vec![false; self.changes.len()];
        for of_family in self.families.values() {
            for (key, last) in &of_family.last {
                let deleted = of_family.deleted.at(key).map(|fragment| fragment.position);
                self.effective(*last, deleted).for_each(|position| all[position as usize] = true);
            }
        }
        all
    }

    /// Returns the changes as a batch of the engine.
    pub fn to_batch(&self, overwrites: bool) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (family, change) in self.iter(overwrites) {
            match change {
                BatchChange::Put(key, value) => batch.put_cf(family, key, value),
                BatchChange::Merge(key, operand) => batch.merge_cf(family, key, operand),
                BatchChange::Delete(key) => batch.delete_cf(family, key),
                BatchChange::DeleteRange(start, end) => {
                    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                    batch.delete_bounds_cf(family, (Bound::Included(start), end));
                }
            }
        }
        batch
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    check_len("key", key.len() as u64, limits::KEY_LEN_MAX as u64)
}

fn check_len(what: &str, len: u64, max: u64) -> Result<()> {
    if len <= max {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::TooLarge,
        format!("{what} of {len} bytes is over the limit: at most {max} bytes are supported"),
    ))
}

#[cfg(test)]
mod tests;
