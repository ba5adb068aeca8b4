//! Row `verify-beside-writers`: verifications of a busy store raise no false alarm, and find real
//! damage.
//!
//! A schedule runs writers of records, of keys and of batches of both engines, with trims, seals,
//! flushes and collections, and the engine's own threads. Meanwhile a thread repeatedly verifies
//! the logs, the keys, or the view of a read-only open of either. A verification counts if at least
//! [`COMMITS_MIN`] commits, a seal and a trim returned during it; others are noted separately.
//!
//! Writers also commit during a read-only open. The reader must see every write that was durable
//! before the call, and no record of a log without its predecessors. An open pauses before each
//! attempt except the first, so the pauses count the attempts that met a change by the writer.
//!
//! In some cases a bit of a file is flipped first. If a copy of the idle store shows the damage
//! before and after, the verifications during writes must have named that file.

use super::life::{self, kv_options, log_options, value, write_both};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::machine::{self, DIR};
use crate::plan::pick;
use io::sim::threads::{Choice, Plan, Ran, Stuck};
use io::{Clock, Priority, Rng};
use lavakv::{Db, Durability, WriteBatch, WriteOptions};
use lavalog::{LogHandle, LogStore};
use lavastore::testing::SimEnv;
use lavastore::{Env, ErrorKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum number of commits during a counted verification.
const COMMITS_MIN: u64 = 100;
/// Verifications per case.
const VERIFIES: u64 = 12;
/// Number of appending threads.
const APPENDERS: usize = 7;
/// Maximum number of steps of a schedule.
const STEPS_MAX: u64 = 60_000_000;

/// The part of a store read by a verification.
#[derive(Clone, Copy, Debug)]
enum Verified {
    Logs,
    Keys,
    LogsReadOnly,
    KeysReadOnly,
}

impl Verified {
    /// Returns true for a data file read by this verification.
    fn reads(self, name: &str) -> bool {
        match self {
            Verified::Logs | Verified::LogsReadOnly => name.contains(".e1-"),
            Verified::Keys | Verified::KeysReadOnly => name.ends_with("sst"),
        }
    }
}

/// Returns the verifications of a case, used in turn.
fn verified(seed: u64) -> &'static [Verified] {
    match seed % 4 {
        0 => &[Verified::Logs],
        1 => &[Verified::Keys, Verified::Logs],
        2 => &[Verified::Logs, Verified::LogsReadOnly],
        _ => &[Verified::KeysReadOnly, Verified::Keys],
    }
}

/// Number of returned calls.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    commits: u64,
    seals: u64,
    trims: u64,
}

impl Done {
    fn since(self, before: Done) -> Done {
        Done {
            commits: self.commits - before.commits,
            seals: self.seals - before.seals,
            trims: self.trims - before.trims,
        }
    }
}

/// Results of all verifications of a case.
#[derive(Debug, Default)]
struct VerificationTotals {
    /// Verifications with enough overlap.
    counted: u64,
    overlap: Done,
    /// Verifications with less overlap.
    others: u64,
    opens: ReadOnlyOpens,
    /// Files with reported damage.
    damaged: BTreeSet<String>,
}

/// Read-only opens.
#[derive(Clone, Copy, Debug, Default)]
struct ReadOnlyOpens {
    /// Opens during which commits returned.
    beside_commits: u64,
    /// Attempts that ended because the writer had changed the store.
    repeats: u64,
    /// Opens that found no consistent state in any attempt.
    busy: u64,
}

/// A clock that counts pauses: an open pauses before each attempt except the first.
#[derive(Debug)]
struct PauseCounter {
    inner: Arc<dyn Clock>,
    pauses: AtomicU64,
}

impl Clock for PauseCounter {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }
    fn unix_seconds(&self) -> u64 {
        self.inner.unix_seconds()
    }
    fn sleep_ns(&self, ns: u64) {
        self.pauses.fetch_add(1, SeqCst);
        self.inner.sleep_ns(ns);
    }
}

/// Key of the number of the last batch of keys, written by every batch.
const COUNTER: &[u8] = b"counter";

