//! Filters: tell whether a user key is definitely absent, by reading one cache line.
//!
//! A filter partition is a blocked Bloom filter: an array of lines of 512 bits, followed by one
//! byte, the number of probes. The upper half of the key's hash chooses the line. The lower half
//! gives all probes within it: each is the top 9 bits after another multiplication by the golden
//! ratio. At 10 bits a key about 1 % of absent keys pass. (Putze, Sanders and Singler, "Cache-,
//! Hash- and Space-Efficient Bloom Filters", 2007.)
//!
//! Invariant: a key that was added always passes. Each distinct user key is added once to each
//! partition that holds an entry of it. The hash is [`base::hash::key_hash`].

use base::{Error, Result};

/// Length of a line, in bytes.
const LINE_LEN: usize = 64;
/// Maximum number of probes; more do not help at any density.
const PROBES_MAX: u8 = 16;

/// Returns the length of the filter partition of `keys` keys.
pub fn len_of(keys: usize, bits_per_key: u32) -> usize {
    (keys * bits_per_key as usize).div_ceil(LINE_LEN * 8).max(1) * LINE_LEN + 1
}

fn probes_of(bits_per_key: u32) -> u8 {
    // Fewer than the 0.69 of an ideal filter, since lines fill unevenly.
    (bits_per_key * 6 / 10).clamp(1, u32::from(PROBES_MAX)) as u8
}

#[inline(always)]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

#[inline(always)]
fn probes(hash: u64, count: u8) -> impl Iterator<Item = (usize, u8)> {
    let mut h = hash as u32;
    (0..count).map(move |_| {
        let bit = (h >> 23) as usize;
        h = h.wrapping_mul(0x9e37_79b9);
        (bit / 8, 1u8 << (bit % 8))
    })
}

/// Builds a filter partition from the hashes of its distinct user keys.
pub fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let len = len_of(hashes.len(), bits_per_key);
    let mut out = vec![0; len];
    let count = probes_of(bits_per_key);
    let lines = len / LINE_LEN;
    for &hash in hashes {
        let start = line_of(hash, lines) * LINE_LEN;
        let line = &mut out[start..start + LINE_LEN];
        probes(hash, count).for_each(|(byte, bit)| line[byte] |= bit);
    }
    out[len - 1] = count;
    out
}

/// Returns false only if the key with this hash was definitely not added.
///
/// # Errors
/// `Corruption` if the bytes are not a filter partition.
#[inline]
pub fn may_contain(filter: &[u8], hash: u64) -> Result<bool> {
    let (count, lines) = match filter.split_last() {
        Some((&count, lines)) if lines.len() % LINE_LEN == 0 && !lines.is_empty() => (count, lines),
        _ => {
            return Err(Error::corruption(format!(
                "a Bloom filter block has {} bytes, not a multiple of {LINE_LEN} bytes and 1: reads go on \
                 without it",
                filter.len()
            )));
        }
    };
    if count == 0 || count > PROBES_MAX {
        return Err(Error::corruption(format!(
            "a Bloom filter block has {count} probes for a key, not 1 to {PROBES_MAX}: reads go on without \
             it"
        )));
    }
    let start = line_of(hash, lines.len() / LINE_LEN) * LINE_LEN;
    let Some(line) = lines.get(start..).and_then(|rest| rest.first_chunk::<LINE_LEN>()) else {
        return Err(Error::corruption(
            "a Bloom filter block ends before the bits of a key: reads go on without it",
        ));
    };
    let mut present = true;
    for (byte, bit) in probes(hash, count) {
        present &= line.get(byte).is_some_and(|b| b & bit != 0);
    }
    Ok(present)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::hash::key_hash;

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        for keys in [1u64, 2, 50, 1000, 20_000] {
            let hashes: Vec<u64> = (0..keys).map(|i| key_hash(&i.to_be_bytes())).collect();
            let filter = build(&hashes, 10);
            assert_eq!(filter.len(), len_of(keys as usize, 10));
            assert!(hashes.iter().all(|&h| may_contain(&filter, h).unwrap()));
            let passed = (keys..keys + 20_000)
                .filter(|i| may_contain(&filter, key_hash(&i.to_be_bytes())).unwrap())
                .count();
            assert!(passed < 300, "{passed} of 20000 absent keys passed with {keys} keys");
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut rng = io::Rng::new(3);
        for _ in 0..5_000 {
            let mut bytes = vec![0; rng.below(200) as usize];
            rng.fill(&mut bytes);
            let _ = may_contain(&bytes, rng.next_u64());
        }
        assert!(may_contain(&[], 1).unwrap_err().is_corruption());
    }
}
