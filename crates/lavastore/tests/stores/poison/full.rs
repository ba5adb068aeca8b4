//! A full volume: every call that may allocate space is refused with `NoSpace`, and so are some
//! later calls. Then space is freed.

use super::script::{Item, LOGS, Machine, Told, new_store, round};
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore::{Db, LogStore, StoreFormat};
use std::collections::BTreeMap;
use std::time::Duration;

/// Calls that a full volume refuses without an unknown outcome for durable data.
const TAKES_ROOM: [OpKind; 10] = [
    OpKind::Create,
    OpKind::CreateInPlace,
    OpKind::CreateScratch,
    OpKind::CreateDir,
    OpKind::Append,
    OpKind::Reserve,
    OpKind::ScratchWrite,
    OpKind::WriteAt,
    OpKind::Rename,
    OpKind::Link,
];

const FORMATS: [StoreFormat; 2] = [StoreFormat::V1, StoreFormat::V2];
/// Number of rounds in which calls are refused.
const ROUNDS: u64 = 6;

/// One run of the script.
#[derive(Clone, Copy, Debug)]
struct Case {
    machine: Machine,
    format: StoreFormat,
    effect: FaultEffect,
    /// Index of the first refused call among those of `kinds`.
    nth: u64,
    /// Number of consecutive refusals; `None`: until space is freed.
    refusals: Option<u64>,
}

impl Case {
    fn inject(self, sim: &SimEnv, kinds: &[OpKind]) {
        let plan = |nth| FaultPlan::nth(nth, self.effect).kinds(kinds);
        match self.refusals {
            None => sim.inject(plan(self.nth).sticky()),
            Some(refusals) => (0..refusals).for_each(|more| sim.inject(plan(self.nth + more))),
        }
    }

    fn store(self) -> (SimEnv, Db, LogStore) {
        let sim = self.machine.start();
        let (db, logs) = new_store(self.machine, &sim);
        db.upgrade(self.format).unwrap();
        (sim, db, logs)
    }
}

/// The contents of a store.
type Contents = BTreeMap<Item, Vec<u8>>;

fn contents_of(db: &Db) -> lavastore::Result<Contents> {
    contents(db, &db.logs()?)
}

fn contents(db: &Db, logs: &LogStore) -> lavastore::Result<Contents> {
    let mut found = BTreeMap::new();
    for entry in db.iter() {
        let (key, value) = entry?;
        found.insert(Item::Key(String::from_utf8_lossy(&key).into_owned()), value.to_vec());
    }
    for name in LOGS {
        for record in logs.open_log(name)?.scan(..) {
            let (lsn, record) = record?;
            found.insert(Item::Record(name, lsn), record.to_vec());
        }
    }
    Ok(found)
}

/// Reasons why a case is wrong.
type Check<T> = Result<T, String>;

/// Runs the script with the refusals of a case. Returns the number of refusals and whether they
/// poisoned the store.
fn run(case: Case, kinds: &[OpKind]) -> Check<(u64, bool)> {
    let (sim, db, logs) = case.store();
    case.inject(&sim, kinds);
    let mut told = Told::default();
    for nth in 1..=ROUNDS {
        round(&db, &logs, nth, &mut told).map_err(|e| format!("round {nth}: {e}"))?;
        if nth == ROUNDS / 2 {
            told.other("checkpoint", db.checkpoint("/checkpoint"));
        }
    }
    let fired = sim.faults_fired();
    sim.clear_faults();
    let failures = std::mem::take(&mut told.failures);
    let is_poisoned = told.poisoned_at.is_some();
    let judged = match is_poisoned {
        true => stays_poisoned(case, &sim, (db, logs), told),
        false => goes_on(case, &sim, (db, logs), told),
    };
    judged.map(|()| (fired, is_poisoned)).map_err(|why| format!("{why}; failures before: {failures:?}"))
}

/// Checks that no acknowledged write is missing.
fn has_acknowledged(told: &Told, found: &Contents) -> Check<()> {
    // The rounds trim the first log.
    let trimmed = |item: &Item| matches!(item, Item::Record("log", lsn) if *lsn < 3 * (ROUNDS + 2));
    match told.acknowledged.iter().find(|item| !found.contains_key(item) && !trimmed(item)) {
        Some(lost) => Err(format!("{lost:?} was acknowledged and is missing")),
        None => Ok(()),
    }
}

/// Frees space and checks that the store continues without a reopen, and that all visible writes
/// are durable after syncs.
fn goes_on(case: Case, sim: &SimEnv, (db, logs): (Db, LogStore), mut told: Told) -> Check<()> {
    sim.advance_ns(1_000_000_000);
    db.wait_idle(Duration::from_secs(10));
    round(&db, &logs, ROUNDS + 1, &mut told).map_err(|e| format!("after room: {e}"))?;
    told.other("flush", db.flush());
    if !told.failures.is_empty() {
        return Err(format!("with room again: {:?}", told.failures));
    }
    let shown = contents(&db, &logs).map_err(|e| e.to_string())?;
    has_acknowledged(&told, &shown)?;
    if let Some(kept) = told.refused.iter().find(|item| shown.contains_key(item)) {
        return Err(format!("{kept:?} was refused and is shown"));
    }
    drop((db, logs));
    let found = after_a_loss_of_power(case, sim)?;
    let is_changed = |item: &&Item| found.get(item) != shown.get(item);
    match found.keys().chain(shown.keys()).find(is_changed) {
        Some(changed) => Err(format!("a loss of power changed {changed:?}")),
        None => Ok(()),
    }
}

