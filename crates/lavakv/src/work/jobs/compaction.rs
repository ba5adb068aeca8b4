//! Compaction: merges the files that the policy picked into the next level, and installs the
//! outputs in one version edit.
//!
//! The first step reads the names that the inputs reference ([`inputs`]).
//!
//! A wide compaction is split at user keys ([`lsm::policy::pieces`]) into one piece per idle
//! thread. All its jobs are alike ([`CompactionJob`]): each merges one piece after the other, and
//! the job that ends the last piece installs all of them ([`subcompactions`]). So no job blocks on
//! another. (A leader that waited for pieces would hold its thread, and could deadlock with pieces
//! that lie under other work on the stacks of threads.) In simulation the pieces are ordinary jobs.
//! The jobs share the claim ([`ClaimedCompaction`]), which is released with the last of them.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::context::Context;
use crate::context::drain::level_0::Share;
use crate::context::event::Event;
use crate::files::data_file::DataFile;
use crate::plan::answer::Compact;
use crate::plan::in_progress::{InProgressSet, ManualCompaction, Subcompactions};
use crate::plan::requests::Caller;
use crate::plan::room::output_bytes;
use crate::tree::family::Family;
use crate::tree::install::FamilyEdit;
use crate::tree::output::file_meta;
use crate::tree::table_placement::stays;
use base::sync::lock;
use base::{HashSet, Result};
use inputs::Lists;
use lsm::policy::{Compaction, CompactionPolicy, InProgress, PickInputs, Reason};
use merge::RunningMerge;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use subcompactions::{Created, Ended, Merged, Pieces, Subcompaction};
use version::{FileMeta, Record, State, Version, VsstMeta};

mod inputs;
mod merge;
mod subcompactions;

/// A claimed compaction with its pieces.
struct ClaimedCompaction {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    compaction: Arc<Compaction>,
    /// The policy that picked it.
    policy: Arc<dyn CompactionPolicy>,
    number: u64,
    inputs: Vec<u64>,
    /// An outline of the version it was picked from, with only the vSSTs to relocate. It pins the
    /// input files.
    version: Arc<Version>,
    /// References of each input; empty for moves.
    lists: Lists,
    /// Bytes to reserve for an output.
    expected_len: u64,
    pieces: Pieces,
    begun: CompactionStart,
    /// Includes the names of its inputs, and of its outputs (see `jobs::gc`).
    claim: Claim,
    /// The call that requested it. Dropped last: the call waits for the release of the claim.
    caller: Option<Caller>,
}

/// The start of a compaction.
struct CompactionStart {
    at_ns: u64,
    /// Number of consecutive levels that were due.
    chain: u64,
    /// Set if level 0 waits for the compaction.
    in_chain: Option<InChain>,
}

/// One thread's job in a compaction.
pub(crate) struct CompactionJob {
    running: Option<RunningMerge>,
    /// The piece being merged.
    piece: Option<Subcompaction>,
    /// The files of all pieces, after the end of the last one.
    made: Vec<Created>,
    /// Set in a helper job.
    _helps: Option<Claim>,
    /// Dropped last: releases the claim.
    whole: Arc<ClaimedCompaction>,
}

/// A guard that counts a job of the chain that level 0 waits for.
struct InChain {
    context: Arc<Context>,
    family: Arc<Family>,
    /// The job's share of level 0; `None`: the job makes room for level 0 in a deeper level.
    share: Option<Share>,
}

impl InChain {
    /// Begins counting a compaction. `None`: it does not affect level 0. `taken`: the inputs of all
    /// level 0 jobs, including this one.
    fn begin(
        jobs: &Jobs,
        family: &Arc<Family>,
        compaction: &Compaction,
        taken: &HashSet<u64>,
    ) -> Option<InChain> {
        let drains = drains(compaction);
        if !drains && !spills(compaction) {
            return None;
        }
        family.level_0.begins(jobs.context.now_ns());
        let share = drains.then(|| {
            let own: HashSet<u64> = compaction.input_files().map(|(_, f)| f.number).collect();
            let others = taken.difference(&own).copied().collect();
            let (depth, left) = (family.l0_depth_without(&others), family.l0_depth_without(taken));
            let falls = depth.saturating_sub(left) as f64;
            family.level_0.is_drained(bytes_of(compaction, 0), falls, depth as f64)
        });
        Some(InChain { context: jobs.context.clone(), family: family.clone(), share })
    }
}

impl Drop for InChain {
    fn drop(&mut self) {
        self.share.iter().for_each(|share| self.family.level_0.rests(share));
        let is_deep = self.family.look(|seen| seen.chain.l0_depth > seen.options.expert.l0_slowdown_files);
        self.family.level_0.ends(self.context.now_ns(), is_deep);
    }
}

