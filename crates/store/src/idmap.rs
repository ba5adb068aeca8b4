//! An ordered map from ids to values that is cheap to clone and cheap to change a little.
//!
//! It is a two-level B-tree: sorted runs of up to 128 entries behind `Arc`s, in a list that is
//! itself behind an `Arc`. A clone is one reference count. A change to a clone copies one run and
//! the list of runs. So an edit of a version with ten thousand files copies a few kilobytes instead
//! of a tree of ten thousand nodes. Readers of the old version keep it unchanged.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// A run is split in two when it grows past this.
const RUN_LEN_MAX: usize = 128;

type Run<K, V> = Arc<Vec<(K, V)>>;

/// A key with its value before and after, of which at most one is missing: see [`IdMap::changes`].
pub type Change<'m, K, V> = (K, Option<&'m V>, Option<&'m V>);

/// A copy-on-write ordered map. See the module's documentation.
pub struct IdMap<K, V> {
    /// No run is empty; the keys ascend within and across runs.
    runs: Arc<Vec<Run<K, V>>>,
    len: usize,
}

impl<K, V> Clone for IdMap<K, V> {
    fn clone(&self) -> Self {
        IdMap { runs: Arc::clone(&self.runs), len: self.len }
    }
}

impl<K, V> Default for IdMap<K, V> {
    fn default() -> Self {
        IdMap { runs: Arc::new(Vec::new()), len: 0 }
    }
}

impl<K: Ord + Copy, V> IdMap<K, V> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the index of the run for `key`; the number of runs if `key` is past all of them.
    fn run_of(&self, key: &K) -> usize {
        self.runs.partition_point(|run| run.last().is_some_and(|(last, _)| last < key))
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let run = self.runs.get(self.run_of(key))?;
        let i = run.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        run.get(i).map(|(_, v)| v)
    }

    /// Returns true if `key` has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the entries in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + '_ {
        self.runs.iter().flat_map(|run| run.iter().map(|(k, v)| (*k, v)))
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> + '_ {
        self.iter().map(|(k, _)| k)
    }

    /// Returns the values in key order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + '_ {
        self.iter().map(|(_, v)| v)
    }

    /// Returns the entry with the largest key.
    pub fn last(&self) -> Option<(K, &V)> {
        self.runs.last().and_then(|run| run.last()).map(|(k, v)| (*k, v))
    }
}

impl<K: Ord + Copy, V: PartialEq> IdMap<K, V> {
    /// Returns the differences from `before`, in key order. Runs that both maps share are skipped.
    /// Between a map and a modified clone it costs about one comparison for each run, plus the
    /// changed runs.
    pub fn changes<'m>(&'m self, before: &'m Self) -> Vec<Change<'m, K, V>> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        if !Arc::ptr_eq(&self.runs, &before.runs) {
            let (mut theirs, mut ours) = (before.runs.iter().peekable(), self.runs.iter().peekable());
            // A shared run has the same last key in both maps. The map that is behind advances, so
            // both reach the shared run together.
            loop {
                let last = |run: Option<&&'m Run<K, V>>| run.and_then(|run| run.last()).map(|(key, _)| *key);
                let (a, b) = (last(theirs.peek()), last(ours.peek()));
                match (theirs.peek(), ours.peek()) {
                    (None, None) => break,
                    (Some(x), Some(y)) if Arc::ptr_eq(x, y) => {
                        theirs.next();
                        ours.next();
                    }
                    (Some(run), _) if b.is_none() || a <= b => {
                        old.extend(run.iter());
                        theirs.next();
                    }
                    (_, Some(run)) => {
                        new.extend(run.iter());
                        ours.next();
                    }
                    (Some(_), None) => unreachable!("a map without more runs has no last key"),
                }
            }
        }
        merged(&old, &new)
    }
}

/// Returns the differences between two sorted lists.
fn merged<'m, K: Ord + Copy, V: PartialEq>(old: &[&'m (K, V)], new: &[&'m (K, V)]) -> Vec<Change<'m, K, V>> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut changes = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let before = if order.is_le() { old.next() } else { None };
        let now = if order.is_ge() { new.next() } else { None };
        let (before, now) = (before.map(|e| (e.0, &e.1)), now.map(|e| (e.0, &e.1)));
        let Some((key, _)) = before.or(now) else { continue };
        let (before, now) = (before.map(|e| e.1), now.map(|e| e.1));
        if before != now {
            changes.push((key, before, now));
        }
    }
}

