//! Sets of LSNs.

use io::Rng;
use lavalog::Lsn;
use lavalog::lsn_set::{Builder, LsnSet, Size};
use std::collections::BTreeMap;

/// Length of the record by LSN.
type Model = BTreeMap<Lsn, u32>;

fn set_of(model: &Model) -> LsnSet {
    let mut out = Builder::default();
    model.iter().for_each(|(lsn, len)| out.push(*lsn, *len).unwrap());
    out.build()
}

#[test]
fn bytes_of_a_run_are_removed_down_to_the_last_record() {
    let mut rng = Rng::new(9);
    for _ in 0..200 {
        let model: Model = (5..5 + rng.range(1, 400)).map(|lsn| (lsn, rng.below(1000) as u32)).collect();
        let (mut set, mut removed) = (set_of(&model), Size::default());
        let whole = set.size();
        assert_eq!(
            whole.bytes,
            model.values().map(|len| u64::from(*len)).sum::<u64>(),
            "whole runs are exact"
        );
        while !set.is_empty() {
            let lsn = rng.below(500);
            removed += match rng.below(10) {
                0 => set.remove_below(set.first().unwrap() + lsn % 30),
                _ => set.remove(lsn..=lsn + 3),
            };
            assert_eq!(whole - removed, set.size());
        }
        assert_eq!(removed, whole);
    }
}

#[test]
fn a_set_of_one_run_allocates_nothing() {
    assert_eq!(size_of::<LsnSet>(), 24);
    let dense: Model = (0..100_000).map(|lsn| (lsn, 1000)).collect();
    assert_eq!(set_of(&dense).memory_bytes(), 0);
    // LSNs of databases, which are offsets in another log.
    let single: Model = (0..10_000).map(|i| (i * 1000, 1000)).collect();
    let bytes = set_of(&single).memory_bytes();
    assert!(bytes <= 65_000, "{bytes} bytes for 10,000 single numbers");
}
