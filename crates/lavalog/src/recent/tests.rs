use super::*;
use io::Rng;
use std::collections::BTreeMap;

fn record(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn the_newest_records_are_found_and_nothing_else_within_the_memory() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let bytes_max = 1 << rng.range(12, 20);
        let mut recent = Recent::new(bytes_max);
        let mut all: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        let (mut ltn, mut at) = (1, 0);
        for _ in 0..3000 {
            if rng.one_in(200) {
                (ltn, at) = (ltn + rng.range(1, 4), 0);
            }
            let len = [0, 1, 100, 1000, 70_000][rng.below(5) as usize];
            let bytes = record(&mut rng, len);
            recent.push(GroupPlace { ltn, at }, &bytes);
            all.insert((ltn, at), bytes);
            at += len as u64 + rng.range(1, 100);
            assert!(recent.memory_bytes() <= bytes_max + CHUNK_BYTES.max(70_000) + 100_000, "seed {seed}");
        }
        let found: Vec<bool> = all
            .iter()
            .map(|(&(ltn, at), bytes)| match recent.find(GroupPlace { ltn, at }) {
                Some(found) => {
                    assert_eq!(found, bytes, "seed {seed}");
                    true
                }
                None => false,
            })
            .collect();
        // From some record on all are there that may be.
        let kept =
            all.values().zip(&found).filter(|(bytes, _)| !bytes.is_empty() && bytes.len() <= bytes_max);
        let kept: Vec<bool> = kept.map(|(_, found)| *found).collect();
        assert!(kept.is_sorted() && kept.last() == Some(&true), "seed {seed}: {kept:?}");
        assert!(recent.find(GroupPlace { ltn, at }).is_none());
        assert!(recent.find(GroupPlace { ltn: 0, at: 0 }).is_none());
    }
}

#[test]
fn a_place_inside_a_record_is_none() {
    let mut recent = Recent::new(1 << 20);
    recent.push(GroupPlace { ltn: 3, at: 10 }, b"abc");
    recent.push(GroupPlace { ltn: 3, at: 20 }, b"de");
    assert_eq!(recent.find(GroupPlace { ltn: 3, at: 10 }), Some(&b"abc"[..]));
    assert_eq!(recent.find(GroupPlace { ltn: 3, at: 20 }), Some(&b"de"[..]));
    for at in [0, 9, 11, 19, 21, 30] {
        assert_eq!(recent.find(GroupPlace { ltn: 3, at }), None);
    }
    assert_eq!(recent.find(GroupPlace { ltn: 4, at: 10 }), None);
}

#[test]
fn without_memory_nothing_is_kept() {
    let mut recent = Recent::new(0);
    recent.push(GroupPlace { ltn: 3, at: 10 }, b"abc");
    assert_eq!((recent.find(GroupPlace { ltn: 3, at: 10 }), recent.memory_bytes()), (None, 0));
}
