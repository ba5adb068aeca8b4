//! Compaction: what the picker chose, merged into the next level, installed in one edit.

use super::claim::Claim;
use super::hot_cold::Drops;
use super::relocation::Relocator;
use super::separate::Separation;
use super::{Claimed, Jobs};
use crate::context::event::Event;
use crate::files::data_file::DataFile;
use crate::plan::answer::Compact;
use crate::plan::in_progress::InProgressSet;
use crate::plan::room::output_bytes;
use crate::tree::family::Family;
use crate::tree::install::{Installed, Part};
use crate::tree::output::{TableFiles, VsstFiles, file_meta};
use crate::tree::retained::{CountedTable, Counting};
use base::sync::lock;
use base::{Result, SeqNo};
use lsm::below::DeeperLevels;
use lsm::policy::{Compaction, CompactionPolicy, Facts, InProgress, Reason};
use lsm::{
    Bounds, Hooks, MergeJob, MergeOptions, MergeOutput, MergingIterator, OutputCutter, Sources, Step,
    TableSource, Visibility,
};
use std::path::PathBuf;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use table::{FinishedTable, IterOptions};
use version::{FileMeta, Level, Record, State, Version, VsstMeta};

/// Compaction reads its inputs in runs of this size, around the cache.
const READAHEAD_BYTES: usize = 512 << 10;

pub(crate) struct CompactionJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    compaction: Arc<Compaction>,
    /// The policy that picked it.
    policy: Arc<dyn CompactionPolicy>,
    number: u64,
    inputs: Vec<u64>,
    /// The version it was picked from, with no vSSTs but those it relocates: pins the input files.
    version: Arc<Version>,
    /// Bytes to reserve for an output.
    expected_len: u64,
    running: Option<Running>,
    /// The snapshots that it keeps entries for.
    kept_for: Vec<SeqNo>,
    start_ns: u64,
    /// How many compactions in a row were due when it began.
    chain: u64,
    /// With the names that its inputs use, and those it will write (see `jobs::gc`). Dropped last.
    claim: Claim,
}

struct Running {
    merge: MergeJob<CountedTable>,
    /// Set if there were snapshots when it began.
    counting: Option<Arc<Counting>>,
    separation: Separation,
    drops: Option<Drops>,
    cutter: Box<dyn OutputCutter + Send>,
    below: DeeperLevels,
    /// Bytes that it has written.
    written: u64,
    /// It drains level 0.
    drains: Option<Drains>,
}

/// As long as this is there level 0 of the family is being drained.
struct Drains(Arc<Family>);

impl Drains {
    /// Of this compaction, in a version: what it takes of level 0, in tables as deep as that is.
    fn begin(family: &Arc<Family>, compaction: &Compaction) -> Option<Drains> {
        let (depth, bytes) = family.look(|seen| (seen.chain.l0_depth as f64, seen.version.level_bytes(0)));
        drains(compaction).then(|| {
            let share = bytes_of(compaction, 0) as f64 / bytes.max(1) as f64;
            family.level_0.is_drained(depth * share.min(1.0), depth);
            Drains(family.clone())
        })
    }
}

impl Drop for Drains {
    fn drop(&mut self) {
        self.0.level_0.rests();
    }
}

/// True if level 0 has less to do after it. Merging inside level 0 drains nothing: counted in, it would let writers run into the stop.
fn drains(compaction: &Compaction) -> bool {
    compaction.output_level > 0 && !compaction.trivial_move && bytes_of(compaction, 0) > 0
}

/// Bytes of its inputs in a level.
fn bytes_of(compaction: &Compaction, level: usize) -> u64 {
    compaction.input_files().filter(|(of, _)| *of == level).map(|(_, f)| f.len).sum()
}

/// How far a merge has come.
enum Merged {
    Not(Progress),
    /// Its tables, and its files of values.
    All(Vec<MergeOutput<FinishedTable>>, Vec<VsstMeta>),
}

