use super::*;
use crate::args::tests::args;
use crate::workload::{KeySpace, Role, Stream};
use std::collections::{BTreeMap, BTreeSet};

const MIXES: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

#[test]
fn operation_kinds_have_the_shares_of_their_mix() {
    for mix in MIXES {
        let (mixture, mut rng) = (Mixture::of(mix), Rng::new(7));
        let mut counts: BTreeMap<Kind, f64> = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(mixture.draw(&mut rng)).or_default() += 1e-5;
        }
        let shares: BTreeMap<Kind, f64> = mixture.shares.iter().copied().collect();
        assert!((shares.values().sum::<f64>() - 1.0).abs() < 1e-9, "{mix:?}");
        assert!(counts.keys().eq(shares.keys()), "{mix:?}: {counts:?}");
        assert!(
            shares.iter().all(|(kind, share)| (share - counts[kind]).abs() < 0.01),
            "{mix:?}: {counts:?}"
        );
    }
}

/// Threads insert disjoint new keys, and read only existing ones.
#[test]
fn threads_insert_disjoint_keys_and_read_existing_ones() {
    for mix in MIXES {
        let space = KeySpace::new(&args("ycsb --num 500 --value-size 50 --distribution zipf"));
        let mut inserted = BTreeSet::new();
        for thread in 0..3 {
            let mut stream =
                Stream::new(&space, Role::Client, Kind::Get, 3_000, thread, 3).mixed(Mixture::of(mix));
            let mut own: Vec<u64> = Vec::new();
            let mut newest = 0;
            while stream.advance() {
                if stream.kind() == Kind::Insert {
                    assert!(inserted.insert(stream.index) && stream.index >= 500);
                    own.push(stream.index);
                    continue;
                }
                assert!(stream.index < 500 || own.contains(&stream.index), "{mix:?}");
                newest += usize::from(own.last() == Some(&stream.index));
                let scans = stream.scan_length.is_some_and(|length| (1..=100).contains(&length));
                assert_eq!(stream.kind() == Kind::Scan, scans);
            }
            assert!(
                (mix == Mix::D) == (newest > 20),
                "{mix:?}: {newest} gets of the key that was inserted last"
            );
        }
        assert_eq!(inserted.is_empty(), !matches!(mix, Mix::D | Mix::E));
    }
}

#[test]
fn latest_ranks_inserted_keys_before_loaded_ones() {
    let mut inserts = Inserts::new(10, 1, 4);
    assert_eq!((inserts.latest(0), inserts.latest(9)), (9, 0));
    assert_eq!((inserts.insert(), inserts.insert()), (11, 15));
    assert_eq!((0..4).map(|ago| inserts.latest(ago)).collect::<Vec<_>>(), [15, 11, 9, 8]);
}
