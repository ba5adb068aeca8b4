//! The pace on a clock of its own: what it takes for congestion, that the bound binds, rises, and yields to garbage pressure.

use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A flush of 16 MiB at so many MiB a second.
fn flush(rate: u64, waited_for: bool) -> Flushed {
    Flushed { bytes: 16 * MIB, ns: 16 * SECOND / rate, waited_for }
}

/// Collection that takes every byte it may get for `ns`, in pieces of 1 MiB; returns the bytes.
fn collect(pace: &GcPace, now_ns: &mut u64, ns: u64, garbage_pressure: u64) -> u64 {
    let (end_ns, mut bytes) = (*now_ns + ns, 0);
    while *now_ns < end_ns {
        match pace.wait_ns(*now_ns, garbage_pressure) {
            0 => {
                pace.charge(MIB);
                bytes += MIB;
                // At most 1,000 MiB a second.
                *now_ns += MS;
            }
            wait_ns => {
                assert!(wait_ns <= WAIT_NS_MAX);
                *now_ns += wait_ns;
            }
        }
    }
    bytes
}

/// A pace that has seen a flush of 400 MiB/s, and then one of 100 MiB/s that was waited for, beside a collection that
/// took what it could.
fn congested() -> (GcPace, u64) {
    let (pace, mut now_ns) = (GcPace::default(), SECOND);
    pace.flushed(now_ns, flush(400, false));
    assert!(collect(&pace, &mut now_ns, 200 * MS, 0) >= 190 * MIB, "unbounded before");
    pace.flushed(now_ns, flush(100, true));
    (pace, now_ns)
}

#[test]
fn only_a_slow_flush_that_somebody_waits_for_beside_a_collection_is_a_sign() {
    for (rate, waited_for, charged, sign) in [
        (100, true, 64 * MIB, true),
        (100, false, 64 * MIB, false),
        (100, true, 0, false),
        (300, true, 64 * MIB, false),
        (500, true, 64 * MIB, false),
    ] {
        let pace = GcPace::default();
        pace.flushed(SECOND, flush(400, false));
        pace.charge(charged);
        pace.flushed(SECOND + 160 * MS, flush(rate, waited_for));
        let bounded = pace.bytes_per_s(SECOND + 160 * MS, 0).is_some();
        assert_eq!(bounded, sign, "{rate} {waited_for} {charged}");
    }
}

#[test]
fn the_bound_binds_falls_by_a_fifth_and_rises_with_time() {
    let (pace, mut now_ns) = congested();
    let first = pace.bytes_per_s(now_ns, 0).unwrap();
    assert!((600 * MIB..=640 * MIB).contains(&first), "four fifths of where there is none: {first}");
    let mut last = first;
    for _ in 0..12 {
        let from_ns = now_ns;
        let bytes = collect(&pace, &mut now_ns, 100 * MS, 0);
        let took = now_ns - from_ns;
        // It may have risen while it was used, and one piece is charged after it was done.
        let most = per_second(pace.bytes_per_s(now_ns, 0).unwrap(), SECOND) * took / SECOND + 2 * MIB;
        assert!(bytes <= most, "{bytes} of {most}");
        pace.flushed(now_ns, flush(100, true));
        let next = pace.bytes_per_s(now_ns, 0).unwrap();
        assert!(next < last, "{next} after {last}");
        last = next;
    }
    // Each flush took a fifth away, each tenth of a second gave at most 20 MiB/s back: it comes to rest near 100 MiB/s.
    assert!((60 * MIB..150 * MIB).contains(&last), "{last}");
    // With flushes as they should be it rises, at first to more, in the end to no bound.
    let bytes = collect(&pace, &mut now_ns, SECOND, 0);
    assert!((last..last + 200 * MIB).contains(&bytes), "{bytes} from {last}");
    assert!(pace.bytes_per_s(now_ns, 0).unwrap() > last + 100 * MIB);
    assert_eq!(pace.bytes_per_s(now_ns + 4 * SECOND, 0), None);
}

#[test]
fn garbage_pressure_raises_the_floor_and_lifts_the_bound() {
    let (pace, mut now_ns) = congested();
    for _ in 0..40 {
        pace.charge(20 * MIB);
        now_ns += 100 * MS;
        pace.flushed(now_ns, flush(50, true));
    }
    let mut last = pace.bytes_per_s(now_ns, 0).unwrap();
    assert_eq!(pace.bytes_per_s(now_ns, STRAIN_HALF), Some(last));
    for garbage_pressure in [60, 70, 80, 90, 99] {
        let now = pace.bytes_per_s(now_ns, garbage_pressure).unwrap();
        assert!(now > last, "{garbage_pressure}");
        last = now;
    }
    assert_eq!(pace.bytes_per_s(now_ns, GARBAGE_PRESSURE_FULL), None);
    let [slow, strained, lifted] = [0, 80, GARBAGE_PRESSURE_FULL].map(|garbage_pressure| {
        // What was charged before is forgotten where there is no bound.
        assert_eq!(pace.wait_ns(now_ns, GARBAGE_PRESSURE_FULL), 0);
        collect(&pace, &mut now_ns, 500 * MS, garbage_pressure)
    });
    assert!(slow * 2 < strained && strained < lifted && lifted >= 490 * MIB, "{slow} {strained} {lifted}");
}

#[test]
fn a_device_that_became_slower_is_not_held_against_collection_for_ever() {
    let (pace, mut now_ns) = congested();
    for _ in 0..100 {
        pace.charge(20 * MIB);
        now_ns += 100 * MS;
        pace.flushed(now_ns, flush(100, true));
    }
    assert_eq!(pace.bytes_per_s(now_ns + 5 * SECOND, 0), None);
    pace.charge(20 * MIB);
    pace.flushed(now_ns + 5 * SECOND, flush(100, true));
    assert_eq!(pace.bytes_per_s(now_ns + 5 * SECOND, 0), None, "100 MiB/s are the best rate now");
}

#[test]
fn the_pace_is_never_nothing() {
    let (pace, mut now_ns) = congested();
    for _ in 0..1000 {
        now_ns += MS;
        pace.charge(1 << 10);
        pace.flushed(now_ns, Flushed { bytes: 1 << 10, ns: SECOND, waited_for: true });
        assert!(pace.bytes_per_s(now_ns, 0).is_none_or(|pace| pace >= PACE_MIN));
    }
}

/// However a wait is cut up, and however little is left to pay for, it ends.
#[test]
fn waits_end() {
    let (pace, mut now_ns) = congested();
    for _ in 0..60 {
        pace.charge(1 << 20);
        now_ns += 100 * MS;
        pace.flushed(now_ns, flush(2, true));
    }
    for (debt, poll_ns) in [(1, u64::MAX), (1, 7), (4097, 500), (4097, u64::MAX)] {
        assert_eq!(pace.wait_ns(now_ns, GARBAGE_PRESSURE_FULL), 0, "forget what was charged without asking");
        pace.charge(debt);
        let due_ns = debt * SECOND / pace.bytes_per_s(now_ns, 0).unwrap();
        let mut waited_ns = 0;
        loop {
            let wait_ns = pace.wait_ns(now_ns, 0).min(poll_ns);
            if wait_ns == 0 {
                break;
            }
            now_ns += wait_ns;
            waited_ns += wait_ns;
            assert!(waited_ns <= 2 * due_ns + 2000, "{debt} {poll_ns}: {waited_ns} of {due_ns}");
        }
        assert!(waited_ns * 2 >= due_ns, "{debt} {poll_ns}: {waited_ns} of {due_ns}");
    }
}
