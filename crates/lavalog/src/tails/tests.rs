use super::*;

#[test]
fn a_change_wakes_only_waiters_of_its_log() {
    let tails = RecordWaiters::default();
    tails.changed([1]);
    let (one, two) = (tails.enter(1), tails.enter(2));
    let seen = (one.changes(), two.changes());
    tails.changed([1, 3]);
    assert_eq!((one.changes(), two.changes()), (seen.0 + 1, seen.1));
    one.sleep(seen.0, Duration::MAX);
    let again = tails.enter(1);
    drop(one);
    assert_eq!(again.changes(), seen.0 + 1, "as long as one waits it is counted on");
    tails.wake_all();
    again.sleep(seen.0 + 1, Duration::MAX);
    two.sleep(seen.1, Duration::MAX);
    drop((again, two));
    assert!(lock(&tails.logs).is_empty() && tails.waiting.load(Ordering::SeqCst) == 0);
}
