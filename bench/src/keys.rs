//! Keys: the i-th key of a store, in random order.
//!
//! A key is `user` and the 20 decimal digits of a bijective mix of its index and the seed, padded
//! with `.`. So writing indexes 0, 1, 2 … writes random unique keys, and only the inverse of the
//! mix recovers an index.

/// The finalizer of splitmix64: a bijection of 64-bit numbers.
pub fn mix(x: u64) -> u64 {
    let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The keys of a run.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    len: usize,
    salt: u64,
}

impl Keys {
    /// Returns keys of `len` bytes (at least 24) that depend on `seed`.
    pub fn new(len: usize, seed: u64) -> Self {
        assert!(len >= 24, "a key has room for its 20 digits");
        Keys { len, salt: mix(seed ^ 0x6b65_7973) }
    }

    /// Returns the length of a key in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// Writes the key of `index` into `out`.
    pub fn write(&self, index: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(b"user");
        let mut digits = [b'0'; 20];
        let mut rest = mix(index ^ self.salt);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits);
        out.resize(self.len, b'.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_of_the_length() {
        let keys = Keys::new(30, 7);
        let mut seen = std::collections::BTreeSet::new();
        let mut key = Vec::new();
        for index in 0..10_000 {
            keys.write(index, &mut key);
            assert_eq!(key.len(), 30);
            assert!(seen.insert(key.clone()));
        }
    }

    #[test]
    fn keys_depend_on_the_seed() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        Keys::new(24, 1).write(0, &mut a);
        Keys::new(24, 2).write(0, &mut b);
        assert_ne!(a, b);
    }
}
