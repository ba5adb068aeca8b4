//! Compares the bounds of reported losses with brute force, for the rows `repair` and
//! `log-joint-repair`.
//!
//! A short workload records the sequence number of every change and the LSN of every record. Then
//! one or two blocks of log files are erased, and the store is repaired. The oracle looks up each
//! change and record in the new store. Each missing one must lie inside a reported loss, and each
//! reported range must begin and end with a missing one. Every change has a unique key, so a
//! missing key is a missing change.
//!
//! In a killed store, the end of a lane cannot be distinguished from a torn one. There a missing
//! change must be reported if a later change of its lane is in the new store. The bounds count in
//! any case.

use super::INTO;
use crate::case::{Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::machine::{self, DIR, damage};
use crate::plan::pick;
use io::{Access, Rng};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{
    Db, Error, LogBatch, LogOptions, LogRepairReport, Options, RepairOptions, RepairReport, WriteBatch,
    WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Repairs per store.
const DAMAGES: u64 = 4;
/// Bytes erased at once.
const BLOCK: u64 = 4096;
/// Stands for an unknown end.
const MAX_SEQ: u64 = (1 << 56) - 1;

/// The log lane of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Keys,
    Records,
    Both,
}

/// The workload; see the module.
struct BoundsWorkload {
    has_logs: bool,
    closed: bool,
    sim: SimEnv,
    /// Keys by the sequence number of their change.
    keys: BTreeMap<u64, String>,
    /// Sequence numbers of the changes embedded in the lane of records.
    carried: BTreeSet<u64>,
    /// Operations of each log record by LSN: a batch with changes of keys counts one more. LSNs
    /// begin at 1.
    records: BTreeMap<u64, (u64, u64)>,
    /// Number of log operations so far. The first one creates the log.
    operations: u64,
    /// First sequence number that is not in tables.
    floor: u64,
}

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Options::default() }
}

fn log_options() -> LogOptions {
    LogOptions { group_bytes: Some(256 << 10), ..LogOptions::default() }
}

fn open(sim: &SimEnv, dir: &str, has_logs: bool) -> Check<Db> {
    let env = machine::env(sim)?;
    let opened = match has_logs {
        true => Db::open_with_logs_in(&env, dir, &options(), &log_options()),
        false => Db::open_in(&env, dir, &options()),
    };
    opened.doing(|| format!("open {dir}"))
}

impl BoundsWorkload {
    fn make(seed: u64, has_logs: bool, rng: &mut Rng) -> Check<BoundsWorkload> {
        let sim = machine::new(seed);
        let db = open(&sim, DIR, has_logs)?;
        let closed = rng.one_in(2);
        let (keys, carried, records) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut life =
            BoundsWorkload { has_logs, closed, sim, keys, carried, records, operations: 0, floor: 1 };
        for _ in 0..rng.range(6, 50) {
            life.step(&db, rng).doing(|| "a step".into())?;
        }
        life.sim = match closed {
            true => {
                db.close().doing(|| "close".into())?;
                life.sim.fork(seed)
            }
            false => life.sim.crash(CrashKind::ProcessKill, seed),
        };
        Ok(life)
    }

    fn step(&mut self, db: &Db, rng: &mut Rng) -> Result<(), Error> {
        let len = pick(rng, &[1, 1, 700, 3000, 6000]);
        match rng.below(10) {
            0 => {
                db.flush()?;
                self.floor = self.keys.len() as u64 + 1;
                // The first change behind the floor, in its own block.
                let lane = if self.has_logs { Lane::Both } else { Lane::Keys };
                self.write(db, (lane, 1, 14_000), rng)
            }
            5 if self.has_logs => self.write(db, (Lane::Records, 0, len), rng),
            n if self.has_logs && n < 5 => self.write(db, (Lane::Both, pick(rng, &[1, 1, 1, 3]), len), rng),
            _ => self.write(db, (Lane::Keys, pick(rng, &[1, 1, 3]), len), rng),
        }
    }

