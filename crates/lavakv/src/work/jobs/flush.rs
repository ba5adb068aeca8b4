//! Flush: writes frozen memtables as tables in level 0, and their large values as vSSTs.
//!
//! One flush runs at a time. It takes all frozen memtables of the family with the oldest data, and
//! those of further families while they are small in total (`plan::next`). Each family gets one
//! table, or several side by side if its policy says so. After a volatile batch over several
//! families the flush takes those of all families.
//!
//! **One edit, shared syncs.** The tables are written first, up to [`SYNCED_TOGETHER`] families at
//! a time, and then synced: the first sync makes the file system commit most of the work for all of
//! them. The directory, the log and the manifest are synced once. A crash before the version edit
//! is durable leaves none of the tables, and a crash after it leaves all.
//!
//! The version edit that adds a table also raises the family's log floor, so that replay never
//! applies a flushed record again.
//!
//! **A prefix of all writes.** Tables must hold a prefix of all writes over all families, also
//! after a power loss. A flush of one family is such a prefix only if no other family has certain
//! changes in memtables alone: changes before the end of the flush, or a part of its last batch. If
//! another family has such changes, the log is synced before the edit (see `write::commit`). No
//! floor of a family replaces that sync: after a power loss the table would exist, and the earlier
//! changes would not. (A process crash alone needs no sync, since the log is staged.)
//!
//! If no family has such changes, nothing is synced. The end of the flush is
//! `AtomicFlush::frozen_to`, known since the rotation. All changes logged until then are in
//! memtables, in whole batches, and later changes have higher sequences. So one look at the lowest
//! sequences of the other memtables decides, whatever writers do meanwhile. The highest flushed
//! sequence is no substitute: the rest of its batch may be above it, in another family.
//!
//! **Order of syncs**: tables, log, record lane, directory, edit. The record lane of a secondary
//! engine comes before the edit, because a table may hold the changes of an embedded batch. Its
//! record would otherwise be lost with the power, while the changes stay.

use super::claim::Claim;
use super::plan_snapshot::PlanSnapshot;
use super::separate::Separation;
use super::{ClaimedJob, Jobs};
use crate::context::event::Event;
use crate::plan::answer::FlushUnit;
use crate::plan::gc_pace;
use crate::plan::in_progress::InProgressSet;
use crate::plan::next::flush_together;
use crate::tree::family::Family;
use crate::tree::install::{FamilyEdit, InstallOutcome};
use crate::tree::output::{TableFiles, VsstFiles, file_meta};
use crate::tree::retained::{CountedTable, Counting, TableSync, WrittenTable};
use base::sync::lock;
use base::{InternalIterator, Result, SeqNo};
use lsm::below::AssumeOlderEntries;
use lsm::{JobEnv, MergeJob, MergeOptions, MergeOutput, MergingIterator, OutputCutter, SizeCutter, Step};
use memtable::MemTable;
use std::path::PathBuf;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use version::{FileMeta, Record, State, StoreRecord, VsstMeta};

/// Maximum number of families with written, unsynced tables. Each open table has a descriptor and a
/// write buffer.
const SYNCED_TOGETHER: usize = 64;

/// A running flush.
pub(crate) struct FlushJob {
    jobs: Arc<Jobs>,
    units: Vec<Unit>,
    /// Index of the unit being written.
    current: usize,
    /// Number of units with durable tables.
    synced: usize,
    /// Start time of the first step.
    start_ns: Option<u64>,
    number: u64,
    /// Upper bound of all flushed sequence numbers, including the ends of batches with flushed
    /// entries.
    upto: SeqNo,
    grant: Grant,
    /// Dropped last.
    _claim: Claim,
}

/// One family's part of a flush.
struct Unit {
    family: Arc<Family>,
    memtables: Vec<Arc<MemTable>>,
    max_seq: SeqNo,
    /// Bytes of the memtables, for the memory budget.
    bytes: usize,
    merge: MergeJob<CountedTable>,
    /// Splits the output into several tables, if the policy does so. Set by the first step.
    cutter: Option<Box<dyn OutputCutter + Send>>,
    /// Set if snapshots were open when the flush began.
    counting: Option<Arc<Counting>>,
    outputs: Vec<MergeOutput<WrittenTable>>,
    separation: Separation,
    vssts: Vec<VsstMeta>,
    /// Bytes written so far, at most those of the memtables.
    written_bytes: u64,
    /// Start time of the first step.
    start_ns: Option<u64>,
}

