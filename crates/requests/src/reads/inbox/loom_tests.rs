//! Every interleaving of those who bring something and the thread that takes it, which sleeps here or elsewhere: nothing is left lying while it
//! sleeps, and it ends.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

/// Where the thread sleeps if it has something else to wait for: a wake-up is kept for it.
struct Elsewhere {
    /// Whether it was woken.
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

/// Takes until it is closed: how much it took. It has something else to wait for every second time, or never.
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

/// Two bring something, and the second of them closes it when both have: whatever was brought is taken or comes back, and the thread ends.
fn nothing_is_lost(has_else: bool) {
    check(3, move || {
        let (inbox, elsewhere) = (Arc::new(Inbox::default()), Elsewhere::new());
        let taker = {
            let (inbox, elsewhere) = (inbox.clone(), elsewhere.clone());
            thread::spawn(move || take_all(&inbox, &elsewhere, has_else))
        };
        let bringer = {
            let (inbox, elsewhere) = (inbox.clone(), elsewhere.clone());
            thread::spawn(move || usize::from(inbox.push(1, || elsewhere.wake()).is_err()))
        };
        assert!(inbox.push(2, || elsewhere.wake()).is_ok());
        let left = inbox.close(|| elsewhere.wake()).len();
        assert_eq!(taker.join().unwrap() + bringer.join().unwrap() + left, 2);
    });
}

#[test]
fn loom_what_is_brought_is_taken_by_who_sleeps_here() {
    nothing_is_lost(false);
}

#[test]
fn loom_what_is_brought_is_taken_by_who_sleeps_elsewhere() {
    nothing_is_lost(true);
}

/// Nobody closes it: if the thread were not woken for what is brought, it would sleep for ever, which loom finds.
#[test]
fn loom_the_thread_wakes_for_each() {
    for has_else in [false, true] {
        check(3, move || {
            let (inbox, elsewhere) = (Arc::new(Inbox::default()), Elsewhere::new());
            let bringers = [1, 2].map(|one: u8| {
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
            bringers.into_iter().for_each(|bringer| bringer.join().unwrap());
        });
    }
}
