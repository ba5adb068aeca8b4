use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn poll<T>(self: &Arc<Self>, completion: &mut Completion<T>) -> Poll<Result<T>> {
        let waker = Waker::from(self.clone());
        Pin::new(completion).poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn the_last_polling_task_is_woken_and_gets_one_answer() {
    let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (completer, mut completion) = pending::<u8>();
    assert!(first.poll(&mut completion).is_pending());
    assert!(last.poll(&mut completion).is_pending());
    assert!(last.poll(&mut completion).is_pending());
    assert!(completion.take().is_none(), "who only looks is nobody to wake");
    completer.resolve(Ok(7));
    assert_eq!((first.woken(), last.woken()), (0, 1));
    assert!(matches!(last.poll(&mut completion), Poll::Ready(Ok(7))));
    assert!(last.poll(&mut completion).is_pending() && completion.take().is_none());
    // A resolved completion needs no completer.
    assert_eq!(Completion::known(Ok(8)).take().map(Result::unwrap), Some(8));
}

#[test]
fn dropping_either_side_of_a_completion_ends_the_wait() {
    let task = Arc::new(Count::default());
    let (completer, mut completion) = pending::<()>();
    assert!(task.poll(&mut completion).is_pending());
    drop(completer);
    assert_eq!(task.woken(), 1);
    assert_eq!(completion.take().map(|answer| answer.unwrap_err().kind()), Some(ErrorKind::Closed));
    // A dropped future misses neither its waker nor its answer.
    let (completer, mut dropped) = pending::<Arc<Count>>();
    assert!(task.poll(&mut dropped).is_pending());
    drop(dropped);
    let answer = Arc::new(Count::default());
    completer.resolve(Ok(answer.clone()));
    assert_eq!(Arc::strong_count(&answer), 1, "the answer has gone with those who could ask for it");
}

#[test]
fn a_callback_runs_once_on_resolve_or_drop() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let completer = || {
        let told = told.clone();
        Completer::<u8>::calling(move |answer| told.lock().unwrap().push(answer.map_err(|e| e.kind())))
    };
    completer().resolve(Ok(7));
    drop(completer());
    assert_eq!(*told.lock().unwrap(), [Ok(7), Err(ErrorKind::Closed)]);
}
