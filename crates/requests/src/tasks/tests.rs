use super::*;

#[test]
fn what_is_due_comes_in_its_order() {
    let tasks = Tasks::of_threads(1);
    for (at_ns, task) in [(0, "now"), (30, "third"), (10, "first"), (10, "second")] {
        tasks.push(Class::Write, at_ns, task).unwrap();
    }
    assert!(tasks.is_ready(0) && tasks.pick(0, 7) == Some("now"));
    assert!(!tasks.is_ready(9) && tasks.pick(9, 7).is_none());
    assert_eq!(tasks.wait(|| 10, None), Some((Class::Write, "first")));
    assert_eq!(tasks.pick(10, 5), Some("second"));
    assert_eq!(tasks.close(), ["third"]);
    assert_eq!((tasks.push(Class::Write, 0, "late"), tasks.wait(|| 99, None)), (Err("late"), None));
}

#[test]
fn what_takes_long_waits_for_who_does_it_already() {
    let tasks = Tasks::of_threads(2);
    for (class, task) in [(Class::Long, "scan"), (Class::Long, "another"), (Class::Write, "write")] {
        tasks.push(class, 0, task).unwrap();
    }
    assert_eq!(tasks.wait(|| 0, None), Some((Class::Write, "write")));
    assert_eq!(tasks.wait(|| 0, Some((Class::Write, 10))), Some((Class::Long, "scan")));
    tasks.push(Class::Write, 0, "later").unwrap();
    assert_eq!(tasks.wait(|| 0, None), Some((Class::Write, "later")), "the other thread");
    assert_eq!(tasks.wait(|| 0, Some((Class::Long, 1000))), Some((Class::Long, "another")));
}
