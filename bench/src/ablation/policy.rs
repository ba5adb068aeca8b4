//! The claims of vLSM, one by one: `ablation --policy`.
//!
//! The workload `tail` runs once for each row, always in a fresh directory, with the same data and
//! the same request schedule. The rate is a share (`--load`) of the rate that `leveled` sustains
//! with the options of the run, or of `--rate`.
//!
//! | row | what it is |
//! |---|---|
//! | `leveled` | the policy, with the options of the run |
//! | `leveled, RocksDB's sizes` | memtables and tables of 64 MiB, first level 256 MiB, factor 8: RocksDB-IO of the paper |
//! | `leveled, small tables` | memtables and tables of M, first level of f tables: the sizes of `vlsm` without overlap-bounded tables, and with a gathered level 0 |
//! | `vlsm` | the policy |
//!
//! With `--sweep` the rows are `vlsm` with the values of one parameter. Device bytes include
//! settling, so a policy pays for deferred work. Rows run in rounds as in the parent module; ratios
//! are to the first row of the round.

use super::rounds::{self, ROUNDS};
use crate::Result;
use crate::args::sweep::Sweep;
use crate::args::{BenchArgs, Policy, Workload};
use crate::engine::Opener;
use crate::host::alone;
use crate::report::human_count;
use crate::spread::Spread;
use crate::tail::{self, TailArgs, TailReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// RocksDB-IO: size of tables and memtables, first level, growth factor.
const ROCKSDB_TABLE_BYTES: u64 = 64 << 20;
const ROCKSDB_BASE_BYTES: u64 = 256 << 20;
const ROCKSDB_MULTIPLIER: u32 = 8;

type Figure = rounds::Figure<TailReport>;

const FIGURES: [Figure; 24] = [
    ("ops_per_s", "operations a second that were done", 0, |r| Some(r.ops_per_s)),
    ("write_p50_us", "write P50, us", 1, |r| Some(r.write.p50_us)),
    ("write_p90_us", "write P90, us", 1, |r| Some(r.write.p90_us)),
    ("write_p99_us", "write P99, us", 1, |r| Some(r.write.p99_us)),
    ("write_p999_us", "write P99.9, us", 1, |r| Some(r.write.p999_us)),
    ("read_p50_us", "read P50, us", 1, |r| Some(r.read.p50_us)),
    ("read_p99_us", "read P99, us", 1, |r| Some(r.read.p99_us)),
    ("read_p999_us", "read P99.9, us", 1, |r| Some(r.read.p999_us)),
    ("stalls_seconds", "sum of stalls, s", 3, |r| r.wait_seconds),
    ("longest_stall_us", "longest stall, us", 0, |r| Some(r.engine_times.as_ref()?.longest_wait_us())),
    ("stall_windows_100ms", "windows of 100 ms without progress", 0, |r| Some(r.stall_windows_100ms as f64)),
    ("width_mean_bytes", "width of a compaction, bytes", 0, |r| width(r, |c| c.width_mean_bytes as f64)),
    ("width_max_bytes", "the widest, bytes", 0, |r| width(r, |c| c.width_max_bytes as f64)),
    ("chain_mean", "length of a chain", 2, |r| width(r, |c| c.chain_mean)),
    ("chain_max", "the longest chain", 0, |r| width(r, |c| c.chain_max as f64)),
    ("device_bytes_per_user_byte", "device bytes written per user byte", 2, |r| r.device_bytes_per_user_byte),
    ("process_bytes_per_user_byte", "the same of the process", 2, |r| r.process_bytes_per_user_byte),
    ("io_per_user_byte", "bytes read and written per user byte", 2, |r| {
        r.costs.per_user_byte(r.costs.process_bytes_written + r.costs.process_bytes_read)
    }),
    ("compaction_io_per_user_byte", "those of compactions", 2, |r| {
        let (read, written) =
            (r.costs.growth("compaction_bytes_read")?, r.costs.growth("compaction_bytes_written")?);
        r.costs.per_user_byte(read + written)
    }),
    ("cpu_us_per_op", "processor time of an operation, us", 2, |r| Some(r.costs.cpu_us_per_op)),
    ("good_tables_share", "good tables among those of level 1", 3, |r| {
        share(r, "compaction_tables_good", "compaction_tables_poor")
    }),
    ("fallbacks_share", "fallbacks among spills", 3, |r| {
        let (poor, all) = (r.costs.growth("compaction_poor_spills")?, r.costs.growth("compaction_spills")?);
        (all > 0).then(|| poor as f64 / all as f64)
    }),
    ("fallbacks", "fallbacks", 0, |r| Some(r.costs.growth("compaction_poor_spills")? as f64)),
    ("space_peak_ratio", "peak space over live data", 3, |r| Some(r.costs.space_peak_ratio)),
];

fn width(report: &TailReport, of: fn(&tail::engine::Compactions) -> f64) -> Option<f64> {
    Some(of(&report.engine_times.as_ref()?.compactions))
}

/// Returns the share of one counter in the sum of two.
fn share(report: &TailReport, one: &str, other: &str) -> Option<f64> {
    let (one, other) = (report.costs.growth(one)?, report.costs.growth(other)?);
    (one + other > 0).then(|| one as f64 / (one + other) as f64)
}

/// A figure of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyFigure {
    /// Spread over the rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// Ratio to the first row in each round; none for the first row.
    pub over_first: Option<Spread>,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyRow {
    /// Description of the row.
    pub row: String,
    /// Figures by name, without those that a run does not have.
    #[serde(flatten)]
    pub figures: BTreeMap<String, PolicyFigure>,
    /// Runs with a backlog at the end: their latencies depend on the length of the run.
    pub fell_behind: u64,
    /// Runs with a suspended process, whose times are void.
    pub suspended_runs: u64,
    /// Reports by round.
    pub runs: Vec<TailReport>,
}

/// The report of a policy comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// `ablation`.
    pub workload: String,
    /// Number of runs per row.
    pub rounds: u64,
    /// Operations per second that `leveled` sustains, measured or given.
    pub sustained_per_s: f64,
    /// Operations per second due in every run.
    pub rate_per_s: f64,
    /// The rows in order.
    pub rows: Vec<PolicyRow>,
    /// Options of all runs except those that define the rows.
    pub options: BenchArgs,
}

