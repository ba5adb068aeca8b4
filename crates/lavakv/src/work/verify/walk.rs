//! A walk over the whole store, in steps of about half a megabyte.
//!
//! The walk begins with the numbers of all data files, so it pins only the file being read. Files
//! deleted meanwhile are skipped; new files are left to the next walk. Then follow the log pages,
//! with the values and segments that only they reference, the staged pages, and the manifest.
//!
//! **Consequences of damage.** A damaged data file is set aside (`damaged`). The content of the log
//! is still in memory. So damage there is reported, and the memtables are flushed: then tables hold
//! the data, and recovery does not depend on the log. A damaged manifest is rewritten from memory.
//! In a store opened for reading, damage is only reported.
//!
//! An error in a released log group, or in a value flushed meanwhile, does not count: the state is
//! checked again after an error.

use super::VerifyReport;
use super::sums::Noted;
use crate::batch;
use crate::context::event::Event;
use crate::files::damaged;
use crate::files::data_file::DataFile;
use crate::files::log::Log;
use crate::large::placed::PlacedValues;
use crate::work::jobs::Jobs;
use crate::write::memtables::Writer;
use base::sync::MutexGuard;
use base::{Error, Result, SeqNo, ValueKind};
use lsm::TableSource;
use std::collections::VecDeque;
use std::sync::Arc;
use table::{CheckStep, SegmentCheck, SegmentReference, TableCheck, VsstCheck};
use version::{Dependency, FamilyId, FileOwner, Manifest};
use wal::check::{GroupToCheck, LogCheck, LogFindings};
use wal::{Lane, LoggedBatch, TenantId};

/// The walk of one verification or scrub pass. See the module.
pub(crate) struct Walk {
    /// Data files left to read.
    files: VecDeque<u64>,
    /// The data file being read.
    file: Option<FileWalk>,
    log: Option<LogWalk>,
    manifest_done: bool,
    /// References of the tables, if requested.
    noted: Option<Noted>,
}

/// A data file being read.
struct FileWalk {
    file: DataFile,
    check: FileCheck,
    /// Verified bytes of the file.
    sound: u64,
    /// True if a part is damaged.
    is_damaged: bool,
}

enum FileCheck {
    Table(Box<TableCheck>),
    Vsst(Box<VsstCheck>),
    Segment(SegmentCheck),
}

struct LogWalk {
    check: LogCheck,
    placed: PlacedValues,
    /// Segments referenced by batches of the last steps.
    segments: VecDeque<LogSegment>,
    open: Option<(LogSegment, SegmentCheck)>,
    staged_done: bool,
}

/// A segment, or a value beside the log, referenced by a change in the log.
struct LogSegment {
    family: FamilyId,
    seq: SeqNo,
    key: Vec<u8>,
    reference: Vec<u8>,
}

impl Walk {
    pub fn new(jobs: &Jobs) -> Walk {
        let files = jobs.files.manifest.state().files().map(|(number, _)| number).collect();
        Walk { files, file: None, log: None, manifest_done: false, noted: None }
    }

    /// Creates a walk that notes the references of tables.
    pub fn noting(jobs: &Jobs) -> Walk {
        Walk { noted: Some(Noted::default()), ..Walk::new(jobs) }
    }

    /// Returns the noted references.
    pub fn noted(self) -> Noted {
        self.noted.unwrap_or_default()
    }

    /// Returns the number of data files left to read.
    pub fn files_left(&self) -> u64 {
        self.files.len() as u64 + u64::from(self.file.is_some())
    }

    /// Runs a step. Returns the bytes read, or `None` at the end.
    pub fn step(&mut self, jobs: &Arc<Jobs>, report: &mut VerifyReport) -> Option<u64> {
        if let Some(file) = self.file.take() {
            return Some(self.read(jobs, report, file));
        }
        while let Some(number) = self.files.pop_front() {
            let Some(file) = DataFile::find(&jobs.files.manifest.state(), number) else { continue };
            report.files += 1;
            match FileCheck::open(jobs, &file) {
                Ok(check) => {
                    let file = FileWalk { file, check, sound: 0, is_damaged: false };
                    return Some(self.read(jobs, report, file));
                }
                Err(e) => file_is_bad(jobs, report, &file, e),
            }
            return Some(0);
        }
        if self.manifest_done {
            return None;
        }
        if self.log.is_none() {
            self.log = LogWalk::new(jobs).map_err(|e| report.damaged(e)).ok();
        }
        if let Some(bytes) = self.log.as_mut().and_then(|log| log.step(jobs, report)) {
            return Some(bytes);
        }
        self.manifest_done = true;
        Some(check_manifest(jobs, report))
    }

