//! Lives of a store with both engines, with a crash at every operation.

use crate::life::{Found, Life, find_left};
use crate::simulated;
use io::Rng;
use io::sim::{CrashKind, Policy, SimEnv};

#[test]
fn both_engines_recover_from_a_crash_at_every_operation() {
    let (mut states, mut moments) = (0, 0);
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
        for nth in 0..3 {
            life.live(20 + rng.below(60));
            let record = life.sim.record();
            let ops = record.mutations();
            for &op in &ops {
                if !rng.one_in(3) {
                    continue;
                }
                let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
                let left = record.crash_at(op, kind, seed);
                life.judge(find_left(&left, simulated, rng.below(8)).0, op, kind);
                states += 1;
            }
            moments += ops.len();
            // The life continues from one of the crashes.
            let op = ops[rng.below(ops.len() as u64) as usize];
            let left = record.crash_at(op, CrashKind::PowerLoss, seed + 1);
            let (at, _) = find_left(&left, simulated, 0);
            life.judge(at, op, CrashKind::PowerLoss);
            life = Life::new(left.crash(CrashKind::ProcessKill, nth), simulated, rng.next_u64(), at);
        }
    }
    assert!(states > 500, "{states} states of {moments}");
}

/// A durable batch of both engines is next to sectors that became unreadable in a power failure.
/// LavaKV alone must not mistake the record lane for one without the batch.
#[test]
fn a_batch_beside_unreadable_sectors_is_not_missed() {
    let mut alone = 0;
    for seed in 0..20 {
        let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
        life.live(12);
        let record = life.sim.record();
        for op in record.mutations() {
            let kind = CrashKind::PowerLossWith(Policy::Unreadable);
            let left = record.crash_at(op, kind, seed);
            let (found, was_alone) = find_left(&left, simulated, 1);
            life.judge(found, op, kind);
            alone += u64::from(was_alone);
        }
    }
    assert!(alone > 500, "LavaKV was opened alone {alone} times");
}
