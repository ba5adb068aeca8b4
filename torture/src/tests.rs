//! A short run of each simulated row, and the seeds that once failed.

use crate::case::Context;
use crate::regressions::FOUND;
use crate::row::Row;
use crate::rows::ROWS;
use crate::runner::{run_case, run_cases};
use std::sync::atomic::{AtomicUsize, Ordering};

fn row(name: &str) -> &'static Row {
    ROWS.iter().find(|row| row.name == name).expect("a row of that name")
}

fn run_some(name: &str, count: u64) {
    let context = Context { dir: std::env::temp_dir(), count, ..Default::default() };
    let (totals, _) = run_cases(row(name), &context, 1_000, 2, false);
    assert!(totals.failures.is_empty(), "{name}: {:?}", totals.failures);
    assert!(totals.passed >= count, "{name}: only {} passed", totals.passed);
}

#[test]
fn previously_failing_seeds_pass() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((name, seed, what)) = FOUND.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = || run_case(row(name), &Context::default(), *seed);
            let outcome = crate::plan::without_operators(run);
            assert!(outcome.failures.is_empty(), "{name}, seed {seed} ({what}): {:?}", outcome.failures);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

/// Regression: new rows were missing in the nightly run.
#[test]
fn every_row_is_run_at_night() {
    let nightly = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/nightly")).unwrap();
    let run: Vec<(&str, u64)> = nightly
        .lines()
        .filter_map(|line| line.strip_prefix("row ")?.split_once(' '))
        .map(|(name, count)| (name, count.parse().unwrap()))
        .collect();
    for row in ROWS {
        let at_night = run.iter().find(|(name, _)| *name == row.name);
        assert!(at_night.is_some_and(|(_, count)| *count >= row.ci), "row {} in .ci/nightly", row.name);
    }
}

/// Regression: every commit tested the same dozen of a script's 20,000 calls.
#[test]
fn rows_with_many_seeds_sample_different_ones_per_run() {
    let sampled: Vec<_> = ROWS.iter().filter(|row| row.first_seed(992) != 1).map(|row| row.name).collect();
    assert_eq!(sampled, ["kernel-faults"]);
    let of = |sample| row("kernel-faults").first_seed(sample);
    assert_eq!((of(0), of(1), of(992)), (1, 5, 3969));
}

#[test]
fn some_seeds_of_model_pass() {
    run_some("model", 100);
    run_some("numbers", 50);
}

#[test]
fn some_seeds_of_reclaim_pass() {
    run_some("reclaim", 600);
}

#[test]
fn some_seeds_of_crashes_pass() {
    run_some("crash", 1_000);
    run_some("recrash", 300);
}

#[test]
fn some_seeds_of_logs_pass() {
    run_some("log-model", 20);
    run_some("log-crash", 500);
    run_some("log-flip", 100);
    run_some("log-repair", 100);
    run_some("log-io-errors", 20);
    run_some("log-joint", 100);
    run_some("log-joint-io-errors", 20);
    run_some("log-joint-full", 4);
    run_some("log-joint-flip", 60);
    run_some("log-joint-repair", 60);
    run_some("log-crash-on-lavafs", 50);
    run_some("log-joint-on-lavafs", 24);
}

#[test]
fn some_seeds_of_engines_pass() {
    run_some("engines", 200);
}

#[test]
fn some_seeds_of_errors_pass() {
    run_some("io-errors", 1);
}

#[test]
fn some_seeds_of_full_stores_pass() {
    run_some("full", 30);
}

#[test]
fn some_seeds_of_damage_pass() {
    run_some("flip", 300);
}

#[test]
fn some_seeds_of_lavafs_pass() {
    run_some("lavafs", 500);
    run_some("crash-on-lavafs", 200);
    run_some("reclaim-on-lavafs", 120);
    run_some("flip-on-lavafs", 200);
    run_some("full-on-lavafs", 10);
}
