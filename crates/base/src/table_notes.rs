//! Facts about a table beyond those in the manifest: numbers, sizes, and a sample of its keys.

use crate::codec::{Reader, put_u64, put_varint};
use crate::error::{Error, Result};

/// Number, sum and extremes of sizes, from which sums of any of them can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    count: u64,
    bytes: u64,
    min: u64,
    max: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { count: 0, bytes: 0, min: u64::MAX, max: 0 }
    }
}

impl Sizes {
    /// Adds a size.
    #[inline]
    pub fn add(&mut self, size: u64) {
        self.merge(&Sizes { count: 1, bytes: size, min: size, max: size });
    }

    /// Adds all sizes of `other`.
    #[inline]
    pub fn merge(&mut self, other: &Sizes) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the sum of all sizes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        [self.count, self.bytes, self.min, self.max].into_iter().for_each(|n| put_varint(out, n));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Sizes> {
        Ok(Sizes { count: r.varint()?, bytes: r.varint()?, min: r.varint()?, max: r.varint()? })
    }

    /// Returns an upper bound of the sum of any `count` of the sizes.
    pub fn largest(&self, count: u64) -> u64 {
        if count >= self.count {
            return self.bytes;
        }
        let others = (self.count - count).saturating_mul(self.min);
        count.saturating_mul(self.max).min(self.bytes.saturating_sub(others))
    }
}

/// Most hashes of a sample, unless it is as sparse as [`LEVEL_MAX`] allows.
const HASHES_MAX: usize = 1024;
/// One of 256 keys is always sampled: 1/32 byte of memory per key.
const LEVEL_MAX: u32 = 8;
/// Most hashes stored in a table, unless more than one of 256 keys would be left out.
const STORED_MAX: usize = 256;

/// Hashes of some user keys: all that begin with `level` zero bits. Samples of two tables contain
/// the same keys, so the keys in both tables can be counted without a read (adaptive sampling:
/// Flajolet, "On Adaptive Sampling", 1990).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySample {
    level: u32,
    hashes: Vec<u64>,
}

impl KeySample {
    /// Adds a key. `hash` is its [`crate::hash::key_hash`].
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if hash.leading_zeros() >= self.level {
            self.keep(hash);
        }
    }

    #[inline(never)]
    fn keep(&mut self, hash: u64) {
        self.hashes.push(hash);
        if self.hashes.len() > HASHES_MAX && self.level < LEVEL_MAX {
            self.raise(self.level + 1);
        }
    }

    fn raise(&mut self, level: u32) {
        self.level = self.level.max(level);
        self.hashes.retain(|hash| hash.leading_zeros() >= self.level);
    }

    /// Returns the sample of the keys of both, in order, each once.
    #[must_use]
    pub fn union(mut self, other: KeySample) -> KeySample {
        self.raise(other.level);
        let level = self.level;
        self.hashes.extend(other.hashes.into_iter().filter(|hash| hash.leading_zeros() >= level));
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.hashes.shrink_to_fit();
        self
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.level));
        put_varint(out, self.hashes.len() as u64);
        self.hashes.iter().for_each(|hash| put_u64(out, *hash));
    }

    fn decode(r: &mut Reader<'_>) -> Result<KeySample> {
        let level = r.length(63)? as u32;
        let count = r.length(r.rest().len() / size_of::<u64>())?;
        let hashes = (0..count).map(|_| r.u64()).collect::<Result<Vec<u64>>>()?;
        let is_sound = hashes.is_sorted_by(|a, b| a < b)
            && hashes.last().is_none_or(|hash| hash.leading_zeros() >= level);
        if is_sound {
            Ok(KeySample { level, hashes })
        } else {
            Err(Error::corruption(
                "the sample of key hashes in the statistics of a table (notes section) is out of order",
            ))
        }
    }

    /// Returns the sample in its stored form.
    fn stored(&self) -> KeySample {
        let levels = self.level..=self.level.max(LEVEL_MAX);
        let level = levels.into_iter().find(|level| self.at(*level).len() <= STORED_MAX);
        let level = level.unwrap_or(self.level.max(LEVEL_MAX));
        KeySample { level, hashes: self.at(level).to_vec() }
    }

    /// Returns the approximate length in a table, bytes.
    pub fn stored_len(&self) -> usize {
        let sparse = self.hashes.len() >> LEVEL_MAX.saturating_sub(self.level);
        size_of::<u64>() * self.hashes.len().min(STORED_MAX.max(sparse))
    }

    /// Returns the leading zero bits of all hashes.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Returns the hashes of a union with at least `level` leading zero bits, ascending. `level` is
    /// not below that of the sample.
    pub fn at(&self, level: u32) -> &[u64] {
        let end = self.hashes.partition_point(|hash| hash.leading_zeros() >= level);
        self.hashes.get(..end).unwrap_or_default()
    }
}

/// Facts about a table; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableNotes {
    /// Distinct user keys. All other entries are older versions of one of them.
    pub keys: u64,
    /// Bytes of the records of its references.
    pub records: Sizes,
    /// Bytes of key and value, uncompressed, of all entries but tombstones.
    pub values: Sizes,
    /// A sample of its keys.
    pub sample: KeySample,
}

