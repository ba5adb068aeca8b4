//! Contribution of each part of the durable write path: `ablation --spandb`.
//!
//! The workload `sync` runs once for each row, always in a fresh directory: durable puts of
//! existing keys, with `--writers` (64 by default) waiting at once.
//!
//! | row | what it is |
//! |---|---|
//! | `one at a time` | a single writer: every put is a separate device write |
//! | `blocking, N wait` | N threads: shared device writes of small groups (batching) |
//! | `blocking` | a thread per waiting put: concurrent puts share a device write |
//! | `blocking, N loggers` | the same with up to N concurrent device writes where measurements favor it (pipelining) |
//! | `blocking, loggers found` | the log adapts the number at run time |
//! | `asynchronous`, and its variants | one thread has all puts in flight |
//! | `..., second disk` | the log is in `--log-dir` |
//! | `..., tables there` | and tables of two levels |
//! | `..., tables move` | and tables of an adaptive number of levels |
//!
//! No switch disables the sharing of a device write by waiting writers; the first two rows show its
//! effect. Rows run in rounds as in the parent module; ratios are to `blocking` within a round.

use super::rounds::{self, ROUNDS};
use crate::args::requests::{RequestArgs, SpeedLevels};
use crate::args::{BenchArgs, Workload};
use crate::engine::Opener;
use crate::host::alone;
use crate::report::{Report, human_count};
use crate::spread::Spread;
use crate::{Result, run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Default number of concurrent puts.
const WRITERS: u64 = 64;
/// Smaller numbers of concurrent puts, so that fewer share a device write.
const BATCHES: [u64; 2] = [4, 16];
/// Data on the fast tier.
const PLACEMENTS: [(&str, SpeedLevels); 3] = [
    ("second disk", SpeedLevels::Fixed(0)),
    ("tables there", SpeedLevels::Fixed(2)),
    ("tables move", SpeedLevels::Moving),
];
/// The reference row.
const BASE: &str = "blocking";

/// Message without a second disk.
const SKIPPED: &str =
    "placement (log, tables, moving tables on a second disk): name a directory there with --log-dir";

type Figure = rounds::Figure<Report>;

const FIGURES: [Figure; 6] = [
    ("ops_per_s", "durable puts a second (more is better)", 0, |r| Some(r.ops_per_s)),
    ("p50_us", "P50, us", 1, |r| Some(r.p50_us)),
    ("p99_us", "P99, us", 1, |r| Some(r.p99_us)),
    ("cpu_us_per_op", "processor time of a put, us", 2, |r| Some(r.costs.cpu_us_per_op)),
    ("write_amplification", "bytes that the process wrote per user byte", 2, |r| r.write_amplification),
    ("device_write_amplification", "bytes that the device wrote per user byte", 2, |r| {
        r.device_write_amplification
    }),
];

/// A figure of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpanFigure {
    /// Spread over the rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// Ratio to `blocking` in each round; none for that row.
    pub over_blocking: Option<Spread>,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpanRow {
    /// Description of the row.
    pub row: String,
    /// Figures by name, without those that a run does not have.
    #[serde(flatten)]
    pub figures: BTreeMap<String, SpanFigure>,
    /// Runs with a suspended process, whose times are void.
    pub suspended_runs: u64,
    /// Reports by round.
    pub runs: Vec<Report>,
}

/// The report of a comparison of write path parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpanReport {
    /// `ablation`.
    pub workload: String,
    /// Number of runs per row.
    pub rounds: u64,
    /// Number of concurrent puts, except in the row of one.
    pub writers: u64,
    /// The rows in order.
    pub rows: Vec<SpanRow>,
    /// Skipped part with its reason.
    #[serde(default)]
    pub skipped: Option<String>,
    /// Options of all runs except those that define the rows.
    pub options: BenchArgs,
}

/// Number of concurrent puts.
fn writers(args: &BenchArgs) -> u64 {
    if args.requests.writers == RequestArgs::default().writers { WRITERS } else { args.requests.writers }
}

/// The change that makes a row.
type RowChange<'a> = &'a dyn Fn(&mut RequestArgs);