/// Returns the rows with the options of their runs.
fn rows(args: &BenchArgs) -> Vec<(String, BenchArgs)> {
    let leveled = leveled(args);
    let vlsm = BenchArgs { policy: Policy::Vlsm, ..leveled.clone() };
    let of_table =
        |bytes: u64| BenchArgs { file_bytes: Some(bytes), memtable_bytes: Some(bytes), ..vlsm.clone() };
    match &args.sweep {
        Some(Sweep::Growth(values)) => {
            let row = |times: &u32| {
                (format!("vlsm, F = {times}"), BenchArgs { growth_max: Some(*times), ..vlsm.clone() })
            };
            values.iter().map(row).collect()
        }
        Some(Sweep::Table(values)) => {
            let row = |bytes: &u64| (format!("vlsm, M = {} KiB", bytes >> 10), of_table(*bytes));
            values.iter().map(row).collect()
        }
        None => {
            let table = vlsm.file_len();
            let rocksdb = BenchArgs {
                file_bytes: Some(ROCKSDB_TABLE_BYTES),
                memtable_bytes: Some(ROCKSDB_TABLE_BYTES),
                level_base_bytes: Some(ROCKSDB_BASE_BYTES),
                level_multiplier: Some(ROCKSDB_MULTIPLIER),
                ..leveled.clone()
            };
            let small = BenchArgs {
                file_bytes: Some(table),
                memtable_bytes: Some(vlsm.memtable_len()),
                level_base_bytes: Some(table * u64::from(lavastore::VlsmOptions::default().level_1_tables)),
                ..leveled.clone()
            };
            let names = ["leveled", "leveled, RocksDB's sizes", "leveled, small tables", "vlsm"];
            names.map(str::to_owned).into_iter().zip([leveled, rocksdb, small, vlsm]).collect()
        }
    }
}

