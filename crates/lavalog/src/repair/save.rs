//! Writes the new store: the known logs, then every live record that was found.
//!
//! Logs keep their numbers, which keys in the same store may refer to.
//!
//! All writes take the normal path. They wait only for the new store's jobs, and become durable at
//! the end. Until then the store is marked as unfinished ([`store::files::unfinished`]), and every
//! open refuses it.

use super::known::SalvagedState;
use super::loose;
use super::report::{RepairGap, RepairReport, RepairedLog};
use super::sources::Sources;
use crate::cold::ColdFile;
use crate::entry::{LogId, Lsn};
use crate::log_store::LogStore;
use crate::logs::Log;
use crate::manifest::TENANT;
use crate::ops::{Op, Ops};
use base::{Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use store::commit::Durability;

/// Approximate size of a batch, bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of records in a batch.
const BATCH_RECORDS: usize = 4096;
/// Number of maximum-size groups written before the repair waits for the new store's jobs to seal
/// them. Nothing else slows the repair down, and each unsealed group keeps its file open.
const GROUPS_AHEAD: u64 = 8;

/// Saved LSNs as runs: the first LSN of each run, with its last.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<Lsn, Lsn>);

impl Runs {
    /// Adds an LSN. Returns false if it is present already.
    pub fn insert(&mut self, lsn: Lsn) -> bool {
        let before = self.0.range(..=lsn).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| lsn <= last) {
            return false;
        }
        let first = before.filter(|(_, last)| last + 1 == lsn).map_or(lsn, |(first, _)| first);
        let last = self.0.remove(&(lsn + 1)).unwrap_or(lsn);
        self.0.insert(first, last);
        true
    }

    /// Returns the missing runs between `first` and `last`, both included.
    pub fn missing(&self, first: Lsn, last: Lsn) -> Vec<(Lsn, Lsn)> {
        let (mut next, mut out) = (first, Vec::new());
        if first > last {
            return out;
        }
        let begin = self.0.range(..=first).next_back().map_or(first, |(first, _)| *first);
        for (from, to) in self.0.range(begin..=last) {
            if next < *from {
                out.push((next, from - 1));
            }
            next = next.max(to + 1);
        }
        if next <= last {
            out.push((next, last));
        }
        out
    }
}

/// A log being saved.
#[derive(Debug, Default)]
struct Saved {
    runs: Runs,
    report: RepairedLog,
}

/// The state of saving.
struct Saving<'a> {
    known: &'a SalvagedState,
    /// The new store; `None` in a dry run.
    into: Option<&'a LogStore>,
    logs: BTreeMap<LogId, Saved>,
    batch: Vec<(LogId, Lsn, Vec<u8>)>,
    batch_bytes: usize,
    /// Bytes written since the last wait for the new store's jobs.
    ahead_bytes: u64,
}

/// Saves the known state into a store and makes it durable. Only reports if `into` is `None`.
///
/// # Errors
/// Errors of writing the new store.
pub(super) fn save(
    into: Option<&LogStore>,
    sources: &Sources,
    known: &SalvagedState,
    report: &mut RepairReport,
) -> Result<()> {
    let (logs, batch) = (BTreeMap::new(), Vec::new());
    let mut saving = Saving { known, into, logs, batch, batch_bytes: 0, ahead_bytes: 0 };
    saving.make_logs()?;
    sources.log.replay(TENANT, &mut |_, first_seq, payload| {
        let Ok(ops) = Ops::of(payload).and_then(Iterator::collect::<Result<Vec<_>>>) else { return Ok(()) };
        for op in ops {
            if let Op::Append { log, lsn, bytes } = op.op {
                saving.record(log, lsn, first_seq + op.index as u64, bytes)?;
            }
        }
        Ok(())
    })?;
    for found in &sources.cold {
        let opened = ColdFile::open(found.file.clone(), found.number, found.uid);
        let end = opened.map_or(found.file.len()?, |(file, _)| file.records_end());
        loose::each_record(&*found.file, found.uid, end, &mut |entry, bytes| {
            saving.record(entry.log, entry.lsn, entry.seq, bytes)
        })?;
    }
    saving.finish(report)
}

