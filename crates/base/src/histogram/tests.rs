use super::*;

/// Returns values of all magnitudes: random numbers of random bit lengths.
fn values(seed: u64, count: usize) -> Vec<u64> {
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    (0..count).map(|_| next() >> (next() % 44)).collect()
}

fn of(values: &[u64]) -> Distribution {
    let histogram = Histogram::rare();
    values.iter().for_each(|value| histogram.record(*value));
    histogram.read()
}

#[test]
fn buckets_are_contiguous_and_of_bounded_width() {
    let mut lower = 0;
    for bucket in 0..BUCKETS {
        let upper = upper_of(bucket);
        assert_eq!((bucket_of(lower), bucket_of(upper)), (bucket, bucket));
        assert!((upper - lower) * SUB_BUCKETS <= lower.max(SUB_BUCKETS - 1), "{lower} to {upper}");
        lower = upper + 1;
    }
    assert_eq!(lower, VALUE_MAX + 1);
    for bits in 0..44 {
        assert_eq!(
            upper_of(bucket_of((1 << bits) - 1)),
            (1 << bits) - 1,
            "a bucket ends below each power of two"
        );
    }
}

#[test]
fn extreme_values_are_counted() {
    let all = of(&[0, 1, VALUE_MAX, VALUE_MAX + 1, u64::MAX]);
    assert_eq!((all.count(), all.max()), (5, u64::MAX));
    assert_eq!((all.quantile(0.0), all.quantile(0.2), all.quantile(0.4)), (0, 0, 1));
    assert_eq!((all.quantile(0.6), all.quantile(1.0), all.quantile(f64::NAN)), (u64::MAX, u64::MAX, 0));
    assert_eq!((all.at_most(0), all.at_most(1), all.at_most(u64::MAX)), (1, 2, 5));
    let none = Distribution::default();
    assert_eq!((none.quantile(0.5), none.mean(), none.at_most(u64::MAX), none.max()), (0, 0, 0, 0));
}

#[test]
fn quantiles_are_never_too_low_and_at_most_a_sixteenth_too_high() {
    for seed in 0..200 {
        let mut values = values(seed, 1 + (seed as usize * 7) % 500);
        let told = of(&values);
        values.sort_unstable();
        assert_eq!((told.count(), told.sum()), (values.len() as u64, values.iter().sum()));
        assert_eq!(told.max(), *values.last().unwrap());
        for part in [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((part * values.len() as f64).ceil() as usize).max(1);
            let (exact, told) = (values[rank - 1], told.quantile(part));
            assert!(told >= exact && told <= exact + exact / SUB_BUCKETS, "{seed} {part}: {exact}, {told}");
        }
    }
}

#[test]
fn merging_equals_recording_all_values() {
    for seed in 0..100 {
        let (a, b) = (values(seed, 50), values(seed + 1000, 1 + seed as usize));
        let mut merged = of(&a);
        merged.merge(&of(&b));
        assert_eq!(merged, of(&[a.clone(), b.clone()].concat()));
        let mut other_way = of(&b);
        other_way.merge(&of(&a));
        other_way.merge(&Distribution::default());
        assert_eq!(merged, other_way);
    }
}

#[test]
fn concurrent_recording_loses_no_value() {
    let shared = Histogram::frequent();
    let of_thread = |t: u64| values(t, 20_000);
    std::thread::scope(|scope| {
        for t in 0..12 {
            let shared = &shared;
            scope.spawn(move || of_thread(t).iter().for_each(|value| shared.record(*value)));
        }
    });
    assert_eq!(shared.read(), of(&(0..12).flat_map(of_thread).collect::<Vec<_>>()));
}

#[test]
fn samples_are_scaled_and_not_periodic() {
    let times = Histogram::frequent();
    let rounds = 4096;
    let turns: Vec<u64> = (0..EACH_FIRST + rounds * ONE_IN).map(|_| times.turn()).collect();
    let (each, sampled) = turns.split_at(EACH_FIRST as usize);
    assert!(each.iter().all(|weight| *weight == 1));
    let mut places = [0u64; ONE_IN as usize];
    for run in sampled.chunks(ONE_IN as usize) {
        assert_eq!(run.iter().sum::<u64>(), ONE_IN);
        places[run.iter().position(|weight| *weight > 0).unwrap()] += 1;
    }
    let (least, most) = (places.iter().min().unwrap(), places.iter().max().unwrap());
    let mean = rounds / ONE_IN;
    assert!(*least > mean / 2 && *most < mean * 2, "{places:?}");
}

#[test]
fn histogram_difference_equals_a_separate_histogram() {
    for seed in 0..50 {
        let (old, new) = (values(2 * seed, 200), values(2 * seed + 1, 100));
        let before = of(&old);
        let mut all = before.clone();
        all.merge(&of(&new));
        let (since, alone) = (all.since(&before), of(&new));
        assert_eq!((since.count(), since.sum()), (100, alone.sum()));
        assert_eq!(since.quantile(0.5), alone.quantile(0.5));
        assert!(
            since.max() >= alone.max() && since.max() - alone.max() <= alone.max() / SUB_BUCKETS,
            "{since:?}"
        );
        assert_eq!(all.since(&Distribution::default()), all);
        assert_eq!(all.since(&all), Distribution::default());
    }
    assert_eq!(of(&[5, u64::MAX]).since(&of(&[5])).max(), u64::MAX);
}
