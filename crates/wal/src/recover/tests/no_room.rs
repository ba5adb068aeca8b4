//! A full copy-on-write file system: writes to the staging file and to groups fail with `NoSpace`.

use super::*;
use crate::durability::Durability;
use base::ErrorKind;
use io::sim::{FaultEffect, FaultPlan, OpKind};

/// Random operations while space comes and goes, and a kill at every operation. Refused batches
/// must never be recovered.
fn life(lane: Lane, seed: u64, refused: &mut u64) {
    let mut rng = Rng::new(seed ^ 0xf0);
    let mut caller = Caller::on(lane, seed, STARTS[rng.below(2) as usize]);
    for _ in 0..rng.range(10, 50) {
        match rng.below(6) {
            0 => caller.sim.clear_faults(),
            1 => {
                let plan = FaultPlan::nth(rng.below(4), FaultEffect::NoSpace);
                let plan = if rng.one_in(2) { plan.sticky() } else { plan };
                caller.sim.inject(plan.kinds(&[OpKind::ScratchWrite, OpKind::WriteAt]));
            }
            _ => {}
        }
        match caller.step() {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NoSpace => *refused += 1,
            // A batch too large for the tail buffer, or a sync after a refused write, stops the
            // log.
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{e}");
                break;
            }
        }
    }
    let record = caller.sim.record();
    for op in caller.manifests[0].0..record.op_count() + 1 {
        let expected = caller.expectation(op, CrashKind::ProcessKill);
        recover_and_check(&record.crash_at(op, CrashKind::ProcessKill, rng.next_u64()), &expected);
    }
}

#[test]
fn a_batch_refused_for_space_is_never_recovered() {
    let mut refused = 0;
    for seed in 0..40 {
        life([Lane::FIRST, Lane::LOG][(seed / 2 % 2) as usize], seed, &mut refused);
    }
    assert!(refused > 20, "{refused}");
}

/// The pages of the refused batch get their numbers again, and the process dies while the staging
/// file has only some of the new ones.
#[test]
fn no_page_of_a_refused_batch_is_recovered_in_the_next() {
    for (seed, lane) in (0..40).flat_map(|seed| Lane::ALL.map(|lane| (seed, lane))) {
        let mut caller = Caller::on(lane, seed, 1);
        caller.append(2000, Durability::Buffered).unwrap();
        caller.sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::ScratchWrite]));
        assert_eq!(caller.append(9000, Durability::Buffered).unwrap_err().kind(), ErrorKind::NoSpace);
        let op = caller.sim.op_count();
        caller.append(4000, Durability::Buffered).unwrap();
        let (expected, record) = (caller.expectation(op, CrashKind::ProcessKill), caller.sim.record());
        for cut in 0..10 {
            recover_and_check(&record.crash_at(op, CrashKind::ProcessKill, cut), &expected);
        }
    }
}

/// The file also refuses to have the bytes erased. Meanwhile earlier batches are synced, and
/// appends are refused.
#[test]
fn unerased_bytes_of_a_refused_batch_are_never_recovered() {
    let mut refused = 0;
    for (seed, lane) in (0..40).flat_map(|seed| Lane::ALL.map(|lane| (seed, lane))) {
        let mut caller = Caller::on(lane, seed, 1);
        let buffered = caller.append(2000, Durability::Buffered).unwrap();
        let begun = caller.sim.op_count();
        caller.sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::ScratchWrite]).sticky());
        assert_eq!(caller.append(9000, Durability::Buffered).unwrap_err().kind(), ErrorKind::NoSpace);
        // If no byte of the batch was stored, none needs to be erased.
        if let Err(e) = caller.append(100, Durability::Durable) {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            refused += 1;
        }
        if seed % 2 == 0 {
            caller.sync(buffered).unwrap();
        }
        caller.sim.clear_faults();
        caller.append(4000, Durability::Buffered).unwrap();
        caller.put(300).unwrap();
        let record = caller.sim.record();
        for op in begun..record.op_count() + 1 {
            let expected = caller.expectation(op, CrashKind::ProcessKill);
            recover_and_check(&record.crash_at(op, CrashKind::ProcessKill, seed), &expected);
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn other_staging_failures_stop_the_log() {
    let mut caller = Caller::new(1, 1);
    caller.append(100, Durability::Buffered).unwrap();
    caller.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::ScratchWrite]));
    assert_eq!(caller.append(100, Durability::Buffered).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(caller.append(100, Durability::Buffered).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(caller.wal.close().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn durable_batches_are_not_staged() {
    let mut caller = Caller::new(1, 1);
    let staged = |caller: &Caller| caller.sim.count_ops(Some(OpKind::ScratchWrite), "");
    caller.put(2000).unwrap();
    assert_eq!(staged(&caller), 0);
    caller.append(100, Durability::Durable).unwrap();
    caller.append(100, Durability::Buffered).unwrap();
    assert_eq!(staged(&caller), 1, "together with the one that its place in the log depends on");
    let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
    assert_eq!(expected.required, 3);
    recover_and_check(&caller.sim.crash(CrashKind::ProcessKill, 1), &expected);
}
