//! Check of a log group against its index: its index file, or the index in memory while it is
//! unsealed.
//!
//! All pages are read once, in file order, and batches are assembled from them. Each append in a
//! batch is looked up in the index by log and LSN. If its entry has the same sequence number, it
//! must have the same position and length. An index entry without an append is read singly, by its
//! position: a batch with one damaged page is skipped, but its records in other pages are not lost.
//!
//! Memory: the directory of the index file and the live LSNs, as runs; a bounded number of blocks
//! of rows; a run of pages and the longest batch.

use super::report::{LossesByPosition, VerifyReport};
use super::{alive_of, alive_runs, is_there, lost_runs, missing_is_damage, name_of, part_runs};
use crate::core::Core;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::files::RowFile;
use crate::index::RecordLocation;
use crate::index_file::IndexHead;
use crate::log_writer::place_of;
use crate::lsn_set::{Builder, LsnSet};
use crate::manifest::{FileMeta, TENANT};
use crate::ops::{Op, Ops};
use crate::records::place_in;
use crate::store_handles::StoreHandles;
use base::{Error, HashMap, Result};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::commit::{LogCheck, LogFindings, LoggedBatch};

/// Maximum number of cached blocks of rows.
const BLOCKS_MAX: usize = 1024;

/// A log, and the first and last of a run of its LSNs.
type LogRun = (LogId, Lsn, Lsn);

/// The index of the group's records.
enum Rows {
    File { file: RowFile, directory: Directory, blocks: HashMap<(LogId, Lsn), Arc<Vec<Entry>>> },
    Memory,
}

pub(super) struct GroupCheck {
    ltn: u64,
    rows: Rows,
    check: LogCheck,
    found: LogFindings,
    /// Live LSNs for which no batch was read yet.
    left: BTreeMap<LogId, LsnSet>,
    /// LSNs of unreadable blocks of rows. These records are lost unless the group has them, from
    /// which the rows can be rebuilt.
    bad_blocks: Vec<(LogId, RangeInclusive<Lsn>, Error)>,
    losses: LossesByPosition,
    /// Records of a lost index file. Its rows can be rebuilt from the group, unless pages of the
    /// group are damaged, too.
    without_rows: Option<(Error, Vec<LogRun>)>,
    records: u64,
    record_bytes: u64,
    /// Whether the group is active. Records that are not in its file yet are not checked.
    is_active: bool,
    /// Whether the group was unsealed when the check began.
    is_open: bool,
    /// Index file of a group that was sealed during the check. The findings are discarded, and the
    /// group is checked against that file.
    became_storage: Option<FileMeta>,
}

impl GroupCheck {
    /// Begins the check of a sealed group against its index file. Returns `None` if the group is
    /// unreadable, which is reported, or gone.
    pub fn retained(core: &Core, meta: &FileMeta, ltn: u64, report: &mut VerifyReport) -> Option<GroupCheck> {
        let (mut losses, mut without_rows) = (LossesByPosition::default(), None);
        let (rows, left) = match open_rows(core, meta, ltn) {
            Ok(file) => {
                let alive = |rows: &LogRows| (rows.log, alive_of(&core.catalog, Source::Group(ltn), rows));
                let left = file.1.logs.iter().map(alive).collect();
                (Rows::File { file: file.0, directory: file.1, blocks: HashMap::default() }, left)
            }
            Err(_) if !is_there(core, meta.number) => return None,
            Err(e) => {
                let e = missing_is_damage(core, meta, e);
                losses.note(&e);
                let mut runs = Vec::new();
                part_runs(core, Source::Group(ltn), |log, first, last| runs.push((log, first, last)));
                lost_runs(core, Source::Group(ltn), |log, first, last| losses.lose(&e, log, first, last));
                if core.reader().is_some() {
                    // A read-only store has no job to rebuild them.
                    runs.drain(..).for_each(|(log, first, last)| losses.lose(&e, log, first, last));
                }
                without_rows = Some((e, runs));
                (Rows::Memory, recent_lsns(core, ltn))
            }
        };
        let check = match core.store.lane.reader().scan(ltn) {
            Ok(check) => check,
            Err(_) if !is_there(core, meta.number) => return None,
            Err(e) => {
                alive_runs(core, Source::Group(ltn), |log, first, last| losses.lose(&e, log, first, last));
                losses.tell(report, |log| name_of(core, log));
                return None;
            }
        };
        let mut group = GroupCheck { without_rows, ..GroupCheck::new(ltn, rows, check, left, losses) };
        group.check_rows(report, meta.len);
        Some(group)
    }

