//! Power failures anywhere in such histories; the store is then opened with any engines.

use crate::machine::{B, BOTH, Here, Model, check, check_engines, step};
use base::ErrorKind;
use io::Rng;
use io::sim::{CrashKind, FaultEffect, FaultPlan, SimEnv};
use lavastore_store::manifest::Engine;
use std::collections::BTreeMap;

/// The accepted states by edit number, and for each operation the edit that was durable before it.
#[derive(Default)]
struct History {
    models: BTreeMap<u64, Model>,
    acknowledged: Vec<(u64, u64)>,
}

/// Runs sessions of one store with changing engines.
fn sessions(sim: &SimEnv, seed: u64) -> History {
    let (mut history, mut model, mut rng) = (History::default(), Model::default(), Rng::new(seed));
    for session in 0..5 {
        let here = if session == 0 { BOTH } else { Here::any(&mut rng) };
        let manifest = if session == 0 { here.create(sim).unwrap() } else { here.recover(sim).unwrap() };
        for _ in 0..6 {
            history.models.insert(manifest.durable_edit(), model.clone());
            history.acknowledged.push((sim.op_count(), manifest.durable_edit()));
            step(&manifest, here, &mut rng, &mut model).unwrap();
            if rng.one_in(4) {
                manifest.commits().roll().unwrap();
            }
        }
        history.models.insert(manifest.durable_edit(), model.clone());
        history.acknowledged.push((sim.op_count(), manifest.durable_edit()));
        manifest.commits().confirm().unwrap();
    }
    history
}

#[test]
fn every_crash_keeps_acknowledged_edits_of_every_engine() {
    let (mut tried, mut rng) = (0, Rng::new(5));
    for seed in 0..8 {
        let sim = SimEnv::new(seed);
        let history = sessions(&sim, seed);
        let record = sim.record();
        for op in record.mutations() {
            for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss, CrashKind::PowerLoss] {
                let what = format!("seed {seed} op {op} {kind:?}");
                let after = record.crash_at(op, kind, rng.next_u64());
                let acknowledged =
                    history.acknowledged.iter().filter(|(at, _)| *at <= op).map(|(_, e)| *e).max();
                // The first open continues the history and rolls the manifest.
                let here = Here::any(&mut rng);
                let manifest = match here.recover(&after) {
                    Err(e) if acknowledged.is_none() && e.kind() == ErrorKind::NotFound => continue,
                    recovered => recovered.unwrap_or_else(|e| panic!("{what}: {e}")),
                };
                let edit = manifest.state().edit_number;
                assert!(Some(edit) >= acknowledged, "{what}: {edit}");
                let mut model = history.models[&edit].clone();
                check(&manifest.state(), here, &model);
                step(&manifest, here, &mut rng, &mut model).unwrap();
                manifest.commits().roll().unwrap();
                drop(manifest);
                check(&BOTH.recover(&after).unwrap().state(), BOTH, &model);
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// A full disk refuses changes and rolls, and an absent engine loses nothing.
#[test]
fn a_full_disk_loses_nothing_of_an_absent_engine() {
    let (mut refused, mut made) = (0, 0);
    for nth in 0..60 {
        let (sim, mut rng) = (SimEnv::new(nth), Rng::new(nth));
        let (mut model, manifest) = (Model::default(), BOTH.create(&sim).unwrap());
        for _ in 0..12 {
            step(&manifest, BOTH, &mut rng, &mut model).unwrap();
        }
        drop(manifest);
        let only_a = Here { a: true, b: false };
        let manifest = only_a.recover(&sim).unwrap();
        let plan = FaultPlan::nth(nth % 20, FaultEffect::NoSpace);
        sim.inject(if nth % 2 == 0 { plan } else { plan.sticky() });
        for _ in 0..6 {
            let outcome = step(&manifest, only_a, &mut rng, &mut model.clone())
                .and_then(|()| manifest.commits().roll());
            (refused, made) = (refused + u32::from(outcome.is_err()), made + u32::from(outcome.is_ok()));
        }
        sim.clear_faults();
        drop(manifest);
        // The absent engine still has its former state.
        model.parts.retain(|id, _| *id == B::ID);
        check_engines(&BOTH.recover(&sim).unwrap().state(), BOTH, &model);
    }
    assert!(refused > 50 && made > 50, "{refused} refused, {made} made");
}
