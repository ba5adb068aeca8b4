//! Random life of a store with both engines, and the judgment of its contents after a crash at any
//! operation.
//!
//! Key-value writes are numbered, and so are log records, whose oldest are trimmed now and then.
//! Batches of both engines have a number of each. A crash leaves a prefix of each engine's
//! operations: at least the acknowledged ones, at most the begun ones, and both halves of a batch
//! or neither. With injected failures, a session continues until the first failure that is no
//! refusal for lack of space. A refused operation changes nothing in either engine.

use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use io::{Env, Rng};
use lavakv::multi_engine::{open_with_records, write_embedded_in_secondary};
use lavakv::{ColumnFamily, Db, Durability, Options, WriteBatch, WriteOptions};
use lavalog::{LogBatch, LogHandle, LogStore, Loggers, SecondaryLogs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub const DIR: &str = "/db";

/// Up to three writes of each lane are at the device at once, if there are enough.
const LOGGERS: Loggers = Loggers { writes_max: 3, threads_min: 0 };

pub fn log_options() -> lavalog::Options {
    lavalog::Options {
        group_bytes: Some(256 << 10),
        garbage_percent: 30,
        loggers: LOGGERS,
        ..lavalog::Options::default()
    }
}

pub fn kv_options() -> Options {
    Options { memtable_bytes: 16 << 10, memory_bytes: 48 << 10, ..Options::default() }.expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 192 << 10;
        expert.loggers = LOGGERS;
    })
}

/// Whether buffered pages of LavaKV's log wait for flushes in every life, instead of a fourth of
/// the sessions.
pub static ALL_KEEP_PAGES: AtomicBool = AtomicBool::new(false);

/// Options under which buffered pages of LavaKV's log wait for flushes.
fn keeping_pages() -> Options {
    let options = kv_options().expert(|expert| expert.buffered_age_ms_max = Some(60_000));
    Options { memory_bytes: options.memory_bytes + options.waiting_log_bytes(), ..options }
}

/// Opens both engines.
pub fn open(env: &Env) -> base::Result<(Db, LogStore)> {
    open_at(env, DIR)
}

pub fn open_at(env: &Env, dir: &str) -> base::Result<(Db, LogStore)> {
    open_with(env, dir, kv_options())
}

pub fn open_with(env: &Env, dir: &str, options: Options) -> base::Result<(Db, LogStore)> {
    let mut secondary = SecondaryLogs::new(&log_options())?;
    let db = open_with_records(env.clone(), Path::new(dir), options, &mut secondary)?;
    Ok((db, secondary.store()?))
}

/// Returns the file system of a machine.
pub type EnvOf = fn(&SimEnv) -> base::Result<Env>;

/// An operation, with the points from which it must survive each kind of crash.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Number of key-value writes including this one, if it is one.
    keys: Option<u64>,
    /// Sequence number of its last change.
    last_seq: u64,
    /// Contents of the log after it, if it changed the log.
    log: Option<InLog>,
    begun_op: u64,
    buffered_op: Option<u64>,
    durable_op: Option<u64>,
}

/// Contents of the log: all LSNs from the first to the last; empty if the last is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InLog {
    pub first: u64,
    pub last: u64,
}

/// Contents of a store: the first key-value writes, this many, and the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub keys: u64,
    pub log: InLog,
}

impl Found {
    pub const NOTHING: Found = Found { keys: 0, log: InLog { first: 1, last: 0 } };
}

/// Number of events of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub batches_of_both: u64,
    pub flushes: u64,
    pub trims: u64,
    pub sealed: u64,
    pub collected: u64,
    pub closes: u64,
    /// Refusals for lack of space: all of them, those of batches of both engines, and those of
    /// trims.
    pub refused: u64,
    pub refused_of_both: u64,
    pub refused_trims: u64,
}

/// An open store.
struct Session<'a> {
    db: &'a Db,
    logs: &'a LogStore,
    other: ColumnFamily,
    log: LogHandle,
}

