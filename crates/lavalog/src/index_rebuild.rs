//! Rebuilding of index files from their log groups. An index file duplicates information of the
//! group's pages, so its damage loses no record.
//!
//! * **At open**, an index file is missing or has no readable directory. `open` reads the group and
//!   restores its live rows to memory. A job then writes a new index file from memory, so that the
//!   next open does not read the group.
//! * **While the store runs**, an index file is missing or has no readable directory. The reader
//!   reports that and waits, for a bounded time, for a job, which reads the group. The live records
//!   are known, so the job restores their rows to memory, log by log, and then writes a new file.
//!   Its blocks have new positions: a reader with an old block looks up again
//!   ([`crate::logs::GroupLogs::taken_in`]).
//! * **While the store runs**, a block is unreadable. The reader waits for a job that reads the
//!   file and, if it finds damage, the group. The directory lists the records at the time of
//!   writing. Of several records with one LSN, the one with the highest sequence number was live
//!   then, since it replaces the others. So the new file has the same blocks at the same positions,
//!   and references into the old file remain valid. Only the number and the uid differ.
//!
//! No reader depends on the job. It may be late because other groups come first, a checkpoint holds
//! the groups, or space is short. A reader that has waited too long reads its rows from the group
//! itself ([`crate::records::RecordReader::rows_of`]), and later readers do so at once.
//!
//! The edit that names the new file drops the old one. Each file is tried once. If pages of the
//! group are damaged, too, reads still fail with `Corruption`, and the next open tries again.
//!
//! One job runs at a time, with the right to move groups ([`MovingRight`]), so that no file that it
//! reads is removed. It does not run while space is short: jobs that free space come first.

use crate::catalog::Catalog;
use crate::collect::Collector;
use crate::disk::directory::Directory;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::files::{RowFile, RowFiles};
use crate::full_volume::FullVolume;
use crate::group_rows::{is_damage, take_rows};
use crate::hold::MovingRight;
use crate::index_file::{IndexFile, IndexFileWriter, IndexHead};
use crate::manifest::{FileMeta, FileRole, LogEdit, TENANT, commit};
use crate::rebuild_queue::{RebuildQueue, RebuildReason};
use crate::seal::{Sealer, Writing};
use crate::space::Reserve;
use crate::store_handles::{NewFile, StoreHandles};
use base::{ErrorKind, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup, LogCheck, LogFindings, LoggedBatch};
use store::context::Counter;
use store::run::{Job, JobClass, Progress};

/// Logs in one step of the job.
const LOGS_IN_STEP: usize = 256;
pub(crate) struct IndexRebuilder {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    rows: Arc<RowFiles>,
    remakes: Arc<RebuildQueue>,
    room: Arc<FullVolume>,
    reserve: Arc<Reserve>,
    collector: Arc<Collector>,
    sealer: Arc<Sealer>,
    remade_files: Counter,
}

pub(crate) struct RemakerParts {
    pub rows: Arc<RowFiles>,
    pub remakes: Arc<RebuildQueue>,
    pub room: Arc<FullVolume>,
    pub reserve: Arc<Reserve>,
    pub collector: Arc<Collector>,
    pub sealer: Arc<Sealer>,
}

impl IndexRebuilder {
    pub fn new(store: &Arc<StoreHandles>, catalog: &Arc<Catalog>, parts: RemakerParts) -> IndexRebuilder {
        let RemakerParts { rows, remakes, room, reserve, collector, sealer } = parts;
        let (store, catalog, remade_files) = (store.clone(), catalog.clone(), Counter::default());
        IndexRebuilder { store, catalog, rows, remakes, room, reserve, collector, sealer, remade_files }
    }

    /// Returns the number of index files rebuilt since the store was opened.
    pub fn remade_files(&self) -> u64 {
        self.remade_files.get()
    }

    /// Returns true if a job can rebuild an index file.
    pub fn has_to_remake(&self) -> bool {
        self.remakes.is_wanted() && !self.store.context().health.out_of_space()
    }