    /// Runs a step of a file; it continues behind damage.
    fn read(&mut self, jobs: &Jobs, report: &mut VerifyReport, mut walk: FileWalk) -> u64 {
        let mut damage = Vec::new();
        let step = walk.check.step(&mut damage);
        walk.is_damaged |= !damage.is_empty();
        damage.into_iter().for_each(|e| file_is_bad(jobs, report, &walk.file, e));
        let (files, parts) = match walk.file {
            DataFile::Table(_) => (&mut report.checked.tables, &mut report.checked.blocks),
            DataFile::Vsst(_) => (&mut report.checked.value_files, &mut report.checked.records),
        };
        parts.add(step.parts, step.bytes);
        let before = walk.sound;
        walk.sound += step.bytes;
        if !step.done {
            self.file = Some(walk);
            return step.bytes;
        }
        if walk.is_damaged {
            report.bytes += walk.sound;
            return step.bytes;
        }
        match walk.check.fits(jobs, &walk.file) {
            Ok(Fits { bytes, entries, list }) => {
                files.add(1, bytes);
                report.bytes += bytes;
                report.entries += entries;
                self.note(jobs, &walk.file, &list);
                // Footers, and other parts not counted per block.
                bytes.saturating_sub(before)
            }
            Err(e) => {
                file_is_bad(jobs, report, &walk.file, e);
                step.bytes
            }
        }
    }

    fn note(&mut self, jobs: &Jobs, file: &DataFile, list: &[Dependency]) {
        let Some(noted) = &mut self.noted else { return };
        if let Some(FileOwner::Table { family, .. }) = jobs.files.manifest.state().place_of(file.number()) {
            noted.add(family, file.number(), list);
        }
    }
}

/// A file that matches its description in the manifest.
#[derive(Debug)]
struct Fits {
    bytes: u64,
    entries: u64,
    /// References of a table.
    list: Vec<Dependency>,
}

fn file_is_bad(jobs: &Jobs, report: &mut VerifyReport, file: &DataFile, error: Error) {
    let error = error.at_file(jobs.context.path(&file.kind().to_string()));
    if damaged::is_of_reading(&error) && !error.is_passing() {
        jobs.tree.set_aside(file.number(), &error);
    }
    report.damaged(error);
}

impl FileCheck {
    fn open(jobs: &Jobs, file: &DataFile) -> Result<FileCheck> {
        Ok(match file {
            DataFile::Table(meta) => {
                FileCheck::Table(Box::new(TableCheck::new(jobs.files.tables.table(meta)?)))
            }
            DataFile::Vsst(meta) if meta.segment => {
                FileCheck::Segment(SegmentCheck::new(jobs.files.tables.segment(meta.number, meta.uid)?)?)
            }
            DataFile::Vsst(meta) => FileCheck::Vsst(Box::new(VsstCheck::new(jobs.files.tables.vsst(meta)?))),
        })
    }

    fn step(&mut self, damage: &mut Vec<Error>) -> CheckStep {
        match self {
            FileCheck::Table(check) => check.step(damage),
            FileCheck::Vsst(check) => check.step(damage),
            FileCheck::Segment(check) => check.step(damage),
        }
    }

    /// Returns length, entries and references if they match the manifest.
    fn fits(&self, jobs: &Jobs, file: &DataFile) -> Result<Fits> {
        let mut list = Vec::new();
        let (found, stated) = match (self, file) {
            (FileCheck::Table(check), DataFile::Table(meta)) => {
                let table = check.table();
                list = jobs.files.tables.dependencies(meta)?;
                ((table.len(), table.properties().entries, 0), (meta.len, meta.entries, 0))
            }
            (FileCheck::Vsst(check), DataFile::Vsst(meta)) => {
                let own = check.vsst().properties();
                let found = (check.vsst().len(), own.entries, own.record_bytes);
                (found, (meta.len, meta.entries, meta.record_bytes))
            }
            (FileCheck::Segment(check), DataFile::Vsst(meta)) => {
                let segment = check.segment();
                ((segment.file_len(), 1, segment.raw_len()), (meta.len, 1, meta.raw_bytes))
            }
            _ => {
                return Err(Error::corruption(
                    "the file is of another kind (table, value file or large value) than the manifest \
                     says: files were swapped",
                ));
            }
        };
        if found == stated {
            return Ok(Fits { bytes: found.0, entries: found.1, list });
        }
        Err(Error::corruption(format!(
            "the length or the number of entries of the file differs from the manifest: it has {} bytes \
             and {} entries ({} bytes of values), listed are {}, {} and {}",
            found.0, found.1, found.2, stated.0, stated.1, stated.2
        )))
    }
}

