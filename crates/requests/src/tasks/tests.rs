use super::*;

#[test]
fn due_tasks_run_in_order() {
    let tasks = Tasks::of_threads(1);
    for (at_ns, task) in [(0, "now"), (30, "third"), (10, "first"), (10, "second")] {
        tasks.push(OperationClass::Write, at_ns, task).unwrap();
    }
    assert!(tasks.is_ready(0) && tasks.pick(0, 7) == Some("now"));
    assert!(!tasks.is_ready(9) && tasks.pick(9, 7).is_none());
    assert_eq!(tasks.wait(|| 10, None), Some((OperationClass::Write, "first")));
    assert_eq!(tasks.pick(10, 5), Some("second"));
    assert_eq!(tasks.close(), ["third"]);
    assert_eq!((tasks.push(OperationClass::Write, 0, "late"), tasks.wait(|| 99, None)), (Err("late"), None));
}

#[test]
fn a_long_task_over_the_limit_waits_for_another_to_end() {
    let tasks = Tasks::of_threads(2);
    for (class, task) in
        [(OperationClass::Long, "scan"), (OperationClass::Long, "another"), (OperationClass::Write, "write")]
    {
        tasks.push(class, 0, task).unwrap();
    }
    assert_eq!(tasks.wait(|| 0, None), Some((OperationClass::Write, "write")));
    assert_eq!(tasks.wait(|| 0, Some((OperationClass::Write, 10))), Some((OperationClass::Long, "scan")));
    tasks.push(OperationClass::Write, 0, "later").unwrap();
    assert_eq!(tasks.wait(|| 0, None), Some((OperationClass::Write, "later")), "the other thread");
    assert_eq!(tasks.wait(|| 0, Some((OperationClass::Long, 1000))), Some((OperationClass::Long, "another")));
}