/// Returns the rows with the options of their runs.
fn rows(args: &BenchArgs) -> Vec<(String, BenchArgs)> {
    let of = |change: RowChange<'_>| {
        let mut requests = RequestArgs {
            writers: writers(args),
            in_flight: false,
            loggers: 1,
            log_dir: None,
            speed_levels: SpeedLevels::default(),
            speed_values: 0,
            spandb: false,
            ..args.requests.clone()
        };
        change(&mut requests);
        BenchArgs { workload: Workload::Sync, pairs: None, requests, ..args.clone() }
    };
    let mut rows = vec![("one at a time".to_owned(), of(&|r| r.writers = 1))];
    for some in BATCHES.into_iter().filter(|some| *some < writers(args)) {
        rows.push((format!("blocking, {some} wait"), of(&|r| r.writers = some)));
    }
    for (name, in_flight) in [(BASE, false), ("asynchronous", true)] {
        let of_kind = |change: RowChange<'_>| of(&|r| (r.in_flight = in_flight, change(r)).1);
        rows.push((name.to_owned(), of_kind(&|_| {})));
        for loggers in 2..=3 {
            rows.push((format!("{name}, {loggers} loggers"), of_kind(&|r| r.loggers = loggers)));
        }
        rows.push((format!("{name}, loggers found"), of_kind(&|r| r.loggers = 0)));
        let Some(dir) = &args.requests.log_dir else { continue };
        for (placement, speed_levels) in PLACEMENTS {
            let change: RowChange<'_> = &|r| {
                (r.log_dir, r.speed_levels) = (Some(dir.clone()), speed_levels);
            };
            rows.push((format!("{name}, {placement}"), of_kind(change)));
        }
    }
    rows
}

/// Runs all rows below `dir`, which the caller removes, and calls `progress` before each run.
///
/// # Errors
/// Invalid options; errors of the runs.
pub fn compare(
    args: &BenchArgs,
    opener: &dyn Opener,
    dir: &Path,
    progress: &dyn Fn(&str),
) -> Result<SpanReport> {
    args.check()?;
    let rows = rows(args);
    rows.iter().try_for_each(|(_, args)| args.check())?;
    let rounds = args.pairs.unwrap_or(ROUNDS);
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let runs = rounds::runs(&names, rounds, dir, progress, |at, dir| one(&rows[at].1, opener, dir))?;
    let values = rounds::values(&FIGURES, &runs);
    let base = names.iter().position(|name| name == BASE).unwrap_or(0);
    let row = |(at, (row, runs)): (usize, (String, Vec<Report>))| SpanRow {
        row,
        figures: figures(&values, at, base),
        suspended_runs: runs.iter().filter(|r| r.costs.suspended_seconds > 0.0).count() as u64,
        runs,
    };
    Ok(SpanReport {
        workload: "ablation".to_owned(),
        rounds,
        writers: writers(args),
        rows: names.into_iter().zip(runs).enumerate().map(row).collect(),
        skipped: args.requests.log_dir.is_none().then(|| SKIPPED.to_owned()),
        options: BenchArgs { pairs: Some(rounds), ..args.resolved() },
    })
}

/// Makes a run. With a second disk its log has a separate directory there, which is removed
/// afterwards.
fn one(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<Report> {
    let Some(logs) = &args.requests.log_dir else { return run(args, opener, dir) };
    let name = dir.file_name().map_or_else(Default::default, ToOwned::to_owned);
    alone(&logs.join(name), |log_dir| {
        let requests = RequestArgs { log_dir: Some(log_dir.to_owned()), ..args.requests.clone() };
        run(&BenchArgs { requests, ..args.clone() }, opener, dir)
    })
}

fn figures(values: &[Vec<Vec<f64>>], at: usize, base: usize) -> BTreeMap<String, SpanFigure> {
    rounds::by_name(&FIGURES, |number| {
        let own = &values[at][number];
        Some(SpanFigure {
            spread: Spread::of(own.iter().copied())?,
            over_blocking: (at != base).then(|| Spread::of_ratios(own, &values[base][number])).flatten(),
        })
    })
}

impl SpanReport {
    /// Formats a table for each figure.
    pub fn text(&self) -> String {
        let o = &self.options;
        let mut text = format!(
            "durable puts: {} keys, values {} B, {} wait at once; {} round{} (a claim needs {ROUNDS})\n\
             median [min .. max]; ratios are those of the same round, to {BASE}\n",
            human_count(o.keys()),
            o.sizes(),
            self.writers,
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        );
        for (name, title, digits, _) in FIGURES {
            let _ = writeln!(text, "\n{title}");
            self.rows.iter().for_each(|row| text.push_str(&row.line(name, digits)));
        }
        for row in self.rows.iter().filter(|row| row.suspended_runs > 0) {
            let _ = writeln!(text, "NOT VALID: {} was stopped in {} runs", row.row, row.suspended_runs);
        }
        if let Some(skipped) = &self.skipped {
            let _ = writeln!(text, "\nnot measured: {skipped}");
        }
        text
    }
}

impl SpanRow {
    fn line(&self, name: &str, digits: usize) -> String {
        let Some(figure) = self.figures.get(name) else { return format!("{:<28} -\n", self.row) };
        let ratio = figure.over_blocking.map_or(String::new(), |s| format!("x{}", s.text(2)));
        let line = format!("{:<28}{:>36}{ratio:>28}", self.row, figure.spread.text(digits));
        line.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests;
