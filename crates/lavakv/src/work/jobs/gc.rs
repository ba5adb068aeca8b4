//! Garbage collection of vSSTs: rewrites the live records of picked files in steps, and installs
//! the outputs in one version edit.
//!
//! `plan::collection` decides when, and how many at once; `plan::gc_pace` how fast.
//!
//! **Pins.** A compaction may write any name that its inputs' references resolve to, and a
//! collection must keep the names of its inputs alive. Both pin names under the mutex of the work
//! in progress, in the same critical section that captures their read state. (A compaction holds
//! all names of its family until it has read the names of its inputs: `jobs::compaction::inputs`.)
//! Both release them under the same mutex, after their version edit is published. Both halves are
//! needed:
//!
//! * If a job captured its read state first and pinned later, a collection could replace a file in
//!   between and release its names. Cleanup could prune the names, and the job would pin names that
//!   are gone.
//! * If a job released its pins before its edit is published, its names would for a moment be
//!   neither in a table of the current version nor pinned. Cleanup could prune them, and the new
//!   tables would hold references that lead nowhere.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::context::event::Event;
use crate::files::data_file::DataFile;
use crate::plan::answer::{Collection, Purpose};
use crate::plan::collection;
use crate::plan::in_progress::InProgressSet;
use crate::plan::requests::Caller;
use crate::read::wanted::read_wanted;
use crate::tree::family::Family;
use crate::tree::install::{FamilyEdit, InstallOutcome};
use crate::tree::output::VsstFiles;
use base::Result;
use base::sync::lock;
use io::ReadQueue;
use lsm::TableSource;
use std::path::PathBuf;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use table::{BlockRequest, FetchedBlocks, Ksst, Vsst};
use values::{GcEnv, GcOutcome, GcStep, OutputVsst};
use version::{FileMeta, Record, State, Version, VsstClass, VsstMeta};

/// A running collection.
pub(crate) struct GcJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    inputs: Vec<Arc<VsstMeta>>,
    input_numbers: Vec<u64>,
    /// Garbage in each input according to the ledger.
    expected: Vec<u64>,
    job: values::GcJob,
    files: VsstFiles,
    start_ns: u64,
    purpose: Purpose,
    /// Includes the space grant.
    claim: Claim,
    /// The calls that wait for collections. Dropped last: they wait for the release of the claim.
    callers: Vec<Caller>,
}

/// Claims a collection. `None` if its output does not fit any more.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, collection: Collection) -> Option<ClaimedJob> {
    let Collection { family, read_state, gc, options, purpose } = collection;
    let grant = jobs.space.grants.grant(gc.expected_write)?;
    let names = gc.inputs.iter().flat_map(|meta| read_state.version.names_of(meta.number));
    let pins = jobs.files.pins.pin(names);
    let input_numbers: Vec<u64> = gc.numbers().collect();
    let goes_down = purpose == Purpose::FastTier;
    set.collects(family.id, &input_numbers, purpose);
    let number = set.job_number();
    let callers = if purpose == Purpose::Garbage { set.gc_requests.callers() } else { Vec::new() };
    let (id, held) = (family.id, input_numbers.clone());
    let claim = Claim::new(jobs, move |set| set.collected(id, &held, purpose)).with(pins, Some(grant));
    let jobs = jobs.clone();
    Some(Box::new(move || {
        let files = VsstFiles {
            tree: jobs.tree.clone(),
            family: family.clone(),
            level: 0,
            job: number,
            inputs: input_numbers.clone(),
            expected_len: gc.expected_write.min(options.file_bytes),
            goes_down,
        };
        Box::new(GcJob {
            expected: gc.numbers().map(|n| read_state.ledger.garbage_of(n).garbage_bytes).collect(),
            input_numbers,
            inputs: gc.inputs.clone(),
            job: values::GcJob::new(gc, &read_state.version, options),
            files,
            start_ns: jobs.context.now_ns(),
            purpose,
            family,
            jobs,
            claim,
            callers,
        })
    }))
}