    /// Finishes the replacement of an index file after the manifest names the new one.
    fn remade(&self, old: &FileMeta, new: &FileMeta, group_len: u64) -> Result<()> {
        self.rows.close(old.number);
        new.source().iter().for_each(|source| self.collector.mended(*source));
        if let FileRole::Index { ltn } = old.role {
            self.remakes.done(ltn, old.number);
        }
        self.collector.may_collect(new, group_len);
        self.remade_files.add(1);
        self.store.files.remove(&old.name())?;
        self.room.job_found_room()?;
        self.reserve.files_changed()
    }
}

/// The job that rebuilds the index file of the oldest group in need.
pub(crate) struct RebuildJob {
    remaker: Arc<IndexRebuilder>,
    at: At,
    _right: MovingRight,
}

/// Phase of the job.
enum At {
    Begin,
    /// Reading the group into memory.
    Reading(Box<Reading>),
    /// Writing the index file from memory.
    Writing(Box<Writing>, FileMeta, u64),
    /// Replacing damaged blocks from the group.
    Mending(Box<Mending>),
}

/// Rebuilding of an index file that is lost as a whole.
struct Reading {
    old: FileMeta,
    group: LaneGroup,
    scan: LogCheck,
    found: LogFindings,
    /// First and last sequence number of the group.
    seqs: Option<(SeqNo, SeqNo)>,
    /// Rows that were live when they were read.
    rows: BTreeMap<(LogId, Lsn), Entry>,
}

/// Rebuilding of an index file with damaged blocks.
struct Mending {
    old: FileMeta,
    ltn: u64,
    group_len: u64,
    file: Arc<IndexFile>,
    directory: Directory,
    /// Number of logs of the directory that are checked, and then written.
    at: usize,
    damaged: BTreeSet<LogId>,
    scan: Option<LogCheck>,
    /// Rows of the damaged logs.
    rows: BTreeMap<(LogId, Lsn), Entry>,
    output: Option<(NewFile, IndexFileWriter)>,
}

enum Stepped {
    More,
    Done,
    /// Nothing is damaged, or the damage cannot be repaired.
    GivenUp,
}

impl RebuildJob {
    pub fn new(remaker: &Arc<IndexRebuilder>, right: MovingRight) -> RebuildJob {
        RebuildJob { remaker: remaker.clone(), at: At::Begin, _right: right }
    }

    fn begin(&mut self) -> Result<Stepped> {
        let remaker = &self.remaker;
        let first = remaker.remakes.first();
        let Some((ltn, number, why)) = first else { return Ok(Stepped::Done) };
        let is_group = |group: &LaneGroup| group.ltn == ltn && group.state == GroupState::Retained;
        let group = remaker.store.lane.reader().groups().into_iter().find(is_group);
        let old =
            remaker.store.manifest.state().rows_of(Source::Group(ltn)).filter(|meta| meta.number == number);
        let (Some(mut group), Some(old)) = (group, old) else {
            // The group was collected.
            remaker.remakes.done(ltn, number);
            return Ok(Stepped::More);
        };
        self.at = match why {
            RebuildReason::InMemory(seqs) => {
                let group_len = group.len;
                group.seqs = None;
                At::Writing(Box::new(Writing::begin(&remaker.sealer, group, seqs)?), old, group_len)
            }
            RebuildReason::Damaged => match RowFile::open(remaker.store.context(), &old) {
                Ok((RowFile::Index(file), directory)) => At::Mending(Box::new(Mending {
                    old,
                    ltn,
                    group_len: group.len,
                    file,
                    directory,
                    at: 0,
                    damaged: BTreeSet::new(),
                    scan: None,
                    rows: BTreeMap::new(),
                    output: None,
                })),
                Err(e) if !is_damage(&e) => return Err(e),
                _ => match remaker.store.lane.reader().scan(ltn) {
                    Ok(scan) => At::Reading(Box::new(Reading {
                        old,
                        group,
                        scan,
                        found: LogFindings::default(),
                        seqs: None,
                        rows: BTreeMap::new(),
                    })),
                    // The group is lost as well.
                    Err(e) if is_damage(&e) => {
                        remaker.remakes.done(ltn, number);
                        remaker.store.context().signals.notify_progress();
                        return Ok(Stepped::More);
                    }
                    Err(e) => return Err(e),
                },
            },
        };
        Ok(Stepped::More)
    }

