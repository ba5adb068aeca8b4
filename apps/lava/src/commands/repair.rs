//! `repair`: salvages the undamaged data of a store into a new one.

use super::create::check_parent_of_copy;
use super::place::{StoreLocation, on_volume};
use super::{directory, log_repair};
use crate::formats::escape::escape;
use crate::status::{Status, about, failure};
use crate::{Error, Result, interrupt, output, progress};
use bench::host::now_ns;
use bench::report::{counted, human_bytes};
use clap::Args;
use lavastore::{Db, LogRepairReport, LostRange, RepairDamage, RepairOptions, RepairReport, RepairedFamily};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Default directory of the new store on the volume of the damaged one.
const SAME_VOLUME_DIR: &str = "/repaired";
/// Maximum number of losses in the text report; JSON has all.
pub const LINES_MAX: usize = 100;

/// Options of `repair`.
#[derive(Args)]
pub struct RepairArgs {
    /// Directory of the repaired store, missing or empty, or lavafs:PATH. On the volume of the
    /// damaged store the default is /repaired; lavafs:PATH:/DIR names another directory. The
    /// damaged store stays unchanged. Required without --dry-run
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub into: Option<PathBuf>,
    /// Only report what would be salvaged and lost. It reads the whole store, and writes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Repair without the fast tier, which is lost: salvage the tables, and report the changes that
    /// only its log had as lost. If the fast tier exists, name it with --fast-tier instead
    #[arg(long, alias = "without-speed")]
    pub without_fast_tier: bool,
    /// Print the report as JSON instead of text, with all losses
    #[arg(long)]
    pub json: bool,
}

/// Repairs a store. The damaged store is only read. Losses and unknown ranges are an error, after
/// the report.
pub fn repair(db: Option<PathBuf>, args: &RepairArgs) -> Result<()> {
    let db = directory(db)?;
    let (from, into) = places(&db, args)?;
    if !args.dry_run {
        check_parent_of_copy(&into)?;
    }
    let start_ns = now_ns();
    let options = RepairOptions {
        logs: super::log::options(true),
        dry_run: args.dry_run,
        without_fast_tier: args.without_fast_tier,
        cancel: Some(interrupt::cancel()),
        ..RepairOptions::default()
    };
    let report = progress::shown(progress::of_reading("repair", 0), || {
        Db::repair_in(&from.env, &from.dir, &into.env, &into.dir, &options)
    });
    let report = interrupt::or_kept(report, interrupt::NOTHING_REPAIRED)?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    output::report(args.json, &as_json(&report, args.dry_run, seconds), || as_text(&report, args, seconds))?;
    match report.losses() {
        0 if report.found_nothing() => Err(failure(
            Status::NotFound,
            format!("{} has no store and no parts of one: name another directory", db.display()),
        )),
        0 if report.is_lossless() => Ok(()),
        _ => Err(lost(&report)),
    }
}

fn lost(report: &RepairReport) -> Error {
    let of_logs = report.logs.as_ref().map_or(0, LogRepairReport::losses);
    match (report.keys.losses(), of_logs) {
        (0, 0) => {
            let logs = report.logs.as_ref();
            let is_damaged =
                !report.keys.damaged.is_empty() || logs.is_some_and(|logs| !logs.damaged.is_empty());
            unknown(report.keys.lost.len() + logs.map_or(0, LogRepairReport::unknowns), is_damaged)
        }
        (0, of_logs) => log_repair::lost(of_logs),
        (count, 0) => {
            let (ranges, are) = (counted(count as u64, "range"), if count == 1 { "is" } else { "are" });
            let what = format!(
                "{ranges} of keys {are} lost or may hold older versions, as listed: take these keys from a backup"
            );
            failure(Status::Damage, what)
        }
        (count, of_logs) => about(
            format_args!("in addition to {} of keys", counted(count as u64, "range")),
            log_repair::lost(of_logs),
        ),
    }
}

/// Returns the error for `count` ranges with an unknown outcome, without known losses. A damaged
/// file may have held them.
pub fn unknown(count: usize, is_damaged: bool) -> Error {
    let ranges = counted(count as u64, "range");
    match is_damaged {
        true => failure(
            Status::Damage,
            format!(
                "it is unknown whether data of {ranges} is lost, and files are damaged, as listed: compare these ranges with a backup"
            ),
        ),
        false => failure(
            Status::NotWhole,
            format!(
                "it is unknown whether data of {ranges} is lost, as listed; no file is damaged: compare these ranges with a backup"
            ),
        ),
    }
}

/// Returns the source and the target.
pub fn places(db: &Path, args: &RepairArgs) -> Result<(StoreLocation, StoreLocation)> {
    let Some(into) = &args.into else {
        let from = StoreLocation::to_read(db)?;
        let into = StoreLocation { env: from.env.clone(), dir: SAME_VOLUME_DIR.into() };
        return Ok((from, into));
    };
    match (on_volume(db), on_volume(into)) {
        // One shared environment, so that nested directories are detected.
        (Some(store), Some(target)) if store.path == target.path => {
            let from = if args.dry_run { StoreLocation::to_read(db)? } else { StoreLocation::to_write(db)? };
            let dir = target.dir.unwrap_or_else(|| SAME_VOLUME_DIR.into());
            let into = StoreLocation { env: from.env.clone(), dir };
            Ok((from, into))
        }
        (None, None) => {
            let from = StoreLocation::to_read(db)?;
            let into = StoreLocation { env: from.env.clone(), dir: into.clone() };
            Ok((from, into))
        }
        (_, Some(_)) if args.dry_run => {
            let &RepairArgs { without_fast_tier, json, .. } = args;
            places(db, &RepairArgs { into: None, dry_run: true, without_fast_tier, json })
        }
        _ => Ok((StoreLocation::to_read(db)?, StoreLocation::to_write(into)?)),
    }
}

