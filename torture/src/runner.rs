//! Runs the cases of a row on some threads, counts, and reports. The seeds of a run are
//! consecutive.

use crate::case::{Context, Outcome, guarded};
use crate::row::{Row, Unit};
use crate::totals::Totals;
use crate::{Cli, Profile, ledger, machine, plan, tally};
use lavastore::Env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Failures after which a row stops.
const FAILURES_MAX: usize = 20;
/// Interval of progress lines in nanoseconds.
const PROGRESS_NS: u64 = 20_000_000_000;

/// Runs one case.
pub(crate) fn run_case(row: &Row, context: &Context, seed: u64) -> Outcome {
    let mut outcome = guarded(|| (row.case)(context, seed))
        .unwrap_or_else(|why| Outcome { failures: vec![why], ..Default::default() });
    outcome.notes.extend(tally::take());
    let of_two = Some(machine::take_volumes_of_two()).filter(|count| *count > 0);
    outcome.notes.extend(of_two.map(|count| ("volumes of two devices", count)));
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
            // Running cases count as well, so that a row never runs more cases than requested.
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

/// Runs a row, prints its results, and writes the ledger. Returns true without failures.
pub(crate) fn run(row: &Row, cli: &Cli) -> bool {
    let env = Env::kernel();
    let first_seed = cli.seed.unwrap_or_else(|| match cli.profile {
        Profile::Ci => row.first_seed(cli.sample),
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
        && let Some(what) =
            tally::missing(row.name, |name| totals.notes.get(name).is_some_and(|count| *count > 0))
    {
        totals.failed += 1;
        totals.failures.push((first_seed, format!("the row never saw {what}")));
    }
    let profile = if cli.profile == Profile::Ci { "ci" } else { "soak" };
    for (seed, why) in &totals.failures {
        println!("{}: seed {seed} FAILED: {why}", row.name);
        println!(
            "  again: cargo run --profile ci -p torture -- {} --seed {seed} --count 1 --jobs 1 {}",
            row.name,
            plan::with_arguments().join(" ")
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
