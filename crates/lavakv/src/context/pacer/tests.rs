use super::*;

const SECOND: u64 = 1_000_000_000;
const PATIENT: Until = Until { ns: u64::MAX, debt_ns_max: 0 };

fn until(ns: u64) -> Until {
    Until { ns, debt_ns_max: 10_000_000 }
}

#[test]
fn paced_writes_reach_the_allowed_rate_whatever_their_size() {
    for len in [200, 1000, 16_000, 1 << 20, 16 << 20] {
        let (pacer, mut now, mut written, mut longest) = (Pacer::default(), 0u64, 0u64, 0);
        let rate = 10 << 20;
        while now < 10 * SECOND {
            now += 2_000;
            let mut left = len;
            while left > 0 {
                let paid = piece(left, rate);
                let sleep_ns = pacer.charge(now, cost_ns(paid, rate), PATIENT).unwrap();
                assert!(paid > 0);
                left -= paid;
                now += sleep_ns;
                longest = longest.max(sleep_ns);
            }
            written += len;
        }
        let share = written as f64 / (rate as f64 * now as f64 / 1e9);
        assert!((0.95..1.05).contains(&share), "{len}: {share}");
        assert!(longest <= PIECE_NS_MAX + SLEEP_NS_MIN, "{len}: {longest}");
    }
}

#[test]
fn a_price_that_has_fallen_is_paid_from_the_next_piece_on() {
    let pacer = Pacer::default();
    let paid = piece(1 << 30, RATE_FLOOR);
    let sleep_ns = pacer.charge(0, cost_ns(paid, RATE_FLOOR), PATIENT).unwrap();
    assert!(paid < 1000 && sleep_ns <= PIECE_NS_MAX + SLEEP_NS_MIN);
    assert_eq!(piece(1 << 20, 10 << 30), 1 << 20);
    assert_eq!(pacer.charge(SECOND, cost_ns(200, 10 << 20), PATIENT), Some(0), "nothing is left to pay for");
}

/// Who may not wait so long is told at once, and owes nothing: else refused writes would hold up all others.
#[test]
fn who_cannot_wait_for_what_others_owe_is_not_charged() {
    let pacer = Pacer::default();
    let free_at_ns = || *lock(&pacer.free_at_ns);
    assert!(pacer.is_paid_by(SECOND, 200_000, SECOND) && !pacer.is_paid_by(SECOND, 9_000_000, SECOND));
    assert_eq!(pacer.charge(SECOND, 9_000_000, until(SECOND)), Some(0), "nobody owes anything");
    let owed = free_at_ns();
    assert!((0..1000).all(|_| pacer.charge(SECOND, 1000, until(SECOND)).is_none()));
    assert!(pacer.charge(SECOND, 1000, until(SECOND + 5_000_000)).is_none());
    assert_eq!(free_at_ns(), owed);
    let patient = pacer.charge(SECOND, 9_000_000, until(SECOND + 12_000_000));
    assert_eq!(patient, Some(12_000_000), "and the rest is for those behind it");
    pacer.refund(9_000_000);
    assert_eq!(free_at_ns(), owed, "it came to nothing");
    assert_eq!(pacer.charge(2 * SECOND, 1000, until(2 * SECOND)), Some(0), "no wait is needed any more");
}

/// What may not wait leaves no more to those behind it than it may: a long batch is refused where it has a price.
#[test]
fn who_may_not_wait_leaves_a_bounded_debt() {
    let pacer = Pacer::default();
    assert_eq!(pacer.charge(SECOND, SECOND, until(SECOND)), None);
    assert_eq!(*lock(&pacer.free_at_ns), 0);
    let all =
        |pacer: &Pacer| (0..1000).filter(|_| pacer.charge(SECOND, 900_000, until(SECOND)).is_some()).count();
    assert!(all(&pacer) > 0);
    let owed = *lock(&pacer.free_at_ns) - SECOND;
    assert!(owed <= 10_000_000, "{owed}");
    assert_eq!(
        pacer.charge(SECOND, SECOND, PATIENT).map(|ns| ns - owed),
        Some(SECOND),
        "who waits owes as much as it takes"
    );
}
