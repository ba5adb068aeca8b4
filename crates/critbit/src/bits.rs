//! The bit string of a key, which is never built: the first difference of two strings, and the bit
//! at a position.
//!
//! ```text
//! byte i of the user key    9 bits from position 9 * i: 1, then the byte, most significant bit first
//! behind the last byte      0
//! sequence                  56 bits of !sequence, most significant first
//! ```

use base::{MAX_SEQ, SeqNo};

/// Bits per byte of the user key: a presence bit, and eight of its own.
const BYTE_BITS: usize = 9;
/// Bits of the inverted sequence, behind the terminator.
const SEQ_BITS: u32 = 56;

/// Returns the end of a bit string as a number of 57 bits: the terminator 0 and the inverted
/// sequence.
#[inline]
pub fn tail(seq: SeqNo) -> u64 {
    !seq & MAX_SEQ
}

/// Returns the first position at which the bit strings of two neighbors differ.
///
/// # Panics
/// If the second key does not sort after the first: user keys ascending, sequences descending.
pub fn first_difference(a: &[u8], a_seq: SeqNo, b: &[u8], b_seq: SeqNo) -> u32 {
    let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let inside = match (a.get(common), b.get(common)) {
        (Some(x), Some(y)) => {
            assert!(x < y, "keys ascend");
            1 + (x ^ y).leading_zeros()
        }
        (None, Some(_)) => 0,
        (None, None) => {
            assert!(b_seq < a_seq, "versions of one key descend");
            1 + (tail(a_seq) ^ tail(b_seq)).leading_zeros() - (u64::BITS - SEQ_BITS)
        }
        (Some(_), None) => panic!("keys ascend"),
    };
    let position = (common * BYTE_BITS) as u64 + u64::from(inside);
    u32::try_from(position).expect("a key within the limits")
}

/// Returns the bit at a position; 0 behind the end.
#[inline(always)]
pub fn bit_at(user_key: &[u8], tail: u64, position: u32) -> bool {
    let position = position as usize;
    match user_key.get(position / BYTE_BITS) {
        Some(&byte) => (0x100 | u32::from(byte)) >> (8 - position % BYTE_BITS) & 1 == 1,
        None => {
            let behind = position - BYTE_BITS * user_key.len();
            behind <= SEQ_BITS as usize && tail >> (SEQ_BITS as usize - behind) & 1 == 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled_out(key: &[u8], seq: SeqNo) -> Vec<bool> {
        let bytes =
            key.iter().flat_map(|b| std::iter::once(true).chain((0..8).rev().map(move |i| b >> i & 1 == 1)));
        bytes.chain([false]).chain((0..56).rev().map(|i| seq >> i & 1 == 0)).collect()
    }

    #[test]
    fn bit_positions_agree_with_spelled_out_keys() {
        let mut rng = io::Rng::new(1);
        let mut keys: Vec<(Vec<u8>, u64)> =
            vec![(vec![], 0), (vec![], MAX_SEQ), (vec![0], 1), (vec![0, 0], 1)];
        for _ in 0..100 {
            let byte =
                |rng: &mut io::Rng| if rng.one_in(2) { rng.below(2) as u8 } else { rng.next_u64() as u8 };
            let key = (0..rng.below(5)).map(|_| byte(&mut rng)).collect();
            keys.push((key, if rng.one_in(2) { rng.below(4) } else { rng.below(MAX_SEQ + 1) }));
        }
        keys.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        keys.dedup();
        let spelled: Vec<_> = keys.iter().map(|(k, s)| spelled_out(k, *s)).collect();
        assert!(spelled.is_sorted(), "bit strings keep the order of keys");
        for (i, (key, seq)) in keys.iter().enumerate() {
            for (at, &bit) in spelled[i].iter().enumerate() {
                assert_eq!(bit_at(key, tail(*seq), at as u32), bit);
            }
            assert!(!bit_at(key, tail(*seq), spelled[i].len() as u32));
            assert!(!bit_at(key, tail(*seq), u32::MAX));
            for j in i + 1..keys.len() {
                let differ =
                    spelled[i].iter().zip(&spelled[j]).position(|(a, b)| a != b).expect("prefix-free");
                assert_eq!(first_difference(key, *seq, &keys[j].0, keys[j].1), differ as u32);
            }
        }
    }
}
