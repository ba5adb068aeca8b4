//! `bench scale-meta`: bookkeeping cost of separated values in a store of terabytes, without its
//! data.
//!
//! The metadata of such a store is made in memory: its value files, and tables with their lists of
//! names. Edits of a flush, a compaction and a collection run the store's own code, as do a pick, a
//! manifest snapshot and an open. Times are processor times, the minimum of some rounds, so that
//! they are robust against other load. Equal options make equal stores.

use crate::Result;
use crate::host;
use crate::report::{human_bytes, human_count};
use clap::Args;
use io::kernel::usage;
use lavastore::scale::{self, EditTimes, Found, Scale};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

const TERABYTE: f64 = 1e12;
/// Maximum size; the metadata of a larger store would not fit into memory.
const TERABYTES_MAX: f64 = 1000.0;

/// Options of `bench scale-meta`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct ScaleMetaArgs {
    /// Terabytes (10^12 bytes) of values in the modelled store, above 0 to 1000, fractions allowed.
    /// Only its metadata is made, in memory, which grows with them; no disk is used
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub terabytes: f64,
    /// Length of a value in bytes: a plain number, 1 to 1048576. Shorter values mean more tables
    /// for the same --terabytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub value_size: u64,
    /// Number of names of value files in the tables that are built, 1 to 100000000. Other tables
    /// are extrapolated; more names need more memory, and extrapolate less
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub names: u64,
    /// Number of repetitions of each measurement, 1 to 1000. The minimum counts, so that more of
    /// them exclude more disturbances
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: u64,
}

impl ScaleMetaArgs {
    /// Checks the options.
    ///
    /// # Errors
    /// An error for the user.
    pub fn check(&self) -> Result<()> {
        if !(self.terabytes > 0.0 && self.terabytes <= TERABYTES_MAX) {
            return Err("--terabytes must be above 0 and at most 1000 TB of values".into());
        }
        if !(1..=1 << 20).contains(&self.value_size) {
            return Err("--value-size must be 1 to 1048576 bytes".into());
        }
        if !(1..=100_000_000).contains(&self.names) {
            return Err("--names must be 1 to 100000000 names of value files".into());
        }
        if !(1..=1000).contains(&self.rounds) {
            return Err("--rounds must be 1 to 1000 repetitions".into());
        }
        Ok(())
    }
}

/// Processor time of an edit in milliseconds, if another edit was installed after its preparation.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EditMs {
    /// Encoding, and computing the next state from the preparation: under the manifest lock.
    pub edit_ms: f64,
    /// Deriving the garbage from the preparation, the work of an install: also under the lock.
    pub install_ms: f64,
    /// Preparation of both, before the lock is taken.
    pub prepared_ms: f64,
    /// Preparation of the sums per name for the edit's tables, before the install.
    pub sums_ms: f64,
}

/// Processor times in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ScaleMs {
    /// Derivation of all garbage by a full scan, as at an open, and formerly at each install.
    pub walk_ms: f64,
    /// A flush.
    pub flush: EditMs,
    /// A compaction of one table.
    pub compaction: EditMs,
    /// Replacement of the picked files; `None` if no garbage is worth it.
    pub collection: Option<EditMs>,
    /// Pick of the next collection.
    pub pick_ms: f64,
    /// Search for unneeded names and files.
    pub prune_ms: f64,
    /// Encoding of a manifest snapshot with the built tables.
    pub snapshot_ms: f64,
    /// Decoding and validation of that snapshot.
    pub open_ms: f64,
}

