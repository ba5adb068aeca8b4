//! Row `histories`: transactions of several threads under a schedule, recorded, and checked for the
//! anomalies that their isolation forbids ([`super::anomalies`]).
//!
//! The transactions of a case are optimistic, have row locks, or are of both kinds, with one
//! isolation. They append to lists, read lists and scan ranges, beside flushes and compactions. The
//! lists at the end are read after a crash that keeps all commits.

use super::anomalies::{self, Anomaly, Element, Key, Op, Recorded};
use super::options;
use crate::case::{Context, Outcome};
use crate::check::{Check, Doing};
use crate::machine::{self, DIR};
use crate::plan::pick;
use crate::tally::{ROLLED_BACK, WRITE_SKEW};
use io::sim::threads::Plan;
use io::{Priority, Rng};
use lavastore::testing::CrashKind;
use lavastore::{
    Db, Env, Error, ErrorKind, Isolation, LockOptions, Options, Result, Transaction, TransactionOptions,
    WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const THREADS: u32 = 3;
const KEYS: u32 = 6;

/// The transactions of a case.
#[derive(Clone, Copy, Debug)]
struct Mode {
    isolation: Isolation,
    locks: Locks,
    is_durable: bool,
    /// Number of transactions of each thread.
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Never,
    Sometimes,
    Always,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let ran = run(seed, &mut outcome);
    outcome.take(ran);
    outcome
}

fn run(seed: u64, outcome: &mut Outcome) -> Check {
    let mut rng = Rng::new(seed ^ 0x6869_7374_6f72_7920);
    let mode = Mode {
        isolation: pick(&mut rng, &[Isolation::Snapshot, Isolation::Serializable]),
        locks: pick(&mut rng, &[Locks::Never, Locks::Sometimes, Locks::Always]),
        is_durable: rng.one_in(4),
        count: pick(&mut rng, &[10, 40]),
    };
    let options = Options { background_threads: 1, ..options(&mut rng) };
    let (sim, again, crash) = (machine::new(seed), options.clone(), rng.next_u64());
    let ran = sim.run_threads(&Plan::new(seed), move |env| record(env, &options, mode, rng));
    let history = ran.map_err(|stuck| stuck.0)?.value.doing(|| format!("{mode:?}"))?;
    let kind = if mode.is_durable { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
    let after = sim.crash(kind, crash);
    let db = Db::open_in(&machine::env(&after)?, DIR, &again).doing(|| "open".into())?;
    let last = range(&mut db.transaction(), 0, KEYS).doing(|| "scan after the open".into())?;
    let committed = history.iter().filter(|one| one.is_committed).count();
    outcome.note("transactions committed", committed as u64);
    outcome.note(ROLLED_BACK, (history.len() - committed) as u64);
    let found = anomalies::find(&history, &last);
    if found.contains_key(&Anomaly::G2) {
        outcome.note(WRITE_SKEW, 1);
    }
    let is_forbidden = |anomaly: &Anomaly| match mode.isolation {
        Isolation::Snapshot => Anomaly::SNAPSHOT.contains(anomaly),
        Isolation::Serializable => true,
    };
    match found.iter().find(|(anomaly, _)| is_forbidden(anomaly)) {
        Some((anomaly, example)) => Err(format!("{mode:?}: {anomaly:?}: {example}")),
        None => Ok(()),
    }
}

/// Runs the transactions, and returns all of them.
fn record(env: &Env, options: &Options, mode: Mode, mut rng: Rng) -> Result<Vec<Recorded>> {
    let db = Db::open_in(env, DIR, options)?;
    let all = Arc::new(Mutex::new(Ok(Vec::new())));
    let spawner = env.spawner.as_ref().ok_or_else(|| Error::invalid("a schedule has a spawner"))?;
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let (db, all, rng) = (db.clone(), all.clone(), rng.fork());
        let body = move || {
            let recorded = work(&db, thread, mode, rng);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *all, recorded) {
                (Ok(all), Ok(mut recorded)) => all.append(&mut recorded),
                (Ok(_), Err(e)) => *all = Err(e),
                (Err(_), _) => {}
            }
        };
        threads.push(spawner.spawn("transactions", Priority::Foreground, Box::new(body))?);
    }
    for thread in threads {
        thread.join();
    }
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *all, Ok(Vec::new()))
}

/// The transactions of a thread.
fn work(db: &Db, thread: u32, mode: Mode, mut rng: Rng) -> Result<Vec<Recorded>> {
    let (mut recorded, mut element) = (Vec::new(), thread << 24);
    for _ in 0..mode.count {
        if rng.one_in(12) {
            db.flush()?;
        }
        let locked = match mode.locks {
            Locks::Never => false,
            Locks::Sometimes => rng.one_in(2),
            Locks::Always => true,
        };
        let write = if mode.is_durable { WriteOptions::durable() } else { WriteOptions::default() };
        let locks = locked.then(LockOptions::default);
        let options = TransactionOptions { isolation: mode.isolation, locks, write };
        let mut transaction = db.transaction_with(&options);
        let mut ops = Vec::new();
        let ran = act(&mut transaction, locked, &mut element, &mut ops, &mut rng);
        let ended = ran.and_then(|()| match rng.one_in(10) {
            true => Ok(false),
            false => transaction.commit().map(|()| true),
        });
        let is_committed = match ended {
            Ok(is_committed) => is_committed,
            Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Busy) => false,
            Err(e) => return Err(e),
        };
        recorded.push(Recorded { ops, is_committed });
    }
    Ok(recorded)
}

/// The operations of a transaction, up to the first error.
fn act(
    transaction: &mut Transaction,
    locked: bool,
    element: &mut Element,
    ops: &mut Vec<Op>,
    rng: &mut Rng,
) -> Result<()> {
    for _ in 0..rng.range(1, 5) {
        let key = rng.below(KEYS.into()) as Key;
        match rng.below(5) {
            0 => {
                let (a, b) = (key, rng.below(u64::from(KEYS) + 1) as Key);
                let (from, to) = (a.min(b), a.max(b));
                ops.push(Op::Range(from, to, range(transaction, from, to)?));
            }
            1 | 2 => ops.push(Op::Read(key, list(transaction.get(key.to_be_bytes())?.as_deref()))),
            _ => {
                let bytes = key.to_be_bytes();
                let old = match locked && rng.one_in(2) {
                    true => transaction.get_for_update(bytes)?,
                    false => transaction.get(bytes)?,
                };
                ops.push(Op::Read(key, list(old.as_deref())));
                *element += 1;
                let new = [old.as_deref().unwrap_or_default(), &element.to_le_bytes()].concat();
                transaction.put(bytes, new)?;
                ops.push(Op::Append(key, *element));
            }
        }
    }
    Ok(())
}

fn list(value: Option<&[u8]>) -> Vec<Element> {
    let (elements, _) = value.unwrap_or_default().as_chunks::<4>();
    elements.iter().map(|bytes| Element::from_le_bytes(*bytes)).collect()
}

fn range(transaction: &mut Transaction, from: Key, to: Key) -> Result<BTreeMap<Key, Vec<Element>>> {
    let entries = transaction.range(&from.to_be_bytes()[..]..&to.to_be_bytes()[..])?;
    entries
        .map(|entry| {
            let (key, value) = entry?;
            let key = key.first_chunk().map_or(Key::MAX, |bytes| Key::from_be_bytes(*bytes));
            Ok((key, list(Some(&value))))
        })
        .collect()
}