    /// Begins the check of an unsealed group.
    pub fn open(core: &Core, ltn: u64, is_active: bool, check: LogCheck) -> GroupCheck {
        let left = if is_active { BTreeMap::new() } else { recent_lsns(core, ltn) };
        let group = GroupCheck::new(ltn, Rows::Memory, check, left, LossesByPosition::default());
        GroupCheck { is_active, is_open: true, ..group }
    }

    fn new(
        ltn: u64,
        rows: Rows,
        check: LogCheck,
        left: BTreeMap<LogId, LsnSet>,
        losses: LossesByPosition,
    ) -> GroupCheck {
        let (records, record_bytes, is_active, is_open) = (0, 0, false, false);
        GroupCheck {
            ltn,
            rows,
            check,
            found: LogFindings::default(),
            left,
            bad_blocks: Vec::new(),
            losses,
            without_rows: None,
            records,
            record_bytes,
            is_active,
            is_open,
            became_storage: None,
        }
    }

    /// Reads all blocks of rows.
    fn check_rows(&mut self, report: &mut VerifyReport, len: u64) {
        let Rows::File { file, directory, .. } = &self.rows else { return };
        report.checked.index_files.add(1, len);
        for rows in &directory.logs {
            if file.each_of(rows, &mut |_| Ok(())).is_ok() {
                continue;
            }
            let (mut bad, blocks) = (false, rows.blocks.iter());
            for (block, next) in blocks.zip(rows.blocks.iter().skip(1).map(Some).chain([None])) {
                let Err(e) = file.block(rows.log, *block) else { continue };
                bad = true;
                let (first, last) = (block.first, next.map_or(Lsn::MAX, |next| next.first - 1));
                self.losses.note(&e);
                self.bad_blocks.push((rows.log, first..=last, e));
            }
            if !bad && let Err(e) = file.each_of(rows, &mut |_| Ok(())) {
                // The blocks are intact but differ from the directory.
                self.losses.note(&e);
            }
        }
    }

    /// Returns the index file of a group that was sealed during the check. Nothing was reported
    /// then, and the caller checks the group again with that file.
    pub fn became_storage(&self) -> Option<FileMeta> {
        self.became_storage
    }

    /// Reads the next part of the group. Returns false after the last one, when the findings are in
    /// the report.
    pub fn step(&mut self, core: &Core, report: &mut VerifyReport) -> bool {
        if self.read_on(core) {
            return true;
        }
        self.finish(core, report);
        false
    }

