//! Garbage collection of vSSTs: what `values` picked, rewritten in steps, installed in one edit.
//!
//! **When**, and how many at once: see [`when`]. How fast: see `gc_pace`.
//!
//! **Pins.** A compaction may emit any name that its inputs' references resolve to, and a collection must not see its
//! inputs' names vanish. Both take their pins under the lock of the claims, together with the view they work on, and let
//! go of them under the same lock, after their edit is published: nobody can take a view from before a collection and
//! pin its names after the collection has let go of them.

pub(crate) mod when;

use super::output::{VsstFiles, remove_outputs};
use super::{Claims, rebuild};
use crate::context::event::Event;
use crate::engine::Engine;
use crate::files::obsolete::DataFile;
use crate::plan::slots::Slots;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::space::space_limit::Grant;
use crate::tree::family::{Family, View};
use base::sync::lock;
use base::{HashSet, Result};
use std::path::PathBuf;
use std::sync::Arc;
use values::{Gc, GcOptions, GcOutcome, GcStep, GcWorld, Lookups, OutputVsst, PinGuard};
use version::{Edit, Record, State, TableSource, Version, VsstClass, VsstMeta, VsstSource};

/// The threshold where the space limit is near: less would free less than the keys of the output take.
const SHORT_RATIO_PERCENT: u32 = 3;

/// Where there is no room for the output of a collection, so many others are considered that write less, or elsewhere.
pub(super) const CANDIDATES_MAX: usize = 8;

/// A collection under way.
pub(crate) struct GcJob {
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
pub(crate) fn gc_options(engine: &Engine, view: &View, ratio_percent: u32) -> GcOptions {
    let ablation = engine.options.ablation;
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
fn pick(engine: &Engine, claims: &mut Claims, family: &Family, view: &View) -> Option<(Gc, GcOptions)> {
    if view.version.vssts.is_empty() {
        return None;
    }
    let options = family.options();
    let usual = when::threshold(engine, view, &options);
    let own = if engine.is_space_short() { SHORT_RATIO_PERCENT.min(usual) } else { usual };
    let asked = claims.gc_requests.threshold(engine, family);
    let gc_options = gc_options(engine, view, asked.map_or(own, |asked| asked.min(own)));
    // Whoever asks for a collection gets it; else what will be dropped for nothing is left alone.
    let all = asked.is_some() || engine.is_space_short();
    let mut passed_over = if all { HashSet::default() } else { rebuild::taken(engine, claims, family) };
    for _ in 0..CANDIDATES_MAX {
        let gc = pick_at(claims, family, view, &gc_options, &passed_over)?;
        if engine.space.would_grant(engine, gc.expected_write) {
            return Some((gc, gc_options));
        }
        passed_over.extend(gc.numbers());
    }
    None
}

/// What could be collected in a family, leaving out the files `planned`.
pub(crate) fn pick_at(
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
            || known.is_some_and(|&g| ledger.garbage_of(meta.number).garbage_bytes <= g)
    };
    values::pick(&view.version, ledger, gc_options, &skip)
}

/// True if a collection could start.
pub(crate) fn is_wanted(engine: &Engine, claims: &mut Claims) -> bool {
    if engine.gc_is_paused() {
        return false;
    }
    engine.all_families().iter().any(|f| pick(engine, claims, f, &f.view()).is_some())
}

impl GcJob {
    /// A collection, if there is one to start. What it works on is claimed. `urgent`: one that goes before compactions.
    pub fn start(
        engine: &Arc<Engine>,
        claims: &mut Claims,
        slots: &Slots,
        urgent: bool,
    ) -> Option<Box<dyn Job>> {
        let free =
            if urgent { claims.collections < slots.urgent } else { when::may_start(engine, claims, slots) };
        if !free || engine.gc_is_paused() {
            return None;
        }
        for family in engine.all_families() {
            let view = family.view();
            let Some((gc, gc_options)) = pick(engine, claims, &family, &view) else { continue };
            let Some(grant) = engine.space.grant(engine, gc.expected_write) else { continue };
            let busy = claims.busy.entry(family.id).or_default();
            let names = gc.inputs.iter().flat_map(|meta| view.version.names_of(meta.number));
            let pins = engine.pins.pin(names);
            for meta in &gc.inputs {
                assert!(busy.claim_vsst(meta.number), "a vSST was picked that a job works on");
            }
            claims.collections += 1;
            let inputs = gc.inputs.clone();
            let input_numbers: Vec<u64> = gc.numbers().collect();
            let expected = gc.numbers().map(|n| view.ledger.garbage_of(n).garbage_bytes).collect();
            let files = VsstFiles {
                engine: engine.clone(),
                family: family.clone(),
                level: 0,
                job: claims.job_number(),
                inputs: input_numbers.clone(),
                expected_len: gc.expected_write.min(gc_options.file_bytes),
            };
            return Some(Box::new(GcJob {
                input_numbers,
                expected,
                inputs,
                job: Some(values::GcJob::new(gc, &view.version, gc_options)),
                pins: Some(pins),
                grant: Some(grant),
                files,
                start_ns: engine.env.clock.now_ns(),
                urgent,
                family,
            }));
        }
        None
    }

