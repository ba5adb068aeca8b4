use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A hundred requests in the first of every three seconds.
const BURSTS: Bursts = Bursts { per_s: 100.0, burst_ns: SECOND, idle_ns: 2 * SECOND };

fn queue() -> ArrivalQueue {
    ArrivalQueue::open(Schedule::Bursts(BURSTS), SECOND, 5 * SECOND, SECOND)
}

fn plan(queues: &[ArrivalQueue]) -> Plan {
    Plan::of(queues.iter(), SECOND, 5 * SECOND).unwrap()
}

fn look(ms: u64, memory_bytes: u64, level_0_files: u64, l0_ns: u64) -> Look {
    let backlog = Backlog { memory_bytes, memory_rest_bytes: 10, level_0_files, level_0_rest_files: 3 };
    let waits_ns = BTreeMap::from([("l0".to_owned(), l0_ns), ("log".to_owned(), 7)]);
    Look { ns: ms * MS, backlog: Some(backlog), waits_ns }
}

#[test]
fn requests_count_for_the_burst_in_which_they_were_due() {
    let mut tally = Tally::of(&queue(), SECOND).unwrap();
    // The first burst lasts from second 1 to 2; the next one begins at 4.
    tally.done(0, SECOND, SECOND + 5 * MS);
    tally.done(99, 2 * SECOND - 10 * MS, 2 * SECOND + 90 * MS);
    tally.done(100, 4 * SECOND, 4 * SECOND + MS);
    tally.left(101, 4 * SECOND, 7 * SECOND);
    let other = tally.clone();
    let seen = merged(&[tally, other]);
    let first = Seen { done: 4, done_within: 2, longest_ns: 100 * MS, last_end_ns: 2 * SECOND + 90 * MS };
    let second = Seen { done: 2, done_within: 2, longest_ns: 3 * SECOND, last_end_ns: 4 * SECOND + MS };
    assert_eq!(seen, [first, second]);
    let steady = ArrivalQueue::open(Schedule::Steady(1.0), 0, 1, 1);
    assert!(Tally::of(&steady, 0).is_none() && Plan::of([&steady].into_iter(), 0, 1).is_none());
    assert!(Tally::of(&ArrivalQueue::closed(0, 1, 1), 0).is_none());
}

#[test]
fn offered_load_sums_all_queues() {
    assert_eq!(plan(&[queue()]).offered, [100, 100]);
    assert_eq!(plan(&[queue(), queue()]).offered, [200, 200]);
    let cut = ArrivalQueue::open(Schedule::Bursts(BURSTS), 0, 3 * SECOND + SECOND / 4, SECOND);
    let plan = Plan::of([&cut].into_iter(), 0, 3 * SECOND + SECOND / 4).unwrap();
    assert_eq!(plan.offered, [100, 25]);
    let reports = plan.reports(&[], &[]);
    assert_eq!((reports[1].offered_per_s, reports[1].left), (100.0, 25), "its part of a second is a quarter");
    assert_eq!((reports[0].memory_back_seconds, reports[0].memory_peak_bytes), (None, None));
    assert!(!reports[0].text().contains("memory") && reports[0].text().contains("BUT 100 LEFT"));
}

#[test]
fn memory_and_level_0_recovery_must_last() {
    let looks = [
        look(0, 8, 5, 0),
        look(500, 90, 6, 4 * MS),
        // Below the idle size, and above it again.
        look(1200, 9, 6, 6 * MS),
        look(1300, 20, 7, 6 * MS),
        look(1700, 10, 6, 6 * MS),
        look(2500, 10, 5, 6 * MS),
        look(2900, 4, 5, 6 * MS),
        look(3500, 50, 9, 9 * MS),
        look(4500, 11, 5, 9 * MS),
    ];
    let seen = Seen { done: 100, done_within: 60, longest_ns: 250 * MS, last_end_ns: 3 * SECOND };
    let reports = plan(&[queue()]).reports(&[seen, seen], &looks);
    let first = BurstReport {
        burst: 0,
        offered: 100,
        offered_per_s: 100.0,
        achieved_per_s: 60.0,
        left: 0,
        longest_wait_ms: 250.0,
        done_after_seconds: 1.0,
        waits_ms: BTreeMap::from([("l0".to_owned(), 6.0)]),
        memory_peak_bytes: Some(90),
        level_0_peak_files: Some(7),
        memory_back_seconds: Some(0.7),
        // Level 0 had five tables at the start of the burst.
        level_0_back_seconds: Some(1.5),
    };
    assert_eq!(reports[0], first);
    let second = &reports[1];
    assert_eq!((second.memory_back_seconds, second.level_0_back_seconds), (None, Some(0.5)));
    assert_eq!(second.waits_ms, BTreeMap::from([("l0".to_owned(), 3.0)]));
    let text = first.text();
    assert!(
        text.starts_with("60/s of 100/s offered (60 %), all done 1.0 s after it; longest wait"),
        "{text}"
    );
    assert!(
        text.ends_with("memory 90 B at most, back after 0.7 s; level 0 7 tables at most, back after 1.5 s")
    );
    assert!(second.text().contains("not back"));
}