struct VerifyState {
    db: Db,
    logs: LogStore,
    env: Env,
    /// The damaged file.
    damaged: Option<String>,
    commits: AtomicU64,
    seals: AtomicU64,
    trims: AtomicU64,
    /// The last durable record of each appender, and the last durable batch of keys.
    durable: [AtomicU64; APPENDERS],
    durable_keys: AtomicU64,
    stop: AtomicBool,
    seen: Mutex<VerificationTotals>,
}

impl VerifyState {
    fn done(&self) -> Done {
        Done {
            commits: self.commits.load(SeqCst),
            seals: self.seals.load(SeqCst),
            trims: self.trims.load(SeqCst),
        }
    }

    /// Excuses errors in a damaged store.
    fn excused(&self, result: lavastore::Result<()>, what: &str) -> Check {
        match result {
            Err(e) if self.damaged.is_none() => Err(format!("{what}: {e}")),
            _ => Ok(()),
        }
    }
}

/// Appends, trims and seals until the stop flag is set.
fn append(shared: &VerifyState, nth: usize, mut rng: Rng) -> Check {
    let log = shared.logs.log(&format!("log {nth}")).doing(|| "make a log".into())?;
    let mut lsn = log.last_lsn().doing(|| "last".into())?.unwrap_or(0);
    let mut kept = lsn;
    while !shared.stop.load(SeqCst) {
        lsn += 1;
        let durability = if rng.one_in(8) { Durability::Durable } else { Durability::Buffered };
        let len = pick(&mut rng, &[10, 60, 60, 300, 2500]);
        shared.excused(log.append(lsn, &vec![lsn as u8; len], durability), "append")?;
        if durability == Durability::Durable {
            shared.durable[nth].store(lsn, SeqCst);
        }
        shared.commits.fetch_add(1, SeqCst);
        if rng.one_in(10) && lsn > kept + 20 {
            kept = lsn - rng.below(20);
            shared.excused(log.trim(kept), "trim")?;
            shared.trims.fetch_add(1, SeqCst);
        }
        if rng.one_in(40) {
            shared.excused(shared.logs.seal(), "seal")?;
            shared.seals.fetch_add(1, SeqCst);
        }
    }
    Ok(())
}

/// Writes keys and batches of both engines, flushes and compacts, until the stop flag is set.
fn put(shared: &VerifyState, mut rng: Rng) -> Check {
    let log = shared.logs.log("both").doing(|| "make a log".into())?;
    let mut lsn = log.last_lsn().doing(|| "last".into())?.unwrap_or(0);
    for number in 1u64.. {
        if shared.stop.load(SeqCst) {
            break;
        }
        put_one(shared, &log, &mut lsn, number, &mut rng)?;
        shared.commits.fetch_add(1, SeqCst);
        if rng.one_in(25) {
            shared.excused(shared.db.flush(), "flush")?;
        }
        if rng.one_in(20) && lsn > 40 {
            shared.excused(log.trim(lsn - rng.below(40)), "trim")?;
            shared.trims.fetch_add(1, SeqCst);
        }
    }
    Ok(())
}

fn put_one(shared: &VerifyState, log: &LogHandle, lsn: &mut u64, number: u64, rng: &mut Rng) -> Check {
    let durability = if rng.one_in(8) { Durability::Durable } else { Durability::Buffered };
    let (key, value) = (life::key(rng.below(60)), value(rng.below(1000)));
    let mut changes = WriteBatch::new();
    changes.put(&key, &value);
    changes.put(COUNTER, &number.to_le_bytes());
    if rng.one_in(3) {
        *lsn += 1;
        let written = write_both(&shared.db, &changes, log, *lsn, &value, durability);
        shared.excused(written, "write of both engines")?;
    } else {
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        shared.excused(shared.db.write_opt(&changes, &options), "write")?;
    }
    if durability == Durability::Durable {
        shared.durable_keys.store(number, SeqCst);
    }
    Ok(())
}