    fn advance(&mut self) -> Result<Stepped> {
        match &mut self.at {
            At::Begin => self.begin(),
            At::Reading(reading) => {
                if reading.read_some(&self.remaker)? {
                    return Ok(Stepped::More);
                }
                let Some((group, seqs)) = reading.take_in(&self.remaker) else { return Ok(Stepped::GivenUp) };
                let (old, group_len) = (reading.old, group.len);
                self.at =
                    At::Writing(Box::new(Writing::begin(&self.remaker.sealer, group, seqs)?), old, group_len);
                Ok(Stepped::More)
            }
            At::Writing(writing, old, group_len) => {
                if writing.is_written() {
                    for new in writing.replace(old)? {
                        self.remaker.remade(old, &new, *group_len)?;
                    }
                    return Ok(Stepped::Done);
                }
                writing.write_some().map(|()| Stepped::More)
            }
            At::Mending(mending) => mending.step(&self.remaker),
        }
    }

    fn give_up(&mut self) {
        let (ltn, number) = match &mut self.at {
            At::Mending(mending) => {
                mending.remove(&self.remaker);
                (mending.ltn, mending.old.number)
            }
            At::Reading(reading) => (reading.group.ltn, reading.old.number),
            At::Begin | At::Writing(..) => return,
        };
        self.remaker.remakes.done(ltn, number);
        self.remaker.store.context().signals.notify_progress();
    }
}

impl Reading {
    /// Reads the next part of the group. Returns false after the last part.
    fn read_some(&mut self, remaker: &IndexRebuilder) -> Result<bool> {
        let (rows, seqs, source) = (&mut self.rows, &mut self.seqs, Source::Group(self.group.ltn));
        let mut failed = None;
        let is_wanted = |log, lsn| {
            remaker.catalog.view().get(log).is_some_and(|log| log.live().index().is_in(source, lsn))
        };
        let mut take = |batch: &LoggedBatch<'_>| {
            if batch.tenant == TENANT {
                *seqs = Some((seqs.map_or(batch.first_seq, |(first, _)| first), batch.last_seq));
            }
            failed = failed.take().or(take_rows(rows, batch, is_wanted).err());
        };
        let is_more = self.scan.step(&mut self.found, &mut take);
        failed.map_or(Ok(is_more), Err)
    }

    /// Restores the rows of the lost file to memory. Returns `None` if pages of the group are
    /// damaged and rows are missing.
    fn take_in(&mut self, remaker: &IndexRebuilder) -> Option<(LaneGroup, (SeqNo, SeqNo))> {
        let seqs = self.seqs.filter(|_| self.found.errors.is_empty())?;
        let ltn = self.group.ltn;
        let rows: Vec<Entry> = std::mem::take(&mut self.rows).into_values().collect();
        if !remaker.catalog.take_in(ltn, &rows) {
            return None;
        }
        let source = Source::Group(ltn);
        remaker.remakes.in_memory(ltn, self.old.number, seqs);
        remaker.collector.let_go(source);
        remaker.rows.forget(source);
        remaker.store.context().signals.notify_progress();
        Some((LaneGroup { seqs: None, ..self.group.clone() }, seqs))
    }
}