/// Claims a compaction. `None` if the policy of the family was taken away a moment ago.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, compact: Compact) -> Option<Claimed> {
    let (family, compaction) = match compact {
        Compact::Asked(family) => (family, set.manual.take()?),
        Compact::Picked(family, compaction) => {
            set.claim(&compaction);
            (family, *compaction)
        }
        Compact::Step(family, compaction, walk) => {
            set.learned.walks.insert(family.id, *walk);
            set.claim(&compaction);
            (family, *compaction)
        }
    };
    let (options, policy) = family.chosen();
    let Some(policy) = policy else {
        set.give_back(&compaction);
        return None;
    };
    set.begins(compaction.reason);
    let number = set.job_number();
    let output_bytes = output_bytes(&compaction, options.vsst_bytes, jobs.tree.snapshots.is_any());
    let grant = jobs.space.grant(output_bytes);
    let version = family.read_state().version.clone();
    let files: Vec<_> = compaction.input_files().map(|(_, f)| f.clone()).collect();
    let pins = jobs.files.pins.pin(values::names_to_pin(&version, &files));
    let compaction = Arc::new(compaction);
    let held = compaction.clone();
    let claim = Claim::new(jobs, move |set| set.ended(&held)).with(pins, grant);
    let jobs = jobs.clone();
    Some(Box::new(move || {
        let facts =
            Facts { version: &version, set_aside: &family.tables_set_aside(), busy: &InProgress::default() };
        Box::new(CompactionJob {
            chain: policy.chain_len(&facts, compaction.level) as u64,
            number,
            inputs: files.iter().map(|f| f.number).collect(),
            version: Arc::new(values::outline(&version, &files, &compaction.relocate_vssts)),
            expected_len: compaction.expected_output_len(),
            running: None,
            kept_for: Vec::new(),
            start_ns: jobs.context.now_ns(),
            family,
            compaction,
            policy,
            jobs,
            claim,
        })
    }))
}

impl CompactionJob {
    fn begin(&mut self, jobs: &Arc<Jobs>) -> Result<Running> {
        let options = IterOptions { fill_cache: false, readahead_bytes: READAHEAD_BYTES };
        let snapshots = jobs.tree.snapshots.for_job();
        self.kept_for = snapshots.split_last().map(|(_, held)| held.to_vec()).unwrap_or_default();
        let tables: Arc<dyn TableSource> = jobs.files.tables.clone();
        let mut sources = Sources::new(Visibility::Snapshots(snapshots.clone()), tables, options);
        let levels: Vec<(usize, Level)> =
            self.compaction.inputs.iter().map(|(level, files)| (*level, files.clone().into())).collect();
        sources.add(levels.iter().map(|(level, files)| (*level, files)), Bounds::default())?;
        // Files of level 0 are in order of age by their sequences, so these must stay.
        let zero_sequences = self.compaction.output_level > 0;
        let counting = Counting::new(&jobs.tree.kept, &snapshots, &sources.tombstones);
        let merge_options = MergeOptions { zero_sequences, ..MergeOptions::new(snapshots) };
        let files = || VsstFiles {
            tree: jobs.tree.clone(),
            family: self.family.clone(),
            level: self.compaction.output_level,
            job: self.number,
            inputs: self.inputs.clone(),
            expected_len: self.family.options().vsst_bytes,
        };
        let relocator = Relocator::new(files(), &self.version, &self.compaction)?;
        let separation = Separation::of_compaction(files(), self.version.clone());
        let drops = self.family.drop_cache().map(Drops);
        if let Some(Drops(cache)) = &drops {
            cache.set_live_keys(self.family.read_state().ledger.references());
        }
        Ok(Running {
            drops,
            separation: separation.with_relocator(relocator),
            merge: MergeJob::new(MergingIterator::new(sources.cursors), &sources.tombstones, merge_options),
            counting,
            cutter: self.policy.cutter(&self.compaction, &self.version),
            below: DeeperLevels::new(&self.version, self.compaction.output_level),
            written: 0,
            drains: Drains::begin(&self.family, &self.compaction),
        })
    }

