//! Contribution of each Scavenger+ mechanism: figures 19 to 21 of the paper.
//!
//! The workload `overwrite` runs once for each row, always in a fresh directory. The first row
//! disables all mechanisms of the paper; every other row adds one to the previous row, in the
//! paper's order:
//!
//! | row | the paper | [`lavastore::testing::Ablation`] |
//! |---|---|---|
//! | `TDB` | TerarkDB, the base of Scavenger+ | all of the following off |
//! | `+C` | space-aware compaction on compensated sizes (TDB-C) | `compensated_size` |
//! | `+R` | lazy read: collection reads keys first, then only live values (CR) | `lazy_read` |
//! | `+W` | hotspot-aware write: separate files for hot and cold values (CRW) | `hot_cold` |
//! | `+L` | lookups of collection on streams of references, which DTables store separately (CRWL, "S") | `joined_lookups` |
//! | `+A` | adaptive readahead: nearby live values in one read (S-A) | `readahead` |
//! | `+D` | dynamic scheduling and bandwidth limit of collection (S-AD, "S+") | `gc_threads`, `gc_threshold`, `gc_pace` |
//!
//! [`OTHER_SWITCHES`] are not from that paper; every row has them on, except those in `--without`.
//! `TDB` also includes the parts of the formats, which no switch can disable: keys of a value file
//! stored apart from its records, references apart from short values, and names that collection
//! need not rewrite. So `TDB` is better than the paper's, and gains are smaller: a row measures the
//! contribution of its mechanism to this engine.
//!
//! Rows run in rounds: all of them, then all in the opposite order, and so on; ratios are taken
//! within a round. Figure 19 uses `--space-limit`; 20 and 21 do not.
//!
//! [`policy`] does the same for compaction policies, [`spandb`] for the parts of the durable write
//! path, and [`mechanisms`] for single mechanisms on suitable workloads.

pub mod mechanisms;
pub mod policy;
mod rounds;
pub mod spandb;

use crate::args::{BenchArgs, Workload};
use crate::engine::Opener;
use crate::report::Report;
use crate::spread::Spread;
use crate::{Result, run};
use rounds::ROUNDS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The rows with the switches that each adds.
pub const ROWS: [(&str, &[&str]); 7] = [
    ("TDB", &[]),
    ("+C", &["compensated_size"]),
    ("+R", &["lazy_read"]),
    ("+W", &["hot_cold"]),
    ("+L", &["joined_lookups"]),
    ("+A", &["readahead"]),
    ("+D", &["gc_threads", "gc_threshold", "gc_pace"]),
];

/// Switches of mechanisms outside of Scavenger+.
pub const OTHER_SWITCHES: [&str; 12] = [
    "correlated",
    "quiet_compaction",
    "io_pacing",
    "subcompactions",
    "log_first",
    "measured_reads",
    "pipelined_collection",
    "least_overlap",
    "exposing_first",
    "lazy_with_room",
    "space_first",
    "warm_survivors",
];

type Figure = rounds::Figure<Report>;

const FIGURES: [Figure; 7] = [
    ("mb_per_s", "updates, MB/s (more is better)", 1, |r| Some(r.mb_per_s)),
    ("space_peak_ratio", "peak space over live data (less is better)", 3, |r| Some(r.costs.space_peak_ratio)),
    ("write_amplification", "write amplification, log included (less is better)", 2, |r| {
        r.write_amplification
    }),
    ("cpu_us_per_op", "processor time of an update, us (less is better)", 2, |r| Some(r.costs.cpu_us_per_op)),
    ("garbage_ratio", "exposed garbage over live data, mean (less is better)", 3, |r| {
        mean_part(r, "garbage")
    }),
    ("hidden_garbage_ratio", "hidden garbage over live data, mean (less is better)", 3, |r| {
        mean_part(r, "hidden")
    }),
    ("index_space_amplification", "index space amplification, settled (less is better)", 3, |r| {
        r.costs.engine_stats.get("index_space_amplification")?.as_f64()
    }),
];

/// Returns the mean ratio of a part of the space to the live data during the updates.
fn mean_part(report: &Report, part: &str) -> Option<f64> {
    let during = report.timeline.iter().filter(|space| space.seconds <= report.seconds);
    let parts: Vec<f64> =
        during.filter_map(|space| space.parts.get(part)).map(|bytes| *bytes as f64).collect();
    (!parts.is_empty())
        .then(|| parts.iter().sum::<f64>() / parts.len() as f64 / report.costs.live_bytes as f64)
}

/// A figure of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowFigure {
    /// Spread over the rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// Ratio to the previous row in each round; none for the first row.
    pub over_row_before: Option<Spread>,
    /// Ratio to the first row.
    pub over_tdb: Option<Spread>,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AblationRow {
    /// Name in the paper.
    pub row: String,
    /// Switches added to the previous row.
    pub adds: Vec<String>,
    /// Switches that are off in this row.
    pub without: Vec<String>,
    /// Figures by name.
    #[serde(flatten)]
    pub figures: BTreeMap<String, RowFigure>,
    /// Samples above the limit, over all rounds; `None` without a limit.
    pub limit_breaches: Option<u64>,
    /// Runs with a suspended process, whose times are void.
    pub suspended_runs: u64,
    /// Reports by round.
    pub runs: Vec<Report>,
}