/// Returns whether level 0 waits for this compaction of a deeper level.
fn spills(compaction: &Compaction) -> bool {
    !compaction.trivial_move && matches!(compaction.reason, Reason::Spill | Reason::PoorSpill)
}

/// Returns whether the compaction reduces level 0. Merges inside level 0 do not drain it; counting
/// them would overestimate the rate, and let writers run into the stop.
fn drains(compaction: &Compaction) -> bool {
    compaction.output_level > 0 && !compaction.trivial_move && bytes_of(compaction, 0) > 0
}

/// Returns the bytes of its inputs in a level.
fn bytes_of(compaction: &Compaction, level: usize) -> u64 {
    compaction.input_files().filter(|(of, _)| *of == level).map(|(_, f)| f.len).sum()
}

/// Claims a compaction. `None` if the family lost its policy a moment ago.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, compact: Compact) -> Option<ClaimedJob> {
    let (family, mut compaction, caller) = match compact {
        Compact::Asked(family) => {
            let ManualCompaction { compaction, caller } = set.manual.take()?;
            (family, compaction, Some(caller))
        }
        Compact::Picked(family, compaction) => {
            set.claim(&compaction);
            (family, *compaction, None)
        }
        Compact::Step(family, compaction, walk) => {
            set.learned.walks.insert(family.id, *walk);
            set.claim(&compaction);
            (family, *compaction, None)
        }
    };
    let (options, policy) = family.settings.chosen();
    let Some(policy) = policy else {
        set.give_back(&compaction);
        return None;
    };
    let stays = stays(&jobs.context.options, &family.settings.tables_set_aside(), &compaction);
    if !stays && jobs.space.grants.would_grant(compaction.input_bytes()) {
        compaction.trivial_move = false;
    }
    set.begins(compaction.reason);
    let rewritten_bytes = if compaction.trivial_move { 0 } else { compaction.input_bytes() };
    match compaction.reason {
        Reason::Rest => set.learned.rest.spend(rewritten_bytes, jobs.space.used_bytes()),
        Reason::Passed => family.demand.spend_passed(compaction.input_bytes()),
        _ => {}
    }
    let number = set.job_number();
    let output_bytes = output_bytes(&compaction, options.expert.vsst_bytes, jobs.tree.snapshots.is_any());
    let grant = jobs.space.grants.grant(output_bytes);
    let version = family.read_state().version.clone();
    let pins = inputs::pins(jobs, &family, &compaction);
    let pieces_max = pieces_max(jobs, set, class_of(&compaction));
    let busy = set.of(family.id);
    let taken = version.files(0).iter().map(|f| f.number).filter(|number| busy.has_file(*number)).collect();
    let compaction = Arc::new(compaction);
    let held = compaction.clone();
    let claim = Claim::new(jobs, move |set| set.ended(number, &held)).with(pins, grant);
    let jobs = jobs.clone();
    Some(Box::new(move || {
        let facts = PickInputs {
            version: &version,
            set_aside: &family.settings.tables_set_aside(),
            busy: &InProgress::default(),
        };
        let begun = CompactionStart {
            at_ns: jobs.context.now_ns(),
            chain: policy.chain_len(&facts, compaction.level) as u64,
            in_chain: InChain::begin(&jobs, &family, &compaction, &taken),
        };
        let claimed = inputs::ClaimedInputs {
            jobs,
            family,
            compaction,
            policy,
            number,
            version,
            pieces_max,
            begun,
            claim,
            caller,
        };
        claimed.job()
    }))
}

/// Claims a helper job of a compaction. `None` if the compaction has ended.
pub(super) fn help(set: &mut InProgressSet, job: u64) -> Option<ClaimedJob> {
    let whole = set.helps(job)?;
    // The reference may be the last one, so it must be dropped without the mutex.
    Some(Box::new(move || whole.help()))
}

/// Returns the maximum number of pieces for a compaction of this class: one for its own thread, and
/// one per idle thread that may help. A compaction of level 0 gets one piece per thread: no other
/// level 0 job can begin before it ends, so threads that become idle can only help it.
fn pieces_max(jobs: &Jobs, set: &InProgressSet, class: JobClass) -> usize {
    let options = &jobs.context.options;
    let busy = set.running.compactions + set.running.helpers + set.running.collections;
    match class {
        _ if !options.expert.ablation.subcompactions => 1,
        JobClass::L0 => options.background_threads.max(1),
        _ => 1 + options.compaction_slots().saturating_sub(busy),
    }
}

/// Returns the urgency of a compaction.
fn class_of(compaction: &Compaction) -> JobClass {
    match (compaction.level, compaction.reason) {
        (_, Reason::Relocation) => JobClass::Gc,
        // Level 0 waits for these compactions.
        (0, _) | (_, Reason::Spill | Reason::PoorSpill) => JobClass::L0,
        _ => JobClass::Compaction,
    }
}

