use super::*;
use std::cell::Cell;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_steady_rate_is_even() {
    let schedule = Schedule::Steady(4000.0);
    let due: Vec<u64> = (0..5).map(|n| schedule.due_ns(n)).collect();
    assert_eq!(due, [0, 250_000, 500_000, 750_000, 1_000_000]);
    assert_eq!(schedule.due_ns(4000 * 600), 600 * SECOND);
    assert_eq!(schedule.due_before(SECOND), 4000);
    assert_eq!(schedule.due_before(SECOND + 1), 4001);
    assert_eq!(schedule.due_before(0), 0);
    assert_eq!(Schedule::Steady(0.5).due_before(SECOND), 1);
}

/// Ten seconds of every thirty.
const BURSTS: Bursts = Bursts { per_s: 3000.0, burst_ns: 10 * SECOND, idle_ns: 20 * SECOND };

fn bursts(per_s: f64) -> Schedule {
    Schedule::Bursts(Bursts { per_s, ..BURSTS })
}

#[test]
fn no_requests_are_due_between_bursts() {
    let schedule = bursts(3000.0);
    let within = |from: u64, to: u64| schedule.due_before(to * SECOND) - schedule.due_before(from * SECOND);
    for period in [0, 30, 300] {
        assert_eq!(within(period, period + 1), 3000);
        assert_eq!(within(period + 9, period + 10), 3000);
        assert_eq!(within(period + 10, period + 30), 0);
    }
    assert_eq!(schedule.due_before(300 * SECOND), 300_000);
    assert_eq!([0, 29_999, 30_000].map(|number| BURSTS.burst_of(number)), [0, 0, 1]);
    let due: Vec<u64> = (0..100_000).map(|n| schedule.due_ns(n)).collect();
    assert!(due.is_sorted());
}

#[test]
fn due_count_agrees_with_due_times() {
    for schedule in [Schedule::Steady(333.3), bursts(77.7), bursts(0.01)] {
        for ns in [1, SECOND / 3, 9 * SECOND, 10 * SECOND, 31 * SECOND, 100 * SECOND] {
            let count = schedule.due_before(ns);
            assert!(count == 0 || schedule.due_ns(count - 1) < ns, "{schedule:?} {ns}");
            assert!(schedule.due_ns(count) >= ns, "{schedule:?} {ns}");
        }
    }
}

/// Returns the requests that a client takes from a queue on a simulated clock, with a given
/// duration each.
fn taken(queue: &ArrivalQueue, took: impl Fn(u64) -> u64) -> Vec<(u64, u64, u64)> {
    let clock = Cell::new(queue.start_ns);
    let stop = AtomicBool::new(false);
    let mut all = Vec::new();
    while let Some((number, due_ns)) =
        queue.take_by(&stop, || clock.get(), |due| clock.set(clock.get().max(due)))
    {
        all.push((number, due_ns.unwrap_or(0), clock.get()));
        clock.set(clock.get() + took(number));
    }
    all
}

#[test]
fn requests_start_when_due_and_late_ones_back_to_back() {
    const MS: u64 = 1_000_000;
    let queue = ArrivalQueue::open(Schedule::Steady(1000.0), 5 * SECOND, 10 * MS, SECOND);
    // The third request takes 4 ms: the next ones are delayed, less and less so.
    let all = taken(&queue, |number| if number == 2 { 4 * MS } else { MS / 4 });
    let begun: Vec<(u64, u64)> = all.iter().map(|(n, due, begin)| (*n, (begin - due) / (MS / 4))).collect();
    let late = [0, 0, 0, 12, 9, 6, 3, 0, 0, 0];
    assert_eq!(begun, (0..).zip(late).collect::<Vec<_>>());
    assert!(all.iter().all(|(n, due, _)| *due == 5 * SECOND + n * MS));
    assert_eq!(queue.left().count(), 0);
}

#[test]
fn requests_left_at_the_end_keep_their_due_times() {
    let queue = ArrivalQueue::open(Schedule::Steady(10.0), 0, SECOND, SECOND);
    let all = taken(&queue, |_| SECOND / 2);
    assert_eq!(all.len(), 4, "one each half second, for two seconds");
    let left: Vec<(u64, u64)> = queue.left().collect();
    assert_eq!(left, (4..10).map(|n| (n, n * SECOND / 10)).collect::<Vec<_>>());
    assert_eq!(queue.end_ns(), 2 * SECOND);
}

#[test]
fn a_closed_loop_ends_by_number_or_by_time() {
    let by_number = ArrivalQueue::closed(0, 7, u64::MAX);
    assert_eq!(taken(&by_number, |_| 1).len(), 7);
    assert_eq!(by_number.left().count(), 0);
    let by_time = ArrivalQueue::closed(0, u64::MAX, 10);
    let all = taken(&by_time, |_| 3);
    assert_eq!(all.iter().map(|op| op.2).collect::<Vec<_>>(), [0, 3, 6, 9]);
}

#[test]
fn every_request_is_taken_by_exactly_one_client() {
    let queue = ArrivalQueue::closed(0, 20_000, u64::MAX);
    let stop = AtomicBool::new(false);
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let take = || {
            let mut own = Vec::new();
            while let Some((number, _)) = queue.take(&stop) {
                own.push(number);
            }
            assert!(own.is_sorted());
            own
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    all.sort();
    assert_eq!(all, (0..20_000).collect::<Vec<_>>());
}

#[test]
fn no_request_is_taken_after_a_stop() {
    let queue = ArrivalQueue::closed(0, 5, u64::MAX);
    assert!(queue.take(&AtomicBool::new(false)).is_some());
    assert_eq!(queue.take(&AtomicBool::new(true)), None);
    assert_eq!(queue.take(&AtomicBool::new(false)), Some((1, None)));
}
