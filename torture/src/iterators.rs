//! Iterators compared with a sorted list: every move must land on the same entry.

use crate::check::{Check, Doing, ensure, show};
use crate::driver::at;
use crate::plan::Data;
use crate::state::{Entries, FamilyId};
use io::Rng;
use lavastore::{Cursor, Family, ReadOptions, Snapshot};
use std::ops::Bound;
use std::rc::Rc;

/// An iterator and its expected entries.
pub(crate) struct Twin {
    pub iterator: Cursor,
    pub family: FamilyId,
    view: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
    keys_only: bool,
}

/// Random bounds, prefix and options.
#[derive(Default)]
pub(crate) struct Within {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    keys_only: bool,
    options: ReadOptions,
}

impl Within {
    pub fn draw(rng: &mut Rng, data: &Data) -> Within {
        let mut within = Within::default();
        if rng.one_in(4) {
            within.lower = Some(data.key(rng));
        }
        if rng.one_in(4) {
            within.upper = Some(data.key(rng));
        }
        if rng.one_in(5) {
            let mut prefix = data.key(rng);
            prefix.truncate(1 + rng.below(prefix.len() as u64) as usize);
            within.prefix = Some(prefix);
        }
        within.keys_only = rng.one_in(6);
        within.options.fill_cache = !rng.one_in(4);
        within.options.readahead_bytes = if rng.one_in(3) { 1 << (9 + rng.below(9)) } else { 0 };
        within.options.expected_entries = if rng.one_in(3) { 1 + rng.below(20) as usize } else { 0 };
        within
    }

    /// Creates the cursor.
    pub fn cursor(&self, family: &Family, snapshot: Option<&Snapshot>) -> lavastore::Result<Cursor> {
        let reader = at(family, snapshot, &self.options);
        let lower = self.lower.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let upper = self.upper.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        match &self.prefix {
            Some(prefix) => reader.prefix(prefix).within((lower, upper)).cursor(),
            None => reader.range((lower, upper)).cursor(),
        }
    }

    fn holds(&self, key: &Vec<u8>) -> bool {
        self.lower.as_ref().is_none_or(|low| key >= low)
            && self.upper.as_ref().is_none_or(|high| key < high)
            && self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
    }
}

impl Twin {
    pub fn new(iterator: Cursor, family: FamilyId, within: &Within, entries: &Rc<Entries>) -> Self {
        let inside = entries.iter().filter(|(key, _)| within.holds(key));
        let view = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
        Twin { iterator, family, view, at: None, keys_only: within.keys_only }
    }

    /// Makes some moves.
    pub fn walk(&mut self, rng: &mut Rng, data: &Data) -> Check {
        for _ in 0..1 + rng.below(4) {
            let key = data.key(rng);
            let what = match rng.below(4) {
                0 => {
                    self.at = (!self.view.is_empty()).then_some(0);
                    self.iterator.seek_to_first().doing(|| "seek_to_first".into())?;
                    "seek_to_first".to_owned()
                }
                1 => {
                    self.at = self.view.len().checked_sub(1);
                    self.iterator.seek_to_last().doing(|| "seek_to_last".into())?;
                    "seek_to_last".to_owned()
                }
                2 => {
                    let i = self.view.partition_point(|(k, _)| *k < key);
                    self.at = (i < self.view.len()).then_some(i);
                    self.iterator.seek(&key).doing(|| "seek".into())?;
                    format!("seek {}", show(&key))
                }
                _ => {
                    self.at = self.view.partition_point(|(k, _)| *k <= key).checked_sub(1);
                    self.iterator.seek_for_prev(&key).doing(|| "seek_for_prev".into())?;
                    format!("seek_for_prev {}", show(&key))
                }
            };
            self.compare(&what)?;
            self.wander(rng, &what)?;
        }
        Ok(())
    }

    /// Checks that an iterator of a closed store refuses its first move.
    pub fn is_refused(&mut self, rng: &mut Rng, data: &Data) -> Check {
        match self.walk(rng, data) {
            Err(why) if why.contains("closed: the store was closed") => Ok(()),
            Err(why) => Err(format!("an iterator of a closed store: {why}")),
            Ok(()) => Err("an iterator of a closed store goes on".into()),
        }
    }

    /// Steps in both directions, with runs.
    fn wander(&mut self, rng: &mut Rng, from: &str) -> Check {
        let mut forward = rng.one_in(2);
        // A long run in one direction prefetches entries.
        let (steps, turns) = if rng.one_in(4) { (80, 40) } else { (12, 4) };
        for step in 0..rng.below(steps) {
            let Some(at) = self.at else { return Ok(()) };
            if rng.one_in(turns) {
                forward = !forward;
            }
            if forward {
                self.at = (at + 1 < self.view.len()).then_some(at + 1);
                self.iterator.next().doing(|| "next".into())?;
            } else {
                self.at = at.checked_sub(1);
                self.iterator.prev().doing(|| "prev".into())?;
            }
            self.compare(&format!("{from}, step {step} {}", if forward { "next" } else { "prev" }))?;
        }
        Ok(())
    }

    fn compare(&self, what: &str) -> Check {
        let Some(at) = self.at else {
            let found = self.iterator.key();
            ensure!(!self.iterator.valid(), "iterator, {what}: expected the end, stands on {}", show(found));
            return Ok(());
        };
        let (key, value) = &self.view[at];
        ensure!(self.iterator.valid(), "iterator, {what}: expected {}, found the end", show(key));
        let found = self.iterator.key();
        ensure!(found == key, "iterator, {what}: expected {}, stands on {}", show(key), show(found));
        if self.keys_only {
            return Ok(());
        }
        let stored = self.iterator.value().doing(|| "value".into())?;
        ensure!(
            stored == value,
            "iterator, {what}: value of {} is {} instead of {}",
            show(key),
            show(stored),
            show(value)
        );
        Ok(())
    }
}
