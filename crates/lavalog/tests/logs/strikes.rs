//! A file system operation fails while a store of logs is opened and used. Acknowledged changes
//! remain, others are there completely or not at all, and no wrong data is read, both before and
//! after a reopen.

use super::model::{Driver, Model, contents, is_refusal, seen, summary};
use base::{ErrorKind, Result};
use io::sim::{CrashKind, FaultPlan, SimEnv};
use lavalog::{Durability, LogStore};

/// A log whose creation a stopped store refuses. If the call reaches a stopped LavaFS first, that
/// stops the store.
const ANOTHER: &str = "another";

fn without_another(mut found: Model) -> Model {
    found.remove(ANOTHER);
    found
}

/// Maximum duration of a temporary fault, simulated nanoseconds.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Opens a store.
pub type Open<'a> = &'a dyn Fn(&SimEnv) -> Result<LogStore>;

/// A closed store with a past, and its contents.
pub struct Lived {
    pub sim: SimEnv,
    pub model: Model,
}

impl Lived {
    /// Makes a past on a machine.
    pub fn on(sim: SimEnv, seed: u64, open: Open<'_>) -> Lived {
        let mut driver = Driver::new(seed);
        let store = open(&sim).unwrap();
        for n in 0..150 {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 40 == 39 {
                store.wait_idle().unwrap();
            }
        }
        store.close().unwrap();
        Lived { sim, model: driver.model }
    }

    /// Returns a copy of the machine, and a driver that continues there.
    pub fn again(&self, seed: u64) -> (SimEnv, Driver) {
        let sim = self.sim.fork(seed);
        let clock = sim.clone();
        let driver = Driver::continuing(seed, Box::new(move || clock.op_count()), self.model.clone());
        (sim, driver)
    }

    /// Continues on a copy of the machine with a fault. Returns false if nothing failed. `passes`:
    /// the fault is temporary, so the store may not stop. `loses`: whether the failure discarded
    /// data that was not durable, although the store continues in the same process.
    pub fn strikes(
        &self,
        seed: u64,
        (plan, passes): (FaultPlan, bool),
        open: Open<'_>,
        loses: &dyn Fn(&SimEnv) -> bool,
        told: &str,
    ) -> bool {
        let (sim, mut driver) = self.again(seed);
        sim.inject(plan);
        let opened = open(&sim);
        let ran = match &opened {
            Ok(store) => goes_on(&mut driver, store, 120).and_then(|()| store.wait_idle()),
            Err(_) => Ok(()),
        };
        let struck = sim.faults_fired() > 0;
        sim.clear_faults();
        if let Ok(store) = &opened {
            still_serves(&mut driver, store, &ran, told);
            if passes {
                sim.advance_ns(PATIENCE_NS);
                goes_on_again(&mut driver, store, &ran, told);
            }
        }
        for (kind, power) in [(CrashKind::ProcessKill, false), (CrashKind::PowerLoss, true)] {
            let left = sim.crash(kind, seed);
            let store = open(&left).unwrap_or_else(|e| panic!("{told}, {kind:?}: {e:#}"));
            let found = without_another(contents(&store));
            let may = driver.may_leave(&found, u64::MAX, power || loses(&sim));
            may.unwrap_or_else(|why| panic!("{told}, {kind:?}: {why}"));
            store.log("afterwards").unwrap().append(1, b"goes on", Durability::Durable).unwrap();
            store.wait_idle().unwrap();
        }
        struck
    }
}

/// Checks that everything continues after a temporary fault.
fn goes_on_again(driver: &mut Driver, store: &LogStore, ran: &Result<()>, told: &str) {
    let stopped = matches!(ran, Err(e) if e.kind() == ErrorKind::Poisoned);
    assert!(!stopped, "{told}: what passes by itself stopped the store: {ran:?}");
    let again = driver.resolve(store, &contents(store)).and_then(|()| goes_on(driver, store, 20));
    let again = again.and_then(|()| store.wait_idle());
    again.unwrap_or_else(|e| panic!("{told}: after {ran:?} it does not go on: {e:#}"));
    assert!(
        contents(store) == seen(&driver.model),
        "{told}: after {ran:?} and some more there is something else"
    );
}

/// Continues until the end or the first failure that is no refusal.
fn goes_on(driver: &mut Driver, store: &LogStore, calls: u64) -> Result<()> {
    for _ in 0..calls {
        match driver.one(store, Durability::Durable) {
            Err(e) if !is_refusal(e.kind()) => return Err(e),
            _ => {}
        }
        for _ in 0..driver.rng.below(4) {
            store.step();
        }
    }
    Ok(())
}

/// Checks that a store continues, or refuses writes after it stopped. Reads succeed in both cases.
fn still_serves(driver: &mut Driver, store: &LogStore, ran: &Result<()>, told: &str) {
    match ran {
        Ok(()) => driver.one(store, Durability::Durable).unwrap_or_else(|e| panic!("{told}: {e:#}")),
        Err(e) if e.kind() == ErrorKind::Poisoned => {
            let refused = store.log(ANOTHER).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Poisoned, "{told}: {refused}");
        }
        Err(_) => {}
    }
    let found = without_another(contents(store));
    let begun = driver.changes.last().map_or_else(|| driver.model.clone(), |change| change.after.clone());
    assert!(
        found == seen(&driver.model) || found == seen(&begun),
        "{told}, and {ran:?}: there is [{}], acknowledged is [{}], begun [{}]",
        summary(&found),
        summary(&driver.model),
        summary(&begun)
    );
}
