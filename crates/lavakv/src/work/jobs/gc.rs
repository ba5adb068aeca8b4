//! Garbage collection of vSSTs: what `values` picked, rewritten in steps, installed in one edit.
//!
//! **When**, and how many at once: see `plan::collection`. How fast: see `plan::gc_pace`.
//!
//! **Pins.** A compaction may emit any name that its inputs' references resolve to, and a collection must not see its
//! inputs' names vanish. Both take their pins under the lock of what is in progress, together with the read state they work on (a
//! compaction of all names of its family, until it has read which its inputs use: `jobs::compaction::inputs`), and let
//! go of them under the same lock, after their edit is published: nobody can take a read state from before a collection and
//! pin its names after the collection has let go of them.

use super::claim::Claim;
use super::{Claimed, Jobs};
use crate::context::event::Event;
use crate::files::data_file::DataFile;
use crate::plan::answer::{Collection, Purpose};
use crate::plan::collection;
use crate::plan::in_progress::InProgressSet;
use crate::plan::requests::Caller;
use crate::read::wanted::read_wanted;
use crate::tree::family::Family;
use crate::tree::install::{Installed, Part};
use crate::tree::output::VsstFiles;
use base::Result;
use base::sync::lock;
use io::ReadQueue;
use lsm::TableSource;
use std::path::PathBuf;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use table::{Fetched, Ksst, Vsst, Want};
use values::{GcOutcome, GcStep, GcWorld, OutputVsst};
use version::{FileMeta, Record, State, Version, VsstClass, VsstMeta};

/// A collection under way.
pub(crate) struct GcJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    inputs: Vec<Arc<VsstMeta>>,
    input_numbers: Vec<u64>,
    /// What the ledger took for garbage in each input.
    expected: Vec<u64>,
    job: values::GcJob,
    files: VsstFiles,
    start_ns: u64,
    purpose: Purpose,
    /// With the room that was granted.
    claim: Claim,
    /// The calls that wait for collections. Dropped last: they wait for what the claim gives back.
    callers: Vec<Caller>,
}

/// Claims a collection. `None` if there is no room for it any more.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, collection: Collection) -> Option<Claimed> {
    let Collection { family, read_state, gc, options, purpose } = collection;
    let grant = jobs.space.grants.grant(gc.expected_write)?;
    let names = gc.inputs.iter().flat_map(|meta| read_state.version.names_of(meta.number));
    let pins = jobs.files.pins.pin(names);
    let input_numbers: Vec<u64> = gc.numbers().collect();
    let goes_down = purpose == Purpose::SpeedDisk;
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

/// How near the space is to where somebody suffers: 100 is there.
fn garbage_pressure_percent(jobs: &Jobs) -> u64 {
    let read_states: Vec<_> = jobs.tree.families.all().iter().map(|family| family.read_state()).collect();
    let digests = read_states.iter().map(|read_state| &read_state.summary);
    collection::garbage_pressure_percent(digests, jobs.space.has_own_limit(), jobs.space.fill_percent())
}

/// How long a collection should wait so that flushes are quick.
fn paced_ns(jobs: &Jobs, now_ns: u64) -> u64 {
    if !jobs.context.options.expert.ablation.gc_pace {
        return 0;
    }
    jobs.gc_pace.wait_ns(now_ns, garbage_pressure_percent(jobs))
}

