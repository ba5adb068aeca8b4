//! Garbage collection of vSSTs: what `values` picked, rewritten in steps, installed in one edit.
//!
//! **When**, and how many at once: see [`when`]. How fast: see `gc_pace`.
//!
//! **Pins.** A compaction may emit any name that its inputs' references resolve to, and a collection must not see its
//! inputs' names vanish. Both take their pins under the lock of the claims, together with the view they work on, and let
//! go of them under the same lock, after their edit is published: nobody can take a view from before a collection and
//! pin its names after the collection has let go of them.

pub(crate) mod when;

use super::{Claims, Jobs, rebuild};
use crate::context::event::Event;
use crate::files::damaged::Quarantine;
use crate::files::obsolete::DataFile;
use crate::plan::slots::Slots;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::space::grant::Grant;
use crate::tree::family::{Family, View};
use crate::tree::install::{Installed, Part};
use crate::tree::output::VsstFiles;
use base::sync::lock;
use base::{HashSet, Result};
use std::path::PathBuf;
use std::sync::Arc;
use values::{Gc, GcOptions, GcOutcome, GcStep, GcWorld, Lookups, OutputVsst, PinGuard};
use version::{Record, State, TableSource, Version, VsstClass, VsstMeta, VsstSource};

/// The threshold where the space limit is near: less would free less than the keys of the output take.
const SHORT_RATIO_PERCENT: u32 = 3;

/// Where there is no room for the output of a collection, so many others are considered that write less, or elsewhere.
pub(super) const CANDIDATES_MAX: usize = 8;

/// A collection under way.
pub(crate) struct GcJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    inputs: Vec<Arc<VsstMeta>>,
    input_numbers: Vec<u64>,
    /// What the ledger took for garbage in each input.
    expected: Vec<u64>,
    /// The work; gone when the job is released, and with it the files that it reads.
    job: Option<values::GcJob>,
    files: VsstFiles,
    /// Taken and given back under the lock of the claims.
    pins: Option<PinGuard>,
    grant: Option<Grant>,
    start_ns: u64,
    /// Room is scarce: it goes before compactions.
    urgent: bool,
}

/// How a family is collected from so much garbage in a file on.
pub(crate) fn gc_options(jobs: &Jobs, view: &View, ratio_percent: u32) -> GcOptions {
    let ablation = jobs.context.options.ablation;
    GcOptions {
        ratio_percent,
        file_bytes: view.digest.file_bytes,
        lookups: if ablation.joined_lookups { Lookups::Cheaper } else { Lookups::Points },
        gap_bytes: (!ablation.readahead).then_some(0),
        lazy_read: ablation.lazy_read,
        ..GcOptions::default()
    }
}

/// What could be collected in a family now, and how.
fn pick(jobs: &Jobs, claims: &mut Claims, family: &Family, view: &View) -> Option<(Gc, GcOptions)> {
    if view.version.vssts.is_empty() {
        return None;
    }
    let options = family.options();
    let usual = when::threshold(jobs, view, &options);
    let own = if jobs.space.is_short() { SHORT_RATIO_PERCENT.min(usual) } else { usual };
    let asked = claims.gc_requests.threshold(&jobs.tree, family);
    let gc_options = gc_options(jobs, view, asked.map_or(own, |asked| asked.min(own)));
    // Whoever asks for a collection gets it; else what will be dropped for nothing is left alone.
    let all = asked.is_some() || jobs.space.is_short();
    let mut passed_over = if all { HashSet::default() } else { rebuild::taken(jobs, claims, family) };
    for _ in 0..CANDIDATES_MAX {
        let gc = pick_at(&jobs.files.tables.quarantine, claims, family, view, &gc_options, &passed_over)?;
        if jobs.space.would_grant(gc.expected_write) {
            return Some((gc, gc_options));
        }
        passed_over.extend(gc.numbers());
    }
    None
}