/// Claims a flush of these memtables.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, units: Vec<FlushUnit>) -> ClaimedJob {
    let start = claim_flush(jobs, set, units);
    Box::new(|| Box::new(start()))
}

fn claim_flush(
    jobs: &Arc<Jobs>,
    set: &mut InProgressSet,
    units: Vec<FlushUnit>,
) -> impl FnOnce() -> FlushJob + use<> {
    set.running.flush = true;
    let number = set.job_number();
    let claim = Claim::new(jobs, |set| set.running.flush = false);
    // All memtables of the units are frozen, so this bound covers them.
    let upto = jobs.tree.together.frozen_to();
    let jobs = jobs.clone();
    move || {
        let snapshots = jobs.tree.snapshots.for_job();
        let unit = |(family, tables)| Unit::new(&jobs, number, family, tables, &snapshots);
        let units = units.into_iter().map(unit).collect();
        let grant = jobs.space.grants.watch();
        FlushJob { jobs, units, current: 0, synced: 0, start_ns: None, number, upto, grant, _claim: claim }
    }
}

impl FlushJob {
    /// Syncs the log if other families have older unflushed changes. The data in tables must be a
    /// prefix of all writes, also after a power failure.
    fn sync_log(&self) -> Result<()> {
        let jobs = &self.jobs;
        let own = |id| self.units.iter().any(|unit| unit.memtables.iter().any(|m| m.id() == id));
        if jobs.tree.families.are_several()
            && self.is_beside_others(own)
            && let Some(log) = jobs.log.get()
            && let Some(position) = log.content().last_position()
        {
            log.syncer().sync(position)?;
        }
        Ok(())
    }

    /// Returns whether an unflushed memtable has an entry up to the end of this flush. Later
    /// entries have higher sequence numbers, so concurrent writes do not matter.
    fn is_beside_others(&self, own: impl Fn(u64) -> bool) -> bool {
        let is_older =
            |m: &Arc<MemTable>| !own(m.id()) && m.seq_range().is_some_and(|(low, _)| low <= self.upto);
        let has_older =
            |family: &Arc<Family>| family.look(|seen| seen.frozen.iter().chain([&seen.active]).any(is_older));
        self.jobs.tree.families.unflushed().iter().any(has_older)
    }

    /// Syncs the tables of all written units, except those of dropped families.
    fn sync_tables(&mut self) -> Result<()> {
        let written = self.units[self.synced..self.current].iter_mut();
        let outputs = written.filter(|unit| !unit.family.is_dropped()).flat_map(|unit| &mut unit.outputs);
        for table in outputs.filter_map(|output| output.table.take_unsynced()) {
            table.sync()?;
        }
        self.synced = self.current;
        Ok(())
    }

    fn install(&mut self) -> Result<()> {
        let jobs = &self.jobs;
        self.sync_log()?;
        jobs.log.sync_records()?;
        jobs.files.sync_dir()?;
        let mut tables: Vec<(Vec<FileMeta>, Option<Record>)> = Vec::new();
        for unit in &mut self.units {
            let version = unit.family.read_state().version.clone();
            let outputs = std::mem::take(&mut unit.outputs);
            let files = outputs.iter().map(|o| file_meta((&jobs.tree, &unit.family), &version, (0, &[]), o));
            let mut files: Vec<FileMeta> = files.collect::<Result<_>>()?;
            let sums = Record::references(unit.family.id, &mut files, []);
            tables.push((files, sums));
        }
        let (units, grant) = (&self.units, &self.grant);
        let parts = units.iter().map(Unit::part).collect();
        let records = |_: &State, nth: usize| {
            let (files, sums) = &tables[nth];
            Some(units[nth].records(files).into_iter().chain(sums.clone()).collect())
        };
        let installed = jobs.tree.install(parts, records, || grant.installed())?;
        let mut flushed_bytes = 0;
        for ((unit, (files, _)), installed) in self.units.iter().zip(&tables).zip(installed) {
            if installed == InstallOutcome::Whole {
                unit.finished(jobs, files);
                flushed_bytes += unit.bytes as u64;
            }
        }
        let now_ns = jobs.context.env.clock.now_ns();
        jobs.drain.flush.record(flushed_bytes, now_ns - self.start_ns.unwrap_or(now_ns));
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.log.floors().hint();
        Ok(())
    }
}