    /// Writes `count` changes with values of `len` bytes, or only a record of `len` bytes.
    fn write(&mut self, db: &Db, (lane, count, len): (Lane, u64, usize), rng: &mut Rng) -> Result<(), Error> {
        let options = if rng.one_in(2) { WriteOptions::durable() } else { WriteOptions::buffered() };
        let value = vec![b'v'; len];
        let batch = self.changes(count, &value);
        if lane == Lane::Both {
            let end = self.keys.len() as u64;
            self.carried.extend(end + 1 - count..=end);
        }
        if lane == Lane::Keys {
            return db.writing(&options).write(&batch);
        }
        let lsn = self.records.len() as u64 + 1;
        let first = self.operations.max(1) + 1;
        self.operations = first + u64::from(lane == Lane::Both);
        self.records.insert(lsn, (first, self.operations));
        let logs = db.logs()?;
        let log = logs.log("log")?;
        if lane == Lane::Records {
            return log.writing(&options).append(lsn, &value);
        }
        db.writing(&options).write_with_logs(&batch, LogBatch::new().append(&log, lsn, "record"))
    }

    /// Returns a batch of changes, which get the next sequence numbers.
    fn changes(&mut self, count: u64, value: &[u8]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for _ in 0..count {
            let seq = self.keys.len() as u64 + 1;
            let key = format!("key {seq:06}");
            batch.put(&key, value);
            self.keys.insert(seq, key);
        }
        batch
    }