/// Returns false for a refusal for lack of space.
fn done_or_refused(result: base::Result<()>) -> base::Result<bool> {
    match result {
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(false),
        result => result.map(|()| true),
    }
}

/// The life of a store with both engines.
pub struct Life {
    pub sim: SimEnv,
    env: EnvOf,
    rng: Rng,
    /// Contents at the start.
    begin: Found,
    /// Current contents.
    pub now: Found,
    written: Vec<Written>,
    pub done: Done,
}

pub fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 20 + (n as usize * 37) % 900]
}

pub fn key(n: u64) -> Vec<u8> {
    format!("k{n:06}").into_bytes()
}

/// The key that every key-value write sets, and the value of write `n`: garbage for the next write
/// to leave behind.
pub const HEAD: &[u8] = b"head";

pub fn head(n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(600, 7);
    value
}

/// Reads the contents of the store; there may be nothing else.
pub fn find(db: &Db, logs: &LogStore) -> Found {
    Found { keys: find_keys(db), log: find_records(logs) }
}

pub fn find_keys(db: &Db) -> u64 {
    let mut keys = 0;
    while let Some(found) = db.get(&key(keys)).unwrap() {
        assert_eq!(found.to_vec(), value(keys), "key {keys}");
        if let Some(other) = db.column_family("other").filter(|_| keys.is_multiple_of(3)) {
            let half = db.get_cf(&other, &key(keys)).unwrap();
            assert_eq!(half.map(|v| v.to_vec()), Some(value(keys)), "both halves of batch {keys}");
        }
        keys += 1;
    }
    for n in keys..keys + 200 {
        assert!(db.get(&key(n)).unwrap().is_none(), "key {n} is there, and {keys} is not");
    }
    let last = db.get(HEAD).unwrap().map(|v| v.to_vec());
    assert_eq!(last, keys.checked_sub(1).map(head), "the head with {keys} keys");
    keys
}

pub fn find_records(logs: &LogStore) -> InLog {
    let mut found = Found::NOTHING.log;
    let Ok(log) = logs.open_log("log") else { return found };
    for record in log.scan(0) {
        let (lsn, bytes) = record.unwrap();
        if found.last == 0 {
            found.first = lsn;
        } else {
            assert_eq!(lsn, found.last + 1, "records of the log follow each other");
        }
        assert_eq!(bytes, value(lsn + 1), "record {lsn}");
        found.last = lsn;
    }
    found
}

/// Reads the contents after a crash. First a single engine (1: LavaKV, 2: LavaLog) or a read-only
/// open of the keys (3) looks, which must not change the result. Returns true if one engine was
/// opened alone.
pub fn find_left(left: &SimEnv, env: EnvOf, alone: u64) -> (Found, bool) {
    let env = |left: &SimEnv| env(left).unwrap();
    if alone == 1 {
        match Db::open_in(env(left), DIR, kv_options()) {
            // Only the record lane has the changes, so the logs must be opened, too.
            Err(e) if e.kind() == ErrorKind::Unsupported => {}
            opened => {
                let db = opened.unwrap();
                let keys = find_keys(&db);
                db.close().unwrap();
                let (db, logs) = open(&env(left)).unwrap();
                assert_eq!(find_keys(&db), keys);
                return (find(&db, &logs), true);
            }
        }
    }
    if alone == 2 && env(left).fs.exists(&Path::new(DIR).join("CURRENT")).unwrap() {
        let logs = LogStore::open(&env(left), Path::new(DIR), &log_options()).unwrap();
        let records = find_records(&logs);
        logs.close().unwrap();
        let (db, logs) = open(&env(left)).unwrap();
        assert_eq!(find_records(&logs), records);
        return (find(&db, &logs), true);
    }
    let is_read = alone == 3 && env(left).fs.exists(&Path::new(DIR).join("CURRENT")).unwrap();
    let read = is_read.then(|| find_keys(&Db::open_read_only_in(env(left), DIR, kv_options()).unwrap()));
    let (db, logs) = open(&env(left)).unwrap();
    let found = find(&db, &logs);
    assert!(read.is_none_or(|keys| keys == found.keys), "{read:?} beside {found:?}");
    (found, false)
}

