//! Rows `kernel-faults` and `kernel-syncs`: the real system calls of the engine on the machine's
//! file system.
//!
//! The simulation cannot see below `io`'s traits: whether a sync reaches the kernel, for which
//! file, and how short transfers are handled. Both rows run a [`script`] and watch its calls.
//!
//! * `kernel-faults` makes one call fail, once or from then on. Short or interrupted calls must
//!   have no visible effect; any other failure gives a typed error or none. Afterwards the store
//!   opens with all acknowledged writes. A copy of the durable state by the log of calls ([`disk`])
//!   opens with all durable ones.
//! * `kernel-syncs` materializes the durable state repeatedly during a run, and opens that.
//!
//! [`PARTS`] seeds with the same quotient share a script, and fail each of its calls in each form.
//! A process counts the calls that a form fits once, because counting takes as long as a failure.

mod disk;
mod script;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use disk::Disk;
use io::Rng;
use io::kernel::IoEngine;
use io::kernel::calls::Call;
use io::kernel::calls::watch::{Fault, Form, Watch};
use script::{OPERATIONS, Script};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A case of `kernel-faults` is one of this many parts of all failures of a script.
const PARTS: u64 = 4096;
/// One in this many parts also fails syncs.
const SYNCS_EVERY: u64 = 8;
/// Operations after a failure.
const AFTER: u64 = 30;

fn engine(seed: u64) -> IoEngine {
    if seed.is_multiple_of(2) { IoEngine::IoUring } else { IoEngine::Portable }
}

/// A directory of the case, without symbolic links in its path; removed at the end.
struct CaseDir(PathBuf);

impl CaseDir {
    fn new(context: &Context, name: &str) -> Check<CaseDir> {
        let dir = context.dir.join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("run")).doing(|| "make a directory".into())?;
        let dir = dir.canonicalize().doing(|| "find a directory".into())?;
        Ok(CaseDir(dir))
    }

    /// The watched directory.
    fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    fn image(&self) -> PathBuf {
        self.0.join("image")
    }
}

impl Drop for CaseDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of the store below the watched directory; the open creates some parent
/// directories.
fn store(root: &Path) -> PathBuf {
    root.join("above/store")
}

pub(crate) fn case_faults(context: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let (script, part) = (seed / PARTS, seed % PARTS);
    let mut nth_failure = 0;
    for form in Form::ALL {
        let calls = match calls_of(context, seed, script, (form, None)) {
            Ok(calls) => calls,
            Err(why) => {
                outcome.failures.push(format!("{form:?}: without a failure: {why}"));
                return outcome;
            }
        };
        for (nth, sticky) in (0..calls).flat_map(|nth| [(nth, false), (nth, true)]) {
            // A permanently interrupted call is no failure.
            if sticky && form.is_transient() && form != Form::Short {
                continue;
            }
            nth_failure += 1;
            if nth_failure % PARTS == part {
                try_one(context, seed, script, Fault { nth, form, sticky, only: None }, &mut outcome);
            }
        }
    }
    if part % SYNCS_EVERY != 1 {
        return outcome;
    }
    // Failed syncs are rare among the calls, and matter most.
    let mut rng = Rng::new(seed);
    for sync in [Call::DataSync, Call::FullSync, Call::DurableWrite] {
        let form = Form::FAILURE;
        let calls = calls_of(context, seed, script, (form, Some(sync))).unwrap_or(0);
        if calls > 0 {
            let fault = Fault { nth: rng.below(calls), form, sticky: rng.one_in(2), only: Some(sync) };
            try_one(context, seed, script, fault, &mut outcome);
        }
    }
    outcome
}

fn try_one(context: &Context, seed: u64, script: u64, fault: Fault, outcome: &mut Outcome) {
    let checked = guarded(|| fail_one(context, seed, script, fault)).and_then(|check| check);
    outcome.take(checked.map_err(|why| format!("{fault:?}: {why}")));
    outcome.note("calls that went wrong", 1);
}