/// Processor times in milliseconds for a tree with as many tables as the store has value files.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TreeMs {
    /// Number of tables.
    pub tables: u64,
    /// Computation of overlap statistics and unexposed garbage by a full scan, as at an open.
    pub walk_ms: f64,
    /// The same after the compaction of a table, before the lock is taken.
    pub hiding_ms: f64,
    /// Pick of the compaction that exposes most garbage, beside running jobs.
    pub exposing_ms: f64,
    /// The same if none is worth it.
    pub exposing_none_ms: f64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaleMetaReport {
    /// Number of value files.
    pub value_files: u64,
    /// Number of tables of such a store.
    pub tables: u64,
    /// Number of built tables.
    pub tables_made: u64,
    /// Number of names per table.
    pub names_per_table: u64,
    /// Memory of the sums per name.
    pub sums_bytes: u64,
    /// Memory of the lists of names of all tables.
    pub lists_bytes: u64,
    /// Approximate size of a manifest snapshot with all tables.
    pub manifest_bytes: u64,
    /// Size of the snapshot with the built tables.
    pub manifest_made_bytes: u64,
    /// Times of the operations.
    pub times: ScaleMs,
    /// Times for the tree.
    #[serde(default)]
    pub tree: TreeMs,
    /// Description of the machine.
    pub machine: String,
    /// Options of the run.
    pub options: ScaleMetaArgs,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl From<EditTimes> for EditMs {
    fn from(of: EditTimes) -> EditMs {
        EditMs {
            edit_ms: ms(of.apply_ns),
            install_ms: ms(of.ledger_ns),
            prepared_ms: ms(of.prepared_ns),
            sums_ms: ms(of.sums_ns),
        }
    }
}

/// Makes a run.
///
/// # Errors
/// Invalid options; a ledger that differs from a full scan.
pub fn run(args: &ScaleMetaArgs) -> Result<ScaleMetaReport> {
    args.check()?;
    let scale = Scale {
        bytes: (args.terabytes * TERABYTE) as u64,
        value_bytes: args.value_size,
        names_max: args.names,
        rounds: args.rounds,
    };
    usage::process()?;
    let cpu_ns = || usage::process().map_or(0, |of| of.cpu_ns);
    let Found { counts, times, is_exact } = scale::run(&scale, &cpu_ns)?;
    if !is_exact {
        return Err(
            "wrong answer: the reference sums kept from edit to edit differ from those of a full scan; the run has no result: report it".into(),
        );
    }
    let of_tree = scale::tree(counts.vssts, args.rounds, &cpu_ns);
    let tree = TreeMs {
        tables: of_tree.tables,
        walk_ms: ms(of_tree.walk_ns),
        hiding_ms: ms(of_tree.hiding_ns),
        exposing_ms: ms(of_tree.exposing_ns),
        exposing_none_ms: ms(of_tree.exposing_none_ns),
    };
    let times = ScaleMs {
        walk_ms: ms(times.walk_ns),
        flush: times.flush.into(),
        compaction: times.compaction.into(),
        collection: times.collection.map(EditMs::from),
        pick_ms: ms(times.pick_ns),
        prune_ms: ms(times.prune_ns),
        snapshot_ms: ms(times.snapshot_ns),
        open_ms: ms(times.open_ns),
    };
    Ok(ScaleMetaReport {
        value_files: counts.vssts,
        tables: counts.tables,
        tables_made: counts.tables_made,
        names_per_table: counts.names_per_table,
        sums_bytes: counts.sums_bytes,
        lists_bytes: counts.lists_bytes,
        manifest_bytes: counts.manifest_bytes,
        manifest_made_bytes: counts.manifest_made_bytes,
        times,
        tree,
        machine: host::machine(),
        options: args.clone(),
    })
}

impl ScaleMetaReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let (all, times) = (human_bytes((self.options.terabytes * TERABYTE) as u64), &self.times);
        let mut out = format!("{all} in values of {} B: {}", self.options.value_size, self.sizes());
        let edits = [
            ("flush", Some(times.flush)),
            ("compaction of a table", Some(times.compaction)),
            ("collection", times.collection),
        ];
        for (name, of) in edits {
            let told = of.map_or_else(
                || "nothing to collect".to_owned(),
                |of| {
                    let EditMs { edit_ms, install_ms, prepared_ms, sums_ms } = of;
                    format!(
                        "edit {edit_ms:.3} ms, install {install_ms:.3} ms; before, {prepared_ms:.3} ms, sums {sums_ms:.3} ms"
                    )
                },
            );
            let _ = writeln!(out, "{name:22} {told}");
        }
        let single = [
            ("a walk over everything", times.walk_ms),
            ("pick", times.pick_ms),
            ("prune", times.prune_ms),
            ("snapshot, as made", times.snapshot_ms),
            ("open, as made", times.open_ms),
            ("hidden, by a walk", self.tree.walk_ms),
            ("hidden, kept", self.tree.hiding_ms),
            ("pick what exposes", self.tree.exposing_ms),
            ("find that none does", self.tree.exposing_none_ms),
        ];
        for (name, taken_ms) in single {
            let _ = writeln!(out, "{name:22} {taken_ms:.3} ms");
        }
        out
    }

    fn sizes(&self) -> String {
        format!(
            "{} files of values, {} tables ({} made) with {} names each\n{:22} {}\n{:22} {}\n{:22} {} ({} made)\n",
            human_count(self.value_files),
            human_count(self.tables),
            human_count(self.tables_made),
            human_count(self.names_per_table),
            "sums in memory",
            human_bytes(self.sums_bytes),
            "lists in the tables",
            human_bytes(self.lists_bytes),
            "manifest",
            human_bytes(self.manifest_bytes),
            human_bytes(self.manifest_made_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ScaleMetaArgs {
        ScaleMetaArgs { terabytes: 0.01, value_size: 1000, names: 1000, rounds: 2 }
    }

    #[test]
    fn a_small_run_reports_counts_and_times() {
        let report = run(&args()).unwrap();
        assert_eq!((report.tables, report.tables_made, report.names_per_table), (3, 3, 149));
        assert!(report.sums_bytes > 0 && report.manifest_bytes > 0 && report.times.walk_ms > 0.0);
        let text = report.text();
        assert!(
            text.starts_with("9.31 GiB in values of 1000 B: ") && text.contains("149 names each"),
            "{text}"
        );
        let again = run(&args()).unwrap();
        assert_eq!(again.manifest_made_bytes, report.manifest_made_bytes);
    }

    #[test]
    fn invalid_options_are_refused() {
        let refused = |args: ScaleMetaArgs, name: &str| {
            let told = args.check().unwrap_err().to_string();
            assert!(told.starts_with(name), "{told}");
        };
        args().check().unwrap();
        for terabytes in [0.0, -1.0, f64::NAN, f64::INFINITY, 1000.1] {
            refused(ScaleMetaArgs { terabytes, ..args() }, "--terabytes");
        }
        for value_size in [0, (1 << 20) + 1] {
            refused(ScaleMetaArgs { value_size, ..args() }, "--value-size");
        }
        refused(ScaleMetaArgs { names: 0, ..args() }, "--names");
        refused(ScaleMetaArgs { rounds: 0, ..args() }, "--rounds");
    }
}
