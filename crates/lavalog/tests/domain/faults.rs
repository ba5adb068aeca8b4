//! Operations of the file system that fail, and volumes without room, under both engines at once.

use crate::life::{DIR, Found, Life, find, open_with};
use crate::simulated;
use crate::strikes::{Past, Room, Struck, limited};
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};

/// The calls that need a descriptor.
const OPENS: [OpKind; 6] = [
    OpKind::Open,
    OpKind::Create,
    OpKind::CreateInPlace,
    OpKind::OpenInPlace,
    OpKind::CreateScratch,
    OpKind::List,
];

fn past(seed: u64) -> Past {
    let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
    life.live(60);
    life.live(60);
    Past { sim: life.sim.clone(), found: life.now, env: simulated }
}

/// Each seventh operation fails; how many stores went on, and how many were stopped.
fn fails_everywhere(plan: impl Fn(u64) -> FaultPlan, passes: bool) -> (u64, u64) {
    let (past, mut went_on, mut stopped) = (past(1), 0, 0);
    for nth in (0..).step_by(7) {
        match past.strikes(nth, plan(nth), passes, &|_| false) {
            Struck::Nothing => break,
            Struck::WentOn => went_on += 1,
            Struck::Stopped => stopped += 1,
        }
    }
    (went_on, stopped)
}

#[test]
fn neither_engine_loses_what_it_acknowledged_when_an_operation_fails() {
    let (went_on, stopped) = fails_everywhere(|nth| FaultPlan::nth(nth, FaultEffect::Eio), false);
    assert!(went_on > 3 && stopped > 20, "{went_on} {stopped}");
}

#[test]
fn neither_engine_loses_what_it_acknowledged_when_operations_fail_from_one_on() {
    let (_, stopped) = fails_everywhere(|nth| FaultPlan::nth(nth + 1, FaultEffect::Eio).sticky(), false);
    assert!(stopped > 20, "{stopped}");
}

#[test]
fn neither_engine_gives_anything_up_while_there_are_no_descriptors() {
    let plan = |nth| FaultPlan::nth(nth, FaultEffect::NoDescriptor).kinds(&OPENS);
    let (once, stopped) = fails_everywhere(plan, true);
    assert!(once > 3 && stopped == 0, "{once} {stopped}");
    let (lasting, stopped) = fails_everywhere(|nth| plan(nth).sticky(), true);
    assert!(lasting > 3 && stopped == 0, "{lasting} {stopped}");
}

struct Simulated;

impl Room for Simulated {
    fn set(&self, sim: &SimEnv, more: Option<u64>) {
        sim.set_capacity(more.map(|more| sim.used() + more));
    }

    fn watch(&self, sim: &SimEnv) {
        sim.watch(DIR);
    }

    fn peak(&self, sim: &SimEnv) -> u64 {
        sim.peak()
    }

    fn trims_pass(&self) -> bool {
        true
    }
}

#[test]
fn a_full_volume_refuses_batches_of_both_whole() {
    let (mut refused, mut of_both) = (0, 0);
    for seed in 0..8 {
        let more = [0, 100 << 10, 400 << 10, 900 << 10][seed as usize % 4];
        let counts = past(seed).fills_up(seed, &Simulated, more);
        (refused, of_both) = (refused + counts.0, of_both + counts.1);
    }
    assert!(of_both > 8 && refused > of_both, "{refused} {of_both}");
}

#[test]
fn a_limit_that_is_reached_refuses_batches_of_both_whole() {
    let mut of_both = 0;
    for seed in 0..8 {
        of_both += past(seed).reaches_limit(seed, &Simulated, (seed % 3) * (200 << 10)).1;
    }
    assert!(of_both > 4, "{of_both}");
}

/// Processes that die soon leave the groups in which their logs began to the next, each.
#[test]
fn a_store_at_its_limit_is_opened_again_and_again_below_it() {
    for seed in 0..8 {
        let past = past(seed);
        let (mut sim, life, limit) = past.at_limit(seed, &Simulated, (seed % 3) * (200 << 10));
        let mut found = life.now;
        for nth in 0..20 {
            sim = sim.crash(CrashKind::ProcessKill, seed + nth);
            sim.watch(DIR);
            let mut life = Life::new(sim.clone(), past.env, seed + nth, found);
            let (db, logs) = open_with(&(past.env)(&sim).unwrap(), DIR, limited(limit)).unwrap();
            assert_eq!(find(&db, &logs), found, "life {nth}");
            life.go_on(&db, &logs, [0, 0, 0, 6][nth as usize % 4]).unwrap();
            found = life.now;
            let most = sim.peak();
            assert!(most <= limit, "seed {seed}, life {nth}: {most} bytes were occupied of {limit}");
        }
    }
}