impl Life {
    /// Creates a life on a machine with these contents.
    pub fn new(sim: SimEnv, env: EnvOf, seed: u64, found: Found) -> Life {
        let rng = Rng::new(seed);
        Life { sim, env, rng, begin: found, now: found, written: Vec::new(), done: Done::default() }
    }

    fn op(&self) -> u64 {
        self.sim.op_count()
    }

    /// Performs some steps without failures.
    pub fn live(&mut self, steps: u64) {
        let closes = |life: &mut Life| life.rng.one_in(4);
        self.live_until(steps, closes);
    }

    /// Performs some steps without failures, then closes the store if `closes`.
    pub fn live_on(&mut self, steps: u64, closes: bool) {
        self.live_until(steps, |_| closes);
    }

    fn live_until(&mut self, steps: u64, closes: impl FnOnce(&mut Life) -> bool) {
        // Independent of the life's random numbers.
        let mut aside = Rng::new(self.rng.clone().next_u64() ^ 0x6b_6565_7073);
        let keeps_pages = aside.one_in(4) || ALL_KEEP_PAGES.load(Ordering::Relaxed);
        let options = if keeps_pages { keeping_pages() } else { kv_options() };
        let (db, logs) = open_with(&(self.env)(&self.sim).unwrap(), DIR, options).unwrap();
        assert_eq!(find(&db, &logs), self.now);
        self.go_on(&db, &logs, steps).unwrap();
        self.note(&logs);
        if closes(self) {
            logs.close().unwrap();
            db.close().unwrap();
            self.closed();
        }
    }

    /// Notes that the store was closed, so everything is durable.
    pub fn closed(&mut self) {
        self.durable(self.op(), |_| true);
        self.done.closes += 1;
    }

    /// Notes the background work of an open store.
    pub fn note(&mut self, logs: &LogStore) {
        let statistics = logs.statistics();
        self.done.sealed += statistics.sealed_groups;
        self.done.collected += statistics.collected_files;
    }

    /// Continues in an open store for some steps, or until the first failure that is no refusal for
    /// lack of space.
    pub fn go_on(&mut self, db: &Db, logs: &LogStore, steps: u64) -> base::Result<()> {
        let other = match db.column_family("other") {
            Some(other) => other,
            None => db.create_column_family("other", Default::default())?,
        };
        let at = Session { db, logs, other, log: logs.log("log")? };
        (0..steps).try_for_each(|_| self.step(&at))
    }

    fn step(&mut self, at: &Session<'_>) -> base::Result<()> {
        let (db, logs) = (at.db, at.logs);
        let durability = if self.rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
        let done = match self.rng.below(24) {
            0 => {
                let flushed = done_or_refused(db.flush())?;
                self.done.flushes += u64::from(flushed);
                flushed
            }
            1 => done_or_refused(logs.seal())?,
            2 => done_or_refused(logs.wait_idle())?,
            3 => {
                let synced = done_or_refused(db.sync())?;
                if synced {
                    self.durable(self.op(), |w| w.keys.is_some());
                }
                synced
            }
            4 => {
                let volatile =
                    WriteOptions { durability: Some(Durability::Volatile), ..WriteOptions::default() };
                done_or_refused(db.put_opt(db.default_column_family(), b"volatile", b"v", &volatile))?
            }
            5..9 => self.put(at, durability)?,
            9..13 => self.both(at, durability)?,
            13..15 => {
                (0..self.rng.below(6)).for_each(|_| _ = db.run_background_step());
                true
            }
            15 => self.trim(at)?,
            _ => self.append(at, durability)?,
        };
        self.done.refused += u64::from(!done);
        Ok(())
    }

