//! Runs with crashes at any operation: the writes with their times, and the states that a crash may
//! leave.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Result, WriteOptions};

/// A write of a run, with the operations at which it began and was acknowledged.
struct Written {
    started: u64,
    acknowledged: u64,
    durable: bool,
    /// The contents of the store after it.
    state: Model,
}

/// A run of puts.
pub struct CrashRun {
    seed: u64,
    sim: SimEnv,
    writes: Vec<Written>,
    model: Model,
}

impl CrashRun {
    pub fn new(seed: u64, sim: &SimEnv) -> Self {
        CrashRun { seed, sim: sim.clone(), writes: Vec::new(), model: Model::new() }
    }

    /// Sets a key by `write`, durable or buffered.
    pub fn put(
        &mut self,
        durable: bool,
        (key, value): (Vec<u8>, Vec<u8>),
        write: impl FnOnce(&[u8], &[u8], &WriteOptions) -> Result<()>,
    ) {
        let options = if durable { WriteOptions::durable() } else { WriteOptions::buffered() };
        let started = self.sim.op_count();
        write(&key, &value, &options).unwrap();
        self.model.insert(key, value);
        let (acknowledged, state) = (self.sim.op_count(), self.model.clone());
        self.writes.push(Written { started, acknowledged, durable, state });
    }

    /// Checks the state after crashes of these kinds, up to `step_max` operations apart.
    pub fn crash_all_over(
        &self,
        kinds: &[CrashKind],
        step_max: u64,
        rng: &mut Rng,
        check: impl Fn(&SimEnv, u64, CrashKind, &mut Rng) -> Result<()>,
    ) {
        let (record, mut at) = (self.sim.record(), self.writes[0].started);
        while at <= self.sim.op_count() {
            for &kind in kinds {
                let after = record.crash_at(at, kind, rng.next_u64());
                check(&after, at, kind, rng)
                    .unwrap_or_else(|e| panic!("seed {}, operation {at}, {kind:?}: {e}", self.seed));
            }
            at += 1 + rng.below(step_max);
        }
    }

    /// Asserts that a crash at that operation may leave `found`.
    pub fn assert_explains(&self, at: u64, kind: CrashKind, found: &Model) {
        let promised = |w: &Written| w.acknowledged <= at && (w.durable || kind == CrashKind::ProcessKill);
        let least = self.writes.iter().rposition(promised).map_or(0, |n| n + 1);
        // The operation of the crash is done, and may be the first of a write.
        let most = self.writes.iter().filter(|w| w.started <= at).count();
        let empty = Model::new();
        let state = |n: usize| if n == 0 { &empty } else { &self.writes[n - 1].state };
        assert!((least..=most).any(|n| state(n) == found), "not the state after {least} to {most} writes");
    }
}