/// Returns the garbage pressure in percent; at 100 writers are throttled or space runs out.
fn garbage_pressure_percent(jobs: &Jobs) -> u64 {
    let read_states: Vec<_> = jobs.tree.families.all().iter().map(|family| family.read_state()).collect();
    let digests = read_states.iter().map(|read_state| &read_state.summary);
    collection::garbage_pressure_percent(digests, jobs.space.has_own_limit(), jobs.space.fill_percent())
}

/// Returns how long a collection should wait for the sake of flushes.
fn paced_ns(jobs: &Jobs, now_ns: u64) -> u64 {
    if !jobs.context.options.expert.ablation.gc_pace {
        return 0;
    }
    jobs.gc_pace.wait_ns(now_ns, garbage_pressure_percent(jobs))
}

/// Returns the current rate limit of collections, bytes per second; `None`: they are not bounded.
pub(crate) fn pace_bytes_per_s(jobs: &Jobs) -> Option<u64> {
    jobs.gc_pace.bytes_per_s(jobs.context.now_ns(), garbage_pressure_percent(jobs))
}

impl GcJob {
    fn finish(&mut self, outcome: GcOutcome) -> Result<()> {
        match outcome {
            GcOutcome::Replace { outputs, .. } => self.install(outputs),
            GcOutcome::Abandoned { .. } => {
                let jobs = &self.jobs;
                jobs.context.stats.gc_abandoned.add(1);
                // The estimate was too high, and stays so until the ledger changes. The files are
                // retried once the ledger reports more garbage than this estimate.
                let believed = self.input_numbers.iter().copied().zip(self.expected.iter().copied());
                lock(&jobs.in_progress).learned.abandoned.extend(believed);
                jobs.tree.remove_outputs(self.created());
                Ok(())
            }
        }
    }

    /// Replaces the inputs by the outputs under all their names, in one version edit.
    fn install(&mut self, outputs: Vec<VsstMeta>) -> Result<()> {
        let jobs = &self.jobs.clone();
        jobs.files.sync_dir()?;
        let (family, inputs) = (self.family.id, &self.input_numbers);
        let output_bytes: u64 = outputs.iter().map(|meta| meta.len).sum();
        let part = FamilyEdit {
            retired: self.inputs.iter().cloned().map(DataFile::Vsst).collect(),
            created: self.created().to_vec(),
            ..FamilyEdit::new(&self.family)
        };
        let replace = |state: &State, _| {
            let record = || Record::ReplaceVsst { family, inputs: inputs.clone(), outputs: outputs.clone() };
            has_all(state, family, inputs).then(|| vec![record()])
        };
        let published = || self.claim.grant().into_iter().for_each(Grant::installed);
        let installed = jobs.tree.install(vec![part], replace, published)?;
        if installed[0] != InstallOutcome::Overtaken {
            self.book(jobs, output_bytes);
        }
        Ok(())
    }

    fn book(&self, jobs: &Jobs, output_bytes: u64) {
        let input_bytes: u64 = self.inputs.iter().map(|meta| meta.len).sum();
        let freed = input_bytes.saturating_sub(output_bytes);
        if self.purpose == Purpose::FastTier {
            jobs.context.stats.fast_tier_values_moved_down.add(self.inputs.len() as u64);
        }
        // Files without live records say nothing about the rate of other collections, nor do moves
        // to the capacity tier.
        if output_bytes > 0 && self.purpose != Purpose::FastTier {
            // Concurrent collections free about as much.
            let together = lock(&jobs.in_progress).running.collections.max(1) as u64;
            jobs.drain.gc.record(freed * together, jobs.context.env.clock.now_ns() - self.start_ns);
        }
        jobs.context.times.collection.record_ns(jobs.context.now_ns() - self.start_ns);
        jobs.context.stats.gc_runs.add(1);
        jobs.context.stats.gc_bytes_written.add(output_bytes);
        jobs.context.stats.gc_bytes_freed.add(freed);
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.context.notify(&Event::Gc { family: self.family.name.clone(), input_bytes, output_bytes });
    }

