//! Lengths and contents of values.
//!
//! The length of a value is a function of its key's index. So the raw bytes of the live data are
//! known exactly at any time. A value of at least 8 bytes begins with a tag of its key, which reads
//! check. The rest is a random slice of a pool. Every 64 bytes of the pool have the share of random
//! bytes that leaves the desired redundancy. So a block compressor removes about that share and
//! finds little across values.

use crate::keys::mix;
use io::Rng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum length of a value.
pub const VALUE_LEN_MAX: u64 = 16 << 20;

/// The lengths of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ValueSizes {
    /// A fixed length in bytes.
    Fixed(u64),
    /// Half of them 100 to 512 B, uniform; half of them 16 KiB.
    Mixed8k,
    /// Generalized Pareto with a mean of 1 KiB, cut at 64 KiB. The shape is that measured at
    /// Facebook (Cao et al., "Characterizing, Modeling, and Benchmarking RocksDB Key-Value
    /// Workloads", FAST 2020).
    Pareto1k,
}

/// Length of the large half of [`ValueSizes::Mixed8k`].
const MIXED_LARGE: u64 = 16 << 10;
/// Lengths of the small half.
const MIXED_SMALL: std::ops::RangeInclusive<u64> = 100..=512;
/// Maximum length of [`ValueSizes::Pareto1k`]; one in 200,000 would be longer.
const PARETO_MAX: u64 = 64 << 10;
/// Shape of [`ValueSizes::Pareto1k`].
const PARETO_SHAPE: f64 = 0.2615;
/// Its scale, so that the mean, `scale / (1 - shape)`, is 1 KiB.
const PARETO_SCALE: f64 = 1024.0 * (1.0 - PARETO_SHAPE);

impl ValueSizes {
    /// Returns the length of the value of a key index.
    pub fn len_of(&self, index: u64) -> u64 {
        let random = || mix(index.wrapping_add(0x6c65_6e67_7468));
        match self {
            ValueSizes::Fixed(len) => *len,
            ValueSizes::Mixed8k => {
                let random = random();
                let small =
                    MIXED_SMALL.start() + (random >> 1) % (MIXED_SMALL.end() - MIXED_SMALL.start() + 1);
                if random & 1 == 0 { small } else { MIXED_LARGE }
            }
            ValueSizes::Pareto1k => {
                // In (0, 1], so that the power is finite.
                let unit = ((random() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                let len = PARETO_SCALE / PARETO_SHAPE * (unit.powf(-PARETO_SHAPE) - 1.0);
                (len as u64).clamp(1, PARETO_MAX)
            }
        }
    }

    /// Returns the maximum length.
    pub fn max(&self) -> u64 {
        match self {
            ValueSizes::Fixed(len) => *len,
            ValueSizes::Mixed8k => MIXED_LARGE,
            ValueSizes::Pareto1k => PARETO_MAX,
        }
    }

    /// Returns the exact sum for the first `n` keys.
    pub fn total(&self, n: u64) -> u64 {
        match self {
            ValueSizes::Fixed(len) => len.saturating_mul(n),
            _ => (0..n).map(|index| self.len_of(index)).sum(),
        }
    }

    /// Returns the mean length.
    pub fn mean(&self) -> f64 {
        match self {
            ValueSizes::Fixed(len) => *len as f64,
            ValueSizes::Mixed8k => (MIXED_LARGE + (MIXED_SMALL.start() + MIXED_SMALL.end()) / 2) as f64 / 2.0,
            ValueSizes::Pareto1k => PARETO_SCALE / (1.0 - PARETO_SHAPE),
        }
    }
}

impl std::fmt::Display for ValueSizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueSizes::Fixed(len) => write!(f, "fixed:{len}"),
            ValueSizes::Mixed8k => f.write_str("mixed-8k"),
            ValueSizes::Pareto1k => f.write_str("pareto-1k"),
        }
    }
}

impl std::str::FromStr for ValueSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fixed = |digits: &str| digits.parse().ok().filter(|len| *len <= VALUE_LEN_MAX);
        match (text, text.strip_prefix("fixed:").and_then(fixed)) {
            ("mixed-8k", _) => Ok(ValueSizes::Mixed8k),
            ("pareto-1k", _) => Ok(ValueSizes::Pareto1k),
            (_, Some(len)) => Ok(ValueSizes::Fixed(len)),
            _ => Err(format!(
                "the value lengths are fixed:N with N of at most {VALUE_LEN_MAX} bytes, mixed-8k or pareto-1k"
            )),
        }
    }
}

impl TryFrom<String> for ValueSizes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ValueSizes> for String {
    fn from(sizes: ValueSizes) -> String {
        sizes.to_string()
    }
}

/// Generates the contents of values.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Arc<[u8]>,
    starts: u64,
}

/// Bytes of the pool before the longest value: larger than the window of LZ4, so that values rarely
/// repeat each other.
const POOL_LEN: u64 = 1 << 20;
/// Unit of redundancy in bytes.
const PIECE_LEN: usize = 64;

impl Values {
    /// Returns contents with a compressible share of 0 to 1.
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

    /// Writes a value of `len` bytes for a key index to `out`.
    pub fn write(&self, index: u64, len: u64, rng: &mut Rng, out: &mut Vec<u8>) {
        let start = rng.below(self.starts) as usize;
        out.clear();
        out.extend_from_slice(&self.pool[start..start + len as usize]);
        if let Some(head) = out.first_chunk_mut::<8>() {
            *head = tag(index);
        }
    }

    /// Returns true if `value` may be a value of a key index.
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
    fn value_lengths_have_the_specified_means() {
        for sizes in [ValueSizes::Mixed8k, ValueSizes::Pareto1k] {
            let mean = sizes.total(100_000) as f64 / 100_000.0;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{sizes}: {mean} instead of {}", sizes.mean());
            assert!((0..10_000).all(|index| sizes.len_of(index) <= sizes.max()));
        }
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["fixed:4096", "mixed-8k", "pareto-1k"] {
            assert_eq!(text.parse::<ValueSizes>().unwrap().to_string(), text);
        }
        for text in ["fixed", "fixed:", "fixed:x", "fixed:999999999", "8k"] {
            assert!(text.parse::<ValueSizes>().is_err(), "{text}");
        }
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
