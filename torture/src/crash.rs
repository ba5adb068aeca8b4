//! Rows `crash` and `recrash`: a run is recorded once, and then the machine dies at many points of
//! it.
//!
//! After each crash the store must open unaided with the contents required by [`crate::history`].
//! Then it must accept more writes, die or close, and open again with exactly these in addition. In
//! `recrash` the machine dies again during recovery, several times in a row.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::driver::{
    Driver, DriverParameters, Model, compare, compare_checkpoint, families_of, scan, write_one,
};
use crate::files::{check_at_rest, check_opened};
use crate::history::{FamilyEntries, Loss};
use crate::machine;
use crate::machine::DIR;
use crate::plan::{self, Data};
use crate::state::Contents;
use crate::tally;
use crate::wide::Image;
use io::Rng;
use lavastore::inspect::log_contents;
use lavastore::testing::{CrashKind, Policy, Record, SimEnv};
use lavastore::{Db, Durability, ErrorKind, Options};
use std::path::Path;

/// Crash states tested per run.
const STATES: u64 = 24;
/// Maximum number of crashes in a row during recovery.
const DEATHS_MAX: u64 = 4;

/// A recorded run.
pub(crate) struct Recorded {
    pub driver: Driver,
    pub record: Record,
    ops: Vec<u64>,
}

/// Records a run, which ends with an open store that is abandoned.
pub(crate) fn record(seed: u64) -> Check<Recorded> {
    let mut rng = Rng::new(seed ^ 0x0063_7261_7368);
    let churn = rng.one_in(3);
    let knobs = DriverParameters {
        steps: rng.range(10, 60),
        reads: false,
        kills: false,
        volatile: rng.one_in(4),
        families: rng.one_in(2),
        checkpoints: rng.one_in(4),
        reopen: true,
        faults: false,
        first_number: 1,
        upkeep_one_in: [3, 8, 20][rng.below(3) as usize],
        options: if churn { plan::churn_options } else { plan::options },
    };
    let data = match rng.below(4) {
        _ if churn => Data::churn(&mut rng),
        0 => Data::new(&mut rng),
        _ => Data::small(&mut rng),
    };
    // Volatile batches over families until memtables are full, which must flush all their families.
    // (Drawn from a separate generator, so that recorded seeds keep their draws.)
    let mut aside = Rng::new(rng.clone().next_u64() ^ 0x766f_6c61_7469);
    let (knobs, data) = if knobs.volatile && knobs.families && aside.one_in(2) {
        (
            DriverParameters { steps: aside.range(60, 120), upkeep_one_in: 20, ..knobs },
            Data::churn(&mut aside),
        )
    } else {
        (knobs, data)
    };
    let mut driver = Driver::new(seed, knobs, data);
    driver.run().map_err(|why| format!("while recording: {why}"))?;
    driver.history.changed();
    let record = driver.sim.record();
    driver.abandon();
    let ops = record.mutations();
    ensure!(!ops.is_empty(), "the run changed nothing");
    Ok(Recorded { driver, record, ops })
}

pub(crate) fn kind(rng: &mut Rng) -> CrashKind {
    match kind_of_sectors(rng) {
        CrashKind::PowerLossWith(policy) => CrashKind::PowerLossWith(worse(policy, rng)),
        kind => kind,
    }
}

/// Draws a crash that leaves a version of each sector.
pub(crate) fn kind_of_sectors(rng: &mut Rng) -> CrashKind {
    match rng.below(7) {
        0 | 1 => CrashKind::ProcessKill,
        n => CrashKind::PowerLossWith(Policy::ALL[(n - 2) as usize]),
    }
}

