use super::*;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::{ErrorKind, Result};
use cache::Block;
use io::sim::SimEnv;
use std::path::Path;
use store::volumes::Location;
use table::FetchCost;

/// A request that needs a step which may block. It counts dropped requests.
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
    fn deliver(&mut self, _: &BlockRequest, _: Result<Block>, _: FetchCost) {}
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

/// A panic of the driver, a bug, leaves no request waiting, neither present ones nor later ones.
#[test]
fn a_driver_that_panics_refuses_further_requests() {
    let env = SimEnv::new(1).env();
    let context = Arc::new(Context::new(&env, Location::metered(&env, Path::new("/store"))));
    let gone = Arc::new(AtomicUsize::new(0));
    let reads = Reads::new(&context);
    let submit = || reads.inbox.push((reads.ticket(Box::new(Blocks(gone.clone()))), Vec::new()), || {});
    assert!(submit().is_ok() && submit().is_ok());
    reads.run(|_| panic!("a bug"));
    assert_eq!(gone.load(Ordering::Acquire), 2);
    assert!(submit().is_err(), "there is no driver");
    assert_eq!(gone.load(Ordering::Acquire), 3);
    assert_eq!(context.health.check_sound().unwrap_err().kind(), ErrorKind::Poisoned);
}
