//! Row `log-crash`: a workload on a store of logs is recorded, and then the machine dies at many
//! points of it.
//!
//! After each crash the store must open unaided in one of the states that the test model of
//! `lavalog` allows. Then it runs more operations, while its jobs continue, and opens again with
//! exactly these in addition.

use super::model::{Driver, Model, contents, seen};
use super::{Watch, driver, open, operate, options};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{crash, each_state, loss};
use crate::history::Loss;
use crate::machine;
use crate::wide::{Image, Widths};
use io::Rng;
use lavalog::{Durability, LogStore};
use lavastore::testing::{CrashKind, SimEnv};

/// Runs sessions that end with a drop of the store.
fn live(sim: &SimEnv, driver: &mut Driver, watch: &mut Watch, widths: &mut Widths) -> Check {
    // Longer workloads do more collection.
    let most = [150, 400][driver.rng.below(2) as usize];
    for _ in 0..driver.rng.range(1, 4) {
        let options = options(&mut driver.rng);
        widths.begin(sim.op_count(), options.loggers.writes_max > 1);
        let store = open(sim, &options)?;
        ensure!(contents(&store) == seen(&driver.model), "a store that was dropped holds something else");
        let count = driver.rng.range(40, most);
        operate(&store, driver, watch, count)?;
        watch.gone(&store);
    }
    Ok(())
}

/// Opens the store after a crash, checks it, and continues with it.
fn recover(life: &Driver, sim: &SimEnv, op: u64, kind: CrashKind, rng: &mut Rng) -> Check {
    let store = open(sim, &options(rng))?;
    let power = loss(kind) == Loss::Power;
    let count = life.may_leave(&contents(&store), op, power)?;
    let mut next = Driver::new(rng.next_u64());
    next.model = life.after(count);
    retrim(&life.after(life.promised(op, power)), &store, &next.model)?;
    for _ in 0..rng.below(30) {
        next.one(&store, Durability::Durable).doing(|| "an operation after recovery".into())?;
        if rng.one_in(3) {
            store.step();
        }
    }
    if rng.one_in(4) {
        store.wait_idle().doing(|| "settle after recovery".into())?;
        ensure!(contents(&store) == seen(&next.model), "at rest after recovery it holds something else");
    }
    next.sync(&store).doing(|| "sync after recovery".into())?;
    let after = sim.crash(CrashKind::PowerLoss, rng.next_u64());
    drop(store);
    let store = open(&after, &options(rng))?;
    ensure!(contents(&store) == seen(&next.model), "the second time it holds something else");
    Ok(())
}

/// Repeats a trim without a promised or visible effect, since its state after a crash is unknown.
fn retrim(promised: &Model, store: &LogStore, model: &Model) -> Check {
    for (name, log) in model {
        if promised.get(name).is_none_or(|promised| log.trimmed_below > promised.trimmed_below) {
            let trim = store.open_log(name).and_then(|found| found.trim(log.trimmed_below));
            trim.doing(|| format!("trim {name} again"))?;
        }
    }
    Ok(())
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let sim = machine::new(seed);
    let mut driver = driver(&sim, seed);
    let (mut watch, mut widths) = (Watch::default(), Widths::default());
    let lived = guarded(|| live(&sim, &mut driver, &mut watch, &mut widths)).and_then(|lived| lived);
    if let Err(why) = lived {
        outcome.failures.push(format!("while recording: {why}"));
        return outcome;
    }
    watch.note(&driver, &mut outcome);
    let record = sim.record();
    let ops = record.mutations();
    each_state(seed, outcome, |rng| {
        let (op, kind, left) = crash(&record, &ops, rng);
        let image = Image { hash: left.state_hash(), is_wide: widths.at(op) };
        let checked = guarded(|| recover(&driver, &left, op, kind, rng)).and_then(|checked| checked);
        (image, checked.map_err(|why| format!("{kind:?} at operation {op}: {why}")))
    })
}
