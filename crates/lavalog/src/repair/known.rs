//! The state of the damaged store, reconstructed from all sources.
//!
//! Groups are replayed first, in order, since they create and delete logs. Then come the contents
//! of cold files, and the rows of index files, for which the order does not matter
//! ([`crate::logs`]). A log whose creation and deletion are both unknown gets a made-up name: its
//! creation was in a lost part.

use super::loose;
use super::report::RepairReport;
use super::sources::{SourceFile, Sources};
use crate::checkpoint::SavedLog;
use crate::cold::ColdFile;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::entry::{Entry, LogId, Lsn};
use crate::index::{self};
use crate::index_file::IndexFile;
use crate::logs::{GroupPosition, Log, Logs};
use crate::manifest::TENANT;
use crate::ops::{Op, OpRead, Ops};
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use store::repair::LogGap;
use store::secondary_engine::EmbeddedPrimaryBatch;

/// Position of every record: irrelevant, since all are read again sequentially.
const ANYWHERE: GroupPosition = GroupPosition { ltn: 0, at: 0 };

#[derive(Default)]
pub(super) struct SalvagedState {
    pub logs: Logs,
    /// Logs with made-up names.
    pub invented: BTreeSet<LogId>,
    /// Whether records may be lost without a row that proves their existence.
    pub has_uncertain_gaps: bool,
    /// Operations below this are in groups that were sealed, or about to be, according to a
    /// checkpoint or an index file. Sealing begins only after no engine needs the group for replay.
    pub passed_below: SeqNo,
    /// Whether all existing index files are readable.
    reads_indexes: bool,
    /// Next log number at the start of the checkpoint: a lower number that the checkpoint lacks
    /// belongs to a deleted log.
    given: LogId,
    /// Sequence number below which the checkpoint reflects all operations.
    replay_from: SeqNo,
    created: BTreeSet<LogId>,
    deleted: BTreeSet<LogId>,
    first_seq: Option<SeqNo>,
}

impl SalvagedState {
    /// Reads all sources.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote any of them.
    pub fn of(sources: &Sources, report: &mut RepairReport) -> Result<SalvagedState> {
        let mut known = SalvagedState { reads_indexes: true, ..SalvagedState::default() };
        let mut replay_from = 0;
        if let Some((head, saved)) = &sources.checkpoint {
            known.logs.reach_id(head.next_log);
            (known.given, replay_from) = (head.next_log, head.replay_from);
            (known.replay_from, known.passed_below) = (replay_from, replay_from);
            for log in saved {
                if let Err(e) = known.logs.restore(log.clone()) {
                    report.damage(&e);
                }
            }
        }
        let indexed = known.take_indexes(sources, report, true)?;
        let gaps = sources.log.replay(TENANT, &mut |place, first_seq, payload| {
            let blame = |e: Error| e.at_file(&place.path).at_offset(place.offset);
            report.bytes_read += payload.len() as u64;
            known.first_seq.get_or_insert(first_seq);
            if EmbeddedPrimaryBatch::read(payload).is_ok_and(|embedded| embedded.is_some()) {
                report.carried += 1;
            }
            known.batch(first_seq, payload).or_else(|e| skip(&blame(e), report))
        })?;
        for gap in &gaps {
            let is_covered = gap.before_seq.is_some_and(|before| before <= replay_from);
            if is_covered && gap.between_groups && !sources.index_is_lost && known.reads_indexes {
                // The gap comes from collected groups. If a lost group is in it, its index file
                // lists the records.
                continue;
            }
            report.lose(gap, !is_covered);
            known.has_uncertain_gaps |= !is_gap_indexed(sources, &indexed, gap);
        }
        sources.log.displaced.iter().for_each(|e| report.damage(e));
        for path in sources.log.silent() {
            let why = "the file of a log group with needed records has no readable page, or is missing";
            report.damage(&Error::corruption(why).at_file(path));
            known.has_uncertain_gaps |=
                group_of(sources, Some(path)).is_none_or(|ltn| !indexed.contains_key(&ltn));
        }
        known.has_uncertain_gaps |= sources.cold_is_lost;
        sources.cold.iter().try_for_each(|found| known.take_cold(found, report))?;
        known.take_indexes(sources, report, false)?;
        while known.logs.cut_some() {}
        known.tell_what_may_come_back(sources, !gaps.is_empty(), report);
        Ok(known)
    }

