//! Contribution of single mechanisms, each on a suitable workload: `ablation --mechanisms`.
//!
//! Each mechanism has two rows with the same writes: `overwrite` with and without it
//! ([`lavastore::testing::Ablation`]). All workloads have the number of keys given by `--num` (or
//! the default of `overwrite` for such values), and the same number of updates:
//!
//! | mechanism | workload |
//! |---|---|
//! | `measured_reads` | 16,000 B, uniform: live records between garbage, with gaps above the fixed limit that applies without measurement |
//! | `pipelined_collection` | 1,000 B, uniform: writers wait for collection, and the device is not saturated |
//! | `joined_lookups` | the same: the most lookups per copied byte |
//! | `least_overlap` | 200 B in tables: most writes are those of levels |
//! | `gc_threads` | 1,000 B with four threads |
//! | `lazy_with_room` | 1,000 B with a limit of six times the data, and of 256 MiB where that is more |
//! | `exposing_first` | 8,000 B with memtables of a fifth of the data |
//! | `space_first` | half short, half 16 KiB, with memtables of an eighth of the usual size: level 0 always needs compaction |
//! | `hot_cold` | 16,000 B, Zipf |
//! | `warm_survivors` | the same |
//!
//! Rows run in rounds as in the parent module; ratios are on to off within a round.

use super::rounds::{self, ROUNDS};
use crate::args::{BenchArgs, Distribution, Workload};
use crate::engine::Opener;
use crate::limit::SpaceLimit;
use crate::report::Report;
use crate::spread::Spread;
use crate::values::ValueSizes;
use crate::{Result, run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Minimum size of a memtable.
const MEMTABLE_LEN_MIN: u64 = 64 << 10;
/// Minimum limit in memtables of at least the usual size: log, memtables and reserve need about as
/// much.
const LIMIT_MEMTABLES_MIN: u64 = 16;
const MEMTABLE_LEN: u64 = 16 << 20;

/// A mechanism: its switch, and the change that makes its workload.
type Mechanism = (&'static str, fn(&mut BenchArgs));

/// The mechanisms; see the module.
pub const MECHANISMS: [Mechanism; 10] = [
    ("measured_reads", |args| of_len(args, 16_000)),
    ("pipelined_collection", |args| of_len(args, 1000)),
    ("joined_lookups", |args| of_len(args, 1000)),
    ("least_overlap", |args| of_len(args, 200)),
    ("gc_threads", |args| {
        of_len(args, 1000);
        args.background_threads = 4;
    }),
    ("lazy_with_room", |args| {
        of_len(args, 1000);
        let least = LIMIT_MEMTABLES_MIN * args.memtable_len().max(MEMTABLE_LEN);
        args.space_limit = Some(SpaceLimit::Bytes(args.live_bytes().saturating_mul(6).max(least)));
    }),
    ("exposing_first", |args| {
        of_len(args, 8000);
        args.memtable_bytes = Some((args.live_bytes() / 5).max(MEMTABLE_LEN_MIN));
    }),
    ("space_first", |args| {
        args.values = Some(ValueSizes::Mixed8k);
        args.memtable_bytes = Some((args.memtable_len() / 8).max(MEMTABLE_LEN_MIN));
    }),
    ("hot_cold", skewed),
    ("warm_survivors", skewed),
];

fn skewed(args: &mut BenchArgs) {
    of_len(args, 16_000);
    args.distribution = Distribution::Zipf;
}

/// Sets the length of values.
fn of_len(args: &mut BenchArgs, bytes: u64) {
    (args.value_size, args.values) = (Some(bytes), None);
}

type Figure = rounds::Figure<Report>;

const FIGURES: [Figure; 6] = [
    ("mb_per_s", "updates, MB/s (more is better)", 1, |r| Some(r.mb_per_s)),
    ("write_amplification", "bytes written per user byte, log included", 2, |r| r.write_amplification),
    ("collected_amplification", "of these by collections", 3, |r| engine_bytes(r, "gc_bytes_written")),
    ("compacted_amplification", "of these by compactions", 3, |r| {
        engine_bytes(r, "compaction_bytes_written")
    }),
    ("space_peak_ratio", "peak space over live data", 3, |r| Some(r.costs.space_peak_ratio)),
    ("cpu_us_per_op", "processor time of an update, us", 2, |r| Some(r.costs.cpu_us_per_op)),
];

fn engine_bytes(report: &Report, counter: &str) -> Option<f64> {
    report.costs.per_user_byte(report.costs.growth(counter)?)
}

/// A figure of a mechanism.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MechanismFigure {
    /// Spread with the mechanism.
    pub on: Spread,
    /// Spread without it.
    pub off: Spread,
    /// Ratio of on to off in each round.
    pub ratio: Option<Spread>,
}

/// A mechanism of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MechanismRow {
    /// Name of its switch.
    pub mechanism: String,
    /// Figures by name, without those that a run does not have.
    #[serde(flatten)]
    pub figures: BTreeMap<String, MechanismFigure>,
    /// Runs with a suspended process, whose times are void.
    pub suspended_runs: u64,
    /// Reports with the mechanism, by round.
    pub on: Vec<Report>,
    /// Reports without the mechanism, by round.
    pub off: Vec<Report>,
}

/// The report of a comparison of mechanisms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MechanismsReport {
    /// `ablation`.
    pub workload: String,
    /// Number of runs per row.
    pub rounds: u64,
    /// The mechanisms.
    pub rows: Vec<MechanismRow>,
    /// Options of all runs except those that define the rows.
    pub options: BenchArgs,
}

