//! The rows of a group, made again from the group: they are a copy of what its pages say, so what is damaged of them costs nobody a record.
//!
//! * **At open**, an index file that is gone or has no readable directory: the group is read and what is alive of it is in memory
//!   again (`open`). From there a new index file is written as soon as a job is free, so that the next open reads no group for it.
//! * **While the store runs**, an index file that is gone or has no readable directory: whoever meets that says so and waits for a job (for a
//!   bounded time), which reads the group. What is alive is known, so its rows are taken into memory again, log by log, and a new file is
//!   written from there. Its blocks lie elsewhere: who has found a block before that asks the index again ([`crate::logs::Logs::taken_in`]).
//! * **While the store runs**, a block that cannot be read: whoever meets it waits as well, for a job that reads the file and, if it finds damage, the group. The directory says which records there were when the file was written, and of
//!   several with one LSN that of the highest sequence was alive then, since it takes the place of the others. So the new file has
//!   the same blocks in the same places, and all that leads into the old one leads into it: only the number and the uid differ.
//!
//! No reader depends on the job. It may be late, as other groups come first, a checkpoint holds the groups, or room is short. A reader that
//! has waited for so long reads its rows from the group itself ([`Core::rows_of`]), and the readers after it do so at once.
//!
//! The edit that names the new file drops the old one. Each file is tried once: what cannot be made again (pages of the group are damaged,
//! too) says `Corruption` as before, and is tried again by the next open.
//!
//! One job at a time, with the right to move groups ([`crate::core::UnderWay`]), so that no file goes that it reads. It stands back where
//! room is short: what frees room comes first.

use crate::core::Core;
use crate::disk::directory::{Block, Directory};
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::files::RowFile;
use crate::index_file::{IndexFile, IndexFileWriter, IndexHead};
use crate::manifest::{FileMeta, Role, Step, TENANT, commit};
use crate::ops::{Op, Ops};
use crate::seal::{NewFile, Writing};
use crate::to_remake::Why;
use crate::write::place_of;
use base::sync::lock;
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup, LogCheck, LogFindings, LoggedBatch};
use store::run::{Job, JobClass, Progress};

/// Logs in one step of the job.
const LOGS_IN_STEP: usize = 256;
/// A reader waits so long for a job, and then reads the group.
const WAIT_NS: u64 = 5_000_000_000;

/// Whether a job has rewritten an index file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rewritten {
    /// Another file has the rows, or memory.
    Yes,
    /// A job tried, and pages of the group are damaged, too.
    Failed,
    /// No job has come to it.
    NotYet,
}

impl Core {
    /// Rows of these groups may be damaged: a collection met something.
    pub fn check_rows(&self, sources: &[Source]) {
        for source in sources {
            if let (Source::Group(ltn), Some(number)) = (source, self.rows.number(*source)) {
                lock(&self.under_way).to_remake.want(*ltn, number);
            }
        }
    }

    /// Reads the rows of some consecutive records from the block that is said to have them. `taken_in`: [`crate::logs::Logs::taken_in`] when
    /// the index said so. Of a group, a damaged block is read again once a job has rewritten it; without a job, the group itself is read.
    ///
    /// # Errors
    /// Those of [`crate::files::RowFiles::rows`]: `Corruption` if the group has not all of the records. `NotFound`: the index is to be asked
    /// again.
    pub fn rows_of(
        &self,
        (source, taken_in): (Source, u64),
        log: LogId,
        lsns: &RangeInclusive<Lsn>,
        block: Block,
    ) -> Result<Vec<Entry>> {
        let number = self.rows.number(source);
        let read = || self.rows.rows(source, log, lsns, block);
        let rows = match (read(), source, number) {
            // A store that is only read has no jobs.
            (Err(e), Source::Group(ltn), Some(number)) if e.is_corruption() && self.reader().is_none() => {
                match self.wait_for_rows(ltn, number) {
                    Rewritten::Yes => read(),
                    Rewritten::Failed => Err(e),
                    Rewritten::NotYet => self.rows_in_group(ltn, log, lsns)?.ok_or(e),
                }
            }
            (rows, ..) => rows,
        };
        let is_same = self.catalog.view().taken_in() == taken_in;
        if is_same {
            return rows;
        }
        Err(Error::not_found(format!("the rows of {source:?} may have moved while they were read")))
    }

