//! The drop cache: remembers recently overwritten keys (DropCache of Scavenger+).
//!
//! A compaction that drops an older version of a key shows that the key is overwritten repeatedly.
//! The cache remembers such keys. A flush writes their next values into a separate file of hot
//! values: that file is soon mostly garbage, and cheap to collect, while files of cold values are
//! left alone.
//!
//! * **Lossy and bounded.** Two generations of fingerprints are allocated at once, with the first
//!   key: a thousand families without overwrites take no memory. A key's fingerprint is four bits
//!   in one word of 64, at 16 bits a key: about one unknown key in a hundred is taken for a
//!   remembered key. Keys are added to the younger generation, and found in both. When the younger
//!   is full, it becomes the older one, and the previous older one is cleared. So a key is
//!   remembered for at least as many other keys as one generation holds, and for at most as many as
//!   two hold. This approximates the LRU list of the paper.
//! * **Few keys are remembered.** A generation takes at most one in [`KEYS_PART`] of the existing
//!   keys, however much memory there is. A cache that remembered all keys would classify every key
//!   as hot. At this size, the cache separates skew from uniformity. With uniform overwrites, at
//!   most `2 / KEYS_PART` of the written values find their keys in it; with skewed overwrites, many
//!   more do.
//! * **Splitting follows from that share** ([`DropCache::parting`]). Values go to two files only if
//!   the recent share of hot bytes was well above that of uniform keys, and well below all. A
//!   uniform workload is written as without the cache.
//! * **Any number of threads.** Words are atomic, and no operation waits. Concurrent updates may be
//!   lost in part: a few keys more or less are remembered. There is no clock and no randomness, so
//!   with one thread all results are repeatable.

use base::sync::OnceLock;
use base::sync::statistic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A generation takes at most one in this many of all keys.
pub const KEYS_PART: u64 = 16;
/// Bits of a generation for each key.
const BITS_PER_KEY: usize = 16;
/// Minimum number of keys that a generation takes.
const KEYS_MIN: usize = 16;
/// Share of hot bytes from which values are split: well above the `2 / KEYS_PART` of uniform keys.
const HOT_PERCENT_MIN: u64 = 20;
/// Share of hot bytes above which values are not split: the other file would be tiny.
const HOT_PERCENT_MAX: u64 = 90;

/// Decision whether to split hot and cold values into two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotColdSplit {
    /// Split: each key decides.
    ByKey,
    /// Too few values are hot: all go to the cold file.
    AllCold,
    /// Nearly all values are hot: all go to the hot file.
    AllHot,
}

/// The drop cache: see the module.
pub struct DropCache {
    /// Fingerprints, allocated with the first key.
    generations: OnceLock<[Box<[AtomicU64]>; 2]>,
    /// Number of words of a generation.
    words: usize,
    /// Index of the younger generation.
    young: AtomicUsize,
    /// Number of keys in the younger generation.
    keys: AtomicUsize,
    /// Number of keys at which it is full.
    keys_max: AtomicUsize,
    /// Held by the thread that rotates the generations.
    rotating: AtomicBool,
    /// Recent bytes of values looked up; `hot_bytes` is the hot part.
    asked_bytes: AtomicU64,
    hot_bytes: AtomicU64,
}

