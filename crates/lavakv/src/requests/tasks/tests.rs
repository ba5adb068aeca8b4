use super::*;

#[test]
fn what_is_due_comes_first_and_in_its_order() {
    let tasks = Tasks::default();
    for (at_ns, task) in [(0, "now"), (30, "third"), (10, "first"), (10, "second")] {
        tasks.push(at_ns, task).unwrap();
    }
    assert!(tasks.is_ready(0) && tasks.pick(0, 7) == Some("now"));
    assert!(!tasks.is_ready(9) && tasks.pick(9, 7).is_none());
    assert_eq!(tasks.wait(|| 10), Some("first"));
    assert_eq!(tasks.pick(10, 5), Some("second"));
    assert_eq!(tasks.close(), ["third"]);
    assert_eq!((tasks.push(0, "late"), tasks.wait(|| 99)), (Err("late"), None));
}
