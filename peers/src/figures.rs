//! The comparisons that the table of the README is made of, and their record.
//!
//! The record (`docs/figures.json`) holds, for each row, the command that repeats it and the medians, smallest and largest of
//! what the table shows. The table itself is made from the record alone: `LAVASTORE_BLESS=1 cargo test -p lavastore-bench --test figures`.

use crate::compare::{CompareArgs, measure};
use bench::Result;
use clap::{Args, FromArgMatches};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What is compared: the name of the row, and the options of `compare`.
const ROWS: &[(&str, &str)] = &[
    ("overwrites of 200 B", "overwrite --value-size 200 --num 1000000 --updates 2000000"),
    (
        "durable overwrites of 200 B, 8 threads",
        "overwrite --value-size 200 --num 100000 --updates 150000 --sync --threads 8 --no-settle",
    ),
    ("overwrites of 1 KB", "overwrite --value-size 1000 --num 400000 --updates 1200000"),
    ("overwrites of 16 KB", "overwrite --value-size 16000 --num 32768 --updates 98304"),
    ("point reads of 1 KB", "read --value-size 1000 --num 400000 --reads 150000"),
    (
        "scans of 1,000 values of 16 KB beside 50 MB/s of overwrites",
        "scanwhilewriting --value-size 16000 --num 32768 --scan-length 1000 --reads 1000 --seconds 10",
    ),
];

/// What of each comparison is kept.
const FIGURES: &[&str] = &["ops_per_s", "p99", "space_peak_ratio", "write_amplification"];

/// Options of the record.
#[derive(Args)]
pub struct FiguresArgs {
    /// Runs of each engine
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Only rows whose name contains this; the others stay as they are in the file
    #[arg(long)]
    only: Option<String>,
    /// The record
    #[arg(long, default_value = "docs/figures.json")]
    json: PathBuf,
}

/// Measures the rows and writes the record. What was measured is kept even if a later row fails.
pub fn record(args: &FiguresArgs) -> Result<()> {
    let mut rows: Vec<Value> = match std::fs::read_to_string(&args.json) {
        Ok(text) => serde_json::from_str::<Value>(&text)?["rows"].as_array().cloned().unwrap_or_default(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(format!("cannot read {}: {e}", args.json.display()).into()),
    };
    rows.retain(|row| ROWS.iter().any(|(name, _)| row["name"] == *name));
    for (name, options) in ROWS {
        if args.only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let found = measure(&arguments(&format!("{options} --pairs {}", args.pairs))?)?;
        let kept = FIGURES.iter().filter_map(|&f| Some((f.to_owned(), found["summary"].get(f)?.clone())));
        let row = json!({
            "name": name,
            "command": format!("peers/compare {options}"),
            "pairs": args.pairs,
            "machine": bench::host::machine(),
            "figures": kept.collect::<Map<_, _>>(),
        });
        rows.retain(|row| row["name"] != *name);
        rows.push(row);
        rows.sort_by_key(|row| ROWS.iter().position(|(name, _)| row["name"] == *name));
        let text = serde_json::to_string_pretty(&json!({ "rows": rows }))? + "\n";
        std::fs::write(&args.json, text).map_err(|e| format!("cannot write {}: {e}", args.json.display()))?;
    }
    Ok(())
}

fn arguments(options: &str) -> Result<CompareArgs> {
    let command = CompareArgs::augment_args(clap::Command::new("compare"));
    let words = std::iter::once("compare").chain(options.split(' '));
    Ok(CompareArgs::from_arg_matches(&command.try_get_matches_from(words)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_comparison() {
        for (_, options) in ROWS {
            arguments(options).unwrap();
        }
    }
}
