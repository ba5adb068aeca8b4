//! Into the new store: the logs as they are known, then every record that is alive and was found.
//!
//! Logs keep their numbers, by which keys in the same store may know them.
//!
//! All of it goes the ordinary way of writes, without waiting but for the jobs of the new store, and is made durable at the end. Until then the store is marked as
//! unfinished ([`store::files::unfinished`]), and opened by nobody.

use super::known::Known;
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

/// Bytes that are written in one batch, about.
const BATCH_BYTES: usize = 1 << 20;
/// Records that are.
const BATCH_RECORDS: usize = 4096;
/// So many of the longest groups are filled before the new store's jobs have made storage of them. Nothing else holds up a repair, and
/// a group has its file open until then.
const GROUPS_AHEAD: u64 = 8;

/// LSNs that were saved, as runs: the last of each by the first.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<Lsn, Lsn>);

impl Runs {
    /// False if it is there already.
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

    /// What of `first` to `last` is not there.
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

/// A log on its way.
#[derive(Debug, Default)]
struct Saved {
    runs: Runs,
    report: RepairedLog,
}

/// Where it goes.
struct Saving<'a> {
    known: &'a Known,
    /// `None`: nowhere.
    into: Option<&'a LogStore>,
    logs: BTreeMap<LogId, Saved>,
    batch: Vec<(LogId, Lsn, Vec<u8>)>,
    batch_bytes: usize,
    /// Bytes that were written since the jobs of the new store were waited for.
    ahead_bytes: u64,
}

/// Saves what is known into a store, or nowhere, and makes it durable.
///
/// # Errors
/// Those of writing the new store.
pub(super) fn save(
    into: Option<&LogStore>,
    sources: &Sources,
    known: &Known,
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
    /// The logs, without records.
    fn make_logs(&mut self) -> Result<()> {
        let mut all: Vec<&Log> = self.known.logs.registry().iter().collect();
        all.sort_by_key(|log| std::cmp::Reverse(log.id()));
        let mut names: BTreeSet<String> = all.iter().map(|log| log.name().to_string()).collect();
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for log in &all {
            // Of two logs with one name the older was deleted, in a part that is lost.
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
        // A number is never given twice, not that of a log either that was deleted: there may be keys under it.
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

    /// A record that was found.
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
        into.settle()
    }

    /// Tells what is missing, and makes all of it durable.
    fn finish(mut self, report: &mut RepairReport) -> Result<()> {
        self.write()?;
        for (id, saved) in &mut self.logs {
            let Some(log) = self.known.logs.get(*id) else { continue };
            saved.report.gaps = gaps(log, &saved.runs, self.known.has_uncertain_gaps);
        }
        report.logs = self.logs.into_values().map(|saved| saved.report).collect();
        let Some(into) = self.into else { return Ok(()) };
        into.sync()?;
        // Writes the checkpoint that has the last LSN of each log.
        into.seal()?;
        into.settle()
    }
}

/// Makes a log under the number that it had: keys beside it may say by that how far they are ([`crate::LogHandle::id`]).
fn create(into: &LogStore, id: LogId, name: &str) -> Result<LogId> {
    into.core().catalog.reach_id(id);
    into.core().writes.create(name, Durability::Buffered)
}

/// Makes a log, without records.
fn make_log(into: &LogStore, log: &Log, last: Option<Lsn>, name: &str) -> Result<()> {
    let id = create(into, log.id(), name)?;
    // A writer goes on behind the last record that there was, though that was trimmed, or is lost. No operation says so: a checkpoint does.
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

/// What of a log is alive and was not found, and where it has no records although there may have been some.
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