/// Checks that no further write is acknowledged, and that acknowledged writes are present after a
/// reopen.
fn stays_poisoned(case: Case, sim: &SimEnv, (db, logs): (Db, LogStore), mut told: Told) -> Check<()> {
    round(&db, &logs, ROUNDS + 1, &mut told).map_err(|e| format!("after room: {e}"))?;
    if !told.acknowledged_after.is_empty() {
        return Err(format!("acknowledged in a poisoned store: {:?}", told.acknowledged_after));
    }
    drop((db, logs));
    // Buffered writes survive the death of the process only.
    let after = sim.crash(CrashKind::ProcessKill, case.nth);
    has_acknowledged(&told, &reopened(case, &after)?)
}

fn after_a_loss_of_power(case: Case, sim: &SimEnv) -> Check<Contents> {
    reopened(case, &sim.crash(CrashKind::PowerLoss, case.nth))
}

fn reopened(case: Case, sim: &SimEnv) -> Check<Contents> {
    let all = || contents_of(&case.machine.open(sim)?);
    all().map_err(|e| format!("opened again: {e}"))
}

/// Runs the script with refusals at every call of these kinds. Returns the number of runs and of
/// poisoned runs.
#[track_caller]
fn every_call_of(machine: Machine, kinds: &[OpKind], refusals: &[Option<u64>]) -> (u64, u64) {
    refused(machine, FaultEffect::NoSpace, kinds, refusals)
}

/// Same as [`every_call_of`] with another kind of refusal.
#[track_caller]
fn refused(machine: Machine, effect: FaultEffect, kinds: &[OpKind], refusals: &[Option<u64>]) -> (u64, u64) {
    let (mut runs, mut poisoned, mut wrong) = (0, 0, Vec::new());
    for (format, refusals) in FORMATS.iter().flat_map(|format| refusals.iter().map(|many| (*format, *many))) {
        for nth in 0.. {
            let case = Case { machine, format, effect, nth, refusals };
            match run(case, kinds) {
                Ok((0, _)) => break,
                Ok((_, is_poisoned)) => poisoned += u64::from(is_poisoned),
                Err(why) => wrong.push(format!("{case:?}: {why}")),
            }
            runs += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {runs} runs: {}", wrong.len(), wrong.join("\n"));
    (runs, poisoned)
}

#[test]
fn no_space_errors_do_not_poison_a_store() {
    let (runs, poisoned) = every_call_of(Machine::Directory, &TAKES_ROOM, &[Some(1), Some(2), Some(3), None]);
    assert!(runs > 500 && poisoned == 0, "{poisoned} of {runs} runs were poisoned");
}

#[test]
fn no_space_errors_do_not_poison_a_store_on_two_disks() {
    let (runs, poisoned) = every_call_of(Machine::TwoDisks, &TAKES_ROOM, &[Some(2), None]);
    assert!(runs > 250 && poisoned == 0, "{poisoned} of {runs} runs were poisoned");
}

/// The store rewrites the file elsewhere.
#[test]
fn no_space_in_a_sync_does_not_poison_a_store() {
    let (runs, poisoned) = every_call_of(Machine::Directory, &[OpKind::Sync], &[Some(1)]);
    assert!(runs > 50 && poisoned == 0, "{poisoned} of {runs} runs were poisoned");
}

/// After a sync without space, and without space for a copy, the outcome is unknown: the store
/// acknowledges nothing more.
#[test]
fn a_sync_without_space_loses_nothing_acknowledged() {
    let kinds = [&TAKES_ROOM[..], &OpKind::SYNCS].concat();
    let (runs, poisoned) = every_call_of(Machine::Directory, &kinds, &[Some(1), Some(2), None]);
    assert!(runs > 500 && poisoned > 50, "{poisoned} of {runs} runs were poisoned");
}

/// As on LavaFS, where the journal of names may lack space.
#[test]
fn no_space_for_directory_entries_does_not_poison_a_store() {
    let many = [Some(1), Some(2), Some(3), None];
    let (runs, poisoned) = refused(Machine::Directory, FaultEffect::NoRoom, &[OpKind::SyncDir], &many);
    assert!(runs > 50 && poisoned == 0, "{poisoned} of {runs} runs were poisoned");
}

/// A call without a free descriptor has done nothing; this includes a sync of a directory.
#[test]
fn a_lack_of_descriptors_does_not_poison_a_store() {
    let many = [Some(1), Some(2), None];
    let (runs, poisoned) = refused(Machine::Directory, FaultEffect::NoDescriptor, &[], &many);
    assert!(runs > 100 && poisoned == 0, "{poisoned} of {runs} runs were poisoned");
}
