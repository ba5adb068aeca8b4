//! The crit-bit index: its blocks, its offsets, and that it finds what was put in.

use base::codec::Reader;
use critbit::offsets::{self, Offsets};
use critbit::{BLOCK_KEYS_MAX, Block, BlockBuilder};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A crit-bit block.
pub fn crit_bit_block(data: &[u8]) {
    let Ok(block) = Block::parse(data) else { return };
    assert!(block.encoded_len() <= data.len() && (1..=BLOCK_KEYS_MAX).contains(&block.len()));
    let tail = &data[data.len() / 2..];
    for key in [&b""[..], b"key/00003/x", &[0; 300], &[0xff; 70], data, tail] {
        for seq in [0, 77, base::MAX_SEQ, u64::MAX] {
            assert!(block.find(key, seq) < block.len(), "an ordinal outside of the block");
        }
    }
}

/// Blocks of one key, of a few, and full ones.
pub fn crit_bit_block_seeds() -> Vec<Vec<u8>> {
    let build = |keys: &[(Vec<u8>, u64)]| {
        let mut builder = BlockBuilder::new();
        keys.iter().for_each(|(key, seq)| builder.push(key, *seq));
        let mut out = Vec::new();
        builder.finish_into(&mut out);
        out
    };
    let numbers: Vec<_> = (0..128u64).map(|i| (format!("key/{:05}", i * i).into_bytes(), i)).collect();
    let versions: Vec<_> = (0..90u64).map(|i| (vec![b'k'; i as usize / 7], 1 << 40 | (500 - i))).collect();
    let prefixes: Vec<_> = (0..128).map(|i| (vec![0; i * 40], 1)).collect();
    vec![build(&numbers[..1]), build(&numbers[..9]), build(&numbers), build(&versions), build(&prefixes)]
}

/// The offsets of a block's records.
pub fn crit_bit_offsets(data: &[u8]) {
    let Ok(offsets) = Offsets::parse(data) else { return };
    assert!(offsets.encoded_len() <= data.len() && (1..=BLOCK_KEYS_MAX).contains(&offsets.len()));
    let values: Option<Vec<u64>> = (0..offsets.len()).map(|i| offsets.get(i)).collect();
    let values = values.expect("an offset for each ordinal");
    assert_eq!(offsets.get(offsets.len()), None);
    let mut again = Vec::new();
    offsets::encode_any(&values, &mut again);
    check_offsets(&values, &again);
    if values.is_sorted() {
        again.clear();
        offsets::encode_ascending(&values, &mut again);
        check_offsets(&values, &again);
    }
}

fn check_offsets(values: &[u64], encoded: &[u8]) {
    let offsets = Offsets::parse(encoded).expect("what was encoded");
    let read = (0..offsets.len()).filter_map(|i| offsets.get(i));
    assert!(read.eq(values.iter().copied()) && offsets.encoded_len() == encoded.len());
}

/// Offsets on a line, on stairs, and in no order.
pub fn crit_bit_offsets_seeds() -> Vec<Vec<u8>> {
    let ascending = |step: &dyn Fn(u64) -> u64| {
        let mut out = Vec::new();
        offsets::encode_ascending(&(0..100).map(step).collect::<Vec<_>>(), &mut out);
        out
    };
    let mut any = Vec::new();
    offsets::encode_any(&(0..31).map(|i| i * 7919 % 1000).collect::<Vec<_>>(), &mut any);
    vec![ascending(&|i| 257 * i), ascending(&|i| 257 * i + i % 7), ascending(&|i| i * i * i), any]
}

/// Keys, each a length (low 6 bits of a byte), the user key, and a sequence (varint): all must be found, and where they
/// were put. The first byte says how many of a block's keys differ in a long way down.
pub fn crit_bit_keys(data: &[u8]) {
    let mut r = Reader::new(data);
    let depth = usize::from(r.u8().unwrap_or(0));
    let mut keys = BTreeSet::new();
    while let Ok(len) = r.u8() {
        let mut key = vec![b'p'; depth * (keys.len() % 3)];
        key.extend_from_slice(r.take(usize::from(len % 64).min(r.rest().len())).unwrap_or_default());
        keys.insert((key, Reverse(r.varint().unwrap_or(0) & base::MAX_SEQ)));
    }
    let keys: Vec<_> = keys.into_iter().collect();
    let mut builder = BlockBuilder::new();
    for keys in keys.chunks(BLOCK_KEYS_MAX) {
        keys.iter().for_each(|(key, seq)| builder.push(key, seq.0));
        let mut out = Vec::new();
        builder.finish_into(&mut out);
        let block = Block::parse(&out).expect("what was encoded");
        assert_eq!((block.len(), block.encoded_len()), (keys.len(), out.len()));
        for (i, (key, seq)) in keys.iter().enumerate() {
            assert_eq!(block.find(key, seq.0), i, "a key that is not found");
        }
    }
}

/// Rows of keys.
pub fn crit_bit_keys_seeds() -> Vec<Vec<u8>> {
    let row = |depth: u8, count: u32, key: &dyn Fn(u32) -> String| {
        let mut out = vec![depth];
        for i in 0..count {
            let key = key(i);
            out.push(key.len() as u8);
            out.extend_from_slice(key.as_bytes());
            base::codec::put_varint(&mut out, 1000 - u64::from(i % 5));
        }
        out
    };
    vec![
        row(0, 60, &|i| format!("key/{:05}", i * 37)),
        row(200, 40, &|i| "a".repeat(i as usize)),
        row(1, 200, &|i| format!("{}", i / 9)),
    ]
}