/// Opens the store read-only during writes.
fn opened<T>(shared: &VerifyState, open: impl FnOnce(Env) -> lavastore::Result<T>) -> lavastore::Result<T> {
    let clock = Arc::new(PauseCounter { inner: shared.env.clock.clone(), pauses: AtomicU64::new(0) });
    let before = shared.done();
    let opened = open(Env { clock: clock.clone(), ..shared.env.clone() });
    let during = shared.done().since(before);
    let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.opens.beside_commits += u64::from(during.commits > 0);
    seen.opens.repeats += clock.pauses.load(SeqCst);
    seen.opens.busy += u64::from(opened.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy));
    opened
}

/// Checks that a reader sees every record that was durable before the open, without gaps.
fn has_durable_records(logs: &LogStore, durable: &[u64]) -> Check {
    for (nth, durable) in durable.iter().enumerate().filter(|(_, durable)| **durable > 0) {
        let log = logs.open_log(&format!("log {nth}")).doing(|| format!("log {nth}, read-only"))?;
        let last = log.last_lsn().doing(|| "last".into())?.unwrap_or(0);
        ensure!(last >= *durable, "log {nth} ends at {last} for a reader, and {durable} was durable before");
        let mut before = None;
        for record in log.scan(0) {
            let lsn = match record {
                Ok((lsn, _)) => lsn,
                // The writer has collected the record since.
                Err(e) if e.kind() == ErrorKind::Busy => break,
                Err(e) => return Err(format!("scan of log {nth}, read-only: {e}")),
            };
            ensure!(
                before.is_none_or(|before| lsn == before + 1),
                "log {nth} has {lsn} behind {before:?} for a reader"
            );
            before = Some(lsn);
        }
    }
    Ok(())
}

/// Checks that a reader sees the last batch of keys that was durable before, or a later one.
fn has_durable_keys(db: &Db, durable: u64) -> Check {
    let counter = db.get(COUNTER).doing(|| "get, read-only".into())?;
    let number = counter.and_then(|bytes| Some(u64::from_le_bytes(bytes.as_ref().try_into().ok()?)));
    let number = number.unwrap_or(0);
    ensure!(number >= durable, "batch {number} is the last for a reader, and {durable} was durable before");
    Ok(())
}

/// Returns the damage reported by a verification with the file names; `None`: a reader found no
/// consistent state.
fn reports(shared: &VerifyState, what: Verified) -> Check<Option<Vec<(String, String)>>> {
    let named = |e: &lavastore::Error| {
        let file = e.file().and_then(Path::file_name).unwrap_or_default();
        (file.to_string_lossy().into_owned(), e.to_string())
    };
    let dir = Path::new(DIR);
    let of_logs =
        |logs: &LogStore| logs.verify().damages.iter().map(|damage| named(&damage.error)).collect::<Vec<_>>();
    let of_keys = |db: &Db| -> lavastore::Result<Vec<_>> {
        Ok(db.verify()?.errors.iter().chain(&db.damage()).map(named).collect())
    };
    let reported = match what {
        Verified::Logs => Ok(of_logs(&shared.logs)),
        Verified::Keys => of_keys(&shared.db),
        Verified::LogsReadOnly => {
            let durable = shared.durable.each_ref().map(|durable| durable.load(SeqCst));
            let logs = opened(shared, |env| LogStore::open_read_only(&env, dir, &log_options()));
            if let Some(logs) = logs.as_ref().ok().filter(|_| shared.damaged.is_none()) {
                has_durable_records(logs, &durable)?;
            }
            logs.map(|logs| of_logs(&logs))
        }
        Verified::KeysReadOnly => {
            let durable = shared.durable_keys.load(SeqCst);
            let db = opened(shared, |env| Db::open_read_only_in(env, dir, kv_options()));
            if let Some(db) = db.as_ref().ok().filter(|_| shared.damaged.is_none()) {
                has_durable_keys(db, durable)?;
            }
            db.and_then(|db| of_keys(&db))
        }
    };
    match reported {
        Err(e) if e.kind() == ErrorKind::Busy => Ok(None),
        Err(e) if shared.damaged.is_some() => Ok(Some(vec![named(&e)])),
        reported => reported.map(Some).doing(|| format!("verify {what:?}")),
    }
}