impl LogWalk {
    fn new(jobs: &Jobs) -> Result<LogWalk> {
        let state = jobs.files.manifest.state();
        let mut groups = Vec::new();
        for group in jobs.log.reader().in_use() {
            let listed = state.store.log_groups.get(&group.ltn).filter(|listed| !listed.discarded);
            let file = jobs.log.files().file_of(group.ltn);
            if let Some((listed, file)) = listed.zip(file) {
                groups.push(GroupToCheck {
                    ltn: group.ltn,
                    uid: listed.uid,
                    file: file.file,
                    begins: group.begins,
                    filled: group.filled,
                });
            }
        }
        let check = LogCheck::new(jobs.files.manifest.store(), groups);
        let check = match jobs.log.get() {
            Some(_) => check,
            None => check.or_staged(&jobs.context.env, &jobs.context.dir)?,
        };
        Ok(LogWalk {
            check,
            placed: PlacedValues::new(Log::was_closed(&state)),
            segments: VecDeque::new(),
            open: None,
            staged_done: false,
        })
    }

    fn step(&mut self, jobs: &Arc<Jobs>, report: &mut VerifyReport) -> Option<u64> {
        if let Some((segment, check)) = self.open.take() {
            return Some(self.read_segment(jobs, report, segment, check));
        }
        if let Some(segment) = self.segments.pop_front() {
            return Some(self.open_segment(jobs, report, segment));
        }
        let (mut found, mut batches) = (LogFindings::default(), Batches::default());
        let mut on_batch = |batch: &LoggedBatch<'_>| {
            if batch.tenant == TenantId::FIRST {
                batches.take(jobs, batch.first_seq, batch.bytes);
            }
        };
        if !self.check.step(&mut found, &mut on_batch) {
            if std::mem::replace(&mut self.staged_done, true) {
                return None;
            }
            if let Some(wal) = jobs.log.get() {
                self.check.staged(wal, (&jobs.context.env, &jobs.context.dir), &mut found, &mut on_batch);
            }
        }
        let mut bytes = found.pages * io::PAGE as u64;
        report.checked.log_pages.add(found.pages, bytes);
        report.checked.staged_pages.add(found.staged_pages, found.staged_pages * io::PAGE as u64);
        report.checked.log_batches.add(found.batches, batches.bytes);
        for (ltn, error) in found.errors {
            if is_living(jobs, ltn, error.offset()) {
                log_is_bad(jobs, report, error);
            }
        }
        for error in batches.errors {
            log_is_bad(jobs, report, error);
        }
        self.segments.extend(batches.segments);
        for placed in batches.placed {
            bytes += self.check_placed(jobs, report, &placed);
        }
        Some(bytes)
    }

    /// Checks a value beside the log. Returns its bytes.
    fn check_placed(&mut self, jobs: &Arc<Jobs>, report: &mut VerifyReport, placed: &LogSegment) -> u64 {
        let LogSegment { family, seq, key, reference } = placed;
        match self.placed.value(&jobs.context, key, *seq, reference) {
            Ok(value) => {
                report.checked.log_values.add(1, value.len() as u64);
                value.len() as u64
            }
            Err(e) => {
                if only_the_log_has(jobs, *family, *seq) {
                    log_is_bad(jobs, report, e);
                }
                0
            }
        }
    }

    fn open_segment(&mut self, jobs: &Arc<Jobs>, report: &mut VerifyReport, segment: LogSegment) -> u64 {
        let opened = crate::large::segments::open(&jobs.files, &segment.key, &segment.reference);
        match opened.and_then(SegmentCheck::new) {
            Ok(check) => self.open = Some((segment, check)),
            Err(e) => segment_is_bad(jobs, report, &segment, e),
        }
        0
    }

    fn read_segment(
        &mut self,
        jobs: &Arc<Jobs>,
        report: &mut VerifyReport,
        segment: LogSegment,
        mut check: SegmentCheck,
    ) -> u64 {
        let mut damage = Vec::new();
        let CheckStep { bytes, done, .. } = check.step(&mut damage);
        damage.into_iter().for_each(|e| segment_is_bad(jobs, report, &segment, e));
        if !done {
            self.open = Some((segment, check));
        } else if !check.is_damaged() {
            report.checked.log_values.add(1, check.segment().file_len());
        }
        bytes
    }
}

/// References of the batches of a step.
#[derive(Default)]
struct Batches {
    bytes: u64,
    placed: Vec<LogSegment>,
    segments: Vec<LogSegment>,
    errors: Vec<Error>,
}

impl Batches {
    fn take(&mut self, jobs: &Jobs, first_seq: SeqNo, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Err(e) = self.decode(jobs, first_seq, bytes) {
            self.errors.push(e.at_file(&jobs.context.dir));
        }
    }

