use super::*;
use crate::write::commit::tests::with_little_memory;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::{ErrorKind, Result};
use cache::Block;
use io::sim::SimEnv;
use table::FetchCost;

/// A request that needs a thread which may block. It counts those that were let go of.
struct Blocks(Arc<AtomicUsize>);

impl Drop for Blocks {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl InFlight for Blocks {
    fn step(&mut self, _: bool) -> Stepped {
        Stepped::Wants(Vec::new())
    }
    fn put(&mut self, _: &Want, _: Result<Block>, _: FetchCost) {}
    fn close_files(&mut self) {}
    fn let_go(&mut self) {}
    fn needs_all(&self) -> bool {
        true
    }
    fn phase(&self) -> usize {
        0
    }
    fn tell(self: Box<Self>) {}
}

/// A panic of the driver, a bug, leaves nobody waiting: neither who waits then, nor who comes after.
#[test]
fn a_driver_that_panics_takes_no_more() {
    let db = with_little_memory(&SimEnv::new(1));
    let (context, gone) = (&db.engine().context, Arc::new(AtomicUsize::new(0)));
    let reads = Reads::new(context);
    let bring = || reads.inbox.push((reads.ticket(Box::new(Blocks(gone.clone()))), Vec::new()), || {});
    assert!(bring().is_ok() && bring().is_ok());
    reads.run(|_| panic!("a bug"));
    assert_eq!(gone.load(Ordering::Acquire), 2);
    assert!(bring().is_err(), "nobody would take it");
    assert_eq!(gone.load(Ordering::Acquire), 3);
    assert_eq!(context.health.check_sound().unwrap_err().kind(), ErrorKind::Poisoned);
}