/// Worsens a policy that tears writes: it may tear inside a sector or leave unreadable sectors.
/// LavaFS rewrites blocks with durable bytes, so its devices must write sectors atomically. (Drawn
/// from a separate generator, so that recorded seeds keep their draws.)
fn worse(policy: Policy, rng: &Rng) -> Policy {
    let mut aside = Rng::new(rng.clone().next_u64() ^ 0x776f_7273_6500);
    match aside.below(6) {
        0 | 1 if matches!(policy, Policy::Torn | Policy::Stale) => Policy::TornBytes,
        2 if matches!(policy, Policy::Torn | Policy::Stale) && !machine::is_lavafs() => Policy::Unreadable,
        _ => policy,
    }
}

pub(crate) fn loss(kind: CrashKind) -> Loss {
    if kind == CrashKind::ProcessKill { Loss::Process } else { Loss::Power }
}

/// Returns a crash at some operation, and the machine that it leaves.
pub(crate) fn crash(record: &Record, ops: &[u64], rng: &mut Rng) -> (u64, CrashKind, SimEnv) {
    let kind = kind(rng);
    let op = match rng.below(20) {
        0 => record.op_count(),
        _ => ops[rng.below(ops.len() as u64) as usize],
    };
    let seed = rng.next_u64();
    let sim =
        if rng.one_in(4) { record.crash_before(op, kind, seed) } else { record.crash_at(op, kind, seed) };
    (op, kind, sim)
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let run = match record(seed) {
        Ok(run) => run,
        Err(why) => return Outcome { failures: vec![why], ..Outcome::default() },
    };
    let mut rng = Rng::new(seed ^ 0x0065_6163_685f_7374);
    let mut outcome = Outcome::default();
    let steps = steps(&run, &mut rng);
    outcome.note("looks at the log", steps.len() as u64);
    for op in steps {
        let before = run.record.crash_before(op, CrashKind::ProcessKill, rng.next_u64());
        if let Err(why) = check_log(&run, &before, op, Loss::Process) {
            outcome.take(Err(format!("before operation {op}: {why}")));
            return outcome;
        }
    }
    each_state(seed, outcome, |rng| {
        let (op, kind, sim) = crash(&run.record, &run.ops, rng);
        let image = Image { hash: sim.state_hash(), is_wide: run.driver.widths.at(op) };
        let checked = guarded(|| recover(&run, &sim, op, loss(kind), rng)).and_then(|check| check);
        if checked.is_err() && std::env::var_os(TRACE).is_some() {
            trace(&run, &sim);
        }
        (image, checked.map_err(|why| format!("{kind:?} at operation {op}: {why}")))
    })
}

/// Maximum number of inspections of the log per run.
const LOOKS_MAX: usize = 24;

/// Returns the operations before which the log is inspected. Records leave the log with a manifest
/// edit, so of several inspections between two edits the last one sees them all. On LavaFS all
/// writes go to the volume's device.
fn steps(run: &Recorded, rng: &mut Rng) -> Vec<u64> {
    let mut ops = run.record.changes_of(if machine::is_lavafs() { "" } else { "MANIFEST" });
    while ops.len() > LOOKS_MAX {
        ops.swap_remove(rng.below(ops.len() as u64) as usize);
    }
    ops.sort_unstable();
    ops
}

/// Environment variable: print the history of a failure.
pub(crate) const TRACE: &str = "TORTURE_TRACE";

/// Prints the run and the recovery.
fn trace(run: &Recorded, sim: &SimEnv) {
    let history = &run.driver.history;
    history.writes.iter().enumerate().for_each(|(i, w)| println!("write {i}: {}", w.describe()));
    println!("families: {:?}\nbarriers: {:?}", history.families, history.barriers);
    println!("the run:\n{}\nafter the crash:\n{}", run.driver.sim.trace(), sim.trace());
}

