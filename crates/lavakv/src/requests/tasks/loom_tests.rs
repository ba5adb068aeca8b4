//! Every interleaving of those who bring something and those who wait for it: nothing is left lying while somebody sleeps, and all end.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

fn worker(tasks: &Arc<Tasks<u8>>) -> thread::JoinHandle<u8> {
    let tasks = tasks.clone();
    thread::spawn(move || {
        let mut sum = 0;
        while let Some(task) = tasks.wait(|| 0) {
            sum += task;
            if task == 2 {
                // The last one: nothing comes any more.
                assert!(tasks.close().is_empty());
            }
        }
        sum
    })
}

/// Two workers, and two things to do, the second of which is brought when the first is done or under way: if nobody is woken for it all sleep,
/// which loom finds.
#[test]
fn loom_what_is_brought_is_done() {
    check(3, || {
        let tasks = Arc::new(Tasks::default());
        let workers = [worker(&tasks), worker(&tasks)];
        assert!(tasks.push(0, 1).is_ok());
        // First in, first out: the second is taken after the first.
        assert!(tasks.push(0, 2).is_ok());
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 3);
    });
}

/// Closed while somebody sleeps and somebody brings something: what was taken is done, what was not comes back.
#[test]
fn loom_nobody_sleeps_on_when_it_is_closed() {
    check(3, || {
        let tasks: Arc<Tasks<u8>> = Arc::default();
        let worker = {
            let tasks = tasks.clone();
            thread::spawn(move || std::iter::from_fn(|| tasks.wait(|| 0)).count())
        };
        let bringer = {
            let tasks = tasks.clone();
            thread::spawn(move || usize::from(tasks.push(0, 1).is_err()))
        };
        let left = tasks.close().len();
        assert_eq!(worker.join().unwrap() + bringer.join().unwrap() + left, 1);
    });
}
