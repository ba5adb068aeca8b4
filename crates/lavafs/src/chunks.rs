//! Ordered map with copy-on-write chunks: copies share all unchanged chunks.
//!
//! The map keeps its entries in sorted chunks of at most [`CHUNK_LEN_MAX`] entries. A copy of the
//! map copies only the list of chunks. The first change of an entry copies its chunk. Therefore the
//! metadata of a volume is copied within microseconds for thousands of files while a lock is held,
//! and encoded after its release. A map of consecutive chunks also takes less memory than a hash
//! table, whose buckets are half empty.
//!
//! Invariants: no chunk is empty; keys ascend within a chunk and from one chunk to the next.

use std::borrow::Borrow;
use std::sync::Arc;

/// Maximum number of entries per chunk. A change of one entry copies at most this number.
const CHUNK_LEN_MAX: usize = 64;

type Chunk<K, V> = Vec<(K, V)>;

#[derive(Clone, Debug)]
pub(crate) struct ChunkMap<K, V> {
    chunks: Vec<Arc<Chunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for ChunkMap<K, V> {
    fn default() -> Self {
        ChunkMap { chunks: Vec::new(), len: 0 }
    }
}

/// Position of a key: the chunk that holds it or would hold it, and the index in that chunk.
struct KeyPosition {
    chunk: usize,
    at: Result<usize, usize>,
}

impl<K: Ord + Clone, V: Clone> ChunkMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entries in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> KeyPosition
    where
        K: Borrow<Q>,
    {
        let ends_before =
            |chunk: &Arc<Chunk<K, V>>| chunk.last().is_some_and(|(last, _)| last.borrow() < key);
        let chunk = self.chunks.partition_point(ends_before);
        let at = match self.chunks.get(chunk) {
            Some(chunk) => chunk.binary_search_by(|(k, _)| k.borrow().cmp(key)),
            None => Err(0),
        };
        KeyPosition { chunk, at }
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let KeyPosition { chunk, at } = self.find(key);
        self.chunks.get(chunk)?.get(at.ok()?).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).at.is_ok()
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let KeyPosition { chunk, at } = self.find(key);
        let at = at.ok()?;
        Arc::make_mut(self.chunks.get_mut(chunk)?).get_mut(at).map(|(_, value)| value)
    }

    /// Adds an entry or replaces its value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let KeyPosition { mut chunk, at } = self.find(&key);
        let mut at = match at {
            Ok(at) => {
                if let Some(entry) = self.chunks.get_mut(chunk).and_then(|c| Arc::make_mut(c).get_mut(at)) {
                    entry.1 = value;
                }
                return;
            }
            Err(at) => at,
        };
        self.len += 1;
        if chunk == self.chunks.len() {
            // Append to the last chunk: ascending inserts leave full chunks.
            match self.chunks.last().filter(|last| last.len() < CHUNK_LEN_MAX) {
                Some(last) => (chunk, at) = (chunk - 1, last.len()),
                None => self.chunks.push(Arc::new(Vec::new())),
            }
        } else if let Some(full) = self.chunks.get_mut(chunk).filter(|c| c.len() >= CHUNK_LEN_MAX) {
            let full = Arc::make_mut(full);
            let half = full.len() / 2;
            let upper = full.split_off(half);
            full.shrink_to_fit();
            self.chunks.insert(chunk + 1, Arc::new(upper));
            if at > half {
                (chunk, at) = (chunk + 1, at - half);
            }
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            let chunk = Arc::make_mut(chunk);
            if chunk.len() == chunk.capacity() {
                let more = (chunk.len() / 4).max(4).min(CHUNK_LEN_MAX - chunk.len());
                chunk.reserve_exact(more);
            }
            chunk.insert(at, (key, value));
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let KeyPosition { chunk: n, at } = self.find(key);
        let at = at.ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(n)?);
        let (_, value) = chunk.remove(at);
        self.len -= 1;
        let len = chunk.len();
        if chunk.capacity() > 2 * len {
            chunk.shrink_to(len + len / 4);
        }
        if len == 0 {
            self.chunks.remove(n);
        } else if let Some(next) = self.chunks.get(n + 1).filter(|next| len + next.len() <= CHUNK_LEN_MAX / 2)
        {
            let moved = next.to_vec();
            self.chunks.remove(n + 1);
            if let Some(chunk) = self.chunks.get_mut(n) {
                Arc::make_mut(chunk).extend(moved);
            }
        }
        Some(value)
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for ChunkMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Rng;
    use std::collections::BTreeMap;

    fn check(map: &ChunkMap<u64, u64>, model: &BTreeMap<u64, u64>) {
        assert!(map.iter().eq(model.iter()));
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert!(map.chunks.iter().all(|c| (1..=CHUNK_LEN_MAX).contains(&c.len())));
    }

    #[test]
    fn chunk_map_agrees_with_a_sorted_map_and_copies_are_stable() {
        let mut rng = Rng::new(4);
        for round in 0..30 {
            let (mut map, mut model) = (ChunkMap::default(), BTreeMap::new());
            let keys = rng.range(1, 1500);
            let mut copies = Vec::new();
            for n in 0..3000 {
                let key = rng.below(keys);
                // The map grows first, then shrinks to a few entries.
                if rng.below(3000) > n {
                    map.insert(key, n);
                    model.insert(key, n);
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key), "round {round}");
                }
                assert_eq!(map.get(&key), model.get(&key));
                let other = rng.below(keys);
                if let Some(value) = map.get_mut(&other) {
                    *value += 1;
                }
                model.entry(other).and_modify(|value| *value += 1);
                assert_eq!(map.contains_key(&other), model.contains_key(&other));
                if n % 500 == 250 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            check(&map, &model);
            copies.iter().for_each(|(map, model)| check(map, model));
        }
    }

    #[test]
    fn ascending_keys_fill_chunks_completely() {
        let mut map = ChunkMap::default();
        (0..10_000u64).for_each(|n| map.insert(n, n));
        assert_eq!(map.chunks.len(), 10_000usize.div_ceil(CHUNK_LEN_MAX));
        let held: usize = map.chunks.iter().map(|c| c.capacity()).sum();
        assert!(held <= 11_000, "{held}");
        (0..9_990).for_each(|n| assert_eq!(map.remove(&n), Some(n)));
        assert_eq!(map.chunks.len(), 1);
    }

    #[test]
    fn a_change_copies_only_one_chunk() {
        let mut map = ChunkMap::default();
        (0..10_000u64).for_each(|n| map.insert(n, n));
        let copy = map.clone();
        map.insert(5, 7);
        *map.get_mut(&6).unwrap() = 8;
        let shared = map.chunks.iter().zip(&copy.chunks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, copy.chunks.len() - 1);
    }
}
