//! The rate limit of background I/O.

use store::pacing::RateLimiter;

#[test]
fn the_budget_binds_over_every_second() {
    let budget = RateLimiter::new(10 << 20);
    let (mut now_ns, mut passed) = (0u64, Vec::new());
    while now_ns < 3_000_000_000 {
        now_ns += budget.wait_ns(now_ns) + 1000;
        budget.charge(now_ns, 256 << 10);
        passed.push(now_ns);
    }
    let in_second =
        |from_ns: u64| passed.iter().filter(|ns| (from_ns..from_ns + 1_000_000_000).contains(ns)).count();
    for from_ns in (0..2_000_000_000).step_by(10_000_000) {
        // The burst (a fiftieth of a second) and one piece pass ahead of time.
        assert!((38..=43).contains(&in_second(from_ns)), "{} from {from_ns}", in_second(from_ns));
    }
    let none = RateLimiter::default();
    none.charge(0, 1 << 40);
    assert_eq!(none.wait_ns(0), 0);
}