/// Counts by script and failure.
type Counted = Vec<(u64, Form, Option<Call>, u64)>;
static COUNTED: Mutex<Counted> = Mutex::new(Vec::new());

/// Returns the number of calls of a script that fit a form.
fn calls_of(context: &Context, seed: u64, script: u64, (form, only): (Form, Option<Call>)) -> Check<u64> {
    let counted = || COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |of: &&(u64, Form, Option<Call>, u64)| (of.0, of.1, of.2) == (script, form, only);
    let known = counted().iter().find(is_it).map(|of| of.3);
    if let Some(calls) = known {
        return Ok(calls);
    }
    let calls = count_calls(context, seed, script, (form, only))?;
    counted().push((script, form, only, calls));
    Ok(calls)
}

fn count_calls(context: &Context, seed: u64, script: u64, (form, only): (Form, Option<Call>)) -> Check<u64> {
    let place = CaseDir::new(context, &format!("kernel-calls-{seed}"))?;
    let none = Fault { nth: u64::MAX, form, sticky: false, only };
    let watch = Watch::new(&place.run(), Some(none), false);
    let mut script = Script::new(&store(&place.run()), script, engine(script));
    for _ in 0..OPERATIONS {
        script.step().doing(|| "an operation".into())?;
    }
    Ok(watch.calls())
}

fn fail_one(context: &Context, seed: u64, script: u64, fault: Fault) -> Check {
    let place = CaseDir::new(context, &format!("kernel-faults-{seed}"))?;
    let watch = Watch::new(&place.run(), Some(fault), true);
    let mut disk = Disk::new(&place.run());
    let mut script = Script::new(&store(&place.run()), script, engine(script));
    let mut after = 0;
    for _ in 0..OPERATIONS {
        let done = script.step();
        disk.take(&watch.take_events());
        if fault.form.is_transient() {
            done.doing(|| "a call that was cut short or interrupted was noticed".into())?;
        }
        after += u64::from(watch.fired() > 0);
        if after > AFTER {
            break;
        }
    }
    ensure!(watch.fired() > 0, "the call was not made this time");
    disk.lay_down(&place.image()).doing(|| "lay down what is durable".into())?;
    if script.durable() > 0 {
        let durable = script.check(&store(&place.image()), script.durable());
        durable.map_err(|why| format!("of what is durable: {why}"))?;
    }
    watch.clear_fault();
    script.drop_store();
    script.check_own().map_err(|why| format!("opened without faults: {why}"))
}

pub(crate) fn case_syncs(context: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let checked = guarded(|| watch_syncs(context, seed, &mut outcome)).and_then(|check| check);
    if let Err(why) = checked {
        outcome.failures.push(why);
    }
    outcome
}

fn watch_syncs(context: &Context, seed: u64, outcome: &mut Outcome) -> Check {
    let place = CaseDir::new(context, &format!("kernel-syncs-{seed}"))?;
    let mut rng = Rng::new(seed);
    // In one run of three, every possible transfer is short.
    let short = Fault { nth: 0, form: Form::Short, sticky: true, only: None };
    let watch = Watch::new(&place.run(), rng.one_in(3).then_some(short), true);
    let mut disk = Disk::new(&place.run());
    let mut script = Script::new(&store(&place.run()), seed, engine(seed));
    let mut seen = 0;
    for nth in 0..OPERATIONS {
        script.step().doing(|| format!("operation {nth}"))?;
        disk.take(&watch.take_events());
        if script.durable() > seen && rng.one_in(5) {
            seen = script.durable();
            disk.lay_down(&place.image()).doing(|| "lay down what is durable".into())?;
            let checked = script.check(&store(&place.image()), seen);
            outcome.take(checked.map_err(|why| format!("of what is durable after operation {nth}: {why}")));
            if !outcome.failures.is_empty() {
                return Ok(());
            }
        }
    }
    outcome.note("syncs", disk.syncs);
    Ok(())
}