/// Verifies repeatedly, then sets the stop flag.
fn verify(shared: &VerifyState, what: &[Verified], count: u64) -> Check {
    for nth in 0..count {
        let what = what[nth as usize % what.len()];
        let before = shared.done();
        let reported = reports(shared, what)?;
        let overlap = shared.done().since(before);
        let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reported) = reported else { continue };
        let is_known = |file: &str| shared.damaged.as_deref() == Some(file);
        if let Some((_, alarm)) = reported.iter().find(|_| shared.damaged.is_none()) {
            return Err(format!(
                "verification {nth} of {what:?} raised an alarm beside {overlap:?}: {alarm}"
            ));
        }
        seen.damaged.extend(reported.into_iter().map(|(file, _)| file).filter(|file| is_known(file)));
        if overlap.commits >= COMMITS_MIN && overlap.seals > 0 && overlap.trims > 0 {
            seen.counted += 1;
            seen.overlap.commits += overlap.commits;
            seen.overlap.seals += overlap.seals;
            seen.overlap.trims += overlap.trims;
        } else {
            seen.others += 1;
        }
    }
    Ok(())
}

/// Main thread: starts the others and waits for them.
fn run(env: &Env, damaged: Option<String>, seed: u64) -> Check<VerificationTotals> {
    let mut rng = Rng::new(seed ^ 0x7665_7269_6679);
    let (db, logs) = life::open(env).doing(|| "open".into())?;
    let shared = Arc::new(VerifyState {
        db,
        logs,
        env: env.clone(),
        damaged,
        commits: AtomicU64::new(0),
        seals: AtomicU64::new(0),
        trims: AtomicU64::new(0),
        durable: Default::default(),
        durable_keys: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        seen: Mutex::default(),
    });
    let what = verified(seed);
    type Body = Box<dyn FnOnce(&VerifyState) -> Check + Send>;
    let mut bodies: Vec<(String, Body)> = Vec::new();
    for nth in 0..APPENDERS {
        let rng = rng.fork();
        bodies.push((format!("appender-{nth}"), Box::new(move |shared| append(shared, nth, rng))));
    }
    let draws = rng.fork();
    bodies.push(("writer".into(), Box::new(move |shared| put(shared, draws))));
    bodies.push(("verifier".into(), Box::new(move |shared| verify(shared, what, VERIFIES))));
    let complaints: Arc<Mutex<Vec<String>>> = Arc::default();
    let spawner = env.spawner.clone().ok_or("a machine with threads")?;
    let mut threads = Vec::new();
    for (name, body) in bodies {
        let (shared, complaints, who) = (shared.clone(), complaints.clone(), name.clone());
        let run = move || {
            let done = guarded(|| body(&shared)).and_then(|done| done);
            if who == "verifier" || done.is_err() {
                shared.stop.store(true, SeqCst);
            }
            let complaint = done.err().map(|why| format!("{who}: {why}"));
            complaints.lock().unwrap_or_else(PoisonError::into_inner).extend(complaint);
        };
        threads.push(spawner.spawn(&name, Priority::Foreground, Box::new(run)).doing(|| "spawn".into())?);
    }
    threads.into_iter().for_each(|thread| _ = thread.join());
    let complaint = complaints.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
    complaint.map_or(Ok(()), Err)?;
    let shared = Arc::into_inner(shared).ok_or("another thread is left")?;
    Ok(shared.seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns a store with files of every kind.
fn made(seed: u64) -> Check<SimEnv> {
    let sim = machine::new(seed);
    let (db, logs) = life::open(&machine::env(&sim)?).doing(|| "open".into())?;
    let mut rng = Rng::new(seed ^ 0x6d61_6465);
    let log = logs.log("both").doing(|| "make a log".into())?;
    for lsn in 1..=rng.range(200, 1200) {
        let (key, value) = (life::key(rng.below(60)), value(lsn));
        let mut changes = WriteBatch::new();
        changes.put(&key, &value);
        write_both(&db, &changes, &log, lsn, &value, Durability::Buffered).doing(|| "write".into())?;
        if rng.one_in(60) {
            logs.seal().and_then(|()| logs.wait_idle()).doing(|| "seal".into())?;
        }
        if rng.one_in(300) {
            log.trim(lsn / 2).doing(|| "trim".into())?;
        }
    }
    db.flush().doing(|| "flush".into())?;
    drop(log);
    logs.close().doing(|| "close".into())?;
    db.close().doing(|| "close".into())?;
    Ok(sim)
}

/// Returns the damaged files of a copy of the idle store.
fn at_rest(sim: &SimEnv) -> Check<BTreeSet<String>> {
    let env = machine::env(&sim.fork(0))?;
    let (dir, mut names) = (Path::new(DIR), BTreeSet::new());
    let mut take = |e: &lavastore::Error| {
        names.extend(e.file().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()));
    };
    match LogStore::open_read_only(&env, dir, &log_options()) {
        Ok(logs) => logs.verify().damages.iter().for_each(|damage| take(&damage.error)),
        Err(e) => take(&e),
    }
    match Db::open_read_only_in(env, dir, kv_options()) {
        Ok(db) => db.verify().doing(|| "verify".into())?.errors.iter().for_each(&mut take),
        Err(e) => take(&e),
    }
    Ok(names)
}

/// Flips a bit of a verified data file. Returns its name if a verification of the idle store finds
/// it.
fn damage(sim: &SimEnv, what: &[Verified], rng: &mut Rng) -> Check<Option<String>> {
    let listing = sim.env().fs.list(Path::new(DIR)).doing(|| "list".into())?;
    let is_data = |name: &str| what.iter().any(|what| what.reads(name));
    let files: Vec<_> = listing.into_iter().filter(|entry| is_data(&entry.name) && entry.len > 0).collect();
    let nth = rng.below(files.len().max(1) as u64) as usize;
    let Some(file) = files.get(nth) else { return Ok(None) };
    sim.flip_bit(Path::new(DIR).join(&file.name), rng.below(file.len), rng.below(8) as u32)
        .doing(|| "flip".into())?;
    Ok(at_rest(sim)?.contains(&file.name).then(|| file.name.clone()))
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(sim) = outcome.made(|| made(seed)) else { return outcome };
    let mut rng = Rng::new(seed ^ 0x6461_6d61_6765);
    let damaged = match rng.one_in(6) {
        true => outcome.made(|| damage(&sim, verified(seed), &mut rng)).flatten(),
        false => None,
    };
    let told = damaged.clone();
    // Frequent switches interleave writers and the steps of a verification most.
    let one_in = pick(&mut rng, &[1, 2, 8]);
    let choice = (!rng.one_in(4)).then_some(Choice::Random { one_in });
    let plan = Plan { steps_max: STEPS_MAX, choice, ..Plan::new(seed) };
    let ran = sim.run_threads(&plan, move |env| run(env, told, seed));
    let ran = ran.map_err(|Stuck(why)| why).and_then(|Ran { value, steps, .. }| Ok((value?, steps)));
    let (seen, steps) = match ran {
        Ok(ran) => ran,
        Err(why) => {
            outcome.failures.push(why);
            return outcome;
        }
    };
    outcome.note("steps", steps);
    outcome.note("commits during them", seen.overlap.commits);
    outcome.note("seals during them", seen.overlap.seals);
    outcome.note("trims during them", seen.overlap.trims);
    outcome.note("verifications that overlapped less", seen.others);
    outcome.note(super::seen::OPENED_BESIDE, seen.opens.beside_commits);
    outcome.note(super::seen::REPEATED, seen.opens.repeats);
    outcome.note("read-only opens that found no moment", seen.opens.busy);
    match damaged {
        None => outcome.passed += seen.counted,
        Some(file) if seen.damaged.contains(&file) => outcome.note(super::seen::NAMED, 1),
        Some(file) => outcome.take(at_rest(&sim).and_then(|left| {
            ensure!(
                !left.contains(&file),
                "the damage of {file} is there before and after, and was not reported"
            );
            Ok(())
        })),
    }
    outcome
}
