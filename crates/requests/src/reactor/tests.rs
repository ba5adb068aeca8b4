use super::*;
use crate::queues::OperationClass;
use crate::resumable::ReadStep;
use base::ErrorKind;
use base::completion::{Completer, pending};
use cache::Block;
use io::sim::SimEnv;
use std::path::Path;
use store::volumes::Location;
use table::FetchCost;

fn reactor(sim: &SimEnv, thread_count: usize) -> Arc<Reactor> {
    let env = sim.env();
    let location = Location::metered(&env, Path::new("/store"));
    Reactor::new(&Arc::new(Context::new(&env, location)), thread_count)
}

/// An operation of several steps, a millisecond apart.
struct Steps {
    left: u64,
    clock: Arc<Context>,
    done: Completer<&'static str>,
}

impl Operation for Steps {
    fn step(mut self: Box<Self>) -> Next {
        if self.left == 0 {
            self.done.resolve(Ok("done"));
            return Next::Done;
        }
        self.left -= 1;
        Next::At(self.clock.now_ns() + 1_000_000, self)
    }

    fn class(&self) -> OperationClass {
        OperationClass::Write
    }

    fn abandon(self: Box<Self>) {
        self.done.resolve(Ok("abandoned"));
    }
}

/// A read that needs this many steps which may block.
struct Blocks {
    left: u64,
    done: Completer<()>,
}

impl ResumableRead for Blocks {
    fn step(&mut self, may_block: bool) -> ReadStep {
        assert!(may_block, "it wants nothing of the device");
        if self.left == 0 {
            return ReadStep::Done;
        }
        self.left -= 1;
        ReadStep::Wants(Vec::new())
    }
    fn deliver(&mut self, _: &BlockRequest, _: Result<Block>, _: FetchCost) {}
    fn close_files(&mut self) {}
    fn forget(&mut self) {}
    fn needs_all(&self) -> bool {
        true
    }
    fn phase(&self) -> usize {
        0
    }
    fn resolve(self: Box<Self>) {
        self.done.resolve(Ok(()));
    }
}

#[test]
fn an_operation_runs_at_its_requested_times() {
    let sim = SimEnv::new(1);
    let reactor = reactor(&sim, 2);
    assert!(!reactor.is_ready() && !reactor.step());
    let ((done, mut told), clock) = (pending(), reactor.context.clone());
    reactor.push(Steps { left: 3, clock, done }).unwrap();
    for _ in 0..3 {
        assert!(reactor.step() && !reactor.is_ready() && told.take().is_none());
        sim.advance_ns(999_999);
        assert!(!reactor.is_ready());
        sim.advance_ns(1);
    }
    assert!(reactor.step());
    assert_eq!(told.take().unwrap().unwrap(), "done");
    assert!(!reactor.is_ready());
}

/// More scans than may be under way, and point reads beside them: all are resolved.
#[test]
fn reads_that_block_take_their_steps_as_operations() {
    let sim = SimEnv::new(2);
    let reactor = reactor(&sim, 2);
    let mut completions: Vec<_> = (0..200)
        .map(|n| {
            let (done, told) = pending();
            let read = Blocks { left: n % 4, done };
            if n % 2 == 0 { reactor.scan(read) } else { reactor.read(read, Vec::new()) }.unwrap();
            told
        })
        .collect();
    while reactor.step() {}
    assert!(completions.iter_mut().all(|told| told.take().is_some_and(|outcome| outcome.is_ok())));
}

#[test]
fn a_stop_resolves_all_that_is_left_and_refuses_more() {
    let sim = SimEnv::new(3);
    let reactor = reactor(&sim, 2);
    let clock = reactor.context.clone();
    let (done, mut abandoned) = pending();
    reactor.push_at(u64::MAX, Steps { left: 0, clock: clock.clone(), done }).unwrap();
    let mut reads: Vec<_> = (0..100)
        .map(|_| {
            let (done, told) = pending();
            reactor.scan(Blocks { left: 1, done }).unwrap();
            told
        })
        .collect();
    assert!(!reactor.is_closed());
    reactor.stop();
    assert!(reactor.is_closed() && !reactor.is_ready());
    assert_eq!(abandoned.take().unwrap().unwrap(), "abandoned");
    for told in &mut reads {
        assert_eq!(told.take().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
    assert_eq!(kind(reactor.push(Steps { left: 0, clock, done: pending().0 })), ErrorKind::Closed);
    assert_eq!(kind(reactor.scan(Blocks { left: 0, done: pending().0 })), ErrorKind::Closed);
    assert_eq!(kind(reactor.read(Blocks { left: 0, done: pending().0 }, Vec::new())), ErrorKind::Closed);
}

/// A panic of a step, a bug: the store is poisoned, the request is resolved, and the next operation
/// runs.
#[test]
fn a_step_that_panics_poisons_the_store() {
    struct Panics {
        _done: Completer<()>,
    }
    impl Operation for Panics {
        fn step(self: Box<Self>) -> Next {
            panic!("a bug")
        }
        fn class(&self) -> OperationClass {
            OperationClass::Read
        }
    }
    let sim = SimEnv::new(4);
    let reactor = reactor(&sim, 1);
    let ((done, mut told), (next, mut next_told)) = (pending(), pending());
    reactor.push(Panics { _done: done }).unwrap();
    reactor.push(Steps { left: 0, clock: reactor.context.clone(), done: next }).unwrap();
    while reactor.step() {}
    assert_eq!(told.take().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(next_told.take().unwrap().is_ok());
    assert_eq!(reactor.context.health.check_sound().unwrap_err().kind(), ErrorKind::Poisoned);
}