/// Returns the options of the reference policy.
fn leveled(args: &BenchArgs) -> BenchArgs {
    BenchArgs { workload: Workload::Tail, policy: Policy::Leveled, sweep: None, pairs: None, ..args.clone() }
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
) -> Result<PolicyReport> {
    args.check()?;
    let rows = rows(args);
    rows.iter().try_for_each(|(_, args)| args.check())?;
    let (rounds, load) = (args.pairs.unwrap_or(ROUNDS), args.tail.loads());
    let sustained_per_s = match args.rate {
        Some(rate) => rate,
        None => {
            progress("the rate that leveled sustains");
            let tail = TailArgs { only_find: true, ..args.tail.clone() };
            let find = BenchArgs { tail, ..leveled(args) };
            one(alone(&dir.join("find"), |dir| tail::run(&find, opener, dir))?)?.sustained_per_s
        }
    };
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let runs = rounds::runs(&names, rounds, dir, progress, |at, dir| {
        one(tail::run(&BenchArgs { rate: Some(sustained_per_s), ..rows[at].1.clone() }, opener, dir)?)
    })?;
    let values = rounds::values(&FIGURES, &runs);
    let row = |(at, (row, runs)): (usize, (String, Vec<TailReport>))| PolicyRow {
        row,
        figures: figures(&values, at),
        fell_behind: runs.iter().filter(|r| !r.kept_up).count() as u64,
        suspended_runs: runs.iter().filter(|r| r.costs.suspended_seconds > 0.0).count() as u64,
        runs,
    };
    Ok(PolicyReport {
        workload: "ablation".to_owned(),
        rounds,
        sustained_per_s,
        rate_per_s: sustained_per_s * load.iter().next().unwrap_or(0.0) / 100.0,
        rows: names.into_iter().zip(runs).enumerate().map(row).collect(),
        options: BenchArgs { pairs: Some(rounds), ..args.resolved() },
    })
}

/// Returns the report of the single load.
fn one(runs: tail::TailRuns) -> Result<TailReport> {
    runs.points.into_iter().next().ok_or_else(|| {
        "a run of a policy returned no report, so the comparison has no result: report it".into()
    })
}

fn figures(values: &[Vec<Vec<f64>>], at: usize) -> BTreeMap<String, PolicyFigure> {
    rounds::by_name(&FIGURES, |number| {
        let own = &values[at][number];
        Some(PolicyFigure {
            spread: Spread::of(own.iter().copied())?,
            over_first: (at > 0).then(|| Spread::of_ratios(own, &values[0][number])).flatten(),
        })
    })
}

impl PolicyReport {
    /// Formats a table for each figure.
    pub fn text(&self) -> String {
        let o = &self.options;
        let first = self.rows.first().map_or("", |row| &row.row);
        let mut text = format!(
            "{} keys, values {} B; {}/s due of {}/s that leveled sustains; {} round{} (a claim needs {ROUNDS})\n\
             median [min .. max]; ratios are those of the same round, to {first}\n",
            human_count(o.keys()),
            o.sizes(),
            human_count(self.rate_per_s.round() as u64),
            human_count(self.sustained_per_s.round() as u64),
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        );
        for (name, title, digits, _) in FIGURES {
            if self.rows.iter().any(|row| row.figures.contains_key(name)) {
                let _ = writeln!(text, "\n{title}");
                self.rows.iter().for_each(|row| text.push_str(&row.line(name, digits)));
            }
        }
        for row in &self.rows {
            for (runs, what) in [(row.fell_behind, "fell behind"), (row.suspended_runs, "was stopped")] {
                if runs > 0 {
                    let _ = writeln!(text, "NOT VALID: {} {what} in {runs} runs", row.row);
                }
            }
        }
        text
    }
}

impl PolicyRow {
    fn line(&self, name: &str, digits: usize) -> String {
        let Some(figure) = self.figures.get(name) else {
            return format!("  {:<26} -\n", self.row);
        };
        let over = figure.over_first.map_or(String::new(), |spread| format!("x{}", spread.text(2)));
        let line = format!("  {:<26}{:>44}{over:>30}", self.row, figure.spread.text(digits));
        line.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests;
