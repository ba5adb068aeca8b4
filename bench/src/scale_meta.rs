//! `bench scale-meta`: what the bookkeeping of values costs in a store of terabytes, without its data.
//!
//! The description of such a store is made in memory: its files of values, and tables with the lists of names that they use. What a flush,
//! a compaction and a collection change of it is made as a running store makes it, and so are a pick, a snapshot of the manifest and an
//! open. Times are those of the processor, the best of some rounds, so that they mean something beside other work.
//! The same options make the same store.

use crate::Result;
use crate::host;
use crate::report::{human_bytes, human_count};
use clap::Args;
use io::kernel::usage;
use lavastore::scale::{self, EditTimes, Found, Scale};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

const TERABYTE: f64 = 1e12;
/// More is no store of this kind: its description alone would not fit into memory.
const TERABYTES_MAX: f64 = 1000.0;

/// Options of `bench scale-meta`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct ScaleMetaArgs {
    /// Terabytes of values that the store has
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub terabytes: f64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub value_size: u64,
    /// Names in the lists of all tables that are made; the others are reckoned
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub names: u64,
    /// How often each thing is done: the best counts
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: u64,
}

impl ScaleMetaArgs {
    /// Says what is wrong with the options, if anything is.
    ///
    /// # Errors
    /// A message for the user.
    pub fn check(&self) -> Result<()> {
        if !(self.terabytes > 0.0 && self.terabytes <= TERABYTES_MAX) {
            return Err("--terabytes must be above 0, and at most 1000".into());
        }
        if !(1..=1 << 20).contains(&self.value_size) {
            return Err("--value-size must be 1 to 1048576: larger values have files of their own".into());
        }
        if !(1..=100_000_000).contains(&self.names) {
            return Err("--names must be 1 to 100000000".into());
        }
        if !(1..=1000).contains(&self.rounds) {
            return Err("--rounds must be 1 to 1000".into());
        }
        Ok(())
    }
}

/// What an edit takes, milliseconds of the processor, where somebody else has installed since it was worked out.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EditMs {
    /// To encode it, and to make the next state with what was worked out: under the lock of the manifest.
    pub edit_ms: f64,
    /// To derive the garbage of what comes of it with what was worked out, which is the work of an install: under the lock, too.
    pub install_ms: f64,
    /// To work out both, before the lock is taken.
    pub prepared_ms: f64,
    /// To work out what its tables make of the sums under names, which the job does before it installs.
    pub sums_ms: f64,
}

/// What everything takes, milliseconds of the processor.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ScaleMs {
    /// To derive all garbage by a walk, as an open does, and as each install did once.
    pub walk_ms: f64,
    /// A flush.
    pub flush: EditMs,
    /// A compaction of one table.
    pub compaction: EditMs,
    /// The replacement of what a pick names; without garbage that is worth it there is none.
    pub collection: Option<EditMs>,
    /// What to collect next.
    pub pick_ms: f64,
    /// Which names and files nothing needs.
    pub prune_ms: f64,
    /// To encode a snapshot of the manifest with the tables that were made.
    pub snapshot_ms: f64,
    /// To read it, and to check what it says.
    pub open_ms: f64,
}

/// What a tree takes that has as many tables as the store has files of values, milliseconds of the processor.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TreeMs {
    /// Its tables.
    pub tables: u64,
    /// To work out by a walk what tables hide and meet, as an open does.
    pub walk_ms: f64,
    /// The same after the compaction of a table, before the lock is taken.
    pub hiding_ms: f64,
    /// To pick the compaction that exposes most, beside running jobs.
    pub exposing_ms: f64,
    /// To find that none is worth it.
    pub exposing_none_ms: f64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaleMetaReport {
    /// Files of values.
    pub value_files: u64,
    /// Tables that such a store has.
    pub tables: u64,
    /// Tables that were made.
    pub tables_made: u64,
    /// Names that a table uses.
    pub names_per_table: u64,
    /// Memory of the sums under all names.
    pub sums_bytes: u64,
    /// The lists of names that are in all tables, as they would be in memory.
    pub lists_bytes: u64,
    /// A snapshot of the manifest with all tables, about.
    pub manifest_bytes: u64,
    /// The one with the tables that were made.
    pub manifest_made_bytes: u64,
    /// What everything takes.
    pub times: ScaleMs,
    /// What the tree takes.
    #[serde(default)]
    pub tree: TreeMs,
    /// The machine.
    pub machine: String,
    /// The options.
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
/// Options that cannot be; a ledger that is not what a walk finds.
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
        return Err("wrong answer: what was carried from edit to edit is not what a walk finds".into());
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
    /// For people.
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
    fn a_small_run_tells_counts_and_times() {
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
    fn options_that_cannot_be_are_refused() {
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