    /// Returns the highest LSN of a log; its upper bound if records may be missing.
    pub fn last_of(&self, log: &Log) -> Option<Lsn> {
        if self.has_uncertain_gaps { log.last_bound() } else { log.last() }
    }

    /// Returns true if the record with this sequence number is the live one at its LSN.
    pub fn is_alive(&self, log: LogId, lsn: Lsn, seq: SeqNo) -> bool {
        let Some(own) = self.logs.get(log).filter(|own| lsn >= own.live().trimmed_below()) else {
            return false;
        };
        match own.live().index().get(log, lsn) {
            Some(index::RecordLocation::Record(_, entry)) => entry.seq == seq,
            _ => false,
        }
    }

    fn batch(&mut self, first_seq: SeqNo, bytes: &[u8]) -> Result<()> {
        // All operations of the batch, or none.
        let ops: Vec<OpRead<'_>> = Ops::of(bytes)?.collect::<Result<_>>()?;
        ops.iter().try_for_each(|op| self.apply(first_seq + op.index as u64, &op.op))
    }

    fn apply(&mut self, seq: SeqNo, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Create { log, .. } => drop(self.created.insert(*log)),
            Op::Delete { log } => drop(self.deleted.insert(*log)),
            _ => self.invent(op.log())?,
        }
        // Records appended after this truncation are also known, even if they are lost.
        let is_known = matches!(op, Op::TruncateAfter { .. }) && seq < self.replay_from;
        let last = self.logs.get(op.log()).and_then(|log| log.last_bound()).filter(|_| is_known);
        self.logs.apply(seq, op, ANYWHERE)?;
        last.into_iter().for_each(|last| self.logs.reach_last(op.log(), last));
        Ok(())
    }

    /// Adds a log that no source describes, under a made-up name.
    fn invent(&mut self, id: LogId) -> Result<()> {
        let is_known = self.logs.get(id).is_some()
            || id < self.given
            || self.created.contains(&id)
            || self.deleted.contains(&id);
        if is_known {
            return Ok(());
        }
        let mut name = format!("recovered-{id}");
        while self.logs.registry().named(&name).is_ok() {
            name.push('-');
        }
        self.invented.insert(id);
        self.logs.restore(SavedLog { id, name, ..SavedLog::default() })
    }

    /// Adds a record, or the row of one.
    fn claim(&mut self, entry: &Entry) -> Result<()> {
        self.invent(entry.log)?;
        if self.logs.get(entry.log).is_some() {
            self.logs.claim(entry, ANYWHERE);
        }
        Ok(())
    }

    fn take_cold(&mut self, found: &SourceFile, report: &mut RepairReport) -> Result<()> {
        let mut end = found.file.len()?;
        report.bytes_read += end;
        let is_whole = match ColdFile::open(found.file.clone(), found.number, found.uid) {
            Ok((file, directory)) => {
                end = file.records_end();
                self.take_rows(&directory, report, &mut |rows, block| file.block(rows.log, block))?
            }
            Err(e) => {
                skip(&e, report)?;
                false
            }
        };
        let damage = loose::each_record(&*found.file, found.uid, end, &mut |entry, _| self.claim(entry))?;
        if is_whole || end != found.file.len()? {
            damage.iter().for_each(|at| report.damage(&loose::damaged(&*found.file, *at)));
        }
        // There may have been more after the last readable record.
        self.has_uncertain_gaps |= !is_whole;
        Ok(())
    }

    /// Adds the rows of all index files. With `only_check`, returns instead the groups with intact
    /// index files and their sequence numbers.
    fn take_indexes(
        &mut self,
        sources: &Sources,
        report: &mut RepairReport,
        only_check: bool,
    ) -> Result<IndexedGroups> {
        let mut indexed = IndexedGroups::new();
        for found in &sources.indexes {
            match IndexFile::open(found.file.clone(), found.number, found.uid) {
                Ok((file, directory)) if only_check => {
                    self.passed_below = self.passed_below.max(file.head().seqs.1.saturating_add(1));
                    if file.verify(&directory).is_ok() {
                        indexed.insert(file.head().ltn, file.head().seqs);
                    }
                }
                Ok((file, directory)) => {
                    self.take_rows(&directory, report, &mut |rows, block| file.block(rows.log, block))?;
                }
                Err(e) => {
                    self.reads_indexes = false;
                    skip(&e, report)?;
                }
            }
        }
        Ok(indexed)
    }

    /// Adds the rows of a file. Returns true if all of them were readable.
    fn take_rows(
        &mut self,
        directory: &Directory,
        report: &mut RepairReport,
        read: &mut dyn FnMut(&LogRows, Block) -> Result<Vec<Entry>>,
    ) -> Result<bool> {
        let mut is_whole = true;
        for rows in &directory.logs {
            for block in &rows.blocks {
                match read(rows, *block) {
                    Ok(entries) => entries.iter().try_for_each(|entry| self.claim(entry))?,
                    Err(e) => {
                        is_whole = false;
                        skip(&e, report)?;
                    }
                }
            }
        }
        Ok(is_whole)
    }

    fn tell_what_may_come_back(&self, sources: &Sources, has_gaps: bool, report: &mut RepairReport) {
        // The existing groups contain the complete history.
        if self.first_seq.is_none_or(|first| first <= 1) && !has_gaps && sources.cold.is_empty() {
            return;
        }
        let never_made = sources.state.as_ref().is_some_and(|state| state.checkpoints().next().is_none());
        if sources.checkpoint.is_none() && !never_made {
            report.may_come_back.push(
                "the checkpoint is lost: logs that were deleted, records that were trimmed or truncated, and older metadata, where the \
                 operation that did it is in no group any more"
                    .into(),
            );
        }
        if sources.state.is_none() {
            report.may_come_back.push(
                "the manifest is lost: records that were truncated, where the group with the truncation was let go of and a file of \
                 their own was not removed yet"
                    .into(),
            );
        }
    }
}

