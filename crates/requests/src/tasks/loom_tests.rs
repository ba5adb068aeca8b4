//! Every interleaving of those who bring something and those who wait for it: nothing is left lying while somebody sleeps, and all end.

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
        let tasks = Arc::new(Tasks::of_threads(2));
        let workers = [worker(&tasks), worker(&tasks)];
        assert!(tasks.push(Class::Write, 0, 1).is_ok());
        // First in, first out: the second is taken after the first.
        assert!(tasks.push(Class::Write, 0, 2).is_ok());
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 3);
    });
}

/// Two workers, of which one may be at what takes long: two such things, the second of which nobody may begin while the first is under way. Who
/// comes back from that takes it.
#[test]
fn loom_what_may_not_begin_is_not_left_lying() {
    check(3, || {
        let tasks = Arc::new(Tasks::of_threads(2));
        let workers = [worker(&tasks), worker(&tasks)];
        assert!(tasks.push(Class::Long, 0, 1).is_ok());
        assert!(tasks.push(Class::Long, 0, 2).is_ok());
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 3);
    });
}

/// Closed while somebody sleeps and somebody brings something: what was taken is done, what was not comes back.
#[test]
fn loom_nobody_sleeps_on_when_it_is_closed() {
    check(3, || {
        let tasks: Arc<Tasks<u8>> = Arc::new(Tasks::of_threads(1));
        let worker = {
            let tasks = tasks.clone();
            thread::spawn(move || std::iter::from_fn(|| tasks.wait(|| 0, None)).count())
        };
        let bringer = {
            let tasks = tasks.clone();
            thread::spawn(move || usize::from(tasks.push(Class::Write, 0, 1).is_err()))
        };
        let left = tasks.close().len();
        assert_eq!(worker.join().unwrap() + bringer.join().unwrap() + left, 1);
    });
}
