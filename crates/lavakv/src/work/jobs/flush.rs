//! Flush: frozen memtables become tables in L0, their large values vSSTs.
//!
//! One flush runs at a time. Normally it takes all frozen memtables of one family (the one with the oldest data) into
//! one table; after a volatile batch over several families it takes those of all families and installs them in one
//! edit. The edit that adds a table also raises the family's log floor, so that replay never applies a flushed record
//! again. In a store with several families the log is made durable before the edit (see `write_path`).

use super::Claims;
use super::kept::{CountedTable, Counting};
use super::output::{TableFiles, VsstFiles, file_meta, remove_outputs};
use super::separate::Separation;
use crate::context::event::Event;
use crate::engine::Engine;
use crate::large::placement::Arrival;
use crate::plan::gc_pace::Flushed;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::space::space_limit::Grant;
use crate::tree::family::Family;
use base::sync::atomic::Ordering;
use base::sync::{lock, read};
use base::{InternalIterator, Result, SeqNo};
use lsm::below::Anything;
use lsm::{Hooks, MergeJob, MergeOptions, MergeOutput, MergingIterator, SizeCutter, Step};
use memtable::MemTable;
use std::path::PathBuf;
use std::sync::Arc;
use table::FinishedTable;
use version::{Edit, FileMeta, Record, StoreRecord, VsstMeta};

/// A flush under way.
pub(crate) struct FlushJob {
    units: Vec<Unit>,
    /// The unit that is being written.
    current: usize,
    number: u64,
    grant: Grant,
}

/// What one family flushes.
struct Unit {
    family: Arc<Family>,
    memtables: Vec<Arc<MemTable>>,
    max_seq: SeqNo,
    /// Bytes of the memtables, for the budget.
    bytes: usize,
    merge: MergeJob<CountedTable>,
    /// Set if there were snapshots when it began.
    counting: Option<Arc<Counting>>,
    outputs: Vec<MergeOutput<FinishedTable>>,
    separation: Separation,
    vssts: Vec<VsstMeta>,
    /// The files to which values were written while they were logged, by memtable.
    placed: Vec<Arc<Arrival>>,
    /// Bytes of their records.
    placed_bytes: u64,
    /// When its first step began.
    start_ns: Option<u64>,
}

impl FlushJob {
    /// A flush of what is frozen, if anything is.
    pub fn pick(engine: &Arc<Engine>, claims: &mut Claims) -> Option<FlushJob> {
        let ceiling = engine.flush_ceiling.load(Ordering::Acquire);
        let mut ready: Vec<(SeqNo, Arc<Family>, Vec<Arc<MemTable>>)> = Vec::new();
        for family in engine.all_families() {
            let view = family.view();
            let fits = |m: &&Arc<MemTable>| m.seq_range().is_none_or(|(_, high)| high <= ceiling);
            let memtables: Vec<_> = view.frozen.iter().filter(fits).cloned().collect();
            if let Some(oldest) = memtables.iter().filter_map(|m| m.seq_range()).map(|(low, _)| low).min() {
                ready.push((oldest, family, memtables));
            }
        }
        let volatile_seq = engine.volatile_over_families_seq.load(Ordering::Acquire);
        let atomic = ready.iter().any(|(oldest, ..)| *oldest <= volatile_seq);
        if !atomic {
            ready.sort_by_key(|(oldest, ..)| *oldest);
            ready.truncate(1);
        }
        if ready.is_empty() {
            return None;
        }
        let number = claims.job_number();
        let snapshots = engine.snapshots.for_job();
        let unit = |(_, family, tables)| Unit::new(engine, number, family, tables, &snapshots);
        let units = ready.into_iter().map(unit).collect();
        Some(FlushJob { units, current: 0, number, grant: engine.space.watch() })
    }

