use super::*;
use std::rc::Rc;

/// A process with its own cell: tests share one process.
fn process(cell: &'static AtomicU64) -> Process {
    Process { cell, mark: cell.load(Ordering::Relaxed) }
}

fn new_cell() -> &'static AtomicU64 {
    Box::leak(Box::new(AtomicU64::new(7)))
}

#[test]
fn an_old_process_mark_stays_refused_after_a_new_one() {
    let cell = new_cell();
    let parent = process(cell);
    assert!(parent.is_here() && parent.check().is_ok());
    cell.store(0, Ordering::Relaxed);
    let refused = parent.check().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forked);
    assert!(refused.message().contains("fork()"), "{refused}");
    cell.store(8, Ordering::Relaxed);
    assert!(!parent.is_here() && process(cell).is_here());
}

#[test]
fn process_marks_are_unique_and_nonzero() {
    let (one, other) = (Process::here(), Process::here());
    assert!(one.mark != 0 && one.mark == other.mark && one.is_here());
    assert!(LAST.load(Ordering::Relaxed) >= one.mark);
}

#[test]
fn values_are_dropped_in_the_parent_and_leaked_in_a_fork() {
    let (cell, counted) = (new_cell(), Rc::new(()));
    let owned =
        |counted: &Rc<()>| Owned { process: process(cell), value: ManuallyDrop::new(counted.clone()) };
    let (at_home, in_child, taken) = (owned(&counted), owned(&counted), owned(&counted));
    assert_eq!(Rc::strong_count(&counted), 4);
    drop(at_home);
    assert_eq!(Rc::strong_count(&counted), 3);
    drop(Owned::into_inner(taken.clone()));
    assert_eq!(Rc::strong_count(&counted), 3);
    cell.store(0, Ordering::Relaxed);
    drop(in_child);
    assert_eq!(Rc::strong_count(&counted), 3, "leaked");
    drop(Owned::into_inner(taken));
    assert_eq!(Rc::strong_count(&counted), 2, "who takes it out drops it");
}
