//! All interleavings of pushes and idle threads: no task is left behind while a thread sleeps, and
//! all threads end.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

fn worker(tasks: &Arc<Tasks<u8>>) -> thread::JoinHandle<u8> {
    let tasks = tasks.clone();
    thread::spawn(move || {
        let (mut sum, mut before) = (0, None);
        while let Some((class, task)) = tasks.wait(|| 0, before) {
            before = Some((class, 1));
            sum += task;
            if task == 2 {
                // The last task.
                assert!(tasks.close().is_empty());
            }
        }
        sum
    })
}

/// Two workers and two tasks. A push without a wake-up would leave both workers asleep, which loom
/// finds.
#[test]
fn loom_each_pushed_task_is_done() {
    check(3, || {
        let tasks = Arc::new(Tasks::of_threads(2));
        let workers = [worker(&tasks), worker(&tasks)];
        assert!(tasks.push(OperationClass::Write, 0, 1).is_ok());
        // First in, first out: the second is taken after the first.
        assert!(tasks.push(OperationClass::Write, 0, 2).is_ok());
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 3);
    });
}

/// Two workers, one of which may serve long tasks. The second long task waits for the end of the
/// first, whose worker takes it.
#[test]
fn loom_a_long_task_beyond_the_bound_is_done() {
    check(3, || {
        let tasks = Arc::new(Tasks::of_threads(2));
        let workers = [worker(&tasks), worker(&tasks)];
        assert!(tasks.push(OperationClass::Long, 0, 1).is_ok());
        assert!(tasks.push(OperationClass::Long, 0, 2).is_ok());
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 3);
    });
}

/// A close beside a sleeping worker and a push: a taken task is done, any other comes back.
#[test]
fn loom_a_close_wakes_all() {
    check(3, || {
        let tasks: Arc<Tasks<u8>> = Arc::new(Tasks::of_threads(1));
        let worker = {
            let tasks = tasks.clone();
            thread::spawn(move || std::iter::from_fn(|| tasks.wait(|| 0, None)).count())
        };
        let pusher = {
            let tasks = tasks.clone();
            thread::spawn(move || usize::from(tasks.push(OperationClass::Write, 0, 1).is_err()))
        };
        let left = tasks.close().len();
        assert_eq!(worker.join().unwrap() + pusher.join().unwrap() + left, 1);
    });
}
