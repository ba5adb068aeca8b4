use super::*;

#[test]
fn zeta_equals_the_plain_sum() {
    for n in [1u64, 2, 10, 10_000, 10_001, 300_000] {
        let plain: f64 = (1..=n).rev().map(|i| (i as f64).powf(-THETA)).sum();
        assert!((zeta(n, THETA) - plain).abs() < 1e-9, "n = {n}");
    }
}

#[test]
fn zeta_of_ten_billion_is_the_constant_of_ycsb() {
    assert!((zeta(10_000_000_000, THETA) - 26.469_028_201_783_02).abs() < 1e-6);
}

#[test]
fn a_permutation_hits_everything_once() {
    for n in [1u64, 2, 3, 7, 64, 1000, 4097] {
        let p = Permutation::new(n, 3);
        let mut seen = vec![false; n as usize];
        for x in 0..n {
            let y = p.apply(x) as usize;
            assert!(!seen[y], "{y} hit twice of {n}");
            seen[y] = true;
        }
    }
}

#[test]
fn zipf_draws_ranks_with_their_expected_frequency() {
    let n = 100_000;
    let zipf = Zipf::new(n, 1);
    let mut rng = Rng::new(5);
    let draws = 400_000u32;
    let mut count = vec![0u32; n as usize];
    for _ in 0..draws {
        count[zipf.rank(&mut rng) as usize] += 1;
    }
    let total = zeta(n, THETA);
    for rank in [0usize, 1] {
        let expected = f64::from(draws) * ((rank + 1) as f64).powf(-THETA) / total;
        let got = f64::from(count[rank]);
        assert!((got / expected - 1.0).abs() < 0.05, "rank {rank}: {got} instead of {expected}");
    }
    // The first percent of the ranks gets its expected share of the draws, within a few percent.
    let share = count[..1000].iter().map(|c| f64::from(*c)).sum::<f64>() / f64::from(draws);
    let expected = zeta(1000, THETA) / total;
    assert!((share / expected - 1.0).abs() < 0.05, "{share} instead of {expected}");
}

#[test]
fn distributions_stay_within_tiny_key_spaces() {
    for n in 1..5 {
        let mut rng = Rng::new(n);
        for distribution in [crate::Distribution::Zipf, crate::Distribution::Pareto] {
            let picker = Picker::new(distribution, n, 9);
            for _ in 0..100 {
                assert!(picker.next(&mut rng) < n);
            }
        }
    }
}

#[test]
fn pareto_gives_a_fifth_of_keys_four_fifths_of_draws() {
    let (n, draws) = (1_000_000, 400_000);
    let mut rng = Rng::new(5);
    let ranks: Vec<u64> = (0..draws).map(|_| pareto_rank(n, &mut rng)).collect();
    let mut part = n;
    let mut expected = 1.0;
    for _ in 0..4 {
        part /= 5;
        expected *= 0.8;
        let got = ranks.iter().filter(|rank| **rank < part).count() as f64 / f64::from(draws);
        assert!((got - expected).abs() < 0.005, "the first {part}: {got} instead of {expected}");
    }
    assert!(ranks.iter().any(|rank| *rank > n - n / 100), "the last ranks are drawn, too");
}

#[test]
fn popular_keys_are_spread() {
    for distribution in [crate::Distribution::Zipf, crate::Distribution::Pareto] {
        let picker = Picker::new(distribution, 1_000_000, 9);
        let mut rng = Rng::new(3);
        let low = (0..10_000).filter(|_| picker.next(&mut rng) < 500_000).count();
        assert!((2_000..8_000).contains(&low), "{distribution:?}: {low} of 10,000 in the lower half");
    }
}