impl Unit {
    fn new(
        jobs: &Arc<Jobs>,
        number: u64,
        family: Arc<Family>,
        memtables: Vec<Arc<MemTable>>,
        snapshots: &[SeqNo],
    ) -> Self {
        let children = memtables.iter().map(|m| Box::new(m.iter()) as Box<dyn InternalIterator>).collect();
        let tombstones: Vec<_> = memtables.iter().map(|m| m.range_tombstones()).collect();
        let operators = &jobs.context.options.expert.merge_operators;
        let operator = operators.of_jobs(family.options().merge_operator.as_ref());
        let options = MergeOptions { operator, ..MergeOptions::new(snapshots.to_vec()) };
        let bytes = memtables.iter().map(|m| m.bytes()).sum();
        let files = VsstFiles {
            tree: jobs.tree.clone(),
            family: family.clone(),
            level: 0,
            job: number,
            inputs: Vec::new(),
            expected_len: (bytes as u64).min(family.options().expert.vsst_bytes),
            goes_down: false,
        };
        Unit {
            separation: Separation::of_flush(files, bytes as u64),
            vssts: Vec::new(),
            counting: Counting::new(&jobs.tree.kept, snapshots, &tombstones),
            merge: MergeJob::new(MergingIterator::new(children), &tombstones, options),
            max_seq: memtables.iter().filter_map(|m| m.seq_range()).map(|(_, high)| high).max().unwrap_or(0),
            bytes,
            family,
            memtables,
            written_bytes: 0,
            cutter: None,
            outputs: Vec::new(),
            start_ns: None,
        }
    }

    /// Prepares the first step. Not part of the claim, because building an index may hold the mutex
    /// of a file.
    fn begin(&mut self, jobs: &Jobs) {
        self.start_ns = Some(jobs.context.env.clock.now_ns());
        let (version, set_aside) =
            (self.family.read_state().version.clone(), self.family.settings.tables_set_aside());
        self.cutter = self.family.policy().and_then(|policy| policy.flush_cutter(&version, &set_aside));
    }

    /// Runs one step. Returns whether this unit's table is complete.
    fn step(&mut self, jobs: &Arc<Jobs>, number: u64) -> Result<bool> {
        if self.start_ns.is_none() {
            self.begin(jobs);
        }
        let family = self.family.clone();
        let mut files = TableFiles {
            tree: &jobs.tree,
            family: &family,
            level: 0,
            job: number,
            inputs: &[],
            expected_len: if self.cutter.is_some() { 0 } else { self.bytes as u64 },
            counting: self.counting.as_ref(),
            sync: TableSync::Shared,
        };
        let mut values = self.separation.hook(jobs);
        let mut whole = SizeCutter { raw_bytes: u64::MAX };
        let mut hooks = JobEnv {
            files: &mut files,
            cutter: match &mut self.cutter {
                Some(cutter) => &mut **cutter,
                None => &mut whole,
            },
            below: &mut AssumeOlderEntries,
            values: Some(&mut values),
            observer: None,
        };
        let step = self.merge.step(&mut hooks)?;
        let written = self.merge.take_written_bytes() + self.separation.take_written_bytes();
        self.written_bytes = self.written_bytes.saturating_add(written).min(self.bytes as u64);
        match step {
            Step::More => Ok(false),
            Step::Done(outputs) => {
                self.outputs = outputs;
                jobs.context.stats.merge_failures.add(self.merge.stats().fold_failures);
                self.vssts = self.separation.finish()?;
                Ok(true)
            }
        }
    }

    /// Returns the unit's records of the version edit.
    fn records(&self, files: &[FileMeta]) -> Vec<Record> {
        let family = self.family.id;
        let add_vsst = |meta: &VsstMeta| Record::AddVsst { family, meta: meta.clone() };
        let add_file = |meta: &FileMeta| Record::AddFile { family, level: 0, meta: meta.clone() };
        let floor = self.max_seq + 1;
        let mut records: Vec<Record> = self.vssts.iter().map(add_vsst).collect();
        records.extend(files.iter().map(add_file));
        records.extend([
            Record::LogFloor { family, seq: floor },
            Record::Store(StoreRecord::LastSeq(self.max_seq)),
        ]);
        records
    }

