//! The hash of keys, and hash maps without hidden randomness.
//!
//! The standard `HashMap` seeds itself from the operating system, so its iteration order differs
//! between two runs of one seed. The maps here hash with a fixed function. They are for keys the
//! engine chose (file numbers, ids), not for keys an attacker chooses.

use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_64;

/// A hash map with a fixed hash function.
#[allow(clippy::disallowed_types)]
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FixedHasher>>;
/// A hash set with a fixed hash function.
#[allow(clippy::disallowed_types)]
pub type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<FixedHasher>>;

/// Returns the 64-bit hash of a user key, as filters store it: XXH3-64, seed 0. Part of the format.
#[inline]
pub fn key_hash(user_key: &[u8]) -> u64 {
    xxh3_64(user_key)
}

/// Multiply-and-rotate hashing of words; byte strings go through XXH3.
#[derive(Clone, Copy, Default)]
pub struct FixedHasher(u64);

impl FixedHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for FixedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        let x = self.0 ^ (self.0 >> 32);
        x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.mix(xxh3_64(bytes));
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}