    /// Waits for a job that rewrites an index file.
    fn wait_for_rows(&self, ltn: u64, number: u64) -> Rewritten {
        let (context, source) = (self.context(), Source::Group(ltn));
        let outcome = || {
            // A job names the successor before it marks the file as tried.
            let is_tried = lock(&self.under_way).to_remake.is_tried(number);
            match self.rows.number(source) {
                of_now if of_now != Some(number) => Rewritten::Yes,
                _ if is_tried => Rewritten::Failed,
                _ => Rewritten::NotYet,
            }
        };
        let is_worth_a_wait = || {
            let to_remake = &mut lock(&self.under_way).to_remake;
            to_remake.want(ltn, number) && !to_remake.is_late(number)
        };
        if outcome() == Rewritten::NotYet && is_worth_a_wait() {
            context.signals.notify_work();
            let end_ns = context.now_ns().saturating_add(WAIT_NS);
            context.wait_until(|| {
                let gives_up = context.health.check().is_err() || context.health.out_of_space();
                (outcome() != Rewritten::NotYet || gives_up || context.now_ns() >= end_ns).then_some(())
            });
            if context.now_ns() >= end_ns {
                lock(&self.under_way).to_remake.note_late(number);
            }
        }
        outcome()
    }

    /// Reads rows of a log from the group itself. `None`: it has not all of them, or is damaged, or was collected.
    fn rows_in_group(&self, ltn: u64, log: LogId, lsns: &RangeInclusive<Lsn>) -> Result<Option<Vec<Entry>>> {
        let mut scan = match self.lane.scan(ltn) {
            Err(e) if is_damage(&e) => return Ok(None),
            scan => scan?,
        };
        let (mut rows, mut failed) = (BTreeMap::new(), None);
        let mut take = |batch: &LoggedBatch<'_>| {
            let taken = take_rows(&mut rows, batch, |of, lsn| of == log && lsns.contains(&lsn));
            failed = failed.take().or(taken.err());
        };
        // Damage of the group shows by the records that are missing then.
        while scan.step(&mut LogFindings::default(), &mut take) {}
        let mut wanted = lsns.clone();
        let is_whole = rows.keys().all(|(_, lsn)| wanted.next() == Some(*lsn)) && wanted.is_empty();
        match failed {
            Some(e) if !is_damage(&e) => Err(e),
            _ => Ok(is_whole.then(|| rows.into_values().collect())),
        }
    }

    /// True if a job can make rows again.
    pub fn has_to_remake(&self) -> bool {
        lock(&self.under_way).to_remake.is_wanted() && !self.context().health.out_of_space()
    }

    /// The index file that took the place of another is named: what belongs to that goes.
    fn remade(&self, old: &FileMeta, new: &FileMeta, group_len: u64) -> Result<()> {
        self.rows.close(old.number);
        {
            let mut under_way = lock(&self.under_way);
            new.source().iter().for_each(|source| _ = under_way.damaged.remove(source));
            if let Role::Index { ltn } = old.role {
                under_way.to_remake.done(ltn, old.number);
            }
        }
        self.may_collect(new, group_len);
        self.counters.remade_files.add(1);
        self.files.remove(&old.name())?;
        self.job_found_room()?;
        self.rolled()
    }
}

/// See the module. Of the oldest group that needs it.
pub(crate) struct Remake {
    core: Arc<Core>,
    at: At,
}

/// How far it has come.
enum At {
    Begin,
    /// From the group, into memory.
    Reading(Box<Reading>),
    /// From memory.
    Writing(Box<Writing>, FileMeta, u64),
    /// From the group.
    Mending(Box<Mending>),
}

/// An index file that is lost as a whole.
struct Reading {
    old: FileMeta,
    group: LaneGroup,
    scan: LogCheck,
    found: LogFindings,
    /// The sequences of the group.
    seqs: Option<(SeqNo, SeqNo)>,
    /// Of what was alive when it was read.
    rows: BTreeMap<(LogId, Lsn), Entry>,
}

/// An index file with damaged blocks.
struct Mending {
    old: FileMeta,
    ltn: u64,
    group_len: u64,
    file: Arc<IndexFile>,
    directory: Directory,
    /// How many logs of the directory are read, and then written.
    at: usize,
    damaged: BTreeSet<LogId>,
    scan: Option<LogCheck>,
    /// Of the damaged logs.
    rows: BTreeMap<(LogId, Lsn), Entry>,
    output: Option<(NewFile, IndexFileWriter)>,
}