    fn part(&self) -> FamilyEdit {
        let flushed = self.memtables.iter().map(|m| m.id()).collect();
        FamilyEdit {
            flushed,
            flushed_bytes: self.bytes,
            created: self.created(),
            ..FamilyEdit::new(&self.family)
        }
    }

    /// Returns every file created so far.
    fn created(&self) -> Vec<(u64, PathBuf)> {
        [self.merge.created(), &self.separation.created()].concat()
    }

    /// Records a completed flush. The family's version owns the outputs, even if the family was
    /// dropped since.
    fn finished(&self, jobs: &Jobs, files: &[FileMeta]) {
        // Segments were written before they were logged, so they do not count here.
        let value_bytes: u64 = self.vssts.iter().filter(|meta| !meta.segment).map(|meta| meta.len).sum();
        let output_bytes = files.iter().map(|f| f.len).sum::<u64>() + value_bytes;
        let taken: Vec<u64> = self.vssts.iter().map(|meta| meta.number).collect();
        jobs.large.segments.flushed(&self.memtables, |number| taken.contains(&number));
        let now_ns = jobs.context.env.clock.now_ns();
        let took_ns = now_ns - self.start_ns.unwrap_or(now_ns);
        self.family.level_0.flushed(self.bytes as u64, files.iter().map(|file| file.len).sum());
        jobs.context.times.flush.record_ns(took_ns);
        self.family.demand.written(files.iter().map(|file| file.uses.sums().stored_bytes).sum());
        // The time of a short flush consists mainly of syncs.
        if self.bytes >= jobs.context.options.memtable_bytes / 4 {
            let waited_for = self.memtables.len() > 1 || jobs.space.memory.backlog() > 0;
            jobs.gc_pace.flushed(
                now_ns,
                gc_pace::CompletedFlush { bytes: self.bytes as u64, ns: took_ns, waited_for },
            );
        }
        jobs.context.stats.flushes.add(1);
        jobs.context.stats.flush_bytes_written.add(output_bytes);
        jobs.context.notify(&Event::Flush { family: self.family.name.clone(), output_bytes });
    }
}

impl Job for FlushJob {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        if self.start_ns.is_none() {
            self.start_ns = Some(jobs.context.env.clock.now_ns());
            let bytes = self.units.iter().map(|unit| unit.bytes as u64).sum();
            jobs.drain.flush_begins(jobs.context.now_ns(), bytes);
        }
        if let Some(unit) = self.units.get_mut(self.current) {
            let is_written = match unit.step(jobs, self.number) {
                // The outputs of a dropped family are not needed, so errors are ignored.
                _ if unit.family.is_dropped() => true,
                step => step?,
            };
            self.current += usize::from(is_written);
            self.grant.wrote(|| self.units.iter().flat_map(Unit::created).collect());
            jobs.drain.flush_has_written(self.units.iter().map(|unit| unit.written_bytes).sum());
            if self.current - self.synced == SYNCED_TOGETHER || self.current == self.units.len() {
                self.sync_tables()?;
            }
            return Ok(Progress::More);
        }
        self.install()?;
        jobs.drain.flush_ends();
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {
        let jobs = &self.jobs.clone();
        jobs.drain.flush_ends();
        let created: Vec<(u64, PathBuf)> = self.units.iter().flat_map(Unit::created).collect();
        // A failed commit may be durable nevertheless: its files may be removed only if the
        // manifest does not name them.
        if !jobs.context.health.outcome_unknown() {
            jobs.tree.remove_outputs(&created);
        }
    }
}

/// Flushes all frozen memtables in one version edit on the caller's thread, for recovery before the
/// workers start. Returns false if none is frozen.
pub(crate) fn run_inline(jobs: &Arc<Jobs>) -> Result<bool> {
    let start = {
        let mut set = lock(&jobs.in_progress);
        let units = flush_together(&PlanSnapshot::new(jobs, &set));
        if units.is_empty() {
            return Ok(false);
        }
        claim_flush(jobs, &mut set, units)
    };
    let mut job = start();
    loop {
        match job.step() {
            Ok(Progress::Done) => return Ok(true),
            Ok(_) => {}
            Err(e) => {
                // As in a worker, the error is reported first: the edit may be durable, and the job
                // must then keep its files.
                jobs.job_failed(e.clone(), &[]);
                job.abandon();
                return Err(e);
            }
        }
    }
}