pub(crate) fn case_recrash(_: &Context, seed: u64) -> Outcome {
    let run = match record(seed) {
        Ok(run) => run,
        Err(why) => return Outcome { failures: vec![why], ..Outcome::default() },
    };
    each_state(seed, Outcome::default(), |rng| {
        let (op, kind, mut sim) = crash(&run.record, &run.ops, rng);
        let is_wide = run.driver.widths.at(op);
        let (mut worst, mut story) = (loss(kind), format!("{kind:?} at operation {op}"));
        for _ in 0..rng.range(1, DEATHS_MAX + 1) {
            let options = plan::options(rng);
            // A failure to open shows again below, without another crash.
            let opened = guarded(|| machine::env(&sim).map(|env| drop(Db::open_in(&env, DIR, &options))))
                .and_then(|r| r);
            if let Err(why) = opened {
                return (sim.state_hash().into(), Err(format!("{story}: {why}")));
            }
            let record = sim.record();
            let ops = record.mutations();
            if ops.is_empty() {
                break;
            }
            let (op, kind, next) = crash(&record, &ops, rng);
            story += &format!(", then {kind:?} at operation {op} of recovery");
            if loss(kind) == Loss::Power {
                worst = Loss::Power;
            }
            sim = next;
        }
        let image = Image { hash: sim.state_hash(), is_wide };
        let checked = guarded(|| recover(&run, &sim, op, worst, rng)).and_then(|check| check);
        (image, checked.map_err(|why| format!("{story}: {why}")))
    })
}

/// Tests the crash states of a run: `try_one` returns the identity and the result of each.
pub(crate) fn each_state(
    seed: u64,
    mut outcome: Outcome,
    mut try_one: impl FnMut(&mut Rng) -> (Image, Check),
) -> Outcome {
    let mut rng = Rng::new(seed ^ 0x7374_6174_6573);
    for state in 0..STATES {
        let (image, checked) = try_one(&mut rng.fork());
        outcome.images.push(image);
        outcome.take(checked.map_err(|why| format!("state {state}: {why}")));
        if outcome.failures.len() > 2 {
            break;
        }
    }
    outcome
}

/// Opens the store after a crash, checks it, and continues with it.
fn recover(run: &Recorded, sim: &SimEnv, op: u64, loss: Loss, rng: &mut Rng) -> Check {
    let driver = &run.driver;
    let options = Options { durability: Durability::Durable, ..plan::options(rng) };
    check_log(run, sim, op, loss)?;
    let db = Db::open_in(&machine::env(sim)?, DIR, &options)
        .doing(|| format!("refused to open with {}", plan::describe(&options)))?;
    check_opened(&db, &machine::env(sim)?, DIR.as_ref())?;
    let found = scan(&db)?;
    driver.history.check(op, loss, &found)?;
    let (seq, least) = (db.snapshot().sequence(), driver.history.sequence_min(op, loss));
    ensure!(seq >= least, "a snapshot stands at sequence {seq}, and {least} was promised");
    compact_all(&db, &found, rng)?;
    spot_check(&db, &found, rng)?;
    check_verify(&db)?;
    let durable = driver.checkpoints.iter().rfind(|(_, end_op, _)| *end_op <= op);
    if let Some((dir, _, model)) = durable
        && rng.one_in(2)
    {
        compare_checkpoint(sim, dir, options.clone(), model)?;
    }
    go_on(db, &options, sim, &driver.data, found, rng)
}

/// Checks that promised data is in tables or in the log.
fn check_log(run: &Recorded, sim: &SimEnv, op: u64, loss: Loss) -> Check {
    let env = machine::env(sim)?;
    match log_contents(&env, Path::new(DIR)) {
        Ok(log) => run.driver.history.check_log(op, loss, &log),
        // No data was promised: there is no store yet, or the open will fail.
        Err(_) => Ok(()),
    }
}

pub(crate) fn check_verify(db: &Db) -> Check {
    let report = db.verify().doing(|| "verify".into())?;
    match report.errors.first() {
        Some(e) => Err(format!("verify: {e}")),
        None => Ok(()),
    }
}