    /// Notes that matching operations are durable from this point on.
    fn durable(&mut self, op: u64, is: impl Fn(&Written) -> bool) {
        for written in self.written.iter_mut().filter(|w| is(w)) {
            written.buffered_op.get_or_insert(op);
            written.durable_op.get_or_insert(op);
        }
    }

    /// Begins an operation that leads to these contents.
    fn begin(&mut self, keys: Option<u64>, log: Option<InLog>) {
        self.now = Found { keys: keys.unwrap_or(self.now.keys), log: log.unwrap_or(self.now.log) };
        let begun_op = self.op();
        self.written.push(Written { keys, last_seq: 0, log, begun_op, buffered_op: None, durable_op: None });
    }

    fn acknowledged(&mut self, durability: Durability) {
        let op = self.op();
        let last = self.written.last_mut().unwrap();
        last.buffered_op = Some(op);
        let (of_keys, of_log) = (last.keys.is_some(), last.log.is_some());
        if durability == Durability::Durable {
            self.durable(op, |w| of_keys && w.keys.is_some() || of_log && w.log.is_some());
        }
    }

    /// Returns the contents of the log with one more record.
    fn appended(&self) -> InLog {
        InLog { last: self.now.log.last + 1, ..self.now.log }
    }

    /// Performs an operation that leads to these contents. Returns false if it was refused for lack
    /// of space.
    fn write(
        &mut self,
        at: &Session<'_>,
        (keys, log): (Option<u64>, Option<InLog>),
        durability: Durability,
        write: impl FnOnce() -> base::Result<()>,
    ) -> base::Result<bool> {
        let before = self.now;
        self.begin(keys, log);
        let done = done_or_refused(write())?;
        if done {
            self.acknowledged(durability);
            self.note_sequence(at.db);
        } else {
            self.written.pop();
            self.now = before;
            self.check_nothing_of(at, keys, log);
        }
        Ok(done)
    }

    /// Checks that a refused operation left nothing.
    fn check_nothing_of(&self, at: &Session<'_>, keys: Option<u64>, log: Option<InLog>) {
        if let Some(Ok(Some(_))) = keys.map(|keys| at.db.get(&key(keys - 1))) {
            panic!("key-value write {keys:?} was refused, with {log:?}, and is there");
        }
        let appended = log.filter(|log| log.last > self.now.log.last);
        if let Some(Ok(Some(_))) = appended.map(|log| at.log.read(log.last)) {
            panic!("record {log:?} was refused, with {keys:?}, and is there");
        }
    }

    fn put(&mut self, at: &Session<'_>, durability: Durability) -> base::Result<bool> {
        let n = self.now.keys;
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        let changes = changes(&at.other, n);
        self.write(at, (Some(n + 1), None), durability, || at.db.write_opt(&changes, &options))
    }

    fn both(&mut self, at: &Session<'_>, durability: Durability) -> base::Result<bool> {
        let (n, with) = (self.now.keys, self.appended());
        let (changes, record) = (changes(&at.other, n), value(with.last + 1));
        let done = self.write(at, (Some(n + 1), Some(with)), durability, || {
            write_both(at.db, &changes, &at.log, with.last, &record, durability)
        })?;
        self.done.batches_of_both += u64::from(done);
        self.done.refused_of_both += u64::from(!done);
        Ok(done)
    }

    fn append(&mut self, at: &Session<'_>, durability: Durability) -> base::Result<bool> {
        let with = self.appended();
        let record = value(with.last + 1);
        self.write(at, (None, Some(with)), durability, || at.log.append(with.last, &record, durability))
    }

    /// Trims most of the log; at least one record stays.
    fn trim(&mut self, at: &Session<'_>) -> base::Result<bool> {
        let InLog { first, last } = self.now.log;
        let below = last.saturating_sub(self.rng.below(30));
        if below <= first {
            return Ok(true);
        }
        let with = InLog { first: below, last };
        let done = self.write(at, (None, Some(with)), Durability::Buffered, || at.log.trim(below))?;
        self.done.trims += u64::from(done);
        self.done.refused_trims += u64::from(!done);
        Ok(done)
    }