    fn install(&mut self, engine: &Arc<Engine>) -> Result<()> {
        if read(&engine.families).len() > 1
            && let Some(log) = engine.wal.get()
            && let Some(position) = log.last_position()
        {
            let own = |id| self.units.iter().any(|unit| unit.memtables.iter().any(|m| m.id() == id));
            engine.placement.sync_all_but(engine, own)?;
            if !base::canary::is("flush-tears-batches-between-families") {
                log.sync(position)?;
            }
        }
        engine.sync_dir()?;
        let mut tables: Vec<Vec<FileMeta>> = Vec::new();
        for unit in &mut self.units {
            let version = unit.family.view().version.clone();
            let outputs = std::mem::take(&mut unit.outputs);
            tables.push(outputs.iter().map(|o| file_meta(engine, &version, 0, o)).collect::<Result<_>>()?);
        }
        let (units, grant) = (&self.units, &self.grant);
        let mut installed = vec![false; units.len()];
        engine.install(
            |state| {
                let mut records = Vec::new();
                for (unit, files) in units.iter().zip(&tables) {
                    let family = unit.family.id;
                    if !state.families.contains_key(&family) {
                        continue;
                    }
                    let add_vsst = |meta: &VsstMeta| Record::AddVsst { family, meta: meta.clone() };
                    records.extend(unit.vssts.iter().map(add_vsst));
                    records.extend(files.iter().map(|meta| Record::AddFile {
                        family,
                        level: 0,
                        meta: meta.clone(),
                    }));
                    records.push(Record::LogFloor {
                        family,
                        seq: unit.max_seq + 1 + u64::from(base::canary::is("flush-floor-one-too-high")),
                    });
                    records.push(Record::Store(StoreRecord::LastSeq(unit.max_seq)));
                }
                Ok(Edit(records))
            },
            |state| {
                grant.installed();
                for (unit, installed) in units.iter().zip(&mut installed) {
                    let flushed: Vec<u64> = unit.memtables.iter().map(|m| m.id()).collect();
                    *installed = unit.family.install_durable(state, &flushed);
                    if *installed {
                        engine.memory.flushed(unit.bytes);
                    }
                }
            },
        )?;
        for ((unit, files), installed) in self.units.iter().zip(&tables).zip(installed) {
            match installed {
                true => unit.finished(engine, files),
                false => remove_outputs(engine, &unit.created()),
            }
        }
        engine.health.space_found();
        engine.space.refresh(engine);
        engine.log.hint_release();
        Ok(())
    }

    fn release(&self, engine: &Engine) {
        lock(&engine.claims).flush = false;
    }
}

impl Unit {
    fn new(
        engine: &Arc<Engine>,
        number: u64,
        family: Arc<Family>,
        memtables: Vec<Arc<MemTable>>,
        snapshots: &[SeqNo],
    ) -> Self {
        let children = memtables.iter().map(|m| Box::new(m.iter()) as Box<dyn InternalIterator>).collect();
        let tombstones: Vec<_> = memtables.iter().map(|m| m.range_tombstones()).collect();
        let options = MergeOptions::new(snapshots.to_vec());
        let bytes = memtables.iter().map(|m| m.bytes()).sum();
        let files = VsstFiles {
            engine: engine.clone(),
            family: family.clone(),
            level: 0,
            job: number,
            inputs: Vec::new(),
            expected_len: (bytes as u64).min(family.options().vsst_bytes),
        };
        Unit {
            separation: Separation::of_flush(files, bytes as u64),
            vssts: Vec::new(),
            placed: memtables.iter().filter_map(|m| engine.placement.of(m.id())).collect(),
            placed_bytes: 0,
            counting: Counting::new(&engine.kept, snapshots, &tombstones),
            merge: MergeJob::new(MergingIterator::new(children), &tombstones, options),
            max_seq: memtables.iter().filter_map(|m| m.seq_range()).map(|(_, high)| high).max().unwrap_or(0),
            bytes,
            family,
            memtables,
            outputs: Vec::new(),
            start_ns: None,
        }
    }

    /// Before the first step. Not when the flush is picked, under the claims: an index may be in the making under a file's lock.
    fn begin(&mut self, engine: &Engine) {
        self.start_ns = Some(engine.env.clock.now_ns());
        for file in &self.placed {
            let file = file.lock();
            self.separation.add_placed(file.number, file.places());
        }
    }

