//! A loop that waits for completions from other threads never sleeps while there is one.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;

#[test]
fn loom_every_completion_reaches_the_queue() {
    check(3, || {
        let over: Arc<Over> = Arc::default();
        let tellers = [1, 2].map(|number| {
            let over = over.clone();
            thread::spawn(move || over.tell(number))
        });
        let mut sum = 0;
        while sum < 3 {
            match over.take() {
                Some(number) => sum += number,
                None => over.wait(None),
            }
        }
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
    });
}
