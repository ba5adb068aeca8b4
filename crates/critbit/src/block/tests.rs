use super::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;

type Keys = BTreeMap<(Vec<u8>, Reverse<SeqNo>), usize>;
/// Makes keys of one sort.
type Sort<'a> = &'a dyn Fn(&mut io::Rng) -> Vec<u8>;

/// Numbers the keys, and encodes them as one block.
fn encode(keys: &mut Keys) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for (ordinal, ((key, seq), value)) in keys.iter_mut().enumerate() {
        builder.push(key, seq.0);
        *value = ordinal;
    }
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    assert!(builder.is_empty());
    out
}

fn check(mut keys: Keys) {
    while keys.len() > BLOCK_KEYS_MAX {
        keys.pop_last();
    }
    let mut bytes = encode(&mut keys);
    let end = bytes.len();
    for behind in [&b""[..], &[0xff; 20]] {
        bytes.truncate(end);
        bytes.extend_from_slice(behind);
        let block = Block::parse(&bytes).unwrap();
        assert_eq!((block.len(), block.encoded_len()), (keys.len(), end));
        for ((key, seq), &ordinal) in &keys {
            assert_eq!(block.find(key, seq.0), ordinal, "{key:?} {} in {keys:?}", seq.0);
        }
        // A lookup of an absent key returns some ordinal.
        for (key, seq) in keys.keys() {
            assert!(block.find(&key[..key.len() / 2], seq.0 ^ 1) < block.len());
        }
        assert!(block.find(b"", base::MAX_SEQ) < block.len());
    }
    for cut in 0..end {
        assert!(Block::parse(&bytes[..cut]).unwrap_err().is_corruption());
    }
}

fn check_keys(keys: impl IntoIterator<Item = (Vec<u8>, SeqNo)>) {
    check(keys.into_iter().map(|(key, seq)| ((key, Reverse(seq)), 0)).collect());
}

#[test]
fn single_key_blocks_round_trip() {
    check_keys([(vec![], 0)]);
    check_keys([(b"key".to_vec(), base::MAX_SEQ)]);
}

#[test]
fn keys_with_common_prefixes_zeros_and_versions_round_trip() {
    check_keys((0..128).map(|n| (vec![0; n], 7)));
    check_keys((0..128).map(|n| (vec![0xff; n * 13], 7)));
    check_keys((0..128).map(|n| (b"one key".to_vec(), n)));
    check_keys((0..56).map(|n| (b"".to_vec(), 1 << n)));
    check_keys((0..128).map(|n| (vec![0; n / 3], base::MAX_SEQ - n as u64 % 3)));
    let around =
        [&b""[..], b"\0", b"\0\0", b"\0\0\0", b"\0\x01", b"\x01", b"\x01\0", b"\xff", b"\xff\0", b"\xff\xff"];
    check_keys(around.iter().flat_map(|key| [0, 1, 2, base::MAX_SEQ].map(|seq| (key.to_vec(), seq))));
}

#[test]
fn degenerate_tries_round_trip() {
    // Each key differs from the previous one at a distinct position: the trie is a list, to one
    // side and to the other.
    let shortest_first = (0..128).map(|n| (vec![b'a'; n], 1));
    check_keys(shortest_first);
    let other_side = (0..128).map(|n| ([vec![b'a'; n], vec![b'b']].concat(), 1));
    check_keys(other_side);
    let long = (0..128).map(|n| ([vec![b'a'; n * 500], vec![b'b']].concat(), 1));
    check_keys(long);
}