    /// One step. True when this unit's table is written.
    fn step(&mut self, engine: &Arc<Engine>, number: u64) -> Result<bool> {
        if self.start_ns.is_none() {
            self.begin(engine);
        }
        let family = self.family.clone();
        let mut files = TableFiles {
            engine,
            family: &family,
            level: 0,
            job: number,
            inputs: &[],
            expected_len: self.bytes as u64,
            counting: self.counting.as_ref(),
        };
        let mut values = self.separation.hook(engine);
        let mut hooks = Hooks {
            files: &mut files,
            cutter: &mut SizeCutter { raw_bytes: u64::MAX },
            below: &mut Anything,
            values: Some(&mut values),
            observer: None,
        };
        let step = self.merge.step(&mut hooks)?;
        let written = self.merge.take_written_bytes() + self.separation.take_written_bytes();
        engine.rate_limit.charge(engine.env.clock.now_ns(), written);
        match step {
            Step::More => Ok(false),
            Step::Done(outputs) => {
                self.outputs = outputs;
                self.vssts = self.separation.finish()?;
                self.finish_placed(engine)?;
                Ok(true)
            }
        }
    }

    /// Gives the files of placed values their index.
    fn finish_placed(&mut self, engine: &Engine) -> Result<()> {
        for file in &self.placed {
            let number = file.lock().number;
            if self.separation.refers_to(number) {
                let meta = file.finish(engine)?;
                self.placed_bytes += meta.record_bytes;
                self.vssts.push(meta);
            }
        }
        Ok(())
    }

    /// Every file made so far.
    fn created(&self) -> Vec<(u64, PathBuf)> {
        [self.merge.created(), &self.separation.created()].concat()
    }

    /// After the edit: what is in the family's version is the version's, also if the family has been dropped since.
    fn finished(&self, engine: &Engine, files: &[FileMeta]) {
        // Large values were written before they were logged.
        let value_bytes: u64 = self.vssts.iter().filter(|meta| !meta.segment).map(|meta| meta.len).sum();
        let value_bytes = value_bytes - self.placed_bytes;
        let output_bytes = files.iter().map(|f| f.len).sum::<u64>() + value_bytes;
        let taken: Vec<u64> = self.vssts.iter().map(|meta| meta.number).collect();
        engine.segments.flushed(engine, &self.memtables, |number| taken.contains(&number));
        self.memtables.iter().for_each(|m| engine.placement.forget(engine, m.id()));
        let now_ns = engine.env.clock.now_ns();
        let took_ns = now_ns - self.start_ns.unwrap_or(now_ns);
        engine.flush_rate.record(self.bytes as u64, took_ns);
        // What a short flush takes are its syncs.
        if self.bytes >= engine.options.memtable_bytes / 4 {
            let waited_for = self.memtables.len() > 1 || engine.memory.backlog() > 0;
            engine.gc_pace.flushed(now_ns, Flushed { bytes: self.bytes as u64, ns: took_ns, waited_for });
        }
        engine.stats.flushes.add(1);
        engine.stats.flush_bytes_written.add(output_bytes);
        engine.tell(&Event::Flush { family: self.family.name.clone(), output_bytes });
    }
}

impl Job for FlushJob {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        if let Some(unit) = self.units.get_mut(self.current) {
            let is_written = match unit.step(engine, self.number) {
                // Its files go, and nobody will miss them: no failure of it means anything.
                _ if unit.family.is_dropped() => true,
                step => step?,
            };
            self.current += usize::from(is_written);
            self.grant.wrote(|| self.units.iter().flat_map(Unit::created).collect());
            return Ok(Progress::More);
        }
        self.install(engine)?;
        self.release(engine);
        Ok(Progress::Done)
    }

    fn abandon(&mut self, engine: &Arc<Engine>) {
        let created: Vec<(u64, PathBuf)> = self.units.iter().flat_map(Unit::created).collect();
        // A failed commit may be durable all the same: its files may only go if the manifest does not name them.
        if !engine.health.outcome_unknown() {
            remove_outputs(engine, &created);
        }
        self.release(engine);
    }
}

/// Flushes everything frozen on the caller's thread (recovery, before there are workers).
pub(crate) fn run_inline(engine: &Arc<Engine>) -> Result<()> {
    loop {
        let Some(mut job) = FlushJob::pick(engine, &mut lock(&engine.claims)) else { return Ok(()) };
        loop {
            match job.step(engine) {
                Ok(Progress::Done) => break,
                Ok(_) => {}
                Err(e) => {
                    // As with a worker, first the verdict: the edit may be durable, and then the job must keep its files.
                    crate::files::damaged::job_failed(engine, e.clone(), &[]);
                    job.abandon(engine);
                    return Err(e);
                }
            }
        }
    }
}