    fn merge(&mut self, jobs: &Arc<Jobs>) -> Result<Merged> {
        if self.running.is_none() {
            self.running = Some(self.begin(jobs)?);
        }
        let running = self.running.as_mut().expect("just begun");
        let mut files = TableFiles {
            tree: &jobs.tree,
            family: &self.family,
            level: self.compaction.output_level,
            job: self.number,
            inputs: &self.inputs,
            expected_len: self.expected_len,
            counting: running.counting.as_ref(),
        };
        let mut values = running.separation.hook(jobs);
        let mut hooks = Hooks {
            files: &mut files,
            cutter: &mut *running.cutter,
            below: &mut running.below,
            values: Some(&mut values),
            observer: running.drops.as_mut().map(|drops| drops as _),
        };
        let step = running.merge.step(&mut hooks)?;
        let written = running.merge.take_written_bytes() + running.separation.take_written_bytes();
        running.written = running.written.saturating_add(written);
        if let Some(Drains(family)) = &running.drains {
            family.level_0.has_come(running.written as f64 / self.compaction.input_bytes().max(1) as f64);
        }
        if let Some(grant) = self.claim.grant() {
            grant.wrote(|| [running.merge.created(), &running.separation.created()].concat());
        }
        match step {
            Step::More => Ok(Merged::Not(Progress::More)),
            Step::Done(outputs) => {
                let vssts = running.separation.finish()?;
                jobs.context.stats.relocation_bytes_read.add(running.separation.relocation_read_bytes());
                for (file, error) in running.separation.take_damaged() {
                    jobs.tree.set_aside(file, &error);
                }
                let read: u64 = self.compaction.input_files().map(|(_, f)| f.len).sum();
                jobs.context.stats.compaction_bytes_read.add(read);
                Ok(Merged::All(outputs, vssts))
            }
        }
    }

    fn install_merged(&mut self, outputs: &[MergeOutput<FinishedTable>], vssts: Vec<VsstMeta>) -> Result<()> {
        let jobs = &self.jobs.clone();
        jobs.files.sync_dir()?;
        let level = self.compaction.output_level;
        let files: Vec<FileMeta> =
            outputs.iter().map(|o| file_meta(&jobs.tree, &self.version, level, o)).collect::<Result<_>>()?;
        let value_bytes: u64 = vssts.iter().map(|meta| meta.len).sum();
        jobs.context
            .stats
            .compaction_bytes_written
            .add(files.iter().map(|f| f.len).sum::<u64>() + value_bytes);
        if let Some(good) = self.policy.good_tables(&self.compaction, &self.version, &files) {
            jobs.context.stats.compaction_tables_good.add(good as u64);
            jobs.context.stats.compaction_tables_poor.add((files.len() - good) as u64);
        }
        if self.compaction.reason == Reason::Relocation {
            jobs.context.stats.relocation_bytes_written.add(value_bytes);
        }
        if self.install(files, vssts)? == Installed::Whole && !self.kept_for.is_empty() {
            let kept = outputs.iter().map(|output| (output.number, self.kept_for.clone()));
            lock(&jobs.in_progress).learned.retained.extend(kept);
        }
        Ok(())
    }

    /// One edit: inputs out, outputs in. Inputs become obsolete once it is durable.
    fn install(&mut self, outputs: Vec<FileMeta>, vssts: Vec<VsstMeta>) -> Result<Installed> {
        let output_bytes = outputs.iter().map(|f| f.len).sum();
        let compaction = &self.compaction;
        let mut part = Part::new(&self.family);
        if !compaction.trivial_move {
            part.created = self.created();
            part.retired = compaction.input_files().map(|(_, f)| DataFile::Table(f.clone())).collect();
        }
        let records = |state: &State, _| Some(self.records(state, &outputs, &vssts));
        let published = || self.claim.grant().into_iter().for_each(Grant::installed);
        let installed = self.jobs.tree.install(vec![part], records, published)?;
        self.book(&self.jobs, output_bytes);
        Ok(installed[0])
    }