impl<K: Ord + Copy, V: Clone> IdMap<K, V> {
    /// Sets the value of `key`; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let at = self.run_of(&key);
        let runs = Arc::make_mut(&mut self.runs);
        if runs.is_empty() {
            runs.push(Arc::new(Vec::new()));
        }
        // A key past every run goes to the end of the last one.
        let at = at.min(runs.len() - 1);
        let run = Arc::make_mut(&mut runs[at]);
        match run.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(i) => Some(std::mem::replace(&mut run[i].1, value)),
            Err(i) => {
                run.insert(i, (key, value));
                if run.len() > RUN_LEN_MAX {
                    let upper = run.split_off(RUN_LEN_MAX / 2);
                    runs.insert(at + 1, Arc::new(upper));
                }
                self.len += 1;
                None
            }
        }
    }

    /// Removes `key`; returns the previous value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.run_of(key);
        let i = self.runs.get(at)?.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        let runs = Arc::make_mut(&mut self.runs);
        let (_, value) = Arc::make_mut(&mut runs[at]).remove(i);
        if runs[at].is_empty() {
            runs.remove(at);
        }
        self.len -= 1;
        Some(value)
    }
}

impl<K: Ord + Copy, V: Clone> IdMap<K, V> {
    /// Makes many changes at once, in ascending key order. `change` returns the new value of each
    /// key, or none. A run is copied once for all its changes.
    ///
    /// # Errors
    /// The error of `change`; the map stays as it was.
    pub fn change_all<C, E>(
        &mut self,
        changes: &[(K, C)],
        mut change: impl FnMut(K, &C, Option<&V>) -> Result<Option<V>, E>,
    ) -> Result<(), E> {
        debug_assert!(changes.is_sorted_by(|a, b| a.0 < b.0), "each key once, in order");
        if changes.is_empty() {
            return Ok(());
        }
        let mut runs = Vec::with_capacity(self.runs.len() + changes.len() / RUN_LEN_MAX + 1);
        let (mut rest, mut len) = (changes, self.len);
        let none = [Run::default()];
        let old: &[Run<K, V>] = if self.runs.is_empty() { &none } else { &self.runs };
        for (nth, run) in old.iter().enumerate() {
            // Keys past every run go to the end of the last one.
            let is_last = nth + 1 == old.len();
            let is_here = |(key, _): &(K, C)| is_last || run.last().is_some_and(|(last, _)| key <= last);
            let count = if rest.first().is_some_and(is_here) { rest.partition_point(is_here) } else { 0 };
            let (own, later) = rest.split_at(count);
            rest = later;
            if own.is_empty() {
                runs.push(run.clone());
                continue;
            }
            let merged = with_changes(run, own, &mut change)?;
            len = len + merged.len() - run.len();
            push_in_runs(&mut runs, merged);
        }
        (self.runs, self.len) = (Arc::new(runs), len);
        Ok(())
    }

    /// As [`IdMap::change_all`], with known values.
    pub fn set_all(&mut self, values: &[(K, Option<V>)]) {
        let Ok(()) = self.change_all(values, |_, value, _| Ok::<_, Infallible>(value.clone()));
    }
}

/// Returns a run with some of its keys changed.
fn with_changes<K: Ord + Copy, V: Clone, C, E>(
    run: &[(K, V)],
    changes: &[(K, C)],
    change: &mut impl FnMut(K, &C, Option<&V>) -> Result<Option<V>, E>,
) -> Result<Vec<(K, V)>, E> {
    let mut merged = Vec::with_capacity(run.len() + changes.len());
    let mut rest = run;
    for (key, of) in changes {
        let (before, from) = rest.split_at(rest.partition_point(|(k, _)| k < key));
        merged.extend_from_slice(before);
        let old = from.first().filter(|(k, _)| k == key).map(|(_, value)| value);
        rest = if old.is_some() { &from[1..] } else { from };
        merged.extend(change(*key, of, old)?.map(|value| (*key, value)));
    }
    merged.extend_from_slice(rest);
    Ok(merged)
}

/// Appends entries as runs of about the same length.
fn push_in_runs<K, V>(runs: &mut Vec<Run<K, V>>, entries: Vec<(K, V)>) {
    let len = entries.len().div_ceil(entries.len().div_ceil(RUN_LEN_MAX).max(1));
    let mut rest = entries.into_iter().peekable();
    while rest.peek().is_some() {
        runs.push(Arc::new(rest.by_ref().take(len).collect()));
    }
}

