//! Manual garbage collection: plan, run and pause.
//!
//! A request is not a second mechanism of collection. It is added to the work in progress, where
//! `plan::collection` finds it: while it is pending, it bounds the picker's threshold. So the same
//! jobs run on the same threads (or steps of a simulation). Manual and automatic collections cannot
//! conflict, and [`plan`] uses the picker that the run will use.
//!
//! A bound on the whole store is used as the threshold of each file: if no file has more than R
//! percent of garbage, neither has their sum. Files over R are collected, the one with the most
//! garbage first, until the sum is within the bound.

use crate::admin::wait::{wait_for_jobs, wait_given_up};
use crate::context::Context;
use crate::context::drain::DrainRates;
use crate::plan::collection;
use crate::plan::facts::{Facts, FamilyFacts};
use crate::plan::requests::{Caller, Exposed, GcGoal, GcRequest};
use crate::work::jobs::Jobs;
use crate::work::jobs::plan_snapshot::PlanSnapshot;
use base::sync::{lock, rank};
use base::{Error, ErrorKind, HashMap, HashSet, Result};
use lsm::TableSource;
use std::sync::{Arc, Weak};
use values::{Gc, Ledger, LookupForecast};
use version::{FamilyId, FileMeta};

/// Tells the gain and the cost of a finished [`crate::Db::collect_garbage`]: bytes freed, written,
/// and garbage left.
///
/// The report has all collections that ended meanwhile, automatic ones included. All fields are
/// bytes, except the two counts of collections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Collections installed: runs that replaced value files. 0 if there was nothing to collect.
    pub collections: u64,
    /// Collections abandoned because they found too little garbage to be worth their cost. No
    /// error.
    pub abandoned: u64,
    /// Bytes read, of value files and of tables.
    pub read_bytes: u64,
    /// Bytes of value files written.
    pub written_bytes: u64,
    /// Reduction of the bytes of value files. Open iterators may hold the files until their drop.
    pub freed_bytes: u64,
    /// Exposed garbage at the start of the call, bytes.
    pub garbage_bytes_before: u64,
    /// Exposed garbage now; not 0 if the request allows a rest.
    pub garbage_bytes: u64,
    /// Bytes of the records in all value files now, garbage included: `garbage_bytes` is a part of
    /// them.
    pub record_bytes: u64,
}

/// Shows the progress of [`crate::Db::collect_garbage_with`], for a display with rate and remaining
/// time, or to decide to cancel.
///
/// It arrives at the beginning, after each collection, and about every 0.2 seconds between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcProgress {
    /// Collections installed since the call began.
    pub collections: u64,
    /// Bytes of value files read since the call began.
    pub read_bytes: u64,
    /// Bytes of value files written since the call began.
    pub written_bytes: u64,
    /// Reduction of the bytes of value files since the call began.
    pub freed_bytes: u64,
    /// Predicted bytes still to be freed, by running and by future collections. New garbage raises
    /// it.
    pub remaining_bytes: u64,
    /// Exposed garbage now, bytes: a part of `record_bytes`.
    pub garbage_bytes: u64,
    /// Bytes of the records in all value files now, garbage included.
    pub record_bytes: u64,
    /// Time since the call began, nanoseconds.
    pub elapsed_ns: u64,
}

impl GcProgress {
    /// Returns the average rate since the call began, for a display: bytes freed per second; 0
    /// before any bytes are freed. [`GcProgress::eta_ns`] has the remaining time.
    pub fn freed_bytes_per_s(&self) -> u64 {
        (u128::from(self.freed_bytes) * 1_000_000_000 / u128::from(self.elapsed_ns.max(1))) as u64
    }

    /// Returns the remaining time at the average rate so far, nanoseconds, for a display; `None`
    /// before any bytes are freed. It is an estimate, which new garbage raises.
    pub fn eta_ns(&self) -> Option<u64> {
        let ns = u128::from(self.elapsed_ns) * u128::from(self.remaining_bytes);
        ns.checked_div(u128::from(self.freed_bytes)).map(|ns| ns.min(u128::from(u64::MAX)) as u64)
    }
}

/// Shows the cost and the gain of one planned collection of a [`GcPlan`]. The bytes are
/// predictions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedGc {
    /// Name of the column family whose values the collection rewrites.
    pub family: String,
    /// Numbers of the value files (vSSTs) to replace.
    pub files: Vec<u64>,
    /// Bytes of these files: `written_bytes` and `freed_bytes` together.
    pub input_bytes: u64,
    /// Bytes to read: keys, live records, dead records in short gaps between these, and uncached
    /// parts of the tables that determine which records are live.
    pub read_bytes: u64,
    /// Bytes to write: the live values.
    pub written_bytes: u64,
    /// Bytes to free, once no iterator holds the former files.
    pub freed_bytes: u64,
    /// False if the garbage of a file is only estimated.
    pub exact: bool,
}