/// What collections may read and write in a second now; `None`: they are not bounded.
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
                // The estimate was wrong and stays wrong until something changes it: it is the estimate that must grow,
                // beyond what was believed in vain, before the files are tried again.
                let believed = self.input_numbers.iter().copied().zip(self.expected.iter().copied());
                lock(&jobs.in_progress).learned.abandoned.extend(believed);
                jobs.tree.remove_outputs(self.created());
                Ok(())
            }
        }
    }

    /// One edit: the outputs take the place of the inputs under all their names.
    fn install(&mut self, outputs: Vec<VsstMeta>) -> Result<()> {
        let jobs = &self.jobs.clone();
        jobs.files.sync_dir()?;
        let (family, inputs) = (self.family.id, &self.input_numbers);
        let output_bytes: u64 = outputs.iter().map(|meta| meta.len).sum();
        let part = Part {
            retired: self.inputs.iter().cloned().map(DataFile::Vsst).collect(),
            created: self.created().to_vec(),
            ..Part::new(&self.family)
        };
        let replace = |state: &State, _| {
            let record = || Record::ReplaceVsst { family, inputs: inputs.clone(), outputs: outputs.clone() };
            has_all(state, family, inputs).then(|| vec![record()])
        };
        let published = || self.claim.grant().into_iter().for_each(Grant::installed);
        let installed = jobs.tree.install(vec![part], replace, published)?;
        if installed[0] != Installed::Overtaken {
            self.book(jobs, output_bytes);
        }
        Ok(())
    }

    fn book(&self, jobs: &Jobs, output_bytes: u64) {
        let input_bytes: u64 = self.inputs.iter().map(|meta| meta.len).sum();
        let freed = input_bytes.saturating_sub(output_bytes);
        if self.purpose == Purpose::SpeedDisk {
            jobs.context.stats.speed_values_moved_down.add(self.inputs.len() as u64);
        }
        // A file without live records says nothing of how fast others can be collected, nor does one that was copied for its disk.
        if output_bytes > 0 && self.purpose != Purpose::SpeedDisk {
            // What runs beside it frees about as much.
            let together = lock(&jobs.in_progress).running.collections.max(1) as u64;
            jobs.drain.gc.record(freed * together, jobs.context.env.clock.now_ns() - self.start_ns);
        }
        jobs.context.times.collection.record_ns(jobs.context.now_ns() - self.start_ns);
        jobs.context.stats.gc_runs.add(1);
        jobs.context.stats.gc_bytes_written.add(output_bytes);
        jobs.context.stats.gc_bytes_freed.add(freed);
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.context.tell(&Event::Gc { family: self.family.name.clone(), input_bytes, output_bytes });
    }

    /// True if callers asked for it, and all of them have cancelled. Garbage that the store collects by itself is picked again.
    fn is_given_up(&self) -> bool {
        !self.callers.is_empty() && self.callers.iter().all(Caller::is_cancelled)
    }

    /// Every output begun.
    fn created(&self) -> &[(u64, PathBuf)] {
        self.job.created()
    }
}

/// True if the files a collection replaces are still there. No other job may replace them, but clean-up may have decided
/// to drop one without references a moment before the collection, with a read state from before that, pinned its names.
fn has_all(state: &State, family: version::FamilyId, inputs: &[u64]) -> bool {
    let there = |version: &Version| inputs.iter().all(|n| version.vssts.contains_key(n));
    state.families.get(&family).is_some_and(|family| there(&family.version))
}

impl Job for GcJob {
    fn class(&self) -> JobClass {
        match self.purpose {
            Purpose::UrgentGarbage => JobClass::UrgentGc,
            Purpose::Garbage => JobClass::Gc,
            Purpose::SpeedDisk => JobClass::Move,
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
            // Nobody will miss what it makes: no failure of it means anything.
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
        // A failed commit may be durable all the same: its files may only go if the manifest does not name them.
        if !jobs.context.health.outcome_unknown() {
            jobs.tree.remove_outputs(self.created());
        }
    }
}

/// The jobs, as a collection sees it.
struct World<'a> {
    files: &'a VsstFiles,
}

impl GcWorld for World<'_> {
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

    fn read_wanted(&self, fetched: &mut Fetched, wants: &[Want]) {
        read_wanted(fetched, wants);
    }

    fn reads(&self) -> Option<ReadQueue> {
        Some(ReadQueue::of_background(&self.files.tree.context.env))
    }
}