impl<K: Ord + Copy, V: Clone> FromIterator<(K, V)> for IdMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = IdMap::new();
        for (k, v) in entries {
            map.insert(k, v);
        }
        map
    }
}

impl<K: Ord + Copy, V: PartialEq> PartialEq for IdMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && (Arc::ptr_eq(&self.runs, &other.runs) || self.iter().eq(other.iter()))
    }
}

impl<K: Ord + Copy, V: Eq> Eq for IdMap<K, V> {}

impl<K: Ord + Copy + fmt::Debug, V: fmt::Debug> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn id_map_agrees_with_a_btree_map_and_clones_are_stable() {
        let mut rng = io::Rng::new(1);
        let (mut map, mut model) = (IdMap::new(), BTreeMap::new());
        let mut old: Vec<(IdMap<u64, u64>, BTreeMap<u64, u64>)> = Vec::new();
        for step in 0..20_000 {
            let key = rng.below(1500);
            if rng.below(5) < 3 {
                assert_eq!(map.insert(key, step), model.insert(key, step));
            } else {
                assert_eq!(map.remove(&key), model.remove(&key));
            }
            assert_eq!(map.len(), model.len());
            assert_eq!(map.get(&key), model.get(&key));
            if step % 1000 == 0 {
                old.push((map.clone(), model.clone()));
            }
        }
        old.push((map, model));
        for (map, model) in &old {
            assert!(map.iter().eq(model.iter().map(|(k, v)| (*k, v))));
            assert!(map.runs.iter().all(|run| !run.is_empty() && run.len() <= RUN_LEN_MAX));
            assert_eq!(map, &model.iter().map(|(k, v)| (*k, *v)).collect());
            assert_eq!(map.last(), model.last_key_value().map(|(k, v)| (*k, v)));
        }
    }

    /// Many changes at once have the same effect as one by one, and share the unchanged runs.
    #[test]
    fn bulk_changes_equal_single_changes() {
        let mut rng = io::Rng::new(3);
        for round in 0..60 {
            let keys = 1 + rng.below(4000);
            let mut map: IdMap<u64, u64> = (0..rng.below(2 * keys)).map(|_| (rng.below(keys), 0)).collect();
            for step in 1..20 {
                let (before, mut model) =
                    (map.clone(), map.iter().map(|(k, v)| (k, *v)).collect::<BTreeMap<_, _>>());
                let part = 1 + rng.below(40);
                let keys: Vec<u64> = (0..keys + 50).filter(|_| rng.one_in(part)).collect();
                let changes: Vec<(u64, u64)> = keys.into_iter().map(|key| (key, rng.below(3))).collect();
                let refused = map.change_all(&changes, |key, _, _| {
                    if Some(key) == changes.last().map(|c| c.0) { Err(key) } else { Ok(None) }
                });
                assert_eq!(refused.is_err(), !changes.is_empty());
                assert_eq!(map, before, "a refused change leaves it as it was");
                let made = map.change_all(&changes, |key, of, old| {
                    assert_eq!(old, before.get(&key));
                    Ok::<_, ()>((*of > 0).then_some(step * of))
                });
                made.unwrap();
                for (key, of) in &changes {
                    if *of > 0 {
                        model.insert(*key, step * of)
                    } else {
                        model.remove(key)
                    };
                }
                assert!(map.iter().eq(model.iter().map(|(k, v)| (*k, v))), "round {round}");
                assert_eq!(map.len(), model.len());
                assert!(map.runs.iter().all(|run| !run.is_empty() && run.len() <= RUN_LEN_MAX));
                let mut from = 0;
                for (nth, run) in before.runs.iter().enumerate() {
                    let is_last = nth + 1 == before.runs.len();
                    let to = if is_last { u64::MAX } else { run[run.len() - 1].0 + 1 };
                    let changes_here = changes.iter().any(|(key, _)| (from..to).contains(key));
                    let is_shared = map.runs.iter().any(|own| Arc::ptr_eq(own, run));
                    assert_eq!(is_shared, !changes_here);
                    from = to;
                }
                let mut set = before.clone();
                let values: Vec<(u64, Option<u64>)> =
                    changes.iter().map(|(key, of)| (*key, (*of > 0).then_some(step * of))).collect();
                set.set_all(&values);
                assert_eq!(set, map);
            }
        }
    }
}
