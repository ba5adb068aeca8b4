//! Row `log-flip`: a closed store of logs is damaged and opened.
//!
//! Damage is as in the row `flip`. Every answer must be correct, or a typed error that names a
//! file: an existing record is never reported as absent, and behind the end of a log nothing is
//! reported as damaged. Scans agree with reads. Damage to an index file, a cold file or a
//! checkpoint copy does not prevent the open, and damage to that copy affects no answer. Then the
//! store continues: its jobs meet the damage, appends succeed unless the store has stopped, and
//! answers stay correct, even after a reopen.

use super::model::{Change, Driver, Model, OneLog};
use super::{Watch, driver, operate, options, seen};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::flip::{DAMAGES, Damage, break_a_file, mounted, names_a_file};
use crate::machine::{self, DIR};
use io::Rng;
use lavalog::{Durability, LogHandle, LogStore, Lsn};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Kinds of damaged files: log groups, index files, checkpoints, cold files, and those of every
/// store.
pub(super) const KINDS: [&str; 11] = [
    ".log",
    ".log",
    ".log",
    ".e1-1",
    ".e1-2",
    ".e1-3",
    ".e1-3",
    "/MANIFEST",
    "/CURRENT",
    "/STAGING",
    "/LOCK",
];

pub(super) struct LogFlipStore {
    /// The final state.
    pub sim: SimEnv,
    /// An earlier state.
    pub older: SimEnv,
    pub model: Model,
    /// The successive states of the model.
    changes: Vec<Change>,
}

/// Results of a damage.
#[derive(Default)]
struct LogDamageCounts {
    /// Number of failed answers.
    errors: u64,
    /// Number of lost records.
    lost: u64,
}

impl LogFlipStore {
    pub fn make(seed: u64, outcome: &mut Outcome) -> Check<LogFlipStore> {
        let sim = machine::new(seed);
        let (mut driver, mut watch) = (driver(&sim, seed), Watch::default());
        let mut session = |driver: &mut Driver| -> Check {
            let options = options(&mut driver.rng);
            let store = super::open(&sim, &options)?;
            let count = driver.rng.range(100, 500);
            operate(&store, driver, &mut watch, count)?;
            watch.gone(&store);
            store.close().doing(|| "close".into())
        };
        session(&mut driver)?;
        let older = sim.fork(seed);
        session(&mut driver)?;
        watch.note(&driver, outcome);
        Ok(LogFlipStore { sim: sim.fork(seed), older, model: driver.model, changes: driver.changes })
    }

    /// Returns the first content of a log that was never written to any log.
    pub fn strange_in(&self, found: &OneLog) -> Option<String> {
        let was = |is: &dyn Fn(&OneLog) -> bool| self.changes.iter().rev().any(|c| c.after.values().any(is));
        let was_record =
            |lsn: &Lsn, bytes: &Arc<[u8]>| was(&|log: &OneLog| log.records.get(lsn) == Some(bytes));
        let strange = found.records.iter().find(|(lsn, bytes)| !was_record(lsn, bytes));
        let is_strange = found.metadata.is_some() && !was(&|log: &OneLog| log.metadata == found.metadata);
        strange.map(|(lsn, _)| format!("record {lsn}")).or_else(|| is_strange.then(|| "metadata".into()))
    }

    /// Opens the store and reads everything.
    fn look(&self, sim: &SimEnv, damage: &Damage, rng: &mut Rng) -> Check<LogDamageCounts> {
        let all_is_lost = LogDamageCounts { errors: 1, lost: 0 };
        let Some(env) = mounted(sim)? else { return Ok(all_is_lost) };
        let store = match LogStore::open(&env, Path::new(DIR), &options(rng)) {
            Ok(store) => store,
            Err(e) => {
                // A file with an unknown version is not read, whatever else it says.
                ensure!(!opens(damage) || e.kind() == ErrorKind::Unsupported, "refused to open: {e}");
                return names_a_file(&e, "open").map(|()| all_is_lost);
            }
        };
        let mut model = self.model.clone();
        if rng.one_in(3) {
            // Background work that meets the damage must not propagate it.
            (0..rng.below(60)).for_each(|_| _ = store.step());
        }
        let seen = ask(&store, &model, damage)?;
        ensure!(!costs_nothing(damage) || seen.errors == 0, "{} answers were errors", seen.errors);
        if !go_on(&store, &mut model)? {
            return Ok(seen);
        }
        let again = ask(&store, &model, damage).map_err(|why| format!("later: {why}"))?;
        ensure!(again.lost <= seen.lost, "{} records were lost, then {}", seen.lost, again.lost);
        let left = sim.crash(CrashKind::ProcessKill, rng.next_u64());
        drop(store);
        match LogStore::open(&machine::env(&left)?, Path::new(DIR), &options(rng)) {
            Ok(store) => {
                ask(&store, &model, damage).map(drop).map_err(|why| format!("opened again: {why}"))?
            }
            Err(e) => names_a_file(&e, "open, the second time,")?,
        }
        Ok(seen)
    }
}

/// Returns true if the store must still open: the damaged data has a copy, can be rebuilt, or is
/// known to be lost.
fn opens(damage: &Damage) -> bool {
    let ends = |ending: &str| damage.path.ends_with(ending);
    damage.other.is_none() && (ends(".e1-1") || ends(".e1-2") || ends(".e1-3"))
}

/// Returns true if every answer must still be correct, since there is a copy.
fn costs_nothing(damage: &Damage) -> bool {
    opens(damage) && damage.path.ends_with(".e1-2")
}

