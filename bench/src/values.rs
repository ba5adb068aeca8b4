//! Values: how long, and what is in them.
//!
//! The length of a value is a function of its key's index, so the raw bytes of the live data are known exactly at any
//! time, whatever the order of updates. A value of 8 bytes or more begins with a tag of its key, which a read checks; the
//! rest is cut at a random place out of a pool whose every 64 bytes hold as many random bytes as the wished share
//! of redundancy leaves, so that a block compressor removes about that share and finds little across values.

use crate::keys::mix;
use io::Rng;
use std::sync::Arc;

/// The lengths of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSizes {
    /// All alike, bytes.
    Fixed(u64),
}

impl ValueSizes {
    /// The length of the value of the key with this index.
    pub fn len_of(&self, _index: u64) -> u64 {
        match self {
            ValueSizes::Fixed(len) => *len,
        }
    }

    /// The longest.
    pub fn max(&self) -> u64 {
        match self {
            ValueSizes::Fixed(len) => *len,
        }
    }

    /// The sum for the first `n` keys.
    pub fn total(&self, n: u64) -> u64 {
        match self {
            ValueSizes::Fixed(len) => len.saturating_mul(n),
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            ValueSizes::Fixed(len) => *len as f64,
        }
    }
}

/// Makes the contents of values.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Arc<[u8]>,
    starts: u64,
}

/// Bytes of the pool before the longest value: larger than the window of LZ4, so that values seldom repeat each other.
const POOL_LEN: u64 = 1 << 20;
/// The unit of redundancy, bytes.
const PIECE_LEN: usize = 64;

impl Values {
    /// Contents of which `compressible` (0 to 1) can be compressed away.
    pub fn new(sizes: ValueSizes, compressible: f64, seed: u64) -> Self {
        let mut pool = vec![0u8; (POOL_LEN + sizes.max()) as usize];
        let mut rng = Rng::new(seed ^ 0x7661_6c75);
        let random = ((1.0 - compressible) * PIECE_LEN as f64).round() as usize;
        for piece in pool.chunks_mut(PIECE_LEN) {
            let random = random.min(piece.len());
            rng.fill(&mut piece[..random]);
        }
        Values { pool: pool.into(), starts: POOL_LEN }
    }

    /// Writes a value of `len` bytes for the key with `index` into `out`.
    pub fn write(&self, index: u64, len: u64, rng: &mut Rng, out: &mut Vec<u8>) {
        let start = rng.below(self.starts) as usize;
        out.clear();
        out.extend_from_slice(&self.pool[start..start + len as usize]);
        if let Some(head) = out.first_chunk_mut::<8>() {
            *head = tag(index);
        }
    }

    /// True if `value` may be a value of the key with `index`.
    pub fn check(index: u64, len: u64, value: &[u8]) -> bool {
        value.len() as u64 == len && value.first_chunk::<8>().is_none_or(|head| *head == tag(index))
    }
}

fn tag(index: u64) -> [u8; 8] {
    mix(index.wrapping_add(0x7461_6773)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_recognized() {
        let sizes = ValueSizes::Fixed(100);
        let values = Values::new(sizes, 0.5, 1);
        let mut rng = Rng::new(2);
        let mut value = Vec::new();
        values.write(17, 100, &mut rng, &mut value);
        assert!(Values::check(17, 100, &value));
        assert!(!Values::check(18, 100, &value));
        assert!(!Values::check(17, 101, &value));
        values.write(17, 3, &mut rng, &mut value);
        assert!(Values::check(17, 3, &value));
    }

    #[test]
    fn half_of_a_value_is_redundant() {
        let values = Values::new(ValueSizes::Fixed(64_000), 0.5, 1);
        let mut value = Vec::new();
        values.write(1, 64_000, &mut Rng::new(2), &mut value);
        let zeros = value.iter().filter(|b| **b == 0).count();
        assert!((30_000..34_000).contains(&zeros), "{zeros} of 64000 bytes are zero");
    }
}
