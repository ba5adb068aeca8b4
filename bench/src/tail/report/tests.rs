use super::*;

const MS: u64 = 1_000_000;

fn sample(seconds: f64, bytes: u64, waits_ns: &[(&str, u64)]) -> Space {
    let waits_ns = waits_ns.iter().map(|(cause, ns)| ((*cause).to_owned(), *ns)).collect();
    Space { seconds, bytes, waits_ns, ..Space::default() }
}

#[test]
fn waits_are_attributed_to_the_second_they_occur_in() {
    let samples = [
        sample(0.0, 10, &[("memory", 5 * MS), ("l0", 0)]),
        sample(1.0, 30, &[("memory", 5 * MS), ("l0", 300 * MS)]),
        sample(2.1, 20, &[("memory", 9 * MS), ("l0", 300 * MS), ("log", MS)]),
        // During settling.
        sample(3.2, 20, &[("memory", 99 * MS), ("l0", 300 * MS), ("log", MS)]),
    ];
    let mut timeline = vec![Second::default(); 2];
    seen(&samples, &mut timeline);
    let waits = |at: usize| timeline[at].waits_ms.iter().map(|(c, ms)| (c.as_str(), *ms)).collect::<Vec<_>>();
    assert_eq!(waits(0), [("l0", 300.0)]);
    assert_eq!(waits(1), [("log", 1.0), ("memory", 4.0)]);
    assert_eq!([timeline[0].space_bytes, timeline[1].space_bytes], [10, 30]);
}

#[test]
fn a_backlog_at_the_end_is_reported() {
    let mut report = TailReport { kept_up: true, ..TailReport::default() };
    assert!(report.table().contains("kept up"));
    report.kept_up = false;
    assert!(report.table().contains("FELL BEHIND: the last was done"));
    report.ops_left = 1234;
    assert!(report.table().contains("FELL BEHIND: 1,234 never begun"));
}

#[test]
fn waits_are_reported_by_cause() {
    let mut report = TailReport::default();
    assert_eq!(report.waits(), "the engine does not say");
    report.wait_seconds = Some(1.5);
    report.waits_seconds = BTreeMap::from([("l0".to_owned(), 1.5), ("log".to_owned(), 0.0)]);
    report.waits_counted = BTreeMap::from([("stops".to_owned(), 3)]);
    assert_eq!(report.waits(), "1.500 s of all writers together: l0 1.500 s, stops 3 times");
}

#[test]
fn writes_and_reads_share_progress_but_not_latencies() {
    let recorder = |ops: &[(u64, u64)]| {
        let mut record = Recorder::by_second(0);
        ops.iter().for_each(|(due, end)| record.complete(due * MS, end * MS, 1, 10));
        record
    };
    // A write waits for most of a second, and reads complete behind it only at the end.
    let done = Done {
        writes: vec![recorder(&[(0, 900)])],
        reads: vec![recorder(&[(0, 1), (500, 905), (1500, 1501)])],
        tallies: Vec::new(),
        seconds: 2.0,
    };
    let all = done.all();
    assert_eq!((all.ops, all.by_second.as_slice()), (4, [3, 1].as_slice()));
    assert_eq!(all.stalls, Stalls { windows: 8, longest_slots: 89 });
    assert_eq!(merge(&done.writes).stalls.windows, 8);
    assert_eq!(merge(&done.reads).latency_by_second[0].len(), 2);
}
