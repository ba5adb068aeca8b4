use super::save::Runs;
use io::Rng;
use std::collections::BTreeSet;

/// Runs are the set of the inserted numbers, in whatever order.
#[test]
fn runs_agree_with_a_set() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut runs, mut model) = (Runs::default(), BTreeSet::new());
        for _ in 0..rng.below(60) {
            let lsn = rng.below(40);
            assert_eq!(runs.insert(lsn), model.insert(lsn), "seed {seed}, {lsn}");
        }
        let (first, last) = (rng.below(40), rng.below(45));
        let missing: Vec<u64> =
            runs.missing(first, last).into_iter().flat_map(|(first, last)| first..=last).collect();
        let expected: Vec<u64> = (first..=last).filter(|lsn| !model.contains(lsn)).collect();
        assert_eq!(missing, expected, "seed {seed}");
    }
}