    fn finish(&mut self, engine: &Arc<Engine>, outcome: GcOutcome) -> Result<()> {
        match outcome {
            GcOutcome::Replace { outputs, .. } => self.install(engine, outputs),
            GcOutcome::Abandoned { .. } => {
                engine.stats.gc_abandoned.add(1);
                // The estimate was wrong and stays wrong until something changes it: it is the estimate that must grow,
                // beyond what was believed in vain, before the files are tried again.
                let believed = self.input_numbers.iter().copied().zip(self.expected.iter().copied());
                lock(&engine.claims).abandoned.extend(believed);
                remove_outputs(engine, self.created());
                Ok(())
            }
        }
    }

    /// One edit: the outputs take the place of the inputs under all their names.
    fn install(&mut self, engine: &Arc<Engine>, outputs: Vec<VsstMeta>) -> Result<()> {
        engine.sync_dir()?;
        let (family, inputs) = (self.family.id, &self.input_numbers);
        let output_bytes: u64 = outputs.iter().map(|meta| meta.len).sum();
        let (mut overtaken, mut installed) = (false, false);
        engine.install(
            |state| {
                overtaken = !has_all(state, family, inputs);
                if overtaken {
                    return Ok(Edit(Vec::new()));
                }
                Ok(Edit(vec![Record::ReplaceVsst { family, inputs: inputs.clone(), outputs }]))
            },
            |state| {
                self.grant.iter().for_each(Grant::installed);
                installed = self.family.install_durable(state, &[]);
            },
        )?;
        if overtaken {
            remove_outputs(engine, self.created());
            return Ok(());
        }
        if installed {
            engine.obsolete.add(self.inputs.iter().cloned().map(DataFile::Vsst));
        } else {
            remove_outputs(engine, self.created());
        }
        self.book(engine, output_bytes);
        Ok(())
    }

    fn book(&self, engine: &Engine, output_bytes: u64) {
        let input_bytes: u64 = self.inputs.iter().map(|meta| meta.len).sum();
        let freed = input_bytes.saturating_sub(output_bytes);
        // A file without live records says nothing of how fast others can be collected.
        if output_bytes > 0 {
            // What runs beside it frees about as much.
            let together = lock(&engine.claims).collections.max(1) as u64;
            engine.gc_rate.record(freed * together, engine.env.clock.now_ns() - self.start_ns);
        }
        engine.stats.gc_runs.add(1);
        engine.stats.gc_bytes_written.add(output_bytes);
        engine.stats.gc_bytes_freed.add(freed);
        engine.health.space_found();
        engine.space.refresh(engine);
        engine.tell(&Event::Gc { family: self.family.name.clone(), input_bytes, output_bytes });
    }

    /// Every output begun.
    fn created(&self) -> &[(u64, PathBuf)] {
        self.job.as_ref().map_or(&[], values::GcJob::created)
    }

    fn release(&mut self, engine: &Engine) {
        // The files it holds go before its claims: a store without claims is at rest, and must not hold any.
        self.inputs.clear();
        self.job = None;
        let mut claims = lock(&engine.claims);
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

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        let now_ns = engine.env.clock.now_ns();
        let paced_ns = when::paced_ns(engine, now_ns);
        let wait_ns = engine.rate_limit.wait_ns(now_ns).max(paced_ns);
        if wait_ns > 0 {
            engine.stats.gc_paced_ns.add(paced_ns);
            return Ok(Progress::Wait(wait_ns));
        }
        let job = self.job.as_mut().expect("no step follows the release");
        let step = match job.step(&mut World { files: &self.files }) {
            // Nobody will miss what it makes: no failure of it means anything.
            _ if self.family.is_dropped() => {
                self.abandon(engine);
                return Ok(Progress::Done);
            }
            step => step?,
        };
        let (read_bytes, written_bytes) = (job.take_read_bytes(), job.take_written_bytes());
        engine.rate_limit.charge(engine.env.clock.now_ns(), written_bytes);
        engine.gc_pace.charge(read_bytes + written_bytes);
        engine.stats.gc_bytes_read.add(read_bytes);
        if let Some(grant) = &self.grant {
            grant.wrote(|| job.created().to_vec());
        }
        match step {
            GcStep::More => Ok(Progress::More),
            GcStep::Done(outcome) => {
                self.finish(engine, outcome)?;
                self.release(engine);
                Ok(Progress::Done)
            }
        }
    }

    fn inputs(&self) -> Vec<u64> {
        self.input_numbers.clone()
    }

    fn abandon(&mut self, engine: &Arc<Engine>) {
        // A failed commit may be durable all the same: its files may only go if the manifest does not name them.
        if !engine.health.outcome_unknown() {
            remove_outputs(engine, self.created());
        }
        self.release(engine);
    }
}

/// The engine, as a collection sees it.
struct World<'a> {
    files: &'a VsstFiles,
}

impl GcWorld for World<'_> {
    fn tables(&self) -> &dyn TableSource {
        &*self.files.engine.tables
    }

    fn vssts(&self) -> &dyn VsstSource {
        &*self.files.engine.tables
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.files.engine.env.clock.now_ns())
    }

    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        self.files.create(alignment, class)
    }
}