    /// Erases one or two blocks of a log file. `None`: no such block holds data.
    fn damage(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<String>> {
        let mut blocks = Vec::new();
        for (path, len) in damage::files(sim)? {
            if path.starts_with(&format!("{DIR}/")) && path.ends_with(".log") {
                let file = machine::env(sim)?.fs.open(Path::new(&path), Access::Buffered);
                let file = file.doing(|| format!("open {path}"))?;
                for at in (0..len).step_by(BLOCK as usize) {
                    let mut bytes = vec![0; BLOCK.min(len - at) as usize];
                    file.read_at(&mut bytes, at).doing(|| format!("read {path}"))?;
                    if bytes.iter().any(|byte| *byte != 0) {
                        blocks.push((path.clone(), at, bytes.len()));
                    }
                }
            }
        }
        if blocks.is_empty() {
            return Ok(None);
        }
        let mut text = String::new();
        for _ in 0..pick(rng, &[1, 1, 2]) {
            let (path, at, len) = &blocks[rng.below(blocks.len() as u64) as usize];
            damage::overwrite(sim, path, *at, &vec![0; *len])?;
            text += &format!("{len} zeros over {path} at {at}; ");
        }
        Ok(Some(text))
    }

    /// Repairs and checks. Returns the number of losses that end at the floor.
    fn check(&self, sim: &SimEnv) -> Check<u64> {
        let env = machine::env(sim)?;
        let repair = RepairOptions { options: options(), logs: log_options(), ..RepairOptions::default() };
        let report = Db::repair_in(&env, DIR, &env, INTO, &repair).doing(|| "repair".into())?;
        let db = open(sim, INTO, self.has_logs && report.logs.is_some())?;
        let missing = self.missing_changes(&db)?;
        self.judge_changes(&missing, &report).map_err(|why| {
            format!(
                "{why}; missing {:?}, reported {:?}, damage {:?}",
                runs(&missing),
                report.keys.lost,
                report.keys.damaged
            )
        })?;
        if let Some(logs) = &report.logs {
            let missing = self.missing_records(&db, logs)?;
            self.judge_records(&missing, logs)
                .map_err(|why| format!("{why}; missing records {:?}, {logs:?}", runs(&missing)))?;
        }
        db.close().doing(|| "close the new store".into())?;
        let ends = report.keys.lost.iter().filter_map(|lost| lost.sequences);
        Ok(ends.filter(|(_, last)| *last == self.floor).count() as u64)
    }

    fn missing_changes(&self, db: &Db) -> Check<BTreeSet<u64>> {
        let mut missing = BTreeSet::new();
        for (seq, key) in &self.keys {
            if db.get(key).doing(|| format!("get {key}"))?.is_none() {
                missing.insert(*seq);
            }
        }
        Ok(missing)
    }

    fn judge_changes(&self, missing: &BTreeSet<u64>, report: &RepairReport) -> Check {
        let ranges: Vec<(u64, u64)> = report.keys.lost.iter().filter_map(|lost| lost.sequences).collect();
        ensure!(ranges.len() == report.keys.lost.len(), "a loss without sequences, and no table is damaged");
        // A later change of the lane proves that the lane did not end before.
        let proven = |is_carried: bool| {
            let of_lane = |seq: &&u64| self.carried.contains(seq) == is_carried && !missing.contains(seq);
            self.keys.keys().rfind(of_lane).copied().unwrap_or(0)
        };
        let proven = [proven(false), proven(true)];
        let must_tell = |seq: u64| self.closed || seq < proven[usize::from(self.carried.contains(&seq))];
        judge((missing, &ranges), (self.keys.len() as u64, "change"), must_tell)
    }

    fn missing_records(&self, db: &Db, report: &LogRepairReport) -> Check<BTreeSet<u64>> {
        let logs = db.logs().doing(|| "the logs".into())?;
        let mut missing = BTreeSet::new();
        let name = report.logs.iter().find(|log| log.name == "log" || log.name_is_lost);
        let log = name.map(|log| logs.log(&log.name)).transpose().doing(|| "the log".into())?;
        for &lsn in self.records.keys() {
            let read = log.as_ref().map_or(Ok(None), |log| log.read(lsn));
            if read.doing(|| format!("read {lsn}"))?.is_none() {
                missing.insert(lsn);
            }
        }
        Ok(missing)
    }

    fn judge_records(&self, missing: &BTreeSet<u64>, report: &LogRepairReport) -> Check {
        let gaps = || report.logs.iter().flat_map(|log| &log.gaps);
        for gap in gaps() {
            let found =
                (gap.first..=gap.last).find(|lsn| self.records.contains_key(lsn) && !missing.contains(lsn));
            ensure!(found.is_none(), "record {found:?} is there, and lies in the gap {gap}");
            let is_tight = missing.contains(&gap.first) && missing.contains(&gap.last);
            ensure!(is_tight || !gap.is_certain, "the gap {gap} is not tight");
        }
        let last = self.records.keys().rfind(|lsn| !missing.contains(lsn));
        let is_inside = |lsn: &u64| gaps().any(|gap| (gap.first..=gap.last).contains(lsn));
        let untold = missing.iter().find(|lsn| Some(*lsn) < last && !is_inside(lsn));
        ensure!(untold.is_none(), "record {untold:?} is missing, and in no gap");
        let of_missing = missing.iter().filter_map(|lsn| self.records.get(lsn));
        let operations = of_missing.flat_map(|(first, last)| *first..=*last);
        let lost = report.lost_batches.iter().map(|lost| lost.sequences);
        let lost: Vec<(u64, u64)> = lost.map(|(first, last)| (first, last.unwrap_or(MAX_SEQ))).collect();
        // The first operation creates the log, which a checkpoint may know.
        let is_told = lost.iter().any(|(first, _)| *first == 1);
        let operations: BTreeSet<u64> = operations.chain(is_told.then_some(1)).collect();
        judge((&operations, &lost), (self.operations, "operation"), |_| self.closed)
    }
}

/// Checks that each missing number that must be reported is inside a range, and that each range
/// begins and ends with a missing one. An unbounded range may begin behind all numbers.
fn judge(
    (missing, ranges): (&BTreeSet<u64>, &[(u64, u64)]),
    (end, what): (u64, &str),
    must_tell: impl Fn(u64) -> bool,
) -> Check {
    let is_inside = |seq: &u64| ranges.iter().any(|(first, last)| (*first..=*last).contains(seq));
    let untold = missing.iter().find(|seq| must_tell(**seq) && !is_inside(seq));
    ensure!(untold.is_none(), "{what} {untold:?} is missing, and not told");
    for (first, last) in ranges {
        let is_tight = match *last {
            MAX_SEQ => missing.contains(first) || *first > end,
            _ => missing.contains(first) && missing.contains(last),
        };
        ensure!(is_tight, "the range of {what}s {first} to {last} is not tight");
    }
    Ok(())
}

/// Formats the numbers as runs for a message.
fn runs(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut().filter(|(_, last)| last + 1 == *number) {
            Some((_, last)) => *last = *number,
            None => runs.push((*number, *number)),
        }
    }
    runs
}

/// Compares the reports of some repairs with brute force.
pub(crate) fn check(seed: u64, has_logs: bool, outcome: &mut Outcome) {
    let mut rng = Rng::new(seed ^ 0x626f_756e_6473);
    let Some(life) = outcome.made(|| BoundsWorkload::make(seed, has_logs, &mut rng)) else { return };
    let break_it = |sim: &SimEnv, rng: &mut Rng| life.damage(sim, rng);
    outcome.damaged((&life.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, text, _| {
        let checked = guarded(|| life.check(sim)).and_then(|checked| checked);
        outcome.note("losses that end at the floor", checked.as_ref().map_or(0, |count| *count));
        let state = if life.closed { "closed" } else { "killed" };
        outcome.take(checked.map(drop).map_err(|why| format!("bounds, {state}, damage {nth}, {text}{why}")));
    });
}