/// Judges the cost of [`crate::Db::collect_garbage`] before the call: the collections that it would
/// do in the present state. Making a plan changes nothing, and later writes make it obsolete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcPlan {
    /// The collections, in execution order; empty if the goal of the request is already met.
    pub collections: Vec<PlannedGc>,
    /// Exposed garbage now, bytes: a part of `record_bytes`.
    pub garbage_bytes: u64,
    /// Bytes of the records in all value files now, garbage included.
    pub record_bytes: u64,
}

impl GcPlan {
    /// Returns the sum of all collections, for a summary: files and bytes are added, and `family`
    /// is empty. Without collections all numbers are 0. `exact` is true if all of them are exact.
    pub fn total(&self) -> PlannedGc {
        let mut total = PlannedGc { exact: true, ..PlannedGc::default() };
        for gc in &self.collections {
            total.files.extend(&gc.files);
            total.input_bytes += gc.input_bytes;
            total.read_bytes += gc.read_bytes;
            total.written_bytes += gc.written_bytes;
            total.freed_bytes += gc.freed_bytes;
            total.exact &= gc.exact;
        }
        total
    }
}

/// A pending request, withdrawn on drop.
struct StandingRequest<'a> {
    jobs: &'a Jobs,
    caller: &'a Caller,
}

impl<'a> StandingRequest<'a> {
    fn enter(jobs: &'a Jobs, goal: GcGoal, caller: &'a Caller) -> StandingRequest<'a> {
        lock(&jobs.in_progress).gc_requests.enter(goal, caller);
        StandingRequest { jobs, caller }
    }
}

impl Drop for StandingRequest<'_> {
    fn drop(&mut self) {
        lock(&self.jobs.in_progress).gc_requests.take_back(self.caller);
    }
}

/// Reports the progress of a request to its caller: after each collection, and at intervals.
struct ProgressReporter<'a> {
    jobs: &'a Jobs,
    goal: GcGoal,
    tell: &'a mut dyn FnMut(&GcProgress),
    counted: [u64; 5],
    start_ns: u64,
    /// Collections ended, and the time, at the last report.
    told: Option<([u64; 2], u64)>,
}

const NO_SPACE: &str = "garbage collection found no disk space for its output, and the garbage stays: free \
                        space, or raise the limit";

/// Interval of reports without ended collections, nanoseconds.
const TELL_NS: u64 = 200_000_000;

impl ProgressReporter<'_> {
    fn now_and_then(&mut self) {
        let (now, now_ns) = (counters(self.jobs), self.jobs.context.env.clock.now_ns());
        let ended = [now[0], now[1]];
        if self.told.is_some_and(|(then, at)| then == ended && now_ns.saturating_sub(at) < TELL_NS) {
            return;
        }
        self.told = Some((ended, now_ns));
        let set = lock(&self.jobs.in_progress).as_plans_see_it();
        let seen = PlanSnapshot::new(self.jobs, &set);
        let (plan, exposed) = (plan_with(&seen, self.goal, &mut |_, _| 0), exposed(&seen));
        let remaining_bytes = plan.total().freed_bytes.saturating_add(under_way(&seen));
        let [collections, _, read_bytes, written_bytes, freed_bytes] =
            std::array::from_fn(|i| now[i] - self.counted[i]);
        (self.tell)(&GcProgress {
            collections,
            read_bytes,
            written_bytes,
            freed_bytes,
            remaining_bytes,
            garbage_bytes: exposed.garbage_bytes,
            record_bytes: exposed.record_bytes,
            elapsed_ns: now_ns.saturating_sub(self.start_ns),
        });
    }
}

/// Returns the garbage in files that jobs are rewriting.
fn under_way(facts: &dyn Facts) -> u64 {
    let of_family = |family: &FamilyFacts| {
        let busy = facts.in_progress().of(family.family.id);
        busy.vssts().map(|number| family.read_state.ledger.garbage_of(number).garbage_bytes).sum::<u64>()
    };
    facts.families().iter().map(of_family).sum()
}

/// Returns the exposed garbage and the records of the store.
fn exposed(facts: &dyn Facts) -> Exposed {
    Exposed::of(facts.families().iter().map(|family| &*family.read_state))
}