/// Notes damage and continues.
///
/// # Errors
/// `Unsupported` if a newer release wrote the data.
fn skip(e: &Error, report: &mut RepairReport) -> Result<()> {
    if e.kind() == ErrorKind::Unsupported {
        return Err(e.clone());
    }
    report.damage(e);
    Ok(())
}

/// The groups with intact index files, each with its first and last sequence number.
type IndexedGroups = BTreeMap<u64, (SeqNo, SeqNo)>;

/// Returns the number (LTN) of the group in a file.
fn group_of(sources: &Sources, file: Option<&Path>) -> Option<u64> {
    let (state, name) = (sources.state.as_ref()?, file?.file_name()?.to_string_lossy());
    let mut groups = state.store.log_groups.values();
    groups.find(|group| store::names::log(group.file) == name).map(|group| group.ltn)
}

/// Returns true if index files list the records of every group that the gap overlaps.
fn is_gap_indexed(sources: &Sources, indexed: &IndexedGroups, gap: &LogGap) -> bool {
    let Some(first) = group_of(sources, gap.error.file()).filter(|ltn| indexed.contains_key(ltn)) else {
        return false;
    };
    let mut next = gap.after_seq.saturating_add(1);
    for (nth, (first_seq, last_seq)) in indexed.range(first..).map(|(_, seqs)| *seqs).enumerate() {
        // Groups before the first were collected.
        if nth > 0 && first_seq > next {
            break;
        }
        next = next.max(last_seq.saturating_add(1));
    }
    gap.before_seq.is_none_or(|before| before <= next)
}
