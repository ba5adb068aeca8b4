//! A store with both engines lives, by a seed, and what must be there of it after a crash at any operation.
//!
//! Key-value writes and log appends are numbered, each in its own order; a crash leaves so many of the first of each: at least those
//! that were acknowledged and at most those that were begun.

use crate::both::open;
use io::Rng;
use io::sim::{CrashKind, SimEnv};
use lavakv::beside::write_carried;
use lavakv::{Db, Durability, Options, WriteBatch, WriteOptions};
use lavalog::{LogBatch, LogHandle, LogStore};

pub const DIR: &str = "/both";

pub fn log_options() -> lavalog::Options {
    lavalog::Options { group_bytes: 256 << 10, garbage_percent: 30, ..lavalog::Options::default() }
}

pub fn kv_options() -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: 48 << 10,
        log_group_bytes: 64 << 10,
        wal_bytes_max: 192 << 10,
        ..Options::default()
    }
}

/// Something that was written, and from which operation on it must survive which crash.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Its number among key-value writes.
    key: Option<u64>,
    /// Its LSN.
    lsn: Option<u64>,
    begun_op: u64,
    buffered_op: Option<u64>,
    durable_op: Option<u64>,
}

/// See the module.
pub struct Life {
    pub sim: SimEnv,
    rng: Rng,
    /// What was there when it began: so many key-value writes, and so many records.
    keys: u64,
    records: u64,
    next_key: u64,
    next_lsn: u64,
    written: Vec<Written>,
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub keys: u64,
    pub records: u64,
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 20 + (n as usize * 37) % 900]
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:06}").into_bytes()
}

/// Counts what is in the store; there may be nothing else.
pub fn find(db: &Db, logs: &LogStore) -> Found {
    Found { keys: find_keys(db), records: find_records(logs) }
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
    keys
}

pub fn find_records(logs: &LogStore) -> u64 {
    let Ok(log) = logs.open_log("log") else { return 0 };
    let mut records = 0;
    for record in log.scan(0) {
        let (lsn, bytes) = record.unwrap();
        records += 1;
        assert_eq!((lsn, bytes), (records, value(records + 1)), "record {records}");
    }
    records
}

impl Life {
    pub fn new(sim: SimEnv, seed: u64, found: Found) -> Life {
        let Found { keys, records } = found;
        let (next_key, next_lsn) = (keys, records + 1);
        Life { sim, rng: Rng::new(seed), keys, records, next_key, next_lsn, written: Vec::new() }
    }

    fn op(&self) -> u64 {
        self.sim.op_count()
    }

    /// Lives for some steps. Nothing fails.
    pub fn live(&mut self, steps: u64) {
        let (db, logs) = open(&self.sim.env()).unwrap();
        assert_eq!(find(&db, &logs), Found { keys: self.keys, records: self.records });
        let other = db.column_family("other");
        let other = other.unwrap_or_else(|| db.create_column_family("other", Default::default()).unwrap());
        let log = logs.log("log").unwrap();
        for _ in 0..steps {
            let durability = if self.rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
            match self.rng.below(20) {
                0 => {
                    db.flush().unwrap();
                }
                1 => logs.seal().unwrap(),
                2 => logs.settle().unwrap(),
                3 => {
                    db.sync().unwrap();
                    self.durable(self.op(), |w| w.key.is_some());
                }
                4 => {
                    let volatile = WriteOptions { durability: Some(Durability::Volatile) };
                    db.put_opt(db.default_column_family(), b"volatile", b"v", &volatile).unwrap();
                }
                5..9 => self.put(&db, &other, durability),
                9..13 => self.both(&db, &other, &log, durability),
                _ => self.append(&log, durability),
            }
        }
        if self.rng.one_in(4) {
            drop(log);
            logs.close().unwrap();
            db.close().unwrap();
            let op = self.op();
            self.durable(op, |_| true);
        }
    }

