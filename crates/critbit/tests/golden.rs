//! Encodings of the present format, checked in: they must stay readable, and must still be produced
//! byte for byte.
//!
//! After a deliberate change of the format (the version is that of the file that holds the blocks)
//! run with `LAVASTORE_BLESS=1`.

#![allow(clippy::disallowed_methods, reason = "reads a test file, not a store")]

use lavastore_critbit::offsets::{self, Offsets};
use lavastore_critbit::{BLOCK_KEYS_MAX, Block, BlockBuilder};
use std::path::Path;

/// User keys and sequences of three blocks: one key; keys of all sorts; a full block.
fn fixed_keys() -> [Vec<(Vec<u8>, u64)>; 3] {
    let mixed = [
        (&b""[..], 7),
        (b"\0", 7),
        (b"\0\0", base::MAX_SEQ),
        (b"\0\0", 1),
        (b"\0\0", 0),
        (b"account", 300),
        (b"account/1", 299),
        (b"account/1", 43),
        (b"account/12", 5),
        (b"b", 0),
        (b"\xff\xff\xff", 1 << 40),
    ];
    let full = (0..BLOCK_KEYS_MAX as u64).map(|i| (format!("user{:09}", i * i * 977).into_bytes(), 5000 - i));
    [vec![(b"alone".to_vec(), 12)], mixed.map(|(key, seq)| (key.to_vec(), seq)).to_vec(), full.collect()]
}

/// Offsets on a line, near a line, in steps, and in no order; the last ones by the other encoder.
fn fixed_offsets() -> [Vec<u64>; 4] {
    [
        (0..128).map(|i| 70_000 + 257 * i).collect(),
        (0..128).map(|i| 70_000 + 257 * i + i * i % 11).collect(),
        (0..50).map(|i| 3 + i * i * i * i).collect(),
        (0..31).map(|i| i * 7919 % 1000).collect(),
    ]
}

fn encode_all() -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = BlockBuilder::new();
    for keys in fixed_keys() {
        keys.iter().for_each(|(key, seq)| builder.push(key, *seq));
        builder.finish_into(&mut out);
    }
    let [line, near, stairs, mixed] = fixed_offsets();
    [line, near, stairs].iter().for_each(|values| offsets::encode_ascending(values, &mut out));
    offsets::encode_any(&mixed, &mut out);
    out
}

#[test]
fn the_golden_encodings_are_read_and_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/blocks.bin");
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, encode_all()).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    let mut rest = &golden[..];
    for keys in fixed_keys() {
        let block = Block::parse(rest).unwrap();
        assert_eq!(block.len(), keys.len());
        for (i, (key, seq)) in keys.iter().enumerate() {
            assert_eq!(block.find(key, *seq), i);
        }
        rest = &rest[block.encoded_len()..];
    }
    for values in fixed_offsets() {
        let offsets = Offsets::parse(rest).unwrap();
        let read: Vec<u64> = (0..offsets.len()).map(|i| offsets.get(i).unwrap()).collect();
        assert_eq!(read, values);
        rest = &rest[offsets.encoded_len()..];
    }
    assert!(rest.is_empty());
    assert_eq!(encode_all(), golden, "the writer has changed");
}
