//! The ledger: a line of JSON per run of a row, so that counts accumulate.

#![expect(clippy::disallowed_types, reason = "the ledger is a file of the campaign, not of the engine")]

use crate::totals::Totals;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    commit: String,
    row: &'static str,
    /// Options of every store.
    with: Vec<String>,
    profile: &'static str,
    seed: u64,
    seeds: u64,
    passed: u64,
    failed: u64,
    skipped: u64,
    failing_seeds: Vec<u64>,
    notes: Vec<(&'static str, u64)>,
    seconds: f64,
}

impl Entry {
    pub fn new(
        row: &'static str,
        profile: &'static str,
        (seed, seeds): (u64, u64),
        totals: &Totals,
        seconds: f64,
    ) -> Self {
        Entry {
            commit: commit(),
            row,
            with: crate::plan::with_arguments(),
            profile,
            seed,
            seeds,
            passed: totals.passed,
            failed: totals.failed,
            skipped: totals.skipped(),
            failing_seeds: totals.failures.iter().map(|(seed, _)| *seed).collect(),
            notes: totals.notes.iter().map(|(what, count)| (*what, *count)).collect(),
            seconds,
        }
    }

    pub fn append(&self, path: &Path) -> std::io::Result<()> {
        if let Some(dir) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(file, "{}", serde_json::to_string(self)?)
    }
}

/// Returns the commit of the working tree, marked if there are uncommitted changes.
fn commit() -> String {
    let output =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}
