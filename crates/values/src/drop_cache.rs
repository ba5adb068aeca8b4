//! The drop cache: which keys were overwritten lately (DropCache of Scavenger+).
//!
//! A compaction that drops an older version of a key shows that the key is written again and again. The cache remembers
//! such keys, and a flush that writes the key's next value puts it with other hot values into a file of their own: that
//! file is mostly garbage soon, and is collected for little, while files of cold values are left alone.
//!
//! * **Lossy and bounded.** Two generations of fingerprints, all memory allocated at once, with the first key: a thousand families
//!   in which nothing is overwritten take none. A key's fingerprint is four bits
//!   in one word of 64, at 16 bits a key: about one stranger in a hundred is taken for a remembered key. Keys are
//!   remembered in the younger generation, and found in both. When the younger has as many keys as it may, it becomes the
//!   older one, and what was the older is forgotten. So a key is remembered for at least as many other keys as one
//!   generation holds, and for at most as many as two do: the LRU list of the paper, in parts.
//! * **It remembers few keys.** A generation takes at most one in [`KEYS_PART`] of the keys there are, however much memory
//!   there is. A cache that remembered all keys would call everything hot. So small, it tells skew from uniformity: where
//!   keys are overwritten all alike, at most `2 / KEYS_PART` of the values written find their keys in it; where some are
//!   overwritten more often, many more do.
//! * **Splitting follows from that share** ([`DropCache::parting`]): values go to two files only if the share of hot bytes
//!   lately was well above what uniform keys come to, and not nearly all. A uniform workload is written as without the
//!   cache.
//! * **Any number of threads.** Words are atomic, nothing waits. What two threads do at once may be lost in part: a few keys
//!   more or less are remembered. There is no clock and no randomness, so with one thread all of it is repeatable.

use base::sync::OnceLock;
use base::sync::statistic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A generation takes at most this part of all keys.
pub const KEYS_PART: u64 = 16;
/// Bits of a generation for each key that it takes.
const BITS_PER_KEY: usize = 16;
/// A generation takes so many keys, however few there are.
const KEYS_MIN: usize = 16;
/// Values are parted from this share of hot bytes on: well above the `2 / KEYS_PART` of uniform keys.
const HOT_PERCENT_MIN: u64 = 20;
/// Above this share they are not parted: the other file would be tiny.
const HOT_PERCENT_MAX: u64 = 90;

/// Whether hot and cold values are worth two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// They are: each key decides.
    ByKey,
    /// Too few are hot: all to the cold ones.
    AllCold,
    /// Nearly all are hot: all to the hot ones.
    AllHot,
}

/// See the module.
pub struct DropCache {
    /// Once there is a key to remember.
    generations: OnceLock<[Box<[AtomicU64]>; 2]>,
    /// Of a generation.
    words: usize,
    /// Which generation is the younger.
    young: AtomicUsize,
    /// Keys in it.
    keys: AtomicUsize,
    /// When it is full.
    keys_max: AtomicUsize,
    /// Held by the thread that makes room.
    rotating: AtomicBool,
    /// Bytes of values lately asked for, and of those that were hot.
    asked_bytes: AtomicU64,
    hot_bytes: AtomicU64,
}

impl DropCache {
    /// A cache of about `bytes` of memory, at least 256.
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

    /// Bytes of memory it takes: none before the first key.
    pub fn bytes(&self) -> usize {
        let generations = self.generations.get();
        generations.map_or(0, |all| all.iter().map(|words| words.len() * size_of::<u64>()).sum())
    }

    fn generations(&self) -> &[Box<[AtomicU64]>; 2] {
        let generation = || (0..self.words).map(|_| AtomicU64::new(0)).collect();
        self.generations.get_or_init(|| [generation(), generation()])
    }

    /// Keys that a generation takes.
    pub fn keys_max(&self) -> usize {
        self.keys_max.load(Relaxed)
    }

    /// Says how many keys with separated values there are, about; until then the cache takes as many as fit.
    pub fn set_live_keys(&self, keys: u64) {
        let fit = self.words * 64 / BITS_PER_KEY;
        let part = usize::try_from(keys / KEYS_PART).unwrap_or(usize::MAX);
        self.keys_max.store(part.max(KEYS_MIN).min(fit), Relaxed);
    }

    /// The word and the bits of a key.
    #[inline]
    fn place(&self, key_hash: u64) -> (usize, u64) {
        let words = self.words as u64;
        let word = ((key_hash >> 32) * words) >> 32;
        let bit = |at: u32| 1u64 << ((key_hash >> at) & 63);
        (word as usize, bit(0) | bit(6) | bit(12) | bit(18))
    }

    /// An older version of a key was dropped. `key_hash` is [`base::hash::key_hash`].
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

    /// True if an older version of the key was dropped lately, and for about one other key in a hundred.
    #[inline]
    pub fn is_hot(&self, key_hash: u64) -> bool {
        let (word, bits) = self.place(key_hash);
        let Some(generations) = self.generations.get() else { return false };
        generations.iter().any(|words| words[word].load(Relaxed) & bits == bits)
    }

    /// Books what a flush came to: how many bytes of values it asked for, and how many were hot. Earlier flushes count
    /// less and less, the last eight most: one flush of few values says little.
    pub fn book(&self, asked_bytes: u64, hot_bytes: u64) {
        let add = |to: &AtomicU64, bytes| to.store((to.load(Relaxed) / 8 * 7).saturating_add(bytes), Relaxed);
        add(&self.asked_bytes, asked_bytes);
        add(&self.hot_bytes, hot_bytes);
    }

    /// Whether the next flush is to write hot and cold values apart, as far as the last ones tell.
    pub fn parting(&self) -> Parting {
        match self.hot_percent() {
            ..HOT_PERCENT_MIN => Parting::AllCold,
            HOT_PERCENT_MIN..=HOT_PERCENT_MAX => Parting::ByKey,
            _ => Parting::AllHot,
        }
    }

    /// The share of hot bytes lately.
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