    fn decode(&mut self, jobs: &Jobs, first_seq: SeqNo, bytes: &[u8]) -> Result<()> {
        let (logged_seq, _, entries) = batch::decode(bytes)?;
        if logged_seq != first_seq {
            return Err(Error::corruption(format!(
                "a batch in the log has another first sequence number than its log record: {logged_seq}, \
                 not {first_seq}"
            )));
        }
        for (seq, change) in (first_seq..).zip(entries) {
            let change = change?;
            let (family, key) = (change.family, change.key.to_vec());
            if change.kind != ValueKind::PlacedReference || !only_the_log_has(jobs, family, seq) {
                continue;
            }
            let referring = if change.is_placed() { &mut self.placed } else { &mut self.segments };
            referring.push(LogSegment { family, seq, key, reference: change.value.to_vec() });
        }
        Ok(())
    }
}

/// Returns whether a change is in no table yet, by the log floor in the manifest. In a store
/// written by another process, by its current manifest.
fn only_the_log_has(jobs: &Jobs, family: FamilyId, seq: SeqNo) -> bool {
    let state = jobs.files.manifest.state();
    state.families.get(&family).is_some_and(|family| seq >= family.version.log_floor)
}

/// Returns whether a position of a group still belongs to the log. (Pages before its start were
/// superseded by flushes, and perhaps never written.)
fn is_living(jobs: &Jobs, ltn: u64, offset: Option<u64>) -> bool {
    let counts = |begins: u64| offset.is_none_or(|offset| offset >= begins);
    if jobs.log.get().is_some() {
        return jobs.log.reader().in_use().iter().any(|group| group.ltn == ltn && counts(group.begins));
    }
    let now = Manifest::recover(&jobs.context.env, &jobs.context.dir, true).map(|manifest| manifest.state());
    let then = jobs.files.manifest.state();
    let uid_of = |state: &version::State| state.store.log_groups.get(&ltn).map(|group| group.uid);
    let begins = |state: &version::State| {
        let begin = state.store.log_groups.get(&ltn).and_then(|group| group.begin);
        begin.map_or(0, |begin| begin.offset(Lane::FIRST))
    };
    now.map_or(true, |now| uid_of(&now) == uid_of(&then) && counts(begins(&now)))
}

/// Reports damage in the log, and rotates the memtables.
fn log_is_bad(jobs: &Arc<Jobs>, report: &mut VerifyReport, error: Error) {
    report.damaged(error.clone());
    if error.is_passing() {
        return;
    }
    jobs.context.stats.log_damages.add(1);
    jobs.context.notify(&Event::LogDamaged { error });
    if jobs.log.get().is_none() || jobs.context.health.is_poisoned() {
        return;
    }
    let Some(mut writer) = writer_soon(jobs) else { return };
    jobs.writes.memtables.freeze_all(&mut writer);
}

/// Returns the writer lock, if it is free within a tenth of a second. Its holder may wait for the
/// log thread, which may wait for this thread. The next pass finds the same damage and retries.
fn writer_soon(jobs: &Jobs) -> Option<MutexGuard<'_, Writer>> {
    for _ in 0..100 {
        if let Some(writer) = jobs.writes.memtables.try_lock() {
            return Some(writer);
        }
        jobs.context.env.clock.sleep_ns(1_000_000);
    }
    None
}

fn segment_is_bad(jobs: &Jobs, report: &mut VerifyReport, segment: &LogSegment, error: Error) {
    if !only_the_log_has(jobs, segment.family, segment.seq) {
        return;
    }
    if damaged::is_of_reading(&error)
        && !error.is_passing()
        && let Ok(reference) = SegmentReference::decode(&segment.reference)
        && let Some(family) = jobs.tree.families.get(segment.family)
        && !jobs.files.tables.quarantine.has(reference.file)
    {
        jobs.tree.set_segment_aside(&family, &segment.key, &reference, &error);
    }
    report.damaged(error);
}

/// Reads the manifest like an open, and rewrites a damaged one. Returns its bytes.
fn check_manifest(jobs: &Arc<Jobs>, report: &mut VerifyReport) -> u64 {
    if let Err(e) = jobs.files.manifest.state().verify() {
        report.damaged(e);
    }
    let (bytes, found) = match jobs.files.manifest.shared().read_again() {
        Ok(found) => {
            report.checked.manifest_edits.add(found.edits + 1, found.bytes);
            (found.bytes, found.damaged)
        }
        Err(e) => (0, vec![e]),
    };
    let is_damage = |e: &Error| damaged::is_of_reading(e) && !e.is_passing();
    if found.iter().any(is_damage) && jobs.log.get().is_some() {
        // The damage is reported below; a failed rewrite changes nothing.
        let _ = jobs.files.manifest.commits().roll();
    }
    for error in found {
        report.damaged(error.clone());
        if is_damage(&error) {
            jobs.context.stats.log_damages.add(1);
            jobs.context.notify(&Event::LogDamaged { error });
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
