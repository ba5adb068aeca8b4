//! Runs the cases of a row on some threads, counts, and reports.
//!
//! A case is a function of its seed; the seeds of a run follow each other. A panic is a failure of its case like any
//! other: it is caught, and its message and place are kept from being printed in the middle of the progress.

use crate::check::Check;
use crate::rows::{Row, Unit};
use crate::{Cli, Profile, ledger, tally};
use lavastore::Env;
use lavastore::io::Rng;
use lavastore::sim::SimEnv;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Failures after which a row gives up.
const FAILURES_MAX: usize = 20;
/// Time between two lines of progress.
const PROGRESS_NS: u64 = 20_000_000_000;

/// What a case found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Checks that held.
    pub passed: u64,
    /// What is wrong.
    pub failures: Vec<String>,
    /// The images that were tried, for rows that count distinct ones.
    pub images: Vec<u64>,
    /// Other counts worth printing.
    pub notes: Vec<(&'static str, u64)>,
    /// What this machine could not try: why, and how much of the row's unit.
    pub skipped: Option<(String, u64)>,
}

impl Outcome {
    /// Counts one check.
    pub fn take(&mut self, check: Check) {
        match check {
            Ok(()) => self.passed += 1,
            Err(why) => self.failures.push(why),
        }
    }

    /// Counts what was not tried, because this machine lacks something.
    pub fn skip(&mut self, why: String, count: u64) {
        self.skipped = Some((why, count));
    }

    pub fn note(&mut self, what: &'static str, count: u64) {
        self.notes.push((what, count));
    }

    /// What a case begins with, or `None` and a failure.
    pub fn made<T>(&mut self, make: impl FnOnce() -> Check<T>) -> Option<T> {
        let failed = |why| self.failures.push(format!("while making the store: {why}"));
        guarded(make).and_then(|made| made).map_err(failed).ok()
    }

    /// Does `damage` to copies of a machine, so many times over, and has each looked at. `None`: nothing was there to damage.
    pub fn damaged<D>(
        &mut self,
        (machine, rng): (&SimEnv, &mut Rng),
        count: u64,
        damage: impl Fn(&SimEnv, &mut Rng) -> Check<Option<D>>,
        mut look: impl FnMut(&mut Outcome, u64, &SimEnv, &D, &mut Rng),
    ) {
        for nth in 0..count {
            let mut rng = rng.fork();
            let sim = machine.fork(rng.next_u64());
            match guarded(|| damage(&sim, &mut rng)).and_then(|done| done) {
                Ok(Some(done)) => look(self, nth, &sim, &done, &mut rng),
                Ok(None) => {}
                Err(why) => self.failures.push(format!("damage {nth} could not be done: {why}")),
            }
        }
    }
}

/// What cases are told besides their seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Where stores on the real disk are made.
    pub dir: PathBuf,
    /// How many cases are to be run, where a case wants to divide its time.
    pub count: u64,
    /// Failures after which a row gives up; 0: [`FAILURES_MAX`].
    pub failures_max: usize,
    /// When to stop, by the clock of the machine, however many were run by then.
    pub until_ns: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Totals {
    pub passed: u64,
    pub failed: u64,
    pub cases: u64,
    images: BTreeSet<u64>,
    pub failures: Vec<(u64, String)>,
    pub notes: BTreeMap<&'static str, u64>,
    /// What was skipped, by reason.
    pub skipped: BTreeMap<String, u64>,
}

impl Totals {
    /// How much was skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    pub fn done(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Images => self.images.len() as u64,
            Unit::Checks => self.passed + self.failed,
            Unit::Cases => self.cases,
        }
    }

    fn add(&mut self, unit: Unit, seed: u64, outcome: Outcome) {
        self.cases += 1;
        self.failed += outcome.failures.len() as u64;
        let before = self.images.len();
        self.images.extend(outcome.images);
        self.passed += match unit {
            Unit::Images => (self.images.len() - before).saturating_sub(outcome.failures.len()) as u64,
            _ => outcome.passed,
        };
        for (what, count) in outcome.notes {
            *self.notes.entry(what).or_default() += count;
        }
        if let Some((why, count)) = outcome.skipped {
            *self.skipped.entry(why).or_default() += count;
        }
        self.failures.extend(outcome.failures.into_iter().map(|why| (seed, why)));
    }
}

thread_local! {
    /// Calls of [`guarded`] that this thread is in.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of panics inside [`guarded`] instead of printing them.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDS.get() == 0 {
                return loud(info);
            }
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("?");
            PANIC.with(|p| *p.borrow_mut() = Some(format!("panic at {place}: {text}")));
        }));
    });
}

/// Runs something that must not panic.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Check<T> {
    quiet_panics();
    GUARDS.set(GUARDS.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(body));
    GUARDS.set(GUARDS.get() - 1);
    result.map_err(|_| PANIC.with(|p| p.borrow_mut().take()).unwrap_or_else(|| "panic".to_owned()))
}