impl Mending {
    fn step(&mut self, remaker: &IndexRebuilder) -> Result<Stepped> {
        if let Some(output) = self.output.take() {
            return self.write_some(remaker, output);
        }
        if self.at < self.directory.logs.len() {
            return self.check_some().map(|()| Stepped::More);
        }
        if self.damaged.is_empty() {
            return Ok(Stepped::GivenUp);
        }
        match &mut self.scan {
            None => self.scan = Some(remaker.store.lane.reader().scan(self.ltn)?),
            Some(scan) => {
                let (rows, damaged, directory) = (&mut self.rows, &self.damaged, &self.directory);
                let mut failed = None;
                let mut take = |batch: &LoggedBatch<'_>| {
                    let taken = take_rows(rows, batch, |log, lsn| {
                        damaged.contains(&log)
                            && directory.log(log).is_some_and(|rows| rows.lsns.contains(lsn))
                    });
                    failed = failed.take().or(taken.err());
                };
                // Rows missing at the end reveal damage of the group.
                let is_more = scan.step(&mut LogFindings::default(), &mut take);
                failed.map_or(Ok(()), Err)?;
                if !is_more {
                    (self.scan, self.at) = (None, 0);
                    self.output = Some(self.begin_output(remaker)?);
                }
            }
        }
        Ok(Stepped::More)
    }

    /// Finds the logs with damaged blocks.
    fn check_some(&mut self) -> Result<()> {
        let end = (self.at + LOGS_IN_STEP).min(self.directory.logs.len());
        for rows in self.directory.logs.get(self.at..end).unwrap_or_default() {
            match self.file.each_of(rows, &mut |_| Ok(())) {
                Err(e) if e.is_corruption() || e.kind() == ErrorKind::Io => _ = self.damaged.insert(rows.log),
                checked => checked?,
            }
        }
        self.at = end;
        Ok(())
    }

    fn begin_output(&self, remaker: &IndexRebuilder) -> Result<(NewFile, IndexFileWriter)> {
        let (file, append) = remaker.store.new_file(self.old.role)?;
        let head = IndexHead { number: file.meta.number, ..*self.file.head() };
        let writer = IndexFileWriter::new(append, &file.path, file.meta.uid, head);
        Ok((file, writer))
    }

    fn write_some(
        &mut self,
        remaker: &IndexRebuilder,
        output: (NewFile, IndexFileWriter),
    ) -> Result<Stepped> {
        let (mut file, mut writer) = output;
        let end = (self.at + LOGS_IN_STEP).min(self.directory.logs.len());
        let written = self.directory.logs.get(self.at..end).unwrap_or_default().iter().try_for_each(|rows| {
            if !self.damaged.contains(&rows.log) {
                return self.file.each_of(rows, &mut |row| writer.add(row));
            }
            self.rows.range((rows.log, 0)..=(rows.log, Lsn::MAX)).try_for_each(|(_, row)| writer.add(row))
        });
        if let Err(e) = written {
            remaker.store.remove_unnamed(&[file]);
            return Err(e);
        }
        self.at = end;
        if end < self.directory.logs.len() {
            self.output = Some((file, writer));
            return Ok(Stepped::More);
        }
        match writer.finish() {
            Ok(finished) if finished.directory == self.directory => {
                file.meta.len = finished.len;
                self.put_in_place(remaker, file)
            }
            finished => {
                remaker.store.remove_unnamed(&[file]);
                // Rows are missing, or another release placed the blocks differently.
                finished.map(|_| Stepped::GivenUp)
            }
        }
    }

    fn put_in_place(&mut self, remaker: &IndexRebuilder, file: NewFile) -> Result<Stepped> {
        let new = file.meta;
        let step = LogEdit { floor: None, remove: vec![self.old.number], add: vec![new] };
        let named = remaker
            .store
            .files
            .sync_dir()
            .and_then(|()| remaker.store.manifest.commit(commit(step, Vec::new())).map(drop));
        named.inspect_err(|_| remaker.store.remove_unnamed(&[file]))?;
        remaker.rows.add(&new);
        remaker.remade(&self.old, &new, self.group_len)?;
        Ok(Stepped::Done)
    }

    fn remove(&mut self, remaker: &IndexRebuilder) {
        if let Some((file, _)) = self.output.take() {
            remaker.store.remove_unnamed(&[file]);
        }
    }
}

impl Job for RebuildJob {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        match self.advance() {
            Ok(Stepped::More) => return Ok(Progress::More),
            Ok(Stepped::Done) => {}
            Ok(Stepped::GivenUp) => self.give_up(),
            Err(e) if is_damage(&e) && matches!(self.at, At::Mending(_) | At::Reading(_)) => self.give_up(),
            Err(e) => return Err(e),
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {
        match &mut self.at {
            At::Writing(writing, ..) => writing.abandon(),
            At::Mending(mending) => mending.remove(&self.remaker),
            At::Begin | At::Reading(_) => {}
        }
    }
}