/// Returns the same sums for the current read states.
fn exposed_now(jobs: &Jobs) -> Exposed {
    let read_states: Vec<_> = jobs.tree.families.all().iter().map(|family| family.read_state()).collect();
    Exposed::of(read_states.iter().map(|read_state| &**read_state))
}

/// Collects garbage until the request is met, and waits for that. Calls `tell` with the progress.
pub(crate) fn collect(
    jobs: &Arc<Jobs>,
    request: &GcRequest,
    tell: &mut dyn FnMut(&GcProgress),
) -> Result<GcReport> {
    let (goal, caller) = (request.goal(), Caller::new(request.cancel.clone()));
    let (before, counted) = (exposed_now(jobs), counters(jobs));
    let start_ns = jobs.context.env.clock.now_ns();
    let mut telling = ProgressReporter { jobs, goal, tell, counted, start_ns, told: None };
    let asked = StandingRequest::enter(jobs, goal, &caller);
    jobs.context.signals.notify_work();
    let met = wait_for_jobs(jobs, NO_SPACE, || {
        caller.check(&jobs.context)?;
        telling.now_and_then();
        is_met(jobs, goal)
    });
    drop(asked);
    met.inspect_err(|e| wait_given_up(jobs, &caller, e))?;
    let (after, now) = (exposed_now(jobs), counters(jobs));
    let [collections, abandoned, read_bytes, written_bytes, freed_bytes] =
        std::array::from_fn(|i| now[i] - counted[i]);
    Ok(GcReport {
        collections,
        abandoned,
        read_bytes,
        written_bytes,
        freed_bytes,
        garbage_bytes_before: before.garbage_bytes,
        garbage_bytes: after.garbage_bytes,
        record_bytes: after.record_bytes,
    })
}

fn counters(jobs: &Jobs) -> [u64; 5] {
    let s = &jobs.context.stats;
    [&s.gc_runs, &s.gc_abandoned, &s.gc_bytes_read, &s.gc_bytes_written, &s.gc_bytes_freed].map(|c| c.get())
}

/// Returns whether a job other than a collection for garbage, such as a move of values, works on a
/// file that the request would collect. Its effect on that file is known only when the job ends.
fn has_claimed(facts: &dyn Facts, request: GcGoal) -> bool {
    let exposed = exposed(facts);
    facts.families().iter().any(|family| {
        let busy = facts.in_progress().of(family.family.id);
        let threshold = request.threshold(exposed, &family.options);
        let ledger = &family.read_state.ledger;
        // Jobs claim few files, so this iterates over claims instead of over all files with
        // garbage.
        threshold.is_some_and(|ratio| busy.vssts().any(|number| ledger.has_as_much(number, ratio)))
    })
}

/// Returns whether no garbage is left to collect, and no collection runs.
fn is_met(jobs: &Jobs, request: GcGoal) -> Result<bool> {
    let set = lock(&jobs.in_progress);
    if jobs.drain.gc_is_paused() {
        return Err(Error::new(
            ErrorKind::Busy,
            "garbage collection is paused by a `GcPause`: drop it to resume, then repeat the call",
        ));
    }
    if set.running.collections > 0 {
        return Ok(false);
    }
    let seen = PlanSnapshot::new(jobs, &set);
    if has_claimed(&seen, request) {
        return Ok(false);
    }
    if next(&seen, request, exposed(&seen), &HashMap::default()).is_none() {
        return Ok(true);
    }
    // Garbage is left. If no output fits and no job may free space, the request can never be met.
    if set.running.makes_room() || collection::is_wanted(&seen) {
        return Ok(false);
    }
    Err(Error::new(ErrorKind::NoSpace, NO_SPACE).at_file(&jobs.context.dir))
}

/// Returns the next collection of the request. `left` has the remaining ledgers of families.
fn next<'a>(
    facts: &'a dyn Facts,
    request: GcGoal,
    exposed: Exposed,
    left: &HashMap<FamilyId, Ledger>,
) -> Option<(&'a FamilyFacts, Gc)> {
    facts.families().iter().find_map(|family| {
        let threshold = request.threshold(exposed, &family.options)?;
        let options = collection::options(facts.options().expert.ablation, &family.read_state, threshold);
        let ledger = left.get(&family.family.id).unwrap_or(&family.read_state.ledger);
        Some((family, collection::pick_of(facts, family, ledger, &options, &HashSet::default())?))
    })
}