    /// Returns whether callers requested it and all have cancelled. Automatic collections pick the
    /// same garbage again.
    fn is_given_up(&self) -> bool {
        !self.callers.is_empty() && self.callers.iter().all(Caller::is_cancelled)
    }

    /// Returns every output created so far.
    fn created(&self) -> &[(u64, PathBuf)] {
        self.job.created()
    }
}

/// Returns whether the inputs of a collection still exist. No other job may replace them. But the
/// cleanup may have pruned an unreferenced one, by an older read state, just before the collection
/// pinned its names.
fn has_all(state: &State, family: version::FamilyId, inputs: &[u64]) -> bool {
    let there = |version: &Version| inputs.iter().all(|n| version.vssts.contains_key(n));
    state.families.get(&family).is_some_and(|family| there(&family.version))
}

impl Job for GcJob {
    fn class(&self) -> JobClass {
        match self.purpose {
            Purpose::UrgentGarbage => JobClass::UrgentGc,
            Purpose::Garbage => JobClass::Gc,
            Purpose::FastTier => JobClass::Move,
        }
    }

    fn rests(&self) -> bool {
        self.callers.is_empty() && self.purpose == Purpose::Garbage && self.jobs.works_at_rest()
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        if self.is_given_up() {
            self.abandon();
            return Ok(Progress::Done);
        }
        let now_ns = jobs.context.env.clock.now_ns();
        let paced_ns = paced_ns(jobs, now_ns);
        if paced_ns > 0 {
            jobs.context.stats.gc_paced_ns.add(paced_ns);
            return Ok(Progress::Wait(paced_ns));
        }
        let job = &mut self.job;
        let step = match job.step(&mut World { files: &self.files }) {
            // The outputs of a dropped family are not needed, so errors are ignored.
            _ if self.family.is_dropped() => {
                self.abandon();
                return Ok(Progress::Done);
            }
            step => step?,
        };
        let (read_bytes, written_bytes) = (job.take_read_bytes(), job.take_written_bytes());
        jobs.gc_pace.charge(read_bytes + written_bytes);
        jobs.context.stats.gc_bytes_read.add(read_bytes);
        if let Some(grant) = self.claim.grant() {
            grant.wrote(|| job.created().to_vec());
        }
        match step {
            GcStep::More => Ok(Progress::More),
            GcStep::Done(outcome) => {
                let stats = job.stats();
                jobs.context.stats.gc_reads_ahead.add(stats.record_reads_ahead);
                jobs.context.stats.gc_held_bytes_max.max(stats.held_bytes_max);
                self.finish(outcome)?;
                Ok(Progress::Done)
            }
        }
    }

    fn inputs(&self) -> Vec<u64> {
        self.input_numbers.clone()
    }

    fn abandon(&mut self) {
        let jobs = &self.jobs.clone();
        // A failed commit may be durable nevertheless: its files may be removed only if the
        // manifest does not name them.
        if !jobs.context.health.outcome_unknown() {
            jobs.tree.remove_outputs(self.created());
        }
    }
}

/// The interface of a collection to the store.
struct World<'a> {
    files: &'a VsstFiles,
}

impl GcEnv for World<'_> {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        self.files.tree.files.tables.table(file)
    }

    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        let tree = &self.files.tree;
        let opening_bytes = tree.files.tables.opening_bytes(meta);
        let vsst = tree.files.tables.vsst(meta)?;
        tree.context.stats.gc_bytes_read.add(opening_bytes);
        Ok(vsst)
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.files.tree.context.env.clock.now_ns())
    }

    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        self.files.create(alignment, class)
    }

    fn read_wanted(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
        read_wanted(fetched, wants);
    }

    fn reads(&self) -> Option<ReadQueue> {
        Some(ReadQueue::of_background(&self.files.tree.context.env))
    }
}