/// What a step led to.
enum Stepped {
    More,
    Done,
    /// Nothing is damaged, or it cannot be mended.
    GivenUp,
}

impl Remake {
    /// The caller has claimed the right to move groups.
    pub fn new(core: &Arc<Core>) -> Remake {
        Remake { core: core.clone(), at: At::Begin }
    }

    fn begin(&mut self) -> Result<Stepped> {
        let core = &self.core;
        let first = lock(&core.under_way).to_remake.first();
        let Some((ltn, number, why)) = first else { return Ok(Stepped::Done) };
        let is_group = |group: &LaneGroup| group.ltn == ltn && group.state == GroupState::Retained;
        let group = core.lane.groups().into_iter().find(is_group);
        let old = core.manifest.state().rows_of(Source::Group(ltn)).filter(|meta| meta.number == number);
        let (Some(mut group), Some(old)) = (group, old) else {
            // It was collected.
            lock(&core.under_way).to_remake.done(ltn, number);
            return Ok(Stepped::More);
        };
        self.at = match why {
            Why::InMemory(seqs) => {
                let group_len = group.len;
                group.seqs = None;
                At::Writing(Box::new(Writing::begin(core, group, seqs)?), old, group_len)
            }
            Why::Damaged => match RowFile::open(core.context(), &old) {
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
                _ => match core.lane.scan(ltn) {
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
                        lock(&core.under_way).to_remake.done(ltn, number);
                        core.context().signals.notify_progress();
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
                if reading.read_some(&self.core)? {
                    return Ok(Stepped::More);
                }
                let Some((group, seqs)) = reading.take_in(&self.core) else { return Ok(Stepped::GivenUp) };
                let (old, group_len) = (reading.old, group.len);
                self.at = At::Writing(Box::new(Writing::begin(&self.core, group, seqs)?), old, group_len);
                Ok(Stepped::More)
            }
            At::Writing(writing, old, group_len) => {
                if writing.is_written() {
                    for new in writing.replace(old)? {
                        self.core.remade(old, &new, *group_len)?;
                    }
                    return Ok(Stepped::Done);
                }
                writing.write_some().map(|()| Stepped::More)
            }
            At::Mending(mending) => mending.step(&self.core),
        }
    }

    fn give_up(&mut self) {
        let (ltn, number) = match &mut self.at {
            At::Mending(mending) => {
                mending.remove(&self.core);
                (mending.ltn, mending.old.number)
            }
            At::Reading(reading) => (reading.group.ltn, reading.old.number),
            At::Begin | At::Writing(..) => return,
        };
        lock(&self.core.under_way).to_remake.done(ltn, number);
        self.core.context().signals.notify_progress();
    }
}

fn is_damage(e: &Error) -> bool {
    e.is_corruption() || e.kind() == ErrorKind::NotFound
}

impl Reading {
    /// Reads a part of the group. False if that was the last.
    fn read_some(&mut self, core: &Core) -> Result<bool> {
        let (rows, seqs, source) = (&mut self.rows, &mut self.seqs, Source::Group(self.group.ltn));
        let mut failed = None;
        let is_wanted =
            |log, lsn| core.catalog.view().get(log).is_some_and(|log| log.index().is_in(source, lsn));
        let mut take = |batch: &LoggedBatch<'_>| {
            if batch.tenant == TENANT {
                *seqs = Some((seqs.map_or(batch.first_seq, |(first, _)| first), batch.last_seq));
            }
            failed = failed.take().or(take_rows(rows, batch, is_wanted).err());
        };
        let is_more = self.scan.step(&mut self.found, &mut take);
        failed.map_or(Ok(is_more), Err)
    }

    /// The rows take the place of those of the file, in memory. `None`: pages of the group are damaged, and some rows are missing.
    fn take_in(&mut self, core: &Core) -> Option<(LaneGroup, (SeqNo, SeqNo))> {
        let seqs = self.seqs.filter(|_| self.found.errors.is_empty())?;
        let ltn = self.group.ltn;
        let rows: Vec<Entry> = std::mem::take(&mut self.rows).into_values().collect();
        if !core.catalog.take_in(ltn, &rows) {
            return None;
        }
        let source = Source::Group(ltn);
        {
            let mut under_way = lock(&core.under_way);
            under_way.to_remake.in_memory(ltn, self.old.number, seqs);
            under_way.to_collect.remove(source);
        }
        core.rows.forget(source);
        core.context().signals.notify_progress();
        Some((LaneGroup { seqs: None, ..self.group.clone() }, seqs))
    }
}

