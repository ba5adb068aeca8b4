use super::*;
use crate::store_model::{Caller, Expectation, any_block_len, recover_all};
use io::sim::{CrashKind, SimEnv};
use io::{PAGE, Rng};

const STARTS: [u64; 2] = [1, (1 << 32) - 10];

fn rw(sim: &SimEnv, expected: &Expectation) -> (RecoveryReport, crate::store_model::Replayed) {
    recover_all(sim, &expected.manifest, RecoveryMode::ReadWrite)
        .unwrap_or_else(|e| panic!("{e}\n{}", sim.trace()))
}

/// Recovers, checks, then recovers again, also read-only, and checks for the same result.
fn recover_and_check(sim: &SimEnv, expected: &Expectation) -> (RecoveryReport, usize) {
    let (hash, staging_name) = (sim.state_hash(), expected.manifest.lane.staging_name());
    let path = crate::store_model::dir().join(staging_name);
    let staging = Staging::read(&sim.env(), &path, crate::store_model::store()).unwrap();
    let (peeked, seen) = recover_all(sim, &expected.manifest, RecoveryMode::ReadOnly).unwrap();
    assert_eq!(sim.state_hash(), hash, "read-only recovery writes nothing");
    let (report, replayed) = rw(sim, expected);
    assert_eq!((peeked.batches, &seen), (report.batches, &replayed));
    // Otherwise a page that was cut off could have the number of a later page.
    assert!(Some(report.next_lpn) > staging.highest_lpn, "{:?}", staging.highest_lpn);
    let kept = expected.check(&replayed);
    (report, kept)
}

/// Random operations, then a crash at every operation. Some of the states get a second life and a
/// second crash, on a device with another block length.
fn campaign(lane: Lane, seed: u64, kind: CrashKind, again: &mut u64) -> u64 {
    let mut rng = Rng::new(seed ^ 0xca);
    let caller = Caller::on(lane, seed, STARTS[rng.below(2) as usize]);
    crashes_of(caller, (seed, rng), kind, again)
}

fn crashes_of(mut caller: Caller, (seed, mut rng): (u64, Rng), kind: CrashKind, again: &mut u64) -> u64 {
    caller.tenants = [1, 2, 4][seed as usize % 3];
    for _ in 0..rng.range(5, 40) {
        caller.step().unwrap();
    }
    let record = caller.sim.record();
    let first = caller.manifests[0].0;
    let mut states = 0;
    for op in first..record.op_count() + 1 {
        let seed = rng.next_u64();
        let expected = caller.expectation(op, kind);
        let sim = record.crash_at(op, kind, seed);
        sim.set_block_len(any_block_len(seed));
        if rng.one_in(8) {
            second_life(&sim, &expected, &mut rng);
            *again += 1;
        } else {
            recover_and_check(&sim, &expected);
        }
        states += 1;
    }
    states
}

fn any_kind(rng: &mut Rng) -> CrashKind {
    if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLoss }
}

fn second_life(sim: &SimEnv, expected: &Expectation, rng: &mut Rng) {
    // A crash inside the recovery itself: no request was served, so the second recovery must only
    // keep the promises.
    let start = sim.op_count();
    rw(sim, expected);
    let op = rng.range(start, sim.op_count() + 1);
    let kind = any_kind(rng);
    let interrupted = sim.record().crash_at(op, kind, rng.next_u64());
    interrupted.set_block_len(any_block_len(rng.next_u64()));
    let mut weaker = expected.clone();
    if kind != CrashKind::ProcessKill {
        // Buffered batches may be lost now.
        weaker.required = weaker.durable;
    }
    let (report, kept) = recover_and_check(&interrupted, &weaker);

    // The store continues: the recovered batches are permanent now, and batches that were cut off
    // never return.
    let mut next = weaker.resume(interrupted, &report, kept, rng.next_u64());
    next.tenants = 1 + rng.below(3) as u8;
    for _ in 0..rng.below(12) {
        next.step().unwrap();
    }
    let op = rng.range(next.manifests[0].0, next.sim.op_count() + 1);
    let kind = any_kind(rng);
    let expected = next.expectation(op, kind);
    let crashed = next.sim.record().crash_at(op, kind, rng.next_u64());
    recover_and_check(&crashed, &expected);
}

#[test]
fn every_crash_leaves_a_prefix_with_all_acknowledged_writes() {
    let scale = std::env::var("LAVASTORE_WAL_CAMPAIGN").ok().and_then(|s| s.parse().ok()).unwrap_or(16);
    let (mut states, mut again) = (0, 0);
    for (seed, lane) in (0..scale).flat_map(|seed| Lane::ALL.map(|lane| (seed, lane))) {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            states += campaign(lane, seed, kind, &mut again);
        }
    }
    println!("{states} crash states, {again} with a second life");
    assert!(states > 1800);
}

mod ahead;
mod assembly;
mod begin;
mod crafted;
mod damage;
mod no_room;
mod read_on;