impl TableNotes {
    /// Encodes the notes as stored in a table, with a smaller sample. The sample must be a union.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.keys);
        self.records.encode_into(&mut out);
        self.values.encode_into(&mut out);
        self.sample.stored().encode_into(&mut out);
        out
    }

    /// Decodes the notes. Trailing bytes are from a later release.
    ///
    /// # Errors
    /// `Corruption` if they are malformed.
    pub fn decode(bytes: &[u8]) -> Result<TableNotes> {
        let r = &mut Reader::new(bytes);
        Ok(TableNotes {
            keys: r.varint()?,
            records: Sizes::decode(r)?,
            values: Sizes::decode(r)?,
            sample: KeySample::decode(r)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::key_hash;

    fn sample(keys: std::ops::Range<u64>) -> KeySample {
        let mut sample = KeySample::default();
        keys.for_each(|key| sample.add(key_hash(&key.to_be_bytes())));
        sample.union(KeySample::default())
    }

    #[test]
    fn the_largest_sizes_are_bounded_from_above() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        for _ in 0..200 {
            let (count, spread) = (1 + next() % 200, 1 + next() % 5000);
            let mut sizes: Vec<u64> = (0..count).map(|_| 100 + next() % spread).collect();
            let (mut all, mut other) = (Sizes::default(), Sizes::default());
            for (nth, size) in sizes.iter().enumerate() {
                if nth % 3 == 0 { other.add(*size) } else { all.add(*size) }
            }
            all.merge(&other);
            sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
            assert_eq!((all.largest(0), all.largest(count + 5)), (0, all.bytes()));
            for taken in 1..=count {
                let exact: u64 = sizes[..taken as usize].iter().sum();
                assert!(all.largest(taken) >= exact, "{taken} of {sizes:?}");
                assert!(spread > 1 || all.largest(taken) == exact, "sizes are equal");
            }
        }
    }

    #[test]
    fn samples_of_two_tables_are_of_the_same_keys() {
        let cases = [(0..1000, 500..1500), (0..100_000, 50_000..60_000), (0..400_000, 300_000..340_000)];
        for (large, small) in cases {
            let shared = large.end.min(small.end) - small.start;
            let share = shared as f64 / (small.end - small.start) as f64;
            let (large, small) = (sample(large), sample(small));
            let level = large.level().max(small.level());
            let (large, small) = (large.at(level), small.at(level));
            let both = small.iter().filter(|hash| large.binary_search(hash).is_ok()).count();
            let found = both as f64 / small.len() as f64;
            assert!((found - share).abs() < 0.05, "{found} of {} for {share}", small.len());
        }
    }

    #[test]
    fn keys_that_one_table_lacks_are_never_found() {
        let (a, b) = (sample(0..200_000), sample(200_000..300_000));
        let level = a.level().max(b.level());
        assert!(a.at(level).len() > 500 && b.at(level).len() > 250);
        assert!(a.at(level).iter().all(|hash| b.at(level).binary_search(hash).is_err()));
    }

    #[test]
    fn a_sample_is_small_and_its_hashes_ascend() {
        for keys in [0, 1, HASHES_MAX as u64, HASHES_MAX as u64 + 1, 1 << 19] {
            let sample = sample(0..keys);
            let most = HASHES_MAX.max((keys >> LEVEL_MAX) as usize * 9 / 8);
            assert!(sample.hashes.len() <= most, "{} of {keys}", sample.hashes.len());
            assert!(sample.hashes.len() >= keys.min(HASHES_MAX as u64 * 2 / 5) as usize);
            assert!(sample.hashes.is_sorted_by(|a, b| a < b));
            assert_eq!(sample.at(sample.level()), &sample.hashes);
        }
    }

    fn notes(keys: std::ops::Range<u64>) -> TableNotes {
        let mut notes = TableNotes { keys: keys.end - keys.start, ..TableNotes::default() };
        keys.clone().for_each(|key| notes.records.add(100 + key % 70));
        TableNotes { sample: sample(keys), ..notes }
    }

    #[test]
    fn table_notes_round_trip() {
        for keys in [0..0, 0..1, 0..1000, 0..300_000] {
            let notes = notes(keys);
            let mut bytes = notes.encode();
            let notes = TableNotes { sample: notes.sample.stored(), ..notes };
            let sampled = notes.sample.hashes.len() as u64;
            assert!(sampled <= 256.max(notes.keys / 200) && sampled >= notes.keys.min(100));
            assert_eq!(TableNotes::decode(&bytes).unwrap(), notes);
            bytes.push(7);
            assert_eq!(TableNotes::decode(&bytes).unwrap(), notes, "fields of a later release are skipped");
        }
    }

    #[test]
    fn hostile_notes_are_corruption() {
        let bytes = notes(0..300).encode();
        assert!((0..bytes.len()).all(|len| TableNotes::decode(&bytes[..len]).unwrap_err().is_corruption()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x81;
            if let Err(e) = TableNotes::decode(&damaged) {
                assert!(e.is_corruption());
            }
        }
        let unordered = KeySample { level: 0, hashes: vec![5, 3] };
        let unordered = TableNotes { sample: unordered, ..TableNotes::default() };
        assert!(TableNotes::decode(&unordered.encode()).unwrap_err().is_corruption());
    }
}