#[test]
fn blocks_round_trip_for_all_key_kinds_and_counts() {
    let mut rng = io::Rng::new(3);
    for count in 1..=BLOCK_KEYS_MAX {
        let random = |rng: &mut io::Rng| (0..rng.below(24)).map(|_| rng.next_u64() as u8).collect::<Vec<_>>();
        let few = |rng: &mut io::Rng| (0..rng.below(10)).map(|_| rng.below(3) as u8).collect::<Vec<_>>();
        let url = |rng: &mut io::Rng| {
            let (host, user) = (rng.below(5), rng.below(1000));
            format!("https://host{host}.example.org/users/{user}/posts?page={}", rng.below(30)).into_bytes()
        };
        let number = |rng: &mut io::Rng| {
            let mut key = rng.below(100_000_000).to_be_bytes().to_vec();
            key.resize(36, b'0');
            key
        };
        let sorts: [Sort<'_>; 4] = [&random, &few, &url, &number];
        for make in sorts {
            let versions = rng.range(1, 5);
            let mut keys = Vec::new();
            while keys.len() < count {
                let key = make(&mut rng);
                for _ in 0..versions {
                    keys.push((key.clone(), if rng.one_in(2) { rng.below(8) } else { rng.below(1 << 56) }));
                }
            }
            keys.truncate(count);
            check_keys(keys);
        }
    }
}

#[test]
fn consecutive_blocks_are_decoded_one_by_one() {
    let mut out = Vec::new();
    let mut builder = BlockBuilder::new();
    for i in 0..1000u32 {
        builder.push(&i.to_be_bytes(), 1);
        if builder.is_full() || i == 999 {
            builder.finish_into(&mut out);
        }
    }
    let (mut at, mut first) = (0, 0);
    while at < out.len() {
        let block = Block::parse(&out[at..]).unwrap();
        for i in 0..block.len() {
            assert_eq!(block.find(&(first + i as u32).to_be_bytes(), 1), i);
        }
        at += block.encoded_len();
        first += block.len() as u32;
    }
    assert_eq!(first, 1000);
}

#[test]
fn a_key_out_of_order_is_refused() {
    let pairs: [(&[u8], u64, &[u8], u64); 4] =
        [(b"b", 1, b"a", 1), (b"a", 1, b"a", 1), (b"a", 1, b"a", 2), (b"ab", 1, b"a", 1)];
    for (first, first_seq, second, second_seq) in pairs {
        let pushed = std::panic::catch_unwind(|| {
            let mut builder = BlockBuilder::new();
            builder.push(first, first_seq);
            builder.push(second, second_seq);
        });
        assert!(pushed.is_err(), "{first:?} {first_seq} then {second:?} {second_seq}");
    }
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = io::Rng::new(4);
    let mut keys: Keys =
        (0..128u64).map(|n| ((rng.below(1 << 40).to_be_bytes().to_vec(), Reverse(n)), 0)).collect();
    let good = encode(&mut keys);
    let mut parsed = 0;
    for round in 0..60_000 {
        let mut bytes = good.clone();
        if round % 2 == 0 {
            bytes.truncate(rng.below(300) as usize);
            rng.fill(&mut bytes);
            if let Some(head) = bytes.first_mut() {
                *head &= 0x7f;
            }
        } else {
            for _ in 0..rng.range(1, 6) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        let Ok(block) = Block::parse(&bytes) else { continue };
        parsed += 1;
        assert!(block.encoded_len() <= bytes.len());
        for _ in 0..4 {
            let mut key = vec![0; rng.below(40) as usize];
            rng.fill(&mut key);
            assert!(block.find(&key, rng.next_u64()) < block.len());
        }
    }
    assert!(parsed > 5_000, "{parsed} blocks were taken");
}

#[test]
fn malformed_blocks_are_refused() {
    let bad: [&[u8]; 10] = [
        &[],
        &[0],
        &[0x80, 0],                               // more keys than a block has
        &[0, 1, 5],                               // a position, and no slot
        &[1, 0],                                  // a slot, and no position
        &[1, 2, 5, 5, 0],                         // more positions than slots
        &[3, 3, 1, 1, 1, 0b110, 0b101],           // rank 3 of 3
        &[2, 2, 1, 1, 0b110],                     // a spare bit
        &[1, 1, 0x80, 0x80, 0x80, 0x80, 0x08],    // position 2^31
        &[2, 2, 1, 0xff, 0xff, 0xff, 0xff, 0x07], // the second one
    ];
    for bytes in bad {
        assert!(Block::parse(bytes).unwrap_err().is_corruption(), "{bytes:?}");
    }
    assert!(Block::parse(&[2, 2, 1, 1, 0b10]).is_ok());
    assert!(Block::parse(&[3, 3, 1, 1, 1, 0b100, 0b010]).is_ok());
}
