//! What each mechanism of Scavenger+ is worth here: figures 19 to 21 of the paper.
//!
//! The workload `overwrite` runs once for each row, every time in a fresh directory. The first row has all of the paper's
//! mechanisms switched off; every other row adds one to the row before, in the paper's order:
//!
//! | row | the paper | [`lavastore::testing::Ablation`] |
//! |---|---|---|
//! | `TDB` | TerarkDB, which Scavenger+ began with | all of the following off |
//! | `+C` | space-aware compaction on compensated sizes (TDB-C) | `compensated_size` |
//! | `+R` | lazy read: collection reads keys first, then only the values that live (CR) | `lazy_read` |
//! | `+W` | hotspot-aware write: hot and cold values in files of their own (CRW) | `hot_cold` |
//! | `+L` | lookups of collection on streams of references, which DTables keep apart (CRWL, "S") | `joined_lookups` |
//! | `+A` | adaptive readahead: live values that lie close together in one read (S-A) | `readahead` |
//! | `+D` | dynamic scheduling of collection, and its limit of bandwidth (S-AD, "S+") | `gc_threads`, `gc_threshold`, `gc_pace` |
//!
//! [`OTHER_SWITCHES`] are not of that paper; they are in every row what `--without` leaves of them, which is on. What no
//! switch can take away is in `TDB`, too, because it is in the formats: keys of a value file apart from its records,
//! references apart from short values, names that collection need not rewrite. So `TDB` is better than the paper's, and
//! gains are smaller: a row tells what its mechanism adds to this engine.
//!
//! Rows run in rounds: all of them, then all in the opposite order, and so on; ratios are taken within a round. Figure 19 is with
//! `--space-limit`, 20 and 21 are without.
//!
//! [`policy`] does the same with the compaction policies, [`spandb`] with the parts of the durable write path, [`mechanisms`] with single mechanisms, each where it
//! matters.

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

/// The rows, and the switches that each adds.
pub const ROWS: [(&str, &[&str]); 7] = [
    ("TDB", &[]),
    ("+C", &["compensated_size"]),
    ("+R", &["lazy_read"]),
    ("+W", &["hot_cold"]),
    ("+L", &["joined_lookups"]),
    ("+A", &["readahead"]),
    ("+D", &["gc_threads", "gc_threshold", "gc_pace"]),
];

/// Switches of mechanisms that are not of Scavenger+.
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

/// The mean, while updates ran, of what the engine says a part of its space is, over the live data.
fn mean_part(report: &Report, part: &str) -> Option<f64> {
    let during = report.timeline.iter().filter(|space| space.seconds <= report.seconds);
    let parts: Vec<f64> =
        during.filter_map(|space| space.parts.get(part)).map(|bytes| *bytes as f64).collect();
    (!parts.is_empty())
        .then(|| parts.iter().sum::<f64>() / parts.len() as f64 / report.costs.live_bytes as f64)
}

/// One figure of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowFigure {
    /// Over the rounds.
    #[serde(flatten)]
    pub spread: Spread,
    /// To the row before, of each round; the first row has none.
    pub over_row_before: Option<Spread>,
    /// To the first row.
    pub over_tdb: Option<Spread>,
}

/// One row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// As the paper calls it.
    pub row: String,
    /// The switches that it adds to the row before.
    pub adds: Vec<String>,
    /// The switches that are off in it.
    pub without: Vec<String>,
    /// Figures by name.
    #[serde(flatten)]
    pub figures: BTreeMap<String, RowFigure>,
    /// Looks at which a store was above its limit, all rounds together; nothing without a limit.
    pub limit_breaches: Option<u64>,
    /// Runs in which the process was stopped for a while, so that their times are void.
    pub suspended_runs: u64,
    /// The reports, round by round.
    pub runs: Vec<Report>,
}

/// All rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AblationReport {
    /// `ablation`.
    pub workload: String,
    /// How often each row ran.
    pub rounds: u64,
    /// The rows in order.
    pub rows: Vec<Row>,
    /// Switches that belong to no row.
    pub other_switches: Vec<String>,
    /// The options of all runs but `without`.
    pub options: BenchArgs,
}

/// What is off in row `at`: what later rows add, and what the user does without.
fn without(args: &BenchArgs, at: usize) -> Vec<String> {
    let later = ROWS.iter().skip(at + 1).flat_map(|(_, adds)| adds.iter().map(|name| (*name).to_owned()));
    let mut off: Vec<String> = later.chain(args.without.iter().cloned()).collect();
    off.sort();
    off.dedup();
    off
}

/// Makes the runs below `dir`, which is the caller's to remove, and tells `progress` before each.
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
    let rows = runs.into_iter().enumerate().map(|(at, runs)| Row {
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
    /// For people: a table for each figure.
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

impl Row {
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