    /// What is like this is durable from this operation on.
    fn durable(&mut self, op: u64, is: impl Fn(&Written) -> bool) {
        for written in self.written.iter_mut().filter(|w| is(w)) {
            written.buffered_op.get_or_insert(op);
            written.durable_op.get_or_insert(op);
        }
    }

    fn begin(&mut self, key: bool, lsn: bool) -> (u64, u64) {
        let (n, at) = (self.next_key, self.next_lsn);
        self.next_key += u64::from(key);
        self.next_lsn += u64::from(lsn);
        self.written.push(Written {
            key: key.then_some(n),
            lsn: lsn.then_some(at),
            begun_op: self.op(),
            buffered_op: None,
            durable_op: None,
        });
        (n, at)
    }

    fn acknowledged(&mut self, durability: Durability) {
        let op = self.op();
        let last = self.written.last_mut().unwrap();
        last.buffered_op = Some(op);
        let (has_key, has_lsn) = (last.key.is_some(), last.lsn.is_some());
        if durability == Durability::Durable {
            self.durable(op, |w| has_key && w.key.is_some() || has_lsn && w.lsn.is_some());
        }
    }

    fn put(&mut self, db: &Db, other: &lavakv::ColumnFamily, durability: Durability) {
        let (n, _) = self.begin(true, false);
        let options = WriteOptions { durability: Some(durability) };
        db.write_opt(&changes(other, n), &options).unwrap();
        self.acknowledged(durability);
    }

    fn both(&mut self, db: &Db, other: &lavakv::ColumnFamily, log: &LogHandle, durability: Durability) {
        let (n, lsn) = self.begin(true, true);
        write_both(db, &changes(other, n), log, lsn, &value(lsn + 1), durability).unwrap();
        self.acknowledged(durability);
    }

    fn append(&mut self, log: &LogHandle, durability: Durability) {
        let (_, lsn) = self.begin(false, true);
        log.append(lsn, &value(lsn + 1), durability).unwrap();
        self.acknowledged(durability);
    }

    /// Judges what a crash at an operation left.
    pub fn judge(&self, found: Found, op: u64, kind: CrashKind) {
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
        let kept = |w: &&Written| match kind {
            CrashKind::ProcessKill => passed(w.buffered_op),
            _ => passed(w.durable_op),
        };
        let keys_min =
            self.written.iter().filter(kept).filter_map(|w| w.key).max().map_or(self.keys, |n| n + 1);
        let lsn_min = self.written.iter().filter(kept).filter_map(|w| w.lsn).max().unwrap_or(self.records);
        let begun = |w: &&Written| w.begun_op <= op;
        let keys_max =
            self.written.iter().filter(begun).filter_map(|w| w.key).max().map_or(self.keys, |n| n + 1);
        let lsn_max = self.written.iter().filter(begun).filter_map(|w| w.lsn).max().unwrap_or(self.records);
        assert!((keys_min..=keys_max).contains(&found.keys), "{found:?}, not {keys_min} to {keys_max} keys");
        assert!(
            (lsn_min..=lsn_max).contains(&found.records),
            "{found:?}, not {lsn_min} to {lsn_max} records"
        );
        for Written { key, lsn, .. } in &self.written {
            if let (Some(key), Some(lsn)) = (key, lsn) {
                let halves = (*key < found.keys, *lsn <= found.records);
                assert_eq!(halves.0, halves.1, "halves of a batch: key {key}, record {lsn}; {found:?}");
            }
        }
    }
}

/// A record and changes, both or neither.
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
    let options = WriteOptions { durability: Some(durability) };
    log.store().write_carrying(&batch, &mut |carry| write_carried(db, changes, &options, carry))
}

/// The changes of key-value write `n`.
pub fn changes(other: &lavakv::ColumnFamily, n: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&key(n), &value(n));
    if n.is_multiple_of(3) {
        batch.put_cf(other, &key(n), &value(n));
    }
    batch
}
