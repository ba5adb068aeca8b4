//! `log repair`: salvages every provable record of a damaged store of logs into a new store.

use super::create::check_parent_of_copy;
use super::directory;
use super::repair::{self, LINES_MAX, RepairArgs, places};
use crate::status::{Status, failure};
use crate::{Error, Result, interrupt, output, progress};
use bench::host::now_ns;
use bench::report::{counted, human_bytes};
use clap::Args;
use lavastore::{LogRepairOptions, LogRepairReport, LogStore};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Options of `log repair`.
#[derive(Args)]
pub struct LogRepairArgs {
    #[command(flatten)]
    common: RepairArgs,
    /// Salvage only the logs of a store that also has keys (lava repair salvages both). Without it
    /// such a store is refused. No effect on a store with only logs
    #[arg(long)]
    logs_only: bool,
}

/// Repairs a store. The damaged store is only read. Losses are an error, after the report.
pub fn run(db: Option<PathBuf>, args: &LogRepairArgs) -> Result<()> {
    let (db, common) = (directory(db)?, &args.common);
    let (from, into) = places(&db, common)?;
    if !common.dry_run {
        check_parent_of_copy(&into)?;
    }
    let start_ns = now_ns();
    let options = LogRepairOptions {
        options: super::log::options(true),
        dry_run: common.dry_run,
        without_fast_tier: common.without_fast_tier,
        leave_out_others: args.logs_only,
        cancel: Some(interrupt::cancel()),
    };
    let report = progress::shown(progress::of_reading("repair", 0), || {
        LogStore::repair_in(&from.env, &from.dir, &into.env, &into.dir, &options)
    });
    let report = interrupt::or_kept(report, interrupt::NOTHING_REPAIRED)?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    output::report(common.json, &as_json(&report, common.dry_run, seconds), || {
        as_text(&report, common.dry_run, seconds)
    })?;
    match report.losses() {
        _ if report.found_nothing() => Err(failure(
            Status::NotFound,
            format!("{} has no store of logs and no parts of one: name another directory", db.display()),
        )),
        0 if report.is_lossless() => Ok(()),
        0 => Err(repair::unknown(report.unknowns(), !report.damaged.is_empty())),
        count => Err(lost(count)),
    }
}

/// Returns the error for losses.
pub fn lost(count: usize) -> Error {
    let are = if count == 1 { "is" } else { "are" };
    let what = format!(
        "{} of records or operations {are} lost, or deleted records may have come back, as listed: take these records from a backup",
        counted(count as u64, "range")
    );
    failure(Status::Damage, what)
}

/// Formats the report as JSON.
pub fn as_json(report: &LogRepairReport, dry_run: bool, seconds: f64) -> Value {
    let logs: Vec<Value> = report
        .logs
        .iter()
        .map(|log| {
            let gaps = log.gaps.iter().map(|gap| {
                json!({
                    "first": gap.first, "last": gap.last, "is_certain": gap.is_certain,
                    "outcome": if gap.is_certain { "lost" } else { "unknown" },
                })
            });
            json!({
                "name": log.name, "name_is_lost": log.name_is_lost, "records": log.records, "bytes": log.bytes,
                "trimmed_below": log.trimmed_below, "gaps": gaps.collect::<Vec<Value>>(),
            })
        })
        .collect();
    let lost: Vec<Value> = report
        .lost_batches
        .iter()
        .map(|lost| {
            json!({
                "file": lost.file, "offset": lost.offset, "first_sequence": lost.sequences.0,
                "last_sequence": lost.sequences.1, "may_come_back": lost.may_come_back,
            })
        })
        .collect();
    json!({
        "dry_run": dry_run, "from_manifest": report.from_manifest, "from_checkpoint": report.from_checkpoint,
        "logs": logs, "files_used": report.files_used, "bytes_read": report.bytes_read,
        "carried": report.carried, "damaged": repair::damages_as_json(&report.damaged), "lost_batches": lost,
        "may_come_back": report.may_come_back, "seconds": seconds,
    })
}

/// Formats the report as text.
pub fn as_text(report: &LogRepairReport, dry_run: bool, seconds: f64) -> String {
    let mut text = repair::damages_as_text(&report.damaged);
    let batches = report.lost_batches.iter().map(|lost| format!("lost: {lost}"));
    let of_log = |log: &lavastore::RepairedLog| {
        let name = output::one_line(&log.name);
        let outcome = |gap: &lavastore::RepairGap| if gap.is_certain { "lost" } else { "unknown" };
        log.gaps.iter().map(move |gap| format!("{}: {gap} of log {name}", outcome(gap))).collect::<Vec<_>>()
    };
    let back = report.may_come_back.iter().map(|what| format!("may have come back: {what}"));
    let lines: Vec<String> = batches.chain(report.logs.iter().flat_map(of_log)).chain(back).collect();
    lines.iter().take(LINES_MAX).for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    if lines.len() > LINES_MAX {
        let _ = writeln!(text, "and {} more (--json lists all)", lines.len() - LINES_MAX);
    }
    if report.carried > 0 {
        let _ =
            writeln!(text, "{} had keys with them, which are not saved", counted(report.carried, "batch"));
    }
    for log in report.logs.iter().take(LINES_MAX) {
        let note = if log.name_is_lost { " (its name is lost; it may have been deleted before)" } else { "" };
        let (records, bytes) = (counted(log.records, "record"), human_bytes(log.bytes));
        let _ = writeln!(text, "log {}{note}: {records}, {bytes}", output::one_line(&log.name));
    }
    if report.logs.len() > LINES_MAX {
        let _ = writeln!(text, "and {} more logs", report.logs.len() - LINES_MAX);
    }
    let done = if dry_run { "would be saved" } else { "saved" };
    let way = if report.from_manifest { "the manifest" } else { "what the files say of themselves" };
    let _ = writeln!(
        text,
        "{done} by {way}: {}, {} read from {} in {seconds:.2} s",
        counted(report.records(), "record"),
        human_bytes(report.bytes_read),
        counted(report.files_used, "file")
    );
    text
}