/// The report of an ablation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AblationReport {
    /// `ablation`.
    pub workload: String,
    /// Number of runs per row.
    pub rounds: u64,
    /// The rows in order.
    pub rows: Vec<AblationRow>,
    /// Switches outside of the rows.
    pub other_switches: Vec<String>,
    /// Options of all runs except `without`.
    pub options: BenchArgs,
}

/// Returns the disabled switches of row `at`: those of later rows and of the user.
fn without(args: &BenchArgs, at: usize) -> Vec<String> {
    let later = ROWS.iter().skip(at + 1).flat_map(|(_, adds)| adds.iter().map(|name| (*name).to_owned()));
    let mut off: Vec<String> = later.chain(args.without.iter().cloned()).collect();
    off.sort();
    off.dedup();
    off
}

/// Runs all rows below `dir`, which the caller removes, and calls `progress` before each run.
pub fn ablation(
    args: &BenchArgs,
    opener: &dyn Opener,
    dir: &Path,
    progress: &dyn Fn(&str),
) -> Result<AblationReport> {
    args.check()?;
    let rounds = args.pairs.unwrap_or(ROUNDS);
    let names = ROWS.map(|(name, _)| name.to_owned());
    let runs = rounds::runs(&names, rounds, dir, progress, |at, dir| {
        let own = BenchArgs { workload: Workload::Overwrite, without: without(args, at), ..args.clone() };
        run(&own, opener, dir)
    })?;
    let values = rounds::values(&FIGURES, &runs);
    let rows = runs.into_iter().enumerate().map(|(at, runs)| AblationRow {
        row: ROWS[at].0.to_owned(),
        adds: ROWS[at].1.iter().map(|name| (*name).to_owned()).collect(),
        without: without(args, at),
        figures: figures(&values, at),
        limit_breaches: runs.iter().map(|r| Some(r.limit.as_ref()?.limit_breaches)).sum(),
        suspended_runs: runs.iter().filter(|r| r.costs.suspended_seconds > 0.0).count() as u64,
        runs,
    });
    Ok(AblationReport {
        workload: "ablation".to_owned(),
        rounds,
        rows: rows.collect(),
        other_switches: OTHER_SWITCHES.map(str::to_owned).to_vec(),
        options: BenchArgs { pairs: Some(rounds), ..args.resolved() },
    })
}

fn figures(values: &[Vec<Vec<f64>>], at: usize) -> BTreeMap<String, RowFigure> {
    rounds::by_name(&FIGURES, |number| {
        let own = &values[at][number];
        let over = |other: usize| Spread::of_ratios(own, &values[other][number]);
        Some(RowFigure {
            spread: Spread::of(own.iter().copied())?,
            over_row_before: at.checked_sub(1).and_then(over),
            over_tdb: (at > 0).then(|| over(0)).flatten(),
        })
    })
}

impl AblationReport {
    /// Formats a table for each figure.
    pub fn text(&self) -> String {
        let o = &self.options;
        let limit = o.space_limit.map_or("no space limit".to_owned(), |limit| format!("space limit {limit}"));
        let mut text = format!(
            "overwrite: {} keys, values {} B, {} updates, {limit}; {} round{} (a claim needs {ROUNDS})\n\
             median [min .. max]; ratios are those of the same round\n",
            o.keys(),
            o.sizes(),
            o.ops(),
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        );
        for (name, title, digits, _) in FIGURES {
            if self.rows.iter().any(|row| row.figures.contains_key(name)) {
                let _ =
                    writeln!(text, "\n{title:<54}{:>28}{:>26}{:>26}", "", "over the row before", "over TDB");
                self.rows.iter().for_each(|row| text.push_str(&row.line(name, digits)));
            }
        }
        for row in self.rows.iter().filter(|row| row.suspended_runs > 0) {
            let _ = writeln!(
                text,
                "NOT VALID: {} was stopped in {} runs: times are void",
                row.row, row.suspended_runs
            );
        }
        let breaches: Option<u64> = self.rows.iter().map(|row| row.limit_breaches).sum();
        text + &breaches.map_or(String::new(), |looks| format!("\nabove the limit in {looks} looks\n"))
    }
}

impl AblationRow {
    fn added(&self) -> String {
        match self.adds.is_empty() {
            true => "all of these off".to_owned(),
            false => self.adds.join(", "),
        }
    }

    fn line(&self, name: &str, digits: usize) -> String {
        let Some(figure) = self.figures.get(name) else {
            return format!("{:<4} -\n", self.row);
        };
        let ratio = |spread: &Option<Spread>| spread.map_or(String::new(), |s| format!("x{}", s.text(2)));
        let (before, first) = (ratio(&figure.over_row_before), ratio(&figure.over_tdb));
        let line = format!(
            "{:<4} {:<49}{:>28}{before:>26}{first:>26}",
            self.row,
            self.added(),
            figure.spread.text(digits)
        );
        line.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests;