    /// Resolves the outcome of the last failed operation from the contents found.
    pub fn resolve(&mut self, found: Found) {
        let op = self.op();
        if let Some(last) = self.written.pop_if(|last| last.buffered_op.is_none())
            && self.now == found
        {
            self.written.push(Written { buffered_op: Some(op), ..last });
        }
        self.now = found;
    }

    /// Returns the batches of both engines: number of the key-value write, and LSN of the record.
    pub fn joint(&self) -> impl Iterator<Item = (u64, u64)> {
        self.written.iter().filter_map(|w| Some((w.keys? - 1, w.log?.last)))
    }

    /// Notes the sequence number of the last change.
    fn note_sequence(&mut self, db: &Db) {
        let before = self.written.iter().rev().nth(1).map_or(0, |w| w.last_seq);
        let last = self.written.last_mut().unwrap();
        last.last_seq = db.snapshot().sequence();
        if let Some(keys) = last.keys {
            let (first, _) = self.seqs(keys - 1).unwrap();
            assert!(before < first, "write {keys} begins at {first}, the one before ended at {before}");
        }
    }

    /// Returns the first and the last sequence number of key-value write `n`, if it belongs to this
    /// life.
    pub fn seqs(&self, n: u64) -> Option<(u64, u64)> {
        let last = self.written.iter().find(|w| w.keys == Some(n + 1))?.last_seq;
        Some((last - 1 - u64::from(n.is_multiple_of(3)), last))
    }

    /// Judges the contents after a crash at an operation.
    pub fn judge(&self, found: Found, op: u64, kind: CrashKind) {
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
        let kept = |w: &Written| match kind {
            CrashKind::ProcessKill => passed(w.buffered_op),
            _ => passed(w.durable_op),
        };
        let begun = |w: &Written| w.begun_op <= op;
        self.check_prefix(kept, begun, |w| w.keys, self.begin.keys, found.keys);
        self.check_prefix(kept, begun, |w| w.log, self.begin.log, found.log);
        for Written { keys, log, .. } in &self.written {
            if let (Some(keys), Some(log)) = (keys, log) {
                let halves = (*keys <= found.keys, log.last <= found.log.last);
                assert_eq!(halves.0, halves.1, "halves of a batch: {keys} keys, {log:?}; {found:?}");
            }
        }
    }

    /// Checks that one engine's contents are those after a prefix of its operations: all guaranteed
    /// ones, and none that was not begun.
    fn check_prefix<T: Copy + PartialEq + std::fmt::Debug>(
        &self,
        kept: impl Fn(&Written) -> bool,
        begun: impl Fn(&Written) -> bool,
        of: impl Fn(&Written) -> Option<T>,
        begin: T,
        found: T,
    ) {
        let own = || self.written.iter().filter(|w| of(w).is_some());
        let least = own().enumerate().filter(|(_, w)| kept(w)).map(|(at, _)| at + 1).last().unwrap_or(0);
        let states: Vec<T> =
            std::iter::once(begin).chain(own().take_while(|w| begun(w)).filter_map(&of)).collect();
        let may = states.get(least..).unwrap_or_default();
        assert!(may.contains(&found), "{found:?} is none of {:?} to {:?}", may.first(), may.last());
    }
}

/// Writes a record and changes atomically.
pub fn write_both(
    db: &Db,
    changes: &WriteBatch,
    log: &LogHandle,
    lsn: u64,
    bytes: &[u8],
    durability: Durability,
) -> base::Result<()> {
    let mut batch = LogBatch::new();
    batch.append(log, lsn, bytes);
    let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
    log.store().write_with_primary(&batch, &mut |sink| {
        write_embedded_in_secondary(db, (changes, None), &options, sink)
    })
}

/// Returns the changes of key-value write `n`.
pub fn changes(other: &ColumnFamily, n: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&key(n), &value(n));
    batch.put(HEAD, &head(n));
    if n.is_multiple_of(3) {
        batch.put_cf(other, &key(n), &value(n));
    }
    batch
}