/// Returns the plan of [`collect`] for the current state. Changes nothing; works in a read-only
/// store, too.
pub(crate) fn plan(jobs: &Jobs, request: &GcRequest) -> Result<GcPlan> {
    request.check()?;
    let set = lock(&jobs.in_progress).as_plans_see_it();
    let seen = PlanSnapshot::new(jobs, &set);
    let open = |file: &FileMeta| jobs.files.tables.table(file);
    let mut forecast = LookupForecast::new(jobs.context.options.cache_bytes as u64);
    let mut beside_inputs = |family: &FamilyFacts, gc: &Gc| {
        let options = collection::options(jobs.context.options.expert.ablation, &family.read_state, 0);
        // A collection fails at an unreadable table, so it reads nothing there.
        let lookups = forecast.bytes_of(gc, &family.read_state.version, &options, &open).unwrap_or(0);
        let copied = gc.inputs.iter().filter(|_| gc.expected_read > 0);
        lookups + copied.map(|meta| jobs.files.tables.opening_bytes(meta)).sum::<u64>()
    };
    Ok(plan_with(&seen, request.goal(), &mut beside_inputs))
}

fn plan_with(
    facts: &dyn Facts,
    request: GcGoal,
    beside_inputs: &mut dyn FnMut(&FamilyFacts, &Gc) -> u64,
) -> GcPlan {
    debug_assert!(!rank::holds::<rank::InProgress>(), "nobody waits for a plan of all collections");
    let mut left = exposed(facts);
    let mut plan = GcPlan {
        collections: Vec::new(),
        garbage_bytes: left.garbage_bytes,
        record_bytes: left.record_bytes,
    };
    // Planned files are removed from the ledger. Otherwise each pick would pass over all earlier
    // ones.
    let mut ledgers: HashMap<FamilyId, Ledger> = HashMap::default();
    while let Some((family, gc)) = next(facts, request, left, &ledgers) {
        left.garbage_bytes = left.garbage_bytes.saturating_sub(gc.expected_free);
        left.record_bytes = left.record_bytes.saturating_sub(gc.expected_free);
        let id = family.family.id;
        let ledger = ledgers.get(&id).unwrap_or(&family.read_state.ledger).without_garbage_of(gc.numbers());
        ledgers.insert(id, ledger);
        plan.collections.push(planned_gc(&family.family.name, &gc, beside_inputs(family, &gc)));
    }
    plan
}

fn planned_gc(family: &str, gc: &Gc, beside_inputs: u64) -> PlannedGc {
    let input_bytes: u64 = gc.inputs.iter().map(|meta| meta.len).sum();
    let record_bytes: u64 = gc.inputs.iter().map(|meta| meta.record_bytes).sum();
    // Keys and index shrink in proportion to the records.
    let written = u128::from(input_bytes) * u128::from(gc.expected_write) / u128::from(record_bytes.max(1));
    let written_bytes = (written as u64).min(input_bytes);
    PlannedGc {
        family: family.to_owned(),
        files: gc.numbers().collect(),
        input_bytes,
        read_bytes: gc.expected_read.saturating_add(beside_inputs),
        written_bytes,
        freed_bytes: input_bytes - written_bytes,
        exact: gc.exact,
    }
}

/// Pauses garbage collection while it lives, for a latency-critical phase or a backup;
/// [`crate::Db::pause_gc`] returns it. Drop it to resume.
///
/// Collections that run already continue to their end. Space use grows during the pause, and
/// `collect_garbage` fails with `Busy`. Several pauses may overlap. The guard does not keep the
/// store open.
#[derive(Debug)]
#[must_use = "collection goes on when it is dropped"]
pub struct GcPause {
    context: Weak<Context>,
    drain: Weak<DrainRates>,
}

impl GcPause {
    /// Returns a pause without effect, for a forked child process, which collects nothing.
    pub(crate) fn of_child() -> GcPause {
        GcPause { context: Weak::new(), drain: Weak::new() }
    }

    pub(crate) fn begin(jobs: &Jobs) -> GcPause {
        jobs.drain.pause_gc();
        jobs.context.signals.state_changed();
        // Wakes running requests, which fail while collection is paused.
        jobs.context.signals.notify_progress();
        GcPause { context: Arc::downgrade(&jobs.context), drain: Arc::downgrade(&jobs.drain) }
    }
}

impl Drop for GcPause {
    fn drop(&mut self) {
        if let (Some(context), Some(drain)) = (self.context.upgrade(), self.drain.upgrade())
            && context.check_process().is_ok()
        {
            drain.resume_gc();
            context.signals.state_changed();
            context.signals.notify_work();
        }
    }
}