    fn read_on(&mut self, core: &Core) -> bool {
        let (rows, left, losses) = (&mut self.rows, &mut self.left, &mut self.losses);
        let (records, record_bytes) = (&mut self.records, &mut self.record_bytes);
        let (ltn, is_active, bad_blocks) = (self.ltn, self.is_active, &self.bad_blocks);
        let mut take = |batch: &LoggedBatch<'_>| {
            let checked = each_append(batch, &mut |entry| {
                if bad_block(bad_blocks, entry.log, entry.lsn).is_none() && !has(core, ltn, rows, entry)? {
                    return Ok(());
                }
                let of_log = left.get_mut(&entry.log);
                if of_log.is_some_and(|left| left.remove(entry.lsn..=entry.lsn).records > 0) || is_active {
                    *records += 1;
                    *record_bytes += u64::from(entry.len);
                }
                Ok(())
            });
            if let Err(e) = checked {
                losses.note(&e);
            }
        };
        if self.check.step(&mut self.found, &mut take) {
            return true;
        }
        if let Some(wal) = core.store.lane.begun().filter(|_| self.is_active) {
            let context = core.context();
            self.check.staged(wal, (&context.env, &context.dir), &mut self.found, &mut take);
        }
        false
    }

    /// Reads the remaining records singly, and reports the findings.
    fn finish(&mut self, core: &Core, report: &mut VerifyReport) {
        self.became_storage =
            core.store.manifest.state().rows_of(Source::Group(self.ltn)).filter(|_| self.is_open);
        if self.became_storage.is_some() {
            return;
        }
        let pages_are_bad = !self.found.errors.is_empty();
        self.found.errors.iter().for_each(|(_, e)| self.losses.note(e));
        if let Some((e, runs)) = self.without_rows.take().filter(|_| pages_are_bad) {
            runs.into_iter().for_each(|(log, first, last)| self.losses.lose(&e, log, first, last));
        }
        for (log, left) in std::mem::take(&mut self.left) {
            for run in left.runs() {
                (run.first..=run.last()).for_each(|lsn| match bad_block(&self.bad_blocks, log, lsn) {
                    Some(e) => self.losses.lose(e, log, lsn, lsn),
                    None => self.read_alone(core, log, lsn, pages_are_bad),
                });
            }
        }
        // If the group was freed meanwhile, its file may contain another group.
        if !core.store.lane.reader().groups().iter().any(|group| group.ltn == self.ltn) {
            return;
        }
        report.checked.groups.add(1, self.found.pages * io::PAGE as u64);
        report.checked.records.add(self.records, self.record_bytes);
        std::mem::take(&mut self.losses).tell(report, |log| name_of(core, log));
    }

    fn read_alone(&mut self, core: &Core, log: LogId, lsn: Lsn, pages_are_bad: bool) {
        let found = core.catalog.view().get(log).and_then(|own| own.live().index().get(log, lsn));
        let row = match (found, &self.rows) {
            (Some(RecordLocation::Record(Source::Group(ltn), entry)), Rows::Memory) if ltn == self.ltn => {
                entry
            }
            (Some(RecordLocation::Block(Source::Group(ltn), _)), Rows::File { .. }) if ltn == self.ltn => {
                match find(&mut self.rows, log, lsn) {
                    Ok(Some(row)) => row,
                    _ => return,
                }
            }
            // The record was trimmed, moved or overwritten.
            _ => return,
        };
        let mut bytes = Vec::new();
        match bytes_on_device(&core.store, self.ltn, &row, &mut bytes) {
            Ok(()) if pages_are_bad => {
                self.records += 1;
                self.record_bytes += u64::from(row.len);
            }
            Ok(()) => {
                let why = format!(
                    "the index has record {lsn} of log {log} in log group {}, but no batch there contains it",
                    self.ltn
                );
                let e = Error::corruption(why).at_file(index_path(&core.store, self.ltn));
                self.losses.lose(&e, log, lsn, lsn);
            }
            Err(e) => self.losses.lose(&e, log, lsn, lsn),
        }
    }
}

/// Returns the error of the unreadable block with a record's row, if there is one.
fn bad_block(blocks: &[(LogId, RangeInclusive<Lsn>, Error)], log: LogId, lsn: Lsn) -> Option<&Error> {
    let mut of_log = blocks.iter().filter(|(of, ..)| *of == log);
    of_log.find(|(_, lsns, _)| lsns.contains(&lsn)).map(|(.., e)| e)
}

/// Opens the index file of a group and checks that it belongs to the group.
fn open_rows(core: &Core, meta: &FileMeta, ltn: u64) -> Result<(RowFile, Directory)> {
    let opened = RowFile::open(core.context(), meta)?;
    let state = core.store.manifest.state();
    let Some(listed) = state.store.log_groups.get(&ltn) else { return Ok(opened) };
    if let RowFile::Index(file) = &opened.0 {
        let IndexHead { group, filled, .. } = *file.head();
        if Some(group) != listed.uid || listed.retained_bytes.is_some_and(|bytes| bytes != filled) {
            let uid = listed.uid.map_or_else(|| "unidentified".to_owned(), |uid| format!("{uid:?}"));
            let bytes = listed.retained_bytes;
            let bytes = bytes.map_or_else(|| "no recorded length".to_owned(), |n| format!("{n} bytes"));
            let why = format!(
                "the index file is of a group {group:?} with {filled} bytes, but log group {ltn} is {uid} with {bytes}"
            );
            return Err(Error::corruption(why).at_file(core.context().path(&meta.name())));
        }
    }
    Ok(opened)
}

