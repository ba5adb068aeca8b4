use super::*;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::{ErrorKind, Result};
use cache::Block;
use io::sim::SimEnv;
use std::path::Path;
use store::volumes::Location;
use table::FetchCost;

/// A request that needs a thread which may block. It counts those that were let go of.
struct Blocks(Arc<AtomicUsize>);

impl Drop for Blocks {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl ResumableRead for Blocks {
    fn step(&mut self, _: bool) -> ReadStep {
        ReadStep::Wants(Vec::new())
    }
    fn deliver(&mut self, _: &Want, _: Result<Block>, _: FetchCost) {}
    fn close_files(&mut self) {}
    fn forget(&mut self) {}
    fn needs_all(&self) -> bool {
        true
    }
    fn phase(&self) -> usize {
        0
    }
    fn resolve(self: Box<Self>) {}
}

/// A panic of the driver, a bug, leaves nobody waiting: neither who waits then, nor who comes after.
#[test]
fn a_driver_that_panics_takes_no_more() {
    let env = SimEnv::new(1).env();
    let context = Arc::new(Context::new(&env, Location::metered(&env, Path::new("/store"))));
    let gone = Arc::new(AtomicUsize::new(0));
    let reads = Reads::new(&context);
    let bring = || reads.inbox.push((reads.ticket(Box::new(Blocks(gone.clone()))), Vec::new()), || {});
    assert!(bring().is_ok() && bring().is_ok());
    reads.run(|_| panic!("a bug"));
    assert_eq!(gone.load(Ordering::Acquire), 2);
    assert!(bring().is_err(), "nobody would take it");
    assert_eq!(gone.load(Ordering::Acquire), 3);
    assert_eq!(context.health.check_sound().unwrap_err().kind(), ErrorKind::Poisoned);
}