/// Returns the options of the runs with and without a mechanism.
fn pair(args: &BenchArgs, (switch, change): &Mechanism) -> [BenchArgs; 2] {
    let mut on = BenchArgs { workload: Workload::Overwrite, pairs: None, mechanisms: false, ..args.clone() };
    change(&mut on);
    let mut off = on.clone();
    off.without.push((*switch).to_owned());
    [on, off]
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
) -> Result<MechanismsReport> {
    args.check()?;
    let rows: Vec<BenchArgs> = MECHANISMS.iter().flat_map(|mechanism| pair(args, mechanism)).collect();
    rows.iter().try_for_each(BenchArgs::check)?;
    let rounds = args.pairs.unwrap_or(ROUNDS);
    let names: Vec<String> = MECHANISMS
        .iter()
        .flat_map(|(switch, _)| [format!("with {switch}"), format!("without {switch}")])
        .collect();
    let runs = rounds::runs(&names, rounds, dir, progress, |at, dir| run(&rows[at], opener, dir))?;
    let values = rounds::values(&FIGURES, &runs);
    let mut runs = runs.into_iter();
    let mut row = |(nth, (switch, _)): (usize, &Mechanism)| {
        let (on, off) = (runs.next().unwrap_or_default(), runs.next().unwrap_or_default());
        MechanismRow {
            mechanism: (*switch).to_owned(),
            figures: figures(&values[2 * nth], &values[2 * nth + 1]),
            suspended_runs: on.iter().chain(&off).filter(|r| r.costs.suspended_seconds > 0.0).count() as u64,
            on,
            off,
        }
    };
    Ok(MechanismsReport {
        workload: "ablation".to_owned(),
        rounds,
        rows: MECHANISMS.iter().enumerate().map(&mut row).collect(),
        options: BenchArgs { pairs: Some(rounds), ..args.resolved() },
    })
}

fn figures(on: &[Vec<f64>], off: &[Vec<f64>]) -> BTreeMap<String, MechanismFigure> {
    rounds::by_name(&FIGURES, |number| {
        let of = |values: &[Vec<f64>]| Spread::of(values[number].iter().copied());
        Some(MechanismFigure {
            on: of(on)?,
            off: of(off)?,
            ratio: Spread::of_ratios(&on[number], &off[number]),
        })
    })
}

impl MechanismsReport {
    /// Formats a table for each figure.
    pub fn text(&self) -> String {
        let mut text = format!(
            "overwrite, a workload for each mechanism; {} round{} (a claim needs {ROUNDS})\n\
             median [min .. max]; ratios are those of the same round, of what is on to what is off\n",
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        );
        for (name, title, digits, _) in FIGURES {
            let _ = writeln!(text, "\n{title:<44}{:>28}{:>28}", "with", "without");
            self.rows.iter().for_each(|row| text.push_str(&row.line(name, digits)));
        }
        for row in self.rows.iter().filter(|row| row.suspended_runs > 0) {
            let _ = writeln!(text, "NOT VALID: {} was stopped in {} runs", row.mechanism, row.suspended_runs);
        }
        text
    }
}

impl MechanismRow {
    fn line(&self, name: &str, digits: usize) -> String {
        let Some(figure) = self.figures.get(name) else { return format!("{:<28} -\n", self.mechanism) };
        let ratio = figure.ratio.map_or(String::new(), |s| format!("x{}", s.text(2)));
        let (on, off) = (figure.on.text(digits), figure.off.text(digits));
        format!("{:<28}{on:>44}{off:>28}{ratio:>26}\n", self.mechanism)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ablation::{OTHER_SWITCHES, ROWS};
    use crate::args::tests::args;
    use crate::host::WorkDir;
    use crate::lava::Lava;

    #[test]
    fn paired_runs_differ_only_in_the_mechanism() {
        let known: Vec<&str> =
            ROWS.iter().flat_map(|(_, adds)| adds.iter().copied()).chain(OTHER_SWITCHES).collect();
        let args = args("ablation --mechanisms --without correlated");
        for mechanism in &MECHANISMS {
            let [on, off] = pair(&args, mechanism);
            assert!(on.check().is_ok() && known.contains(&mechanism.0), "{}", mechanism.0);
            assert_eq!((on.without.len(), off.without.last()), (1, Some(&mechanism.0.to_owned())));
            let as_on = BenchArgs { without: on.without.clone(), ..off };
            assert_eq!(serde_json::to_value(&as_on).unwrap(), serde_json::to_value(&on).unwrap());
        }
    }

    #[test]
    fn every_mechanism_is_measured_and_its_stores_are_removed() {
        let parent = std::env::temp_dir().join(format!("bench-mechanisms-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&parent).unwrap();
        let args = args("ablation --mechanisms --num 200 --updates 300 --pairs 1 --file-bytes 65536");
        let report = compare(&args, &Lava, dir.path(), &|_| {}).unwrap();
        assert!(io::Env::kernel().fs.list(dir.path()).unwrap().is_empty());
        assert_eq!((report.rounds, report.rows.len()), (1, MECHANISMS.len()));
        let text = report.text();
        for row in &report.rows {
            assert!(text.contains(&row.mechanism) && row.figures["collected_amplification"].off.min >= 0.0);
            assert_eq!(row.on[0].ops_hash, row.off[0].ops_hash, "the same writes");
        }
        let back: MechanismsReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(back.rows.len(), MECHANISMS.len());
    }
}