    fn records(&self, state: &State, outputs: &[FileMeta], vssts: &[VsstMeta]) -> Vec<Record> {
        let (family, level) = (self.family.id, self.compaction.output_level as u32);
        let remove = |(l, f): (usize, &Arc<FileMeta>)| Record::RemoveFile {
            family,
            level: l as u32,
            number: f.number,
        };
        let mut records: Vec<Record> = self.compaction.input_files().map(remove).collect();
        records.extend(vssts.iter().map(|meta| Record::AddVsst { family, meta: meta.clone() }));
        // A file that is moved may have been marked as shared since the move was picked.
        let shared = |number| state.table(number).is_some_and(|known| known.shared);
        records.extend(outputs.iter().map(|meta| {
            let meta = FileMeta { shared: meta.shared || shared(meta.number), ..meta.clone() };
            Record::AddFile { family, level, meta }
        }));
        records
    }

    fn book(&self, jobs: &Jobs, output_bytes: u64) {
        let c = &self.compaction;
        let from_l0 = bytes_of(c, 0);
        if drains(c) {
            self.family.level_0.record_drained(from_l0, jobs.context.env.clock.now_ns() - self.start_ns);
        }
        let (spills, is_poor) = (c.reason == Reason::Spill, c.reason == Reason::PoorSpill);
        if (spills || is_poor) && !c.trivial_move {
            self.family
                .level_0
                .record_spilled(bytes_of(c, c.level), jobs.context.env.clock.now_ns() - self.start_ns);
        }
        if !c.trivial_move {
            let times = &jobs.context.times;
            times.compaction.record_ns(jobs.context.now_ns() - self.start_ns);
            times.compaction_width.record(c.input_bytes());
            times.compaction_chain.record(self.chain);
        }
        jobs.context.stats.compactions.add(1);
        jobs.context.stats.compaction_spills.add(u64::from(spills || is_poor));
        jobs.context.stats.compaction_poor_spills.add(u64::from(is_poor));
        jobs.context.stats.compaction_moves.add(u64::from(c.trivial_move));
        jobs.context.stats.relocations.add(u64::from(c.reason == Reason::Relocation));
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.context.tell(&Event::Compaction {
            family: self.family.name.clone(),
            level: c.level,
            output_level: c.output_level,
            input_bytes: c.input_files().map(|(_, f)| f.len).sum(),
            output_bytes,
        });
    }

    /// Every file made so far.
    fn created(&self) -> Vec<(u64, PathBuf)> {
        let of = |r: &Running| [r.merge.created(), &r.separation.created()].concat();
        self.running.as_ref().map(of).unwrap_or_default()
    }
}

impl Job for CompactionJob {
    fn class(&self) -> JobClass {
        match (self.compaction.level, self.compaction.reason) {
            (_, Reason::Relocation) => JobClass::Gc,
            // Level 0 waits for these.
            (0, _) | (_, Reason::Spill | Reason::PoorSpill) => JobClass::L0,
            _ => JobClass::Compaction,
        }
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        let progress = if self.compaction.trivial_move {
            let moved = self.compaction.input_files().map(|(_, f)| (**f).clone()).collect();
            self.install(moved, Vec::new())?;
            Progress::Done
        } else {
            match self.merge(jobs) {
                // Its names lead nowhere any more, and nobody will miss what it makes: no failure of it means anything.
                _ if self.family.is_dropped() => {
                    self.abandon();
                    return Ok(Progress::Done);
                }
                merged => match merged? {
                    Merged::Not(progress) => progress,
                    Merged::All(outputs, vssts) => {
                        self.install_merged(&outputs, vssts)?;
                        Progress::Done
                    }
                },
            }
        };
        Ok(progress)
    }

    fn inputs(&self) -> Vec<u64> {
        self.inputs.clone()
    }

    fn abandon(&mut self) {
        let jobs = &self.jobs.clone();
        // A failed commit may be durable all the same: its files may only go if the manifest does not name them.
        if !jobs.context.health.outcome_unknown() {
            jobs.tree.remove_outputs(&self.created());
        }
    }
}
