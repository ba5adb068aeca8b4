//! A poisoned store acknowledges no write of either engine. A full volume does not poison the
//! store.
//!
//! A script of blocking and asynchronous writes of keys and logs runs in simulation once for each
//! fault point: one I/O operation fails, or that operation and all later ones fail.

mod full;
mod script;

use io::sim::{FaultEffect, FaultPlan};
use script::{Machine, Told, new_store, round};

/// Runs the script; returns its number of operations and the answers.
fn run(machine: Machine, fault: Option<FaultPlan>) -> (u64, Told) {
    let sim = machine.start();
    let (db, logs) = new_store(machine, &sim);
    let begun = sim.op_count();
    if let Some(fault) = fault {
        sim.inject(fault);
    }
    let mut told = Told::default();
    for nth in 1..16 {
        round(&db, &logs, nth, &mut told).unwrap();
    }
    sim.clear_faults();
    let ops = sim.op_count() - begun;
    // The store stays poisoned after the device works again.
    round(&db, &logs, 16, &mut told).unwrap();
    (ops, told)
}

#[track_caller]
fn no_writer_is_acknowledged_once_it_is_poisoned(machine: Machine) {
    let (ops, told) = run(machine, None);
    assert!(ops > 300 && told.failures.is_empty(), "{ops} operations, {:?}", told.failures);
    let (mut poisoned, mut wrong) = (0, Vec::new());
    for nth in 0..ops {
        for is_sticky in [false, true] {
            let fault = FaultPlan::nth(nth, FaultEffect::Eio);
            let (_, told) = run(machine, Some(if is_sticky { fault.sticky() } else { fault }));
            poisoned += u64::from(told.poisoned_at.is_some());
            if !told.acknowledged_after.is_empty() {
                let (by, after) = (told.poisoned_at.unwrap(), told.acknowledged_after);
                wrong.push(format!("fault {nth}, sticky {is_sticky}: poisoned for {by}, and then {after:?}"));
            }
        }
    }
    assert!(poisoned > 100, "{poisoned} runs were poisoned");
    assert!(wrong.is_empty(), "{} runs: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_poisoned_store_acknowledges_no_writer() {
    no_writer_is_acknowledged_once_it_is_poisoned(Machine::Directory);
}

#[test]
fn a_poisoned_store_on_two_disks_acknowledges_no_writer() {
    no_writer_is_acknowledged_once_it_is_poisoned(Machine::TwoDisks);
}

#[test]
fn a_poisoned_store_on_lavafs_acknowledges_no_writer() {
    no_writer_is_acknowledged_once_it_is_poisoned(Machine::LavaFs);
}