/// Checks that a read error names the damaged file.
fn names_it(e: &Error, what: &str, damage: &Damage) -> Check {
    names_a_file(e, what)?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let named = e.file().and_then(|path| path.file_name()?.to_str().map(str::to_owned)).unwrap_or_default();
    let is_it =
        [Some(&damage.path), damage.other.as_ref()].into_iter().flatten().any(|path| name(path) == named);
    ensure!(is_it || damage.path.is_empty(), "{what} blames another file: {e}");
    Ok(())
}

/// Checks that every answer is correct or an error that names a file.
fn ask(store: &LogStore, model: &Model, damage: &Damage) -> Check<LogDamageCounts> {
    let names = store.list_logs("", usize::MAX);
    ensure!(names.iter().eq(model.keys()), "logs {names:?}, not {:?}", model.keys());
    let mut seen = LogDamageCounts::default();
    for (name, own) in model {
        let log = store.open_log(name).doing(|| format!("open {name}"))?;
        ask_one(&log, own, damage, &mut seen).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(seen)
}

fn ask_one(log: &LogHandle, own: &OneLog, damage: &Damage, seen: &mut LogDamageCounts) -> Check {
    let metadata = log.metadata().doing(|| "metadata".into())?;
    ensure!(metadata.as_deref() == own.metadata.as_deref(), "other metadata");
    let end = own.records.keys().next_back().map_or(own.trimmed_below, |last| last + 1);
    let mut read = Vec::new();
    for lsn in own.trimmed_below..end {
        let wanted = own.records.get(&lsn).map(|bytes| &bytes[..]);
        match log.read(lsn) {
            Ok(found) => {
                ensure!(found.as_deref() == wanted, "record {lsn} is {}", told(found.as_deref(), wanted));
                read.extend(wanted.map(|_| lsn));
            }
            Err(e) => {
                names_it(&e, "read", damage)?;
                seen.errors += 1;
                seen.lost += u64::from(wanted.is_some());
            }
        }
    }
    // A truncation may have removed the last record.
    let last = log.last_lsn().doing(|| "last".into())?.map_or(end, |last| end.max(last + 1));
    let behind = log.read(last).doing(|| "a read behind the end".into())?;
    ensure!(behind.is_none(), "record {last} behind the end");
    let scanned = scan(log, own, end, damage)?;
    let is_new = |lsn: &&Lsn| !scanned.contains(lsn);
    ensure!(
        scanned == read,
        "a scan has {} records, reads had {}; the first that it lacks is {:?}",
        scanned.len(),
        read.len(),
        read.iter().find(is_new)
    );
    Ok(())
}

fn told(found: Option<&[u8]>, wanted: Option<&[u8]>) -> String {
    let len =
        |bytes: Option<&[u8]>| bytes.map_or("absent".into(), |bytes| format!("one of {} B", bytes.len()));
    format!("{}, not {}", len(found), len(wanted))
}

/// Returns the records of a scan that skips damage.
fn scan(log: &LogHandle, own: &OneLog, end: Lsn, damage: &Damage) -> Check<Vec<Lsn>> {
    let (mut scan, mut scanned, mut next) = (log.scan(own.trimmed_below), Vec::new(), own.trimmed_below);
    while next < end {
        match scan.read_next() {
            Ok(None) => break,
            Ok(Some((lsn, bytes))) => {
                let wanted = own.records.get(&lsn).map(|bytes| &bytes[..]);
                ensure!(wanted == Some(&bytes), "scanned record {lsn} is {}", told(Some(&bytes), wanted));
                scanned.push(lsn);
                next = lsn + 1;
            }
            Err(e) => {
                names_it(&e, "scan", damage)?;
                next += 1;
                scan.skip_to(next);
            }
        }
    }
    Ok(scanned)
}

/// Appends to each log and waits for the background. Returns false if the damage has stopped the
/// store.
fn go_on(store: &LogStore, model: &mut Model) -> Check<bool> {
    for (name, own) in model {
        let log = store.open_log(name).doing(|| format!("open {name}"))?;
        let last = log.last_lsn().doing(|| "last".into())?;
        let lsn = last.map_or(own.trimmed_below, |last| last.max(own.trimmed_below)) + 1;
        match log.append(lsn, b"goes on", Durability::Durable) {
            Err(e) if e.kind() == ErrorKind::Poisoned => return names_a_file(&e, "append").map(|()| false),
            appended => appended.doing(|| format!("append to {name}"))?,
        }
        own.records.insert(lsn, b"goes on"[..].into());
    }
    store.seal().doing(|| "seal".into())?;
    match store.wait_idle() {
        Err(e) if e.kind() == ErrorKind::Poisoned => names_a_file(&e, "settle").map(|()| false),
        settled => settled.doing(|| "settle".into()).map(|()| true),
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut made = Outcome::default();
    let Some(store) = outcome.made(|| LogFlipStore::make(seed, &mut made)) else { return outcome };
    outcome.notes.extend(made.notes);
    let mut rng = Rng::new(seed ^ 0x6c6f_672d_666c);
    let break_it = |sim: &SimEnv, rng: &mut Rng| break_a_file(sim, &store.older, &KINDS, rng);
    let image = store.sim.state_hash();
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damage, rng| {
        if sim.state_hash() == image {
            return;
        }
        let looked = guarded(|| store.look(sim, damage, rng)).and_then(|looked| looked);
        if let Ok(found) = &looked {
            let what = if found.errors == 0 { "harmless" } else { "detected" };
            outcome.note(what, 1);
            outcome.note(seen::LOST, found.lost);
            outcome.note(seen::HARMLESS, u64::from(costs_nothing(damage)));
        }
        outcome.take(looked.map(drop).map_err(|why| format!("damage {nth}, {}: {why}", damage.text)));
    });
    outcome
}