impl Saving<'_> {
    /// Creates the logs without records.
    fn make_logs(&mut self) -> Result<()> {
        let mut all: Vec<&Log> = self.known.logs.registry().iter().collect();
        all.sort_by_key(|log| std::cmp::Reverse(log.id()));
        let mut names: BTreeSet<String> = all.iter().map(|log| log.name().to_string()).collect();
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for log in &all {
            // Of two logs with one name, the older was deleted, in a lost part.
            let mut name = log.name().to_string();
            let is_second = !taken.insert(log.name());
            if is_second {
                name = format!("recovered-{}", log.id());
                while !names.insert(name.clone()) {
                    name.push('-');
                }
            }
            let report = RepairedLog {
                name,
                name_is_lost: is_second || self.known.invented.contains(&log.id()),
                trimmed_below: log.live().trimmed_below(),
                ..RepairedLog::default()
            };
            self.logs.insert(log.id(), Saved { report, ..Saved::default() });
        }
        let Some(into) = self.into else { return Ok(()) };
        for log in all.iter().rev() {
            let Some(saved) = self.logs.get(&log.id()) else { continue };
            make_log(into, log, self.known.last_of(log), &saved.report.name)?;
        }
        // Log numbers are never reused, not even those of deleted logs: keys may refer to them.
        let next = self.known.logs.registry().next_id();
        if into.core().catalog.view().registry().next_id() < next {
            let mut name = format!("deleted-{next}");
            while !names.insert(name.clone()) {
                name.push('-');
            }
            let last = create(into, next - 1, &name)?;
            into.core().writes.write(&[Op::Delete { log: last }], Durability::Buffered)?;
        }
        Ok(())
    }

    /// Saves a found record if it is live.
    fn record(&mut self, log: LogId, lsn: Lsn, seq: SeqNo, bytes: &[u8]) -> Result<()> {
        if !self.known.is_alive(log, lsn, seq) {
            return Ok(());
        }
        let Some(saved) = self.logs.get_mut(&log) else { return Ok(()) };
        if !saved.runs.insert(lsn) {
            return Ok(());
        }
        saved.report.records += 1;
        saved.report.bytes += bytes.len() as u64;
        if self.into.is_some() {
            self.batch.push((log, lsn, bytes.to_vec()));
            self.batch_bytes += bytes.len();
        }
        let is_full = self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_RECORDS;
        if is_full { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.ahead_bytes += std::mem::take(&mut self.batch_bytes) as u64;
        let Some(into) = self.into.filter(|_| !batch.is_empty()) else { return Ok(()) };
        let ops: Vec<Op<'_>> =
            batch.iter().map(|(log, lsn, bytes)| Op::Append { log: *log, lsn: *lsn, bytes }).collect();
        into.core().writes.write(&ops, Durability::Buffered)?;
        if self.ahead_bytes < GROUPS_AHEAD * into.core().store.options.longest_group() {
            return Ok(());
        }
        self.ahead_bytes = 0;
        into.wait_idle()
    }

    /// Reports missing records and makes the new store durable.
    fn finish(mut self, report: &mut RepairReport) -> Result<()> {
        self.write()?;
        for (id, saved) in &mut self.logs {
            let Some(log) = self.known.logs.get(*id) else { continue };
            saved.report.gaps = gaps(log, &saved.runs, self.known.has_uncertain_gaps);
        }
        report.logs = self.logs.into_values().map(|saved| saved.report).collect();
        let Some(into) = self.into else { return Ok(()) };
        into.sync()?;
        // Writes a checkpoint with the last LSN of each log.
        into.seal()?;
        into.wait_idle()
    }
}

/// Creates a log under its original number: keys in the same store may refer to it
/// ([`crate::LogHandle::id`]).
fn create(into: &LogStore, id: LogId, name: &str) -> Result<LogId> {
    into.core().catalog.reach_id(id);
    into.core().writes.create(name, Durability::Buffered)
}

/// Creates a log without records.
fn make_log(into: &LogStore, log: &Log, last: Option<Lsn>, name: &str) -> Result<()> {
    let id = create(into, log.id(), name)?;
    // Writers must continue above the last record that existed, even if it was trimmed or is lost.
    // No operation expresses that; a checkpoint stores it.
    if let Some(last) = last {
        into.core().catalog.reach_last(id, last);
    }
    let mut ops = Vec::new();
    if log.live().trimmed_below() > 0 {
        ops.push(Op::Trim { log: id, below: log.live().trimmed_below() });
    }
    if let Some(bytes) = log.metadata() {
        ops.push(Op::SetMetadata { log: id, bytes });
    }
    if ops.is_empty() {
        return Ok(());
    }
    into.core().writes.write(&ops, Durability::Buffered)
}

/// Returns the live records that were not found and, with `with_uncertain`, the gaps that may have
/// had records.
fn gaps(log: &Log, saved: &Runs, with_uncertain: bool) -> Vec<RepairGap> {
    let mut out: Vec<RepairGap> = Vec::new();
    let floor = log.live().trimmed_below();
    let mut next = floor;
    for (first, last) in log.live().index().runs_from(floor) {
        let first = first.max(floor);
        if with_uncertain && next < first {
            out.push(RepairGap { first: next, last: first - 1, is_certain: false });
        }
        let lost = saved.missing(first, last).into_iter();
        out.extend(lost.map(|(first, last)| RepairGap { first, last, is_certain: true }));
        next = last.saturating_add(1);
    }
    if let Some(last) = log.last_bound().filter(|last| with_uncertain && next <= *last) {
        out.push(RepairGap { first: next, last, is_certain: false });
    }
    out
}