impl Mending {
    fn step(&mut self, core: &Arc<Core>) -> Result<Stepped> {
        if let Some(output) = self.output.take() {
            return self.write_some(core, output);
        }
        if self.at < self.directory.logs.len() {
            return self.check_some().map(|()| Stepped::More);
        }
        if self.damaged.is_empty() {
            return Ok(Stepped::GivenUp);
        }
        match &mut self.scan {
            None => self.scan = Some(core.lane.scan(self.ltn)?),
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
                // What is damaged of the group shows by the records that are missing then.
                let is_more = scan.step(&mut LogFindings::default(), &mut take);
                failed.map_or(Ok(()), Err)?;
                if !is_more {
                    (self.scan, self.at) = (None, 0);
                    self.output = Some(self.begin_output(core)?);
                }
            }
        }
        Ok(Stepped::More)
    }

    /// Looks which logs have damaged blocks.
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

    fn begin_output(&self, core: &Core) -> Result<(NewFile, IndexFileWriter)> {
        let (file, append) = core.new_file(self.old.role)?;
        let head = IndexHead { number: file.meta.number, ..*self.file.head() };
        let writer = IndexFileWriter::new(append, &file.path, file.meta.uid, head);
        Ok((file, writer))
    }

    fn write_some(&mut self, core: &Arc<Core>, output: (NewFile, IndexFileWriter)) -> Result<Stepped> {
        let (mut file, mut writer) = output;
        let end = (self.at + LOGS_IN_STEP).min(self.directory.logs.len());
        let written = self.directory.logs.get(self.at..end).unwrap_or_default().iter().try_for_each(|rows| {
            if !self.damaged.contains(&rows.log) {
                return self.file.each_of(rows, &mut |row| writer.add(row));
            }
            self.rows.range((rows.log, 0)..=(rows.log, Lsn::MAX)).try_for_each(|(_, row)| writer.add(row))
        });
        if let Err(e) = written {
            core.remove_unnamed(&[file]);
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
                self.put_in_place(core, file)
            }
            finished => {
                core.remove_unnamed(&[file]);
                // Records are missing, or another release put the blocks into other places.
                finished.map(|_| Stepped::GivenUp)
            }
        }
    }

    fn put_in_place(&mut self, core: &Arc<Core>, file: NewFile) -> Result<Stepped> {
        let new = file.meta;
        let step = Step { floor: None, remove: vec![self.old.number], add: vec![new] };
        let named =
            core.files.sync_dir().and_then(|()| core.manifest.commit(commit(step, Vec::new())).map(drop));
        named.inspect_err(|_| core.remove_unnamed(&[file]))?;
        core.rows.add(&new);
        core.remade(&self.old, &new, self.group_len)?;
        Ok(Stepped::Done)
    }

    fn remove(&mut self, core: &Core) {
        if let Some((file, _)) = self.output.take() {
            core.remove_unnamed(&[file]);
        }
    }
}

/// Takes the places of the records of a batch that are wanted; of one LSN that of the highest sequence.
fn take_rows(
    rows: &mut BTreeMap<(LogId, Lsn), Entry>,
    batch: &LoggedBatch<'_>,
    is_wanted: impl Fn(LogId, Lsn) -> bool,
) -> Result<()> {
    if batch.tenant != TENANT {
        return Ok(());
    }
    for op in Ops::of(batch.bytes)? {
        let op = op?;
        let Op::Append { log, lsn, bytes } = op.op else { continue };
        if is_wanted(log, lsn) {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let (seq, at) = (batch.first_seq + op.index as u64, place_of(batch.place.at(op.offset)).at);
            let row = rows.entry((log, lsn)).or_insert(Entry { log, lsn, seq, at, len });
            if row.seq < seq {
                *row = Entry { log, lsn, seq, at, len };
            }
        }
    }
    Ok(())
}

impl Job for Remake {
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
            At::Mending(mending) => mending.remove(&self.core),
            At::Begin | At::Reading(_) => {}
        }
    }
}

impl Drop for Remake {
    fn drop(&mut self) {
        lock(&self.core.under_way).is_moving = false;
    }
}