/// Compacts everything to release data kept for snapshots that died with the process: no older
/// version and no deleted key may reappear. (Drawn from a separate generator, so that recorded
/// seeds keep their draws.)
fn compact_all(db: &Db, found: &FamilyEntries, rng: &Rng) -> Check {
    let mut aside = Rng::new(rng.clone().next_u64() ^ 0x636f_6d70_6163);
    if !aside.one_in(4) {
        return Ok(());
    }
    let before = found.iter().map(|(id, e)| (*id, Contents::from_entries(e.clone()))).collect();
    for family in families_of(db)? {
        match family.compact_range(..) {
            // The limit may be lower than before.
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            compacted => compacted.doing(|| "compact_range after recovery".into())?,
        }
    }
    compare(&before, &scan(db)?).map_err(|why| format!("after a compaction of everything: {why}"))
}

/// Checks point reads and a backward iteration against the scan.
fn spot_check(db: &Db, found: &FamilyEntries, rng: &mut Rng) -> Check {
    for family in families_of(db)? {
        let entries = &found[&family.id()];
        for _ in 0..3.min(entries.len()) {
            let nth = rng.below(entries.len() as u64) as usize;
            let Some((key, value)) = entries.iter().nth(nth) else { continue };
            let got = family.get(key).doing(|| "get".into())?;
            ensure!(
                got.as_deref() == Some(value.as_slice()),
                "get and scan disagree on {}",
                crate::check::show(key)
            );
        }
        let mut iterator = family.iter().cursor().doing(|| "iter".into())?;
        iterator.seek_to_last().doing(|| "seek_to_last".into())?;
        for (key, _) in entries.iter().rev().take(20) {
            ensure!(
                iterator.valid() && iterator.key() == key,
                "backwards, {} is missing",
                crate::check::show(key)
            );
            iterator.prev().doing(|| "prev".into())?;
        }
    }
    Ok(())
}

/// Writes more, ends the process in some way, and opens again: the store has exactly the old and
/// the new data.
pub(crate) fn go_on(
    db: Db,
    options: &Options,
    sim: &SimEnv,
    data: &Data,
    found: FamilyEntries,
    rng: &mut Rng,
) -> Check {
    let mut model: Model = found.into_iter().map(|(id, e)| (id, Contents::from_entries(e))).collect();
    let families = families_of(&db)?;
    for _ in 0..rng.below(5) {
        let family = &families[rng.below(families.len() as u64) as usize];
        let change = data.change(rng);
        let change = plan::with_merges(rng, family, change);
        match write_one(family, &change, Durability::Durable) {
            Ok(()) => model.get_mut(&family.id()).expect("listed").apply(&change),
            // The limit may be lower than before.
            Err(e) if e.kind() == ErrorKind::NoSpace && plan::is_tight(options) => {}
            Err(e) => return Err(format!("write after recovery: {e}")),
        }
        if rng.one_in(3) {
            db.engine().run_background_step();
        }
    }
    if rng.one_in(4) {
        db.flush().doing(|| "flush after recovery".into())?;
    }
    if rng.one_in(4) {
        check_at_rest(&db, &machine::env(sim)?, DIR.as_ref(), false)
            .map_err(|why| format!("after recovery: {why}"))?;
        compare(&model, &scan(&db)?).map_err(|why| format!("at rest after recovery: {why}"))?;
    }
    tally::add(&db);
    let after = match rng.below(3) {
        0 => {
            drop(families);
            db.close().doing(|| "close after recovery".into())?;
            sim.fork(rng.next_u64())
        }
        1 => sim.crash(CrashKind::ProcessKill, rng.next_u64()),
        _ => sim.crash(CrashKind::PowerLoss, rng.next_u64()),
    };
    let options = plan::options(rng);
    let db = Db::open_in(&machine::env(&after)?, DIR, &options)
        .doing(|| "refused to open the second time".into())?;
    compare(&model, &scan(&db)?).map_err(|why| format!("the second time: {why}"))?;
    if rng.one_in(4) { check_verify(&db) } else { Ok(()) }
}