/// Runs one case.
pub(crate) fn run_case(row: &Row, context: &Context, seed: u64) -> Outcome {
    let mut outcome = guarded(|| (row.case)(context, seed))
        .unwrap_or_else(|why| Outcome { failures: vec![why], ..Default::default() });
    outcome.notes.extend(tally::take());
    outcome
}

/// Runs cases until the row's unit reaches `count`.
pub(crate) fn run_cases(
    row: &Row,
    context: &Context,
    first_seed: u64,
    jobs: usize,
    progress: bool,
) -> (Totals, u64) {
    let clock = Env::kernel().clock;
    let (next, stop) = (AtomicU64::new(first_seed), AtomicBool::new(false));
    let totals = Mutex::new(Totals::default());
    let failures_max = if context.failures_max == 0 { FAILURES_MAX } else { context.failures_max };
    let told_ns = AtomicU64::new(clock.now_ns());
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let outcome = run_case(row, context, seed);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.add(row.unit, seed, outcome);
            let done = totals.done(row.unit);
            // Cases that are still running count as well: a row never runs more cases than asked for.
            let begun = next.load(Ordering::Relaxed) - first_seed;
            if done + totals.skipped() >= context.count
                || totals.failures.len() >= failures_max
                || (row.unit == Unit::Cases && begun >= context.count)
                || context.until_ns.is_some_and(|until_ns| clock.now_ns() >= until_ns)
            {
                stop.store(true, Ordering::Relaxed);
            }
            let now_ns = clock.now_ns();
            if progress && now_ns - told_ns.load(Ordering::Relaxed) > PROGRESS_NS {
                told_ns.store(now_ns, Ordering::Relaxed);
                let of =
                    if context.until_ns.is_none() { format!(" of {}", context.count) } else { String::new() };
                println!("{}: {done}{of} {}, {} failed", row.name, row.unit.name(), totals.failed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(worker);
        }
        worker();
    });
    let seeds = next.load(Ordering::Relaxed) - first_seed;
    (totals.into_inner().unwrap_or_else(PoisonError::into_inner), seeds)
}

/// Runs a row, prints what it found, writes the ledger. True if nothing failed.
pub(crate) fn run(row: &Row, cli: &Cli) -> bool {
    let env = Env::kernel();
    let first_seed = cli.seed.unwrap_or_else(|| match cli.profile {
        Profile::Ci => 1,
        Profile::Soak => env.entropy.next_u64() >> 24,
    });
    let start_ns = env.clock.now_ns();
    let minutes = cli.minutes.or(cli.hours.map(|hours| hours.saturating_mul(60)));
    let until_ns = minutes.map(|minutes| start_ns.saturating_add(minutes.saturating_mul(60_000_000_000)));
    let count = cli.count.unwrap_or(match cli.profile {
        _ if minutes.is_some() => u64::MAX,
        Profile::Ci => row.ci,
        Profile::Soak => row.ci * 10,
    });
    let parent = cli.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("lavastore-torture-{}", std::process::id()));
    let failures_max = if cli.until_failure { 1 } else { FAILURES_MAX };
    let context = Context { dir, count, failures_max, until_ns };
    match minutes {
        Some(minutes) => println!("{}: {minutes} minutes from seed {first_seed}", row.name),
        None => println!("{}: {count} {} from seed {first_seed}", row.name, row.unit.name()),
    }
    let jobs = if row.alone { 1 } else { cli.jobs.max(1) };
    let (mut totals, seeds) = run_cases(row, &context, first_seed, jobs, true);
    let seconds = (env.clock.now_ns() - start_ns) as f64 / 1e9;
    if totals.done(row.unit).min(count) >= row.ci
        && totals.skipped.is_empty()
        && let Some(what) = tally::missing(row.name, |name| totals.notes.contains_key(name))
    {
        totals.failed += 1;
        totals.failures.push((first_seed, format!("the row never saw {what}")));
    }
    let profile = if cli.profile == Profile::Ci { "ci" } else { "soak" };
    for (seed, why) in &totals.failures {
        println!("{}: seed {seed} FAILED: {why}", row.name);
        println!(
            "  again: cargo run --profile ci -p torture -- {} --seed {seed} --count 1 --jobs 1",
            row.name
        );
    }
    for (what, count) in &totals.notes {
        println!("{}: {what}: {count}", row.name);
    }
    println!(
        "{}: {} {} in {} cases, {seconds:.1} s",
        row.name,
        totals.done(row.unit),
        row.unit.name(),
        totals.cases
    );
    for (why, count) in &totals.skipped {
        println!("{}: {count} {} skipped: {why}", row.name, row.unit.name());
    }
    let skipped = totals.skipped();
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("{}: {} passed, {} failed{skipped}", row.name, totals.passed, totals.failed);
    let entry = ledger::Entry::new(row.name, profile, (first_seed, seeds), &totals, seconds);
    if let Err(e) = entry.append(&cli.ledger) {
        eprintln!("torture: the ledger {} cannot be written: {e}", cli.ledger.display());
    }
    totals.failed == 0
}