/// What could be collected in a family, leaving out the files `planned`.
pub(crate) fn pick_at(
    uncollected: &Quarantine,
    claims: &mut Claims,
    family: &Family,
    view: &View,
    gc_options: &GcOptions,
    planned: &HashSet<u64>,
) -> Option<Gc> {
    let ledger = &view.ledger;
    let busy = claims.busy.entry(family.id).or_default();
    let abandoned = &claims.abandoned;
    let skip = |meta: &VsstMeta| {
        let known = abandoned.get(&meta.number);
        // A segment has one record: it is live, or pruned. Nothing is gained by copying it.
        meta.segment
            || busy.has_vsst(meta.number)
            || planned.contains(&meta.number)
            || uncollected.is_uncollected(meta.number)
            || known.is_some_and(|&g| ledger.garbage_of(meta.number).garbage_bytes <= g)
    };
    values::pick(&view.version, ledger, gc_options, &skip)
}

/// True if a collection could start.
pub(crate) fn is_wanted(jobs: &Jobs, claims: &mut Claims) -> bool {
    if jobs.drain.gc_is_paused() {
        return false;
    }
    jobs.tree.all_families().iter().any(|f| pick(jobs, claims, f, &f.view()).is_some())
}

impl GcJob {
    /// A collection, if there is one to start. What it works on is claimed. `urgent`: one that goes before compactions.
    pub fn start(jobs: &Arc<Jobs>, claims: &mut Claims, slots: &Slots, urgent: bool) -> Option<Box<dyn Job>> {
        let free =
            if urgent { claims.collections < slots.urgent } else { when::may_start(jobs, claims, slots) };
        if !free || jobs.drain.gc_is_paused() {
            return None;
        }
        for family in jobs.tree.all_families() {
            let view = family.view();
            let Some((gc, gc_options)) = pick(jobs, claims, &family, &view) else { continue };
            let Some(grant) = jobs.space.grant(gc.expected_write) else { continue };
            let busy = claims.busy.entry(family.id).or_default();
            let names = gc.inputs.iter().flat_map(|meta| view.version.names_of(meta.number));
            let pins = jobs.files.pins.pin(names);
            for meta in &gc.inputs {
                assert!(busy.claim_vsst(meta.number), "a vSST was picked that a job works on");
            }
            claims.collections += 1;
            let inputs = gc.inputs.clone();
            let input_numbers: Vec<u64> = gc.numbers().collect();
            let expected = gc.numbers().map(|n| view.ledger.garbage_of(n).garbage_bytes).collect();
            let files = VsstFiles {
                tree: jobs.tree.clone(),
                family: family.clone(),
                level: 0,
                job: claims.job_number(),
                inputs: input_numbers.clone(),
                expected_len: gc.expected_write.min(gc_options.file_bytes),
            };
            return Some(Box::new(GcJob {
                jobs: jobs.clone(),
                input_numbers,
                expected,
                inputs,
                job: Some(values::GcJob::new(gc, &view.version, gc_options)),
                pins: Some(pins),
                grant: Some(grant),
                files,
                start_ns: jobs.context.env.clock.now_ns(),
                urgent,
                family,
            }));
        }
        None
    }