impl Subcompactions for ClaimedCompaction {
    fn help(self: Arc<Self>) -> Box<dyn Job> {
        let helps = Claim::new(&self.jobs, |set| set.running.helpers -= 1);
        CompactionJob::new(self, Some(helps))
    }
}

impl ClaimedCompaction {
    /// Combines a claim with an outline of its version and the references of its inputs.
    fn new(of: inputs::ClaimedInputs, outline: Version, lists: Lists) -> Arc<ClaimedCompaction> {
        let inputs::ClaimedInputs {
            jobs,
            family,
            compaction,
            policy,
            number,
            version,
            pieces_max,
            begun,
            claim,
            caller,
        } = of;
        Arc::new(ClaimedCompaction {
            number,
            inputs: compaction.input_files().map(|(_, f)| f.number).collect(),
            expected_len: compaction.expected_output_len(),
            pieces: Pieces::new(lsm::policy::pieces::cuts(&compaction, &version, pieces_max)),
            version: Arc::new(outline),
            lists,
            begun,
            family,
            compaction,
            policy,
            jobs,
            claim,
            caller,
        })
    }

    /// Requests helper threads for the other pieces.
    fn ask_for_help(self: &Arc<Self>) {
        let threads = self.pieces.count() - 1;
        if threads == 0 {
            return;
        }
        let whole: Arc<dyn Subcompactions> = self.clone();
        let class = class_of(&self.compaction);
        lock(&self.jobs.in_progress).wants_help(self.number, class, threads, Arc::downgrade(&whole));
        self.jobs.context.signals.notify_work();
    }

    /// Reports the progress of a piece.
    fn wrote(&self, piece: &Subcompaction, running: &RunningMerge) {
        let written = self.pieces.wrote(piece, running.written_bytes);
        if let Some(InChain { family, share: Some(share), .. }) = &self.begun.in_chain {
            family.level_0.has_come(share, written as f64 / self.compaction.input_bytes().max(1) as f64);
        }
        if let Some(grant) = self.claim.grant() {
            grant.wrote(|| self.pieces.created(piece, running.created()));
        }
    }

    /// Installs all pieces, in key order.
    fn install_merged(&self, merged: Vec<Merged>, created: &[Created]) -> Result<()> {
        let jobs = &self.jobs;
        jobs.files.sync_dir()?;
        let level = self.compaction.output_level;
        let outputs = || merged.iter().flat_map(|piece| &piece.outputs);
        let by = (&*jobs.tree, &*self.family);
        let meta = |o| file_meta(by, &self.version, (level, &self.inputs), o);
        let files: Vec<FileMeta> = outputs().map(meta).collect::<Result<_>>()?;
        let vssts: Vec<VsstMeta> = merged.iter().flat_map(|piece| piece.vssts.iter().cloned()).collect();
        let value_bytes: u64 = vssts.iter().map(|meta| meta.len).sum();
        jobs.context.stats.subcompactions.add(self.pieces.count() as u64);
        jobs.context.stats.compaction_bytes_read.add(self.compaction.input_bytes());
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
        self.install(files, vssts, created)
    }

    /// Installs outputs and removes inputs in one version edit. The inputs become obsolete once the
    /// edit is durable.
    fn install(&self, mut outputs: Vec<FileMeta>, vssts: Vec<VsstMeta>, created: &[Created]) -> Result<()> {
        let sums = Record::references(self.family.id, &mut outputs, self.lists.iter().map(Vec::as_slice));
        let output_bytes = outputs.iter().map(|f| f.len).sum();
        let compaction = &self.compaction;
        let mut part = FamilyEdit::new(&self.family);
        if !compaction.trivial_move {
            part.created = created.to_vec();
            part.retired = compaction.input_files().map(|(_, f)| DataFile::Table(f.clone())).collect();
        }
        let records = |state: &State, _| {
            Some(self.records(state, &outputs, &vssts).into_iter().chain(sums.clone()).collect())
        };
        let published = || self.claim.grant().into_iter().for_each(Grant::installed);
        self.jobs.tree.install(vec![part], records, published)?;
        self.book(output_bytes);
        Ok(())
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
        // A file may have become shared since the move was picked.
        let shared = |number| state.table(number).is_some_and(|known| known.shared);
        records.extend(outputs.iter().map(|meta| {
            let meta = FileMeta { shared: meta.shared || shared(meta.number), ..meta.clone() };
            Record::AddFile { family, level, meta }
        }));
        records
    }

