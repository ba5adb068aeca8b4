//! Every interleaving of those who come and those who leave: all begin, and never more than may.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;

/// Takes its turn, if it has one, and lets in who comes next. How many it let begin.
fn pass(gate: &Gate<u8>, one: u8) -> usize {
    let Entered::Begins(_) = gate.enter(one, false) else { return 0 };
    let mut begun = 1;
    while gate.next(true, false).is_some() {
        begun += 1;
    }
    begun
}

/// Without room one is under way at a time: whoever stands in line is let in by who leaves.
#[test]
fn loom_who_leaves_lets_in_who_waits() {
    check(3, || {
        let gate = Arc::new(Gate::default());
        let others = [1, 2].map(|one| {
            let gate = gate.clone();
            thread::spawn(move || pass(&gate, one))
        });
        let own = pass(&gate, 0);
        let begun: usize = others.map(|other| other.join().unwrap()).into_iter().sum();
        assert_eq!(own + begun, 3);
        let state = model::lock(&gate.state);
        assert!(state.begun == 0 && state.line.is_empty());
    });
}

/// Closed while somebody comes: it begins, comes back, or was in line.
#[test]
fn loom_nobody_stands_in_line_when_it_is_closed() {
    check(3, || {
        let gate: Arc<Gate<u8>> = Arc::default();
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
