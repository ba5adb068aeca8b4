//! Blocks of range tombstones: `start: bytes, end: bytes, sequence: varint` for each, sorted (each
//! byte string preceded by its length as a varint). An open reads them whole.

use base::codec::{Reader, put_bytes, put_varint};
use base::range_del::RangeTombstone;
use base::{Error, MAX_SEQ, Result};

/// Appends one tombstone.
pub fn encode_into(out: &mut Vec<u8>, t: &RangeTombstone) {
    put_bytes(out, &t.start);
    put_bytes(out, &t.end);
    put_varint(out, t.seq);
}

/// Appends the tombstones of a block to `out`.
///
/// # Errors
/// `Corruption` if the block is malformed or a range is empty.
pub fn decode(bytes: &[u8], out: &mut Vec<RangeTombstone>) -> Result<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let start = reader.bytes()?.to_vec();
        let end = reader.bytes()?.to_vec();
        let seq = reader.varint()?;
        if start >= end || seq > MAX_SEQ {
            let why = format!(
                "a range deletion of the key table (kSST), from \"{}\" to \"{}\", has an empty range, or \
                 its sequence {seq} is over 56 bits",
                start.escape_ascii(),
                end.escape_ascii()
            );
            return Err(Error::corruption(why));
        }
        out.push(RangeTombstone { start, end, seq });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_tombstones_round_trip() {
        let t = |s: &[u8], e: &[u8], seq| RangeTombstone { start: s.to_vec(), end: e.to_vec(), seq };
        let all = vec![t(b"a", b"b", 1), t(b"a\0", b"c", MAX_SEQ)];
        let mut bytes = Vec::new();
        all.iter().for_each(|t| encode_into(&mut bytes, t));
        let mut got = Vec::new();
        decode(&bytes, &mut got).unwrap();
        assert_eq!(got, all);
        for len in 1..bytes.len() {
            if len != 5 {
                assert!(decode(&bytes[..len], &mut Vec::new()).is_err(), "{len}");
            }
        }
    }
}