    fn book(&self, output_bytes: u64) {
        let (jobs, c) = (&self.jobs, &self.compaction);
        let took_ns = || jobs.context.now_ns() - self.begun.at_ns;
        if drains(c) {
            let stop_files = self.family.options().expert.l0_stop_files;
            self.family.level_0.record_drained(bytes_of(c, 0), jobs.context.now_ns(), stop_files);
        }
        let (spills, is_poor) = (c.reason == Reason::Spill, c.reason == Reason::PoorSpill);
        if !c.trivial_move {
            let times = &jobs.context.times;
            times.compaction.record_ns(took_ns());
            times.compaction_width.record(c.input_bytes());
            times.compaction_chain.record(self.begun.chain);
        }
        jobs.context.stats.compactions.add(1);
        jobs.context.stats.compaction_spills.add(u64::from(spills || is_poor));
        jobs.context.stats.compaction_poor_spills.add(u64::from(is_poor));
        if matches!(c.reason, Reason::Quiet | Reason::Rest) && !c.trivial_move {
            jobs.context.stats.rest_bytes_written.add(output_bytes);
        }
        jobs.context.stats.compaction_moves.add(u64::from(c.trivial_move));
        jobs.context.stats.compaction_exposures.add(u64::from(c.reason == Reason::Exposes));
        jobs.context.stats.compaction_for_reads.add(u64::from(c.reason == Reason::Passed));
        jobs.context.stats.relocations.add(u64::from(c.reason == Reason::Relocation));
        jobs.context.health.space_found();
        jobs.tree.refresh_space();
        jobs.context.notify(&Event::Compaction {
            family: self.family.name.clone(),
            level: c.level,
            output_level: c.output_level,
            input_bytes: c.input_bytes(),
            output_bytes,
        });
    }
}

/// The result of a step.
enum Came {
    Not(Progress),
    /// All pieces are merged.
    ToTheEnd(Vec<Merged>),
    /// Another job has abandoned the compaction.
    ToNothing,
}

impl CompactionJob {
    fn new(whole: Arc<ClaimedCompaction>, helps: Option<Claim>) -> Box<CompactionJob> {
        Box::new(CompactionJob { running: None, piece: None, made: Vec::new(), _helps: helps, whole })
    }

    /// Runs a step of the current piece, or begins the next one.
    fn merge(&mut self, whole: &ClaimedCompaction) -> Result<Came> {
        if whole.pieces.are_over() {
            return Ok(Came::ToNothing);
        }
        let Some(piece) = self.piece.take().or_else(|| whole.pieces.next()) else {
            return Ok(Came::Not(Progress::Done));
        };
        let piece = self.piece.insert(piece);
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(RunningMerge::begin(whole, piece)?),
        };
        let merged = running.step(whole)?;
        whole.wrote(piece, running);
        let Some(merged) = merged else { return Ok(Came::Not(Progress::More)) };
        let created = running.created();
        self.running = None;
        let Some(piece) = self.piece.take() else { return Ok(Came::Not(Progress::More)) };
        Ok(match whole.pieces.end(piece, merged, created) {
            Ended::More => Came::Not(Progress::More),
            Ended::Over => Came::ToNothing,
            Ended::All(merged, created) => {
                self.made = created;
                Came::ToTheEnd(merged)
            }
        })
    }
}

impl Job for CompactionJob {
    fn class(&self) -> JobClass {
        class_of(&self.whole.compaction)
    }

    fn step(&mut self) -> Result<Progress> {
        let whole = &self.whole.clone();
        if whole.compaction.trivial_move {
            let moved = whole.compaction.input_files().map(|(_, f)| (**f).clone()).collect();
            whole.install(moved, Vec::new(), &[])?;
            return Ok(Progress::Done);
        }
        if whole.caller.as_ref().is_some_and(Caller::is_cancelled) {
            self.abandon();
            return Ok(Progress::Done);
        }
        match self.merge(whole) {
            // The names of a dropped family are invalid, and its outputs are not needed, so errors
            // are ignored.
            _ if whole.family.is_dropped() => self.abandon(),
            came => match came? {
                Came::Not(progress) => return Ok(progress),
                Came::ToTheEnd(merged) => whole.install_merged(merged, &self.made)?,
                Came::ToNothing => self.abandon(),
            },
        }
        Ok(Progress::Done)
    }

    fn inputs(&self) -> Vec<u64> {
        self.whole.inputs.clone()
    }

    fn rests(&self) -> bool {
        let is_of_rest = matches!(self.whole.compaction.reason, Reason::Quiet | Reason::Rest);
        is_of_rest && self.whole.jobs.works_at_rest()
    }

    fn abandon(&mut self) {
        let begun = self.running.take().map(|running| running.created()).unwrap_or_default();
        let mut created = self.whole.pieces.leave(self.piece.take().map(|piece| (piece, begun)));
        created.append(&mut self.made);
        // A failed commit may be durable nevertheless: its files may be removed only if the
        // manifest does not name them.
        if !self.whole.jobs.context.health.outcome_unknown() {
            self.whole.jobs.tree.remove_outputs(&created);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
