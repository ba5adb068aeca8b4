//! Common part of the LavaLog rows: workloads on a store of logs with the test model of `lavalog`,
//! and required events.
//!
//! The model's driver draws operations. Here, single background steps run among them, so that
//! trims, truncations and appends fall between two steps of a job. The rows are submodules.

pub(crate) mod crash;
pub(crate) mod flip;
pub(crate) mod io_errors;
pub(crate) mod joint;
pub(crate) mod kill;
pub(crate) mod lives;
pub(crate) mod repair;

#[path = "../../crates/lavalog/tests/logs/model.rs"]
mod model;
#[path = "../../crates/lavalog/tests/logs/strikes.rs"]
mod strikes;

use crate::case::Outcome;
use crate::check::{Check, Doing};
use crate::machine::{self, DIR};
use crate::plan::{aside, pick};
use io::Rng;
use lavalog::{Durability, LogStore, Loggers, Options};
use lavastore::Access;
use lavastore::testing::SimEnv;
use model::Driver;
use std::path::Path;

/// Names of the events that a row of logs may be required to have counted.
pub(crate) mod seen {
    pub(crate) const SEALED: &str = "groups of logs sealed";
    pub(crate) const COLLECTED: &str = "files of logs collected";
    pub(crate) const COPIED: &str = "bytes of logs copied by collection";
    pub(crate) const DURING: &str = "trims and truncations while records were copied";
    pub(crate) const BATCHES: &str = "batches over several records";
    pub(crate) const TRIMS: &str = "trims of records";
    pub(crate) const TRUNCATIONS: &str = "truncations of records";
    pub(crate) const OVERWRITTEN: &str = "records written where others were truncated";
    pub(crate) const RECREATED: &str = "logs made again under the name of a deleted one";
    pub(crate) const REFUSED: &str = "operations refused for want of room";
    pub(crate) const STRUCK: &str = "operations of the file system that failed";
    pub(crate) const LOST: &str = "records reported as damaged";
    pub(crate) const HARMLESS: &str = "damaged copies of what is there twice";
    pub(crate) const LOST_KEYS: &str = "ranges of keys reported as lost";
    pub(crate) const LOST_LOGS: &str = "ranges of records reported as lost";
    pub(crate) const SAVED: &str = "damage that cost a repair nothing";
    pub(crate) const ACKNOWLEDGED: &str = "records acknowledged";
    pub(crate) const JOINT: &str = "batches of both engines";
    pub(crate) const FLUSHED: &str = "flushes of tables beside logs";
    pub(crate) const REFUSED_BOTH: &str = "batches of both engines refused for want of room";
    pub(crate) const STOPPED: &str = "stores that a failure stopped";
    pub(crate) const LACKED: &str = "lacks of descriptors";
    pub(crate) const CUT: &str = "ends of killed stores cut as torn";
    pub(crate) const OPENED_BESIDE: &str = "read-only opens beside commits";
    pub(crate) const REPEATED: &str = "read-only opens begun anew, since the writer changed the store";
    pub(crate) const NAMED: &str = "damaged files named beside writers";
    pub(crate) const ALONE: &str = "stores opened with one of two engines";
}

/// Draws options small enough to trigger all mechanisms.
fn options(rng: &mut Rng) -> Options {
    // With several concurrent log writes, the width is fixed or chosen adaptively.
    let is_found = aside(rng, 0x7769_6474_6800).one_in(4);
    let writes_max = if is_found { 0 } else { 1 + aside(rng, 0x6c6f_6767_6572).below(3) as usize };
    Options {
        loggers: Loggers { writes_max, threads_min: 0 },
        garbage_percent: pick(rng, &[10, 30, 30, 50, 80]),
        recent_bytes: pick(rng, &[0, 20 << 10, 16 << 20]),
        open_files_max: pick(rng, &[8, 512]),
        access: pick(rng, &[Access::Direct, Access::Buffered]),
        ..model::options()
    }
}

/// Opens the store of a machine.
fn open(sim: &SimEnv, options: &Options) -> Check<LogStore> {
    let env = machine::env(sim)?;
    LogStore::open(&env, Path::new(DIR), options).doing(|| format!("refused to open with {options:?}"))
}

/// Returns a driver whose clock is the operation count of a machine.
fn driver(sim: &SimEnv, seed: u64) -> Driver {
    let clock = sim.clone();
    Driver::with_clock(seed, Box::new(move || clock.op_count()))
}

/// Runs operations with background steps among them.
fn operate(store: &LogStore, driver: &mut Driver, watch: &mut Watch, count: u64) -> Check {
    for _ in 0..count {
        let durability = if driver.rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
        driver.one(store, durability).doing(|| "an operation".into())?;
        let steps = driver.rng.below(3);
        watch.steps(store, driver, steps);
        if driver.rng.one_in(40) {
            store.wait_idle().doing(|| "settle".into())?;
        }
    }
    Ok(())
}

/// Counts background events of a store.
#[derive(Default)]
struct Watch {
    /// Trims and truncations before the last step.
    cuts: u64,
    /// Trims and truncations between two steps of a job that copied records.
    during: u64,
    sealed: u64,
    collected: u64,
    copied: u64,
}

impl Watch {
    /// Runs some background steps.
    fn steps(&mut self, store: &LogStore, driver: &Driver, count: u64) {
        for _ in 0..count {
            let before = store.statistics().copied_bytes;
            store.step();
            let cuts = driver.done.trims + driver.done.truncations;
            if store.statistics().copied_bytes > before {
                self.during += cuts - self.cuts;
            }
            self.cuts = cuts;
        }
    }

    /// Adds the counts of a store before it is dropped.
    fn gone(&mut self, store: &LogStore) {
        let statistics = store.statistics();
        self.sealed += statistics.sealed_groups;
        self.collected += statistics.collected_files;
        self.copied += statistics.copied_bytes;
    }

    /// Records the counts.
    fn note(&self, driver: &Driver, outcome: &mut Outcome) {
        let done = driver.done;
        let counts = [
            (seen::SEALED, self.sealed),
            (seen::COLLECTED, self.collected),
            (seen::COPIED, self.copied),
            (seen::DURING, self.during),
            (seen::BATCHES, done.batches),
            (seen::TRIMS, done.trims),
            (seen::TRUNCATIONS, done.truncations),
            (seen::OVERWRITTEN, done.overwritten),
            (seen::RECREATED, done.recreated),
            (seen::REFUSED, done.refused),
        ];
        counts.into_iter().for_each(|(what, count)| outcome.note(what, count));
    }
}
