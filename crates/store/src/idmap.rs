//! An ordered map from ids to values that is cheap to clone and cheap to change a little.
//!
//! Sorted runs of up to 128 entries behind `Arc`s, listed in an `Arc` themselves: a two-level B-tree. A clone is one
//! reference count; a change to a clone copies one run and the list of runs. A version with ten thousand files is
//! therefore edited by copying a few kilobytes instead of rebuilding a tree of ten thousand nodes, and the old version
//! stays as it was for those who still read it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A run is split in two when it grows past this.
const RUN_LEN_MAX: usize = 128;

type Run<K, V> = Arc<Vec<(K, V)>>;

/// A key, the value it had before and the one it has now, of which at most one is missing: see [`IdMap::changes`].
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
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The run that holds `key` or would hold it; the number of runs if `key` is past all of them.
    fn run_of(&self, key: &K) -> usize {
        self.runs.partition_point(|run| run.last().is_some_and(|(last, _)| last < key))
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let run = self.runs.get(self.run_of(key))?;
        let i = run.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        run.get(i).map(|(_, v)| v)
    }

    /// True if `key` has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The entries in order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + '_ {
        self.runs.iter().flat_map(|run| run.iter().map(|(k, v)| (*k, v)))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> + '_ {
        self.iter().map(|(k, _)| k)
    }

    /// The values in order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + '_ {
        self.iter().map(|(_, v)| v)
    }

    /// The entry with the largest key.
    pub fn last(&self) -> Option<(K, &V)> {
        self.runs.last().and_then(|run| run.last()).map(|(k, v)| (*k, v))
    }
}

impl<K: Ord + Copy, V: PartialEq> IdMap<K, V> {
    /// What is different from `before`, ascending. Runs that both maps share are passed over without a look into them, so
    /// between two maps of which one was made of the other it costs about a comparison a run, and the runs that changed.
    pub fn changes<'m>(&'m self, before: &'m Self) -> Vec<Change<'m, K, V>> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        if !Arc::ptr_eq(&self.runs, &before.runs) {
            let (mut theirs, mut ours) = (before.runs.iter().peekable(), self.runs.iter().peekable());
            // What both share has the same last key in both: whoever is behind goes on, and they meet there.
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

/// What is different between two sorted lists.
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
    /// Sets the value of `key`; returns the value it had.
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

    /// Removes `key`; returns the value it had.
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
    fn agrees_with_a_btree_map_and_old_clones_stay() {
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

    #[test]
    fn changes_lead_from_one_map_to_the_other() {
        let mut rng = io::Rng::new(2);
        let mut maps: Vec<IdMap<u64, u64>> = vec![IdMap::new()];
        let mut map = IdMap::new();
        for step in 0..400 {
            for _ in 0..rng.range(1, 300) {
                let key = rng.below(3000);
                if rng.below(5) < 3 {
                    map.insert(key, rng.below(4));
                } else {
                    map.remove(&key);
                }
            }
            if step % 10 == 0 {
                // One that shares nothing, too.
                maps.push(map.iter().map(|(k, v)| (k, *v)).collect());
            }
            maps.push(map.clone());
            let before = &maps[rng.below(maps.len() as u64) as usize];
            let changes = map.changes(before);
            assert!(changes.is_sorted_by(|a, b| a.0 < b.0));
            let mut led = before.clone();
            for (key, old, new) in changes {
                assert_ne!(old, new);
                assert_eq!(before.get(&key), old);
                match new {
                    Some(new) => led.insert(key, *new),
                    None => led.remove(&key),
                };
            }
            assert_eq!(led, map);
            assert!(map.changes(&map.clone()).is_empty());
        }
    }
}