    fn finish(&mut self, outcome: GcOutcome) -> Result<()> {
        match outcome {
            GcOutcome::Replace { outputs, .. } => self.install(outputs),
            GcOutcome::Abandoned { .. } => {
                let jobs = &self.jobs;
                jobs.context.stats.gc_abandoned.add(1);
                // The estimate was wrong and stays wrong until something changes it: it is the estimate that must grow,
                // beyond what was believed in vain, before the files are tried again.
                let believed = self.input_numbers.iter().copied().zip(self.expected.iter().copied());
                lock(&jobs.claims).abandoned.extend(believed);
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
        let published = || self.grant.iter().for_each(Grant::installed);
        let installed = jobs.tree.install(vec![part], replace, published)?;
        if installed[0] != Installed::Overtaken {
            self.book(jobs, output_bytes);
        }
        Ok(())
    }

    fn book(&self, jobs: &Jobs, output_bytes: u64) {
        let input_bytes: u64 = self.inputs.iter().map(|meta| meta.len).sum();
        let freed = input_bytes.saturating_sub(output_bytes);
        // A file without live records says nothing of how fast others can be collected.
        if output_bytes > 0 {
            // What runs beside it frees about as much.
            let together = lock(&jobs.claims).collections.max(1) as u64;
            jobs.drain.gc.record(freed * together, jobs.context.env.clock.now_ns() - self.start_ns);
        }
        jobs.context.stats.gc_runs.add(1);
        jobs.context.stats.gc_bytes_written.add(output_bytes);
        jobs.context.stats.gc_bytes_freed.add(freed);
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.context.tell(&Event::Gc { family: self.family.name.clone(), input_bytes, output_bytes });
    }

    /// Every output begun.
    fn created(&self) -> &[(u64, PathBuf)] {
        self.job.as_ref().map_or(&[], values::GcJob::created)
    }

    fn release(&mut self) {
        let jobs = &self.jobs.clone();
        // The files it holds go before its claims: a store without claims is at rest, and must not hold any.
        self.inputs.clear();
        self.job = None;
        let mut claims = lock(&jobs.claims);
        if let Some(busy) = claims.busy.get_mut(&self.family.id) {
            self.input_numbers.iter().for_each(|&n| busy.release_vsst(n));
        }
        claims.collections -= 1;
        self.pins = None;
        self.grant = None;
    }
}

/// True if the files a collection replaces are still there. No other job may replace them, but clean-up may have decided
/// to drop one without references a moment before the collection, with a view from before that, pinned its names.
fn has_all(state: &State, family: version::FamilyId, inputs: &[u64]) -> bool {
    let there = |version: &Version| inputs.iter().all(|n| version.vssts.contains_key(n));
    state.families.get(&family).is_some_and(|family| there(&family.version))
}

impl Job for GcJob {
    fn class(&self) -> JobClass {
        if self.urgent { JobClass::UrgentGc } else { JobClass::Gc }
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        let now_ns = jobs.context.env.clock.now_ns();
        let paced_ns = when::paced_ns(jobs, now_ns);
        let wait_ns = jobs.drain.limit.wait_ns(now_ns).max(paced_ns);
        if wait_ns > 0 {
            jobs.context.stats.gc_paced_ns.add(paced_ns);
            return Ok(Progress::Wait(wait_ns));
        }
        let job = self.job.as_mut().expect("no step follows the release");
        let step = match job.step(&mut World { files: &self.files }) {
            // Nobody will miss what it makes: no failure of it means anything.
            _ if self.family.is_dropped() => {
                self.abandon();
                return Ok(Progress::Done);
            }
            step => step?,
        };
        let (read_bytes, written_bytes) = (job.take_read_bytes(), job.take_written_bytes());
        jobs.drain.limit.charge(jobs.context.env.clock.now_ns(), written_bytes);
        jobs.gc_pace.charge(read_bytes + written_bytes);
        jobs.context.stats.gc_bytes_read.add(read_bytes);
        if let Some(grant) = &self.grant {
            grant.wrote(|| job.created().to_vec());
        }
        match step {
            GcStep::More => Ok(Progress::More),
            GcStep::Done(outcome) => {
                self.finish(outcome)?;
                self.release();
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
        self.release();
    }
}

/// The jobs, as a collection sees it.
struct World<'a> {
    files: &'a VsstFiles,
}

impl GcWorld for World<'_> {
    fn tables(&self) -> &dyn TableSource {
        &*self.files.tree.files.tables
    }

    fn vssts(&self) -> &dyn VsstSource {
        &*self.files.tree.files.tables
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.files.tree.context.env.clock.now_ns())
    }

    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        self.files.create(alignment, class)
    }
}
