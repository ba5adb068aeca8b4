//! All interleavings of scans that begin and end: each begins, and never more than the bound.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;

/// Enters, and if it begins lets queued scans begin at its end. Returns the number of scans that
/// began.
fn pass(gate: &ScanGate<u8>, one: u8) -> usize {
    let Entered::Begins(_) = gate.enter(one, false) else { return 0 };
    let mut begun = 1;
    while gate.next(true, false).is_some() {
        begun += 1;
    }
    begun
}

/// Without room one scan is under way at a time, and its end lets the next begin.
#[test]
fn loom_each_finished_scan_starts_a_queued_one() {
    check(3, || {
        let gate = Arc::new(ScanGate::default());
        let others = [1, 2].map(|one| {
            let gate = gate.clone();
            thread::spawn(move || pass(&gate, one))
        });
        let own = pass(&gate, 0);
        let begun: usize = others.map(|other| other.join().unwrap()).into_iter().sum();
        assert_eq!(own + begun, 3);
        let state = model::lock(&gate.state);
        assert!(state.begun == 0 && state.queued.is_empty());
    });
}

/// A close beside a new scan: the scan begins, is refused, or comes back from the queue.
#[test]
fn loom_a_close_empties_the_queue() {
    check(3, || {
        let gate: Arc<ScanGate<u8>> = Arc::default();
        let Entered::Begins(_) = gate.enter(0, false) else { panic!("the first") };
        let other = {
            let gate = gate.clone();
            thread::spawn(move || usize::from(matches!(gate.enter(1, false), Entered::Closed)))
        };
        let left = gate.close().len();
        let next = usize::from(gate.next(true, false).is_some());
        assert_eq!(other.join().unwrap() + left + next, 1);
    });
}