/// Returns the LSNs of each log's recent records in a group.
fn recent_lsns(core: &Core, ltn: u64) -> BTreeMap<LogId, LsnSet> {
    let mut out = BTreeMap::new();
    for log in core.catalog.logs_in(ltn) {
        let mut set = Builder::default();
        if let Some(own) = core.catalog.view().get(log) {
            // They ascend and have valid lengths.
            own.live().index().recent_in(log, ltn).for_each(|row| drop(set.push(row.lsn, row.len)));
        }
        out.insert(log, set.build());
    }
    out
}

/// Calls `take` for every append of a batch, as an index entry.
fn each_append(batch: &LoggedBatch<'_>, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
    if batch.tenant != TENANT {
        return Ok(());
    }
    for op in Ops::of(batch.bytes)? {
        let op = op?;
        if let Op::Append { log, lsn, bytes } = op.op {
            let at = place_of(batch.place.at(op.offset)).at;
            let (seq, len) = (batch.first_seq + op.index as u64, bytes.len() as u32);
            take(&Entry { log, lsn, seq, at, len })?;
        }
    }
    Ok(())
}

/// Returns whether the index refers to this record.
///
/// # Errors
/// `Corruption` if the index has the same sequence number, but another position or length.
fn has(core: &Core, ltn: u64, rows: &mut Rows, entry: &Entry) -> Result<bool> {
    let (row, file) = match rows {
        Rows::Memory => {
            let found = core
                .catalog
                .view()
                .get(entry.log)
                .and_then(|log| log.live().index().get(entry.log, entry.lsn));
            match found {
                Some(RecordLocation::Record(Source::Group(of), row)) if of == ltn => (Some(row), None),
                _ => (None, None),
            }
        }
        Rows::File { .. } => {
            (find(rows, entry.log, entry.lsn).ok().flatten(), Some(index_path(&core.store, ltn)))
        }
    };
    match row.filter(|row| row.seq == entry.seq) {
        None => Ok(false),
        Some(row) if row == *entry => Ok(true),
        Some(row) => {
            let why = format!("the index of log group {ltn} has {row}, but the group itself has {entry}");
            let e = Error::corruption(why);
            Err(file.map_or(e.clone(), |file| e.at_file(file)))
        }
    }
}

/// Returns the row of a record in an index file.
fn find(rows: &mut Rows, log: LogId, lsn: Lsn) -> Result<Option<Entry>> {
    let Rows::File { file, directory, blocks } = rows else { return Ok(None) };
    let Some(block) = directory.log(log).and_then(|rows| rows.block_of(lsn)) else { return Ok(None) };
    let known = blocks.get(&(log, block.first)).cloned();
    let entries = match known {
        Some(entries) => entries,
        None => {
            let Block { first, .. } = block;
            let read = Arc::new(file.block(log, block)?);
            if blocks.len() >= BLOCKS_MAX {
                blocks.clear();
            }
            blocks.insert((log, first), read.clone());
            read
        }
    };
    let at = entries.binary_search_by_key(&lsn, |row| row.lsn);
    Ok(at.ok().and_then(|at| entries.get(at)).copied())
}

/// Returns the path to report for damage of a group's index: its index file, or the group's own
/// file.
fn index_path(store: &StoreHandles, ltn: u64) -> std::path::PathBuf {
    let state = store.manifest.state();
    let of_group = || state.store.log_groups.get(&ltn).map(|group| store::names::log(group.file));
    let name = state.rows_of(Source::Group(ltn)).map(|meta| meta.name()).or_else(of_group);
    store.context().path(&name.unwrap_or_default())
}

/// Reads the bytes of a record from the file of its group, bypassing memory.
fn bytes_on_device(store: &StoreHandles, ltn: u64, row: &Entry, out: &mut Vec<u8>) -> Result<()> {
    if row.len == 0 {
        return Ok(());
    }
    store.lane.reader().read(place_in(ltn, row.at)?, row.len as usize, out)
}