impl DropCache {
    /// Returns a cache of about `bytes` of memory, at least 256.
    pub fn new(bytes: usize) -> Self {
        let words = (bytes / 2 / size_of::<u64>()).max(16);
        DropCache {
            generations: OnceLock::new(),
            words,
            young: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(words * 64 / BITS_PER_KEY),
            rotating: AtomicBool::new(false),
            asked_bytes: AtomicU64::new(0),
            hot_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the bytes of memory in use: none before the first key.
    pub fn bytes(&self) -> usize {
        let generations = self.generations.get();
        generations.map_or(0, |all| all.iter().map(|words| words.len() * size_of::<u64>()).sum())
    }

    fn generations(&self) -> &[Box<[AtomicU64]>; 2] {
        let generation = || (0..self.words).map(|_| AtomicU64::new(0)).collect();
        self.generations.get_or_init(|| [generation(), generation()])
    }

    /// Returns the number of keys that a generation takes.
    pub fn keys_max(&self) -> usize {
        self.keys_max.load(Relaxed)
    }

    /// Sets the approximate number of keys with separated values; before the first call the cache
    /// takes as many as fit.
    pub fn set_live_keys(&self, keys: u64) {
        let fit = self.words * 64 / BITS_PER_KEY;
        let part = usize::try_from(keys / KEYS_PART).unwrap_or(usize::MAX);
        self.keys_max.store(part.max(KEYS_MIN).min(fit), Relaxed);
    }

    /// Returns the word and the bits of a key.
    #[inline]
    fn place(&self, key_hash: u64) -> (usize, u64) {
        let words = self.words as u64;
        let word = ((key_hash >> 32) * words) >> 32;
        let bit = |at: u32| 1u64 << ((key_hash >> at) & 63);
        (word as usize, bit(0) | bit(6) | bit(12) | bit(18))
    }

    /// Remembers a key of which an older version was dropped. `key_hash` is
    /// [`base::hash::key_hash`].
    #[inline]
    pub fn remember(&self, key_hash: u64) {
        let (word, bits) = self.place(key_hash);
        let word = &self.generations()[self.young.load(Relaxed) & 1][word];
        if word.load(Relaxed) & bits == bits {
            return;
        }
        word.fetch_or(bits, Relaxed);
        if self.keys.fetch_add(1, Relaxed) + 1 >= self.keys_max.load(Relaxed) {
            self.rotate();
        }
    }

    #[cold]
    fn rotate(&self) {
        if self.rotating.swap(true, Relaxed) {
            return;
        }
        let old = (self.young.load(Relaxed) + 1) & 1;
        self.generations()[old].iter().for_each(|word| word.store(0, Relaxed));
        self.keys.store(0, Relaxed);
        self.young.store(old, Relaxed);
        self.rotating.store(false, Relaxed);
    }

    /// Returns true if an older version of the key was dropped recently, and for about one other
    /// key in a hundred.
    #[inline]
    pub fn is_hot(&self, key_hash: u64) -> bool {
        let (word, bits) = self.place(key_hash);
        let Some(generations) = self.generations.get() else { return false };
        generations.iter().any(|words| words[word].load(Relaxed) & bits == bits)
    }

    /// Records the result of a flush: the bytes of values that it looked up, and the hot part.
    /// Earlier flushes count less and less, and the last eight most: one flush of few values is not
    /// decisive.
    pub fn book(&self, asked_bytes: u64, hot_bytes: u64) {
        let add = |to: &AtomicU64, bytes| to.store((to.load(Relaxed) / 8 * 7).saturating_add(bytes), Relaxed);
        add(&self.asked_bytes, asked_bytes);
        add(&self.hot_bytes, hot_bytes);
    }

    /// Returns whether the next flush should split hot and cold values, according to the last ones.
    pub fn parting(&self) -> HotColdSplit {
        match self.hot_percent() {
            ..HOT_PERCENT_MIN => HotColdSplit::AllCold,
            HOT_PERCENT_MIN..=HOT_PERCENT_MAX => HotColdSplit::ByKey,
            _ => HotColdSplit::AllHot,
        }
    }

    /// Returns the recent share of hot bytes.
    pub fn hot_percent(&self) -> u64 {
        let (hot, asked) = (self.hot_bytes.load(Relaxed), self.asked_bytes.load(Relaxed));
        (u128::from(hot) * 100 / u128::from(asked.max(1))).min(100) as u64
    }
}

impl std::fmt::Debug for DropCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = (self.keys.load(Relaxed), self.keys_max());
        f.debug_struct("DropCache").field("keys", &keys).field("hot_percent", &self.hot_percent()).finish()
    }
}

#[cfg(test)]
mod tests;