/// Formats the damage as JSON.
pub fn damages_as_json(damaged: &[RepairDamage]) -> Vec<Value> {
    damaged.iter().map(|d| json!({ "file": d.file, "offset": d.offset, "why": d.why })).collect()
}

/// Formats the damage as text, a line each.
pub fn damages_as_text(damaged: &[RepairDamage]) -> String {
    let mut text = String::new();
    for damaged in damaged {
        let at = damaged.offset.map_or(String::new(), |offset| format!(" at {offset}"));
        let _ = writeln!(text, "damaged: {}{at}: {}", damaged.file, output::one_line(&damaged.why));
    }
    text
}

fn as_json(report: &RepairReport, dry_run: bool, seconds: f64) -> Value {
    let logs = report.logs.as_ref().map(|logs| log_repair::as_json(logs, dry_run, seconds));
    let report = &report.keys;
    let key = |key: &Option<Vec<u8>>| key.as_ref().map(|key| escape(key));
    let families: Vec<Value> = report
        .families
        .iter()
        .map(|f| {
            json!({
                "id": f.id, "name": f.name, "name_is_lost": f.name_is_lost, "records": f.records,
                "may_have_been_dropped": f.may_have_been_dropped, "bytes": f.bytes, "log_changes": f.log_changes,
            })
        })
        .collect();
    let damaged = damages_as_json(&report.damaged);
    let lost: Vec<Value> = report
        .lost
        .iter()
        .map(|l| {
            json!({
                "family": l.family, "family_name": name_of(&report.families, l), "from": key(&l.from), "to": key(&l.to), "keys": l.keys,
                "first_sequence": l.sequences.map(|(first, _)| first),
                "last_sequence": l.sequences.map(|(_, last)| last).filter(|last| *last != MAX_SEQ),
                "file": l.file, "offset": l.offset, "may_come_back": l.may_come_back,
                "only_come_back": l.only_come_back,
                "outcome": if l.unknown.is_some() { "unknown" } else { "lost" }, "reason": l.unknown,
            })
        })
        .collect();
    json!({
        "dry_run": dry_run, "from_manifest": report.from_manifest, "families": families,
        "files_used": report.files_used, "files_ignored": report.files_ignored,
        "bytes_read": report.bytes_read, "damaged": damaged, "lost": lost, "logs": logs, "seconds": seconds,
    })
}

/// The maximum sequence number stands for an unknown one.
const MAX_SEQ: u64 = (1 << 56) - 1;

/// Returns the name of the family of a loss in the new store.
fn name_of<'a>(families: &'a [RepairedFamily], lost: &LostRange) -> Option<&'a str> {
    let id = lost.family?;
    families.iter().find(|family| family.id == id).map(|family| &family.name[..])
}

/// Formats a loss with the name of its family instead of its id.
fn lost_text(families: &[RepairedFamily], lost: &LostRange) -> String {
    let text = lost.to_string();
    match (lost.family, name_of(families, lost)) {
        (Some(id), Some(name)) => text.replacen(&format!("family {id},"), &format!("family {name},"), 1),
        _ => text,
    }
}

fn as_text(report: &RepairReport, args: &RepairArgs, seconds: f64) -> String {
    let of_logs = report.logs.as_ref().map(|logs| log_repair::as_text(logs, args.dry_run, seconds));
    let report = &report.keys;
    let mut text = damages_as_text(&report.damaged);
    let line = |lost: &LostRange| match lost {
        LostRange { unknown: Some(_), .. } => "unknown",
        LostRange { only_come_back: true, .. } => "may have come back",
        LostRange { .. } => "lost",
    };
    for lost in report.lost.iter().take(LINES_MAX) {
        let _ = writeln!(text, "{}: {}", line(lost), lost_text(&report.families, lost));
    }
    if report.lost.len() > LINES_MAX {
        let _ = writeln!(text, "and {} more (--json lists all)", report.lost.len() - LINES_MAX);
    }
    for family in &report.families {
        let note = match (family.name_is_lost, family.may_have_been_dropped) {
            (true, _) => " (its name is lost; it may have been dropped before)",
            (false, true) => " (it may have been dropped before)",
            (false, false) => "",
        };
        let _ = writeln!(
            text,
            "family {}{note}: {}, {}, and {} from the log",
            family.name,
            counted(family.records, "record"),
            human_bytes(family.bytes),
            counted(family.log_changes, "change")
        );
    }
    let done = if args.dry_run { "would be saved" } else { "saved" };
    let way = if report.from_manifest { "the manifest" } else { "what the files say of themselves" };
    let _ = writeln!(
        text,
        "{done} by {way}: {} read from {} in {seconds:.2} s",
        human_bytes(report.bytes_read),
        counted(report.files_used, "file")
    );
    text + &of_logs.unwrap_or_default()
}
