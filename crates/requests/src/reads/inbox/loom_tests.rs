//! All interleavings of pushes and the thread that takes items, which sleeps here or elsewhere: no
//! item is left behind while it sleeps, and it ends.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

/// Sleeping place of a thread that has something else to wait for. It keeps wake-ups.
struct Elsewhere {
    /// True after a wake-up.
    woken: Mutex<bool, rank::ReadQueue>,
    wake: Condvar,
}

impl Elsewhere {
    fn new() -> Arc<Elsewhere> {
        Arc::new(Elsewhere { woken: Mutex::new(false), wake: Condvar::new() })
    }

    fn wake(&self) {
        *model::lock(&self.woken) = true;
        self.wake.notify_one();
    }

    fn sleep(&self) {
        let mut woken = model::lock(&self.woken);
        while !*woken {
            woken = model::wait(&self.wake, woken);
        }
        *woken = false;
    }
}

/// Takes until the inbox is closed. Returns the number of items. The thread has something else to
/// wait for every second time, or never.
fn take_all(inbox: &Inbox<u8>, elsewhere: &Elsewhere, has_else: bool) -> usize {
    let (mut taken, mut turn) = (0, 0);
    while let Some(some) = inbox.take(has_else && turn % 2 == 0) {
        if some.is_empty() {
            elsewhere.sleep();
        }
        taken += some.len();
        turn += 1;
    }
    taken
}

/// Two pushes, then a close: each item is taken or comes back, and the thread ends.
fn no_item_is_lost(has_else: bool) {
    check(3, move || {
        let (inbox, elsewhere) = (Arc::new(Inbox::default()), Elsewhere::new());
        let taker = {
            let (inbox, elsewhere) = (inbox.clone(), elsewhere.clone());
            thread::spawn(move || take_all(&inbox, &elsewhere, has_else))
        };
        let pusher = {
            let (inbox, elsewhere) = (inbox.clone(), elsewhere.clone());
            thread::spawn(move || usize::from(inbox.push(1, || elsewhere.wake()).is_err()))
        };
        assert!(inbox.push(2, || elsewhere.wake()).is_ok());
        let left = inbox.close(|| elsewhere.wake()).len();
        assert_eq!(taker.join().unwrap() + pusher.join().unwrap() + left, 2);
    });
}

#[test]
fn loom_a_thread_that_sleeps_here_takes_each_item() {
    no_item_is_lost(false);
}

#[test]
fn loom_a_thread_that_sleeps_elsewhere_takes_each_item() {
    no_item_is_lost(true);
}

/// Without a close: a push without a wake-up would leave the thread asleep, which loom finds.
#[test]
fn loom_each_push_wakes_the_thread() {
    for has_else in [false, true] {
        check(3, move || {
            let (inbox, elsewhere) = (Arc::new(Inbox::default()), Elsewhere::new());
            let pushers = [1, 2].map(|one: u8| {
                let (inbox, elsewhere) = (inbox.clone(), elsewhere.clone());
                thread::spawn(move || assert!(inbox.push(one, || elsewhere.wake()).is_ok()))
            });
            let (mut sum, mut turn) = (0, 0);
            while sum < 3 {
                let some = inbox.take(has_else && turn % 2 == 0).unwrap();
                if some.is_empty() {
                    elsewhere.sleep();
                }
                sum += some.into_iter().sum::<u8>();
                turn += 1;
            }
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        });
    }
}
