//! Prefixes of user keys: the prefix shared by neighbors, and the shortest key between two of them.
//!
//! Prefix compression stores only the part of each key that differs from its predecessor. An index
//! stores between two blocks not a key but the shortest byte string that separates them (the idea
//! of Bayer and Unterauer's prefix B-tree).
//!
//! Keys in messages are formatted here as well.

use base::codec::get_varint;
use base::key;

/// Formats a user key with the sequence in its trailer, for messages.
pub(crate) fn named(user_key: &[u8], trailer: u64) -> String {
    format!("\"{}\" (sequence {})", user_key.escape_ascii(), trailer >> 8)
}

/// As [`named`], for an internal key.
pub(crate) fn shown(ikey: &[u8]) -> String {
    let (user_key, trailer) = key::split(ikey);
    named(user_key, trailer)
}

/// Returns the length of the common prefix of `a` and `b`.
#[inline]
pub fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    let mut a_words = a.chunks_exact(8);
    let mut b_words = b.chunks_exact(8);
    for (x, y) in a_words.by_ref().zip(b_words.by_ref()) {
        let x = u64::from_le_bytes(x.try_into().unwrap_or_default());
        let y = u64::from_le_bytes(y.try_into().unwrap_or_default());
        if x != y {
            return at + ((x ^ y).trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let a_rest = a.get(at..).unwrap_or_default();
    let b_rest = b.get(at..).unwrap_or_default();
    at + a_rest.iter().zip(b_rest).take_while(|(x, y)| x == y).count()
}

/// Appends a short key `s` with `a <= s < b`, where `a < b`: the shortest that is easily found.
pub fn push_separator(out: &mut Vec<u8>, a: &[u8], b: &[u8]) {
    debug_assert!(a < b, "a separator lies between two different keys");
    let shared = shared_len(a, b);
    if shared == a.len() {
        out.extend_from_slice(a);
        return;
    }
    // `b` continues after the differing byte, so its prefix up to that byte lies strictly between.
    if let Some(prefix) = b.get(..shared + 1).filter(|p| p.len() < b.len()) {
        out.extend_from_slice(prefix);
        return;
    }
    // `b` ends with the differing byte: look for a byte of `a` from there on that can be raised.
    let raised = (shared..a.len()).find(|&i| match (a.get(i), b.get(i)) {
        (Some(&x), Some(&y)) => x.checked_add(1).is_some_and(|x| x < y),
        (Some(&x), None) => x < u8::MAX,
        _ => false,
    });
    match raised.and_then(|i| a.get(..i).zip(a.get(i))) {
        Some((head, &byte)) => {
            out.extend_from_slice(head);
            out.push(byte + 1);
        }
        None => out.extend_from_slice(a),
    }
}

/// Reads a varint at `*at` and moves `at` after it; `None` if it is malformed. Optimized for one or
/// two bytes, the common case.
#[inline(always)]
pub fn varint_at(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let rest = bytes.get(*at..)?;
    match *rest {
        [first, ..] if first < 0x80 => {
            *at += 1;
            Some(u64::from(first))
        }
        [first, second, ..] if second < 0x80 => {
            *at += 2;
            Some(u64::from(first & 0x7f) | u64::from(second) << 7)
        }
        _ => varint_slow(bytes, at),
    }
}

#[inline(never)]
fn varint_slow(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (value, len) = get_varint(bytes.get(*at..)?)?;
    *at += len;
    Some(value)
}

/// Encodes a signed difference as an unsigned number that is small when the difference is.
#[inline(always)]
pub fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Undoes [`zigzag`].
#[inline(always)]
pub fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_len_is_exact_around_words() {
        for n in 0..40usize {
            for m in 0..=n {
                let a = vec![7u8; n];
                let mut b = vec![7u8; n + 3];
                if m < b.len() {
                    b[m] = 8;
                }
                assert_eq!(shared_len(&a, &b), m.min(n));
                assert_eq!(shared_len(&b, &a), m.min(n));
            }
        }
    }

    #[test]
    fn separators_separate_all_small_keys() {
        let alphabet = [0u8, 1, 2, 0x7f, 0xfe, 0xff];
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for _ in 0..3 {
            let longer: Vec<Vec<u8>> = keys
                .iter()
                .flat_map(|k| alphabet.iter().map(move |&c| [k.as_slice(), &[c]].concat()))
                .collect();
            keys.extend(longer);
        }
        keys.sort();
        keys.dedup();
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                let mut s = Vec::new();
                push_separator(&mut s, a, b);
                assert!(a <= &s && &s < b, "{a:?} {s:?} {b:?}");
                assert!(s.len() <= a.len().max(b.len()));
            }
        }
    }

    #[test]
    fn varints_agree_with_the_codec() {
        for v in (0..70_000u64).chain([u64::MAX, 1 << 35]) {
            let mut bytes = vec![9];
            base::codec::put_varint(&mut bytes, v);
            let mut at = 1;
            assert_eq!((varint_at(&bytes, &mut at), at), (Some(v), bytes.len()));
            assert_eq!(varint_at(&bytes[..bytes.len() - 1], &mut 1), None);
        }
        assert_eq!(varint_at(&[1], &mut 5), None);
    }

    #[test]
    fn zigzag_round_trips() {
        for v in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(v)), v);
        }
        assert!(zigzag(-3) < 8);
    }
}
