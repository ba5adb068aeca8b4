//! `gc` and `compact`: manual reduction of the store's size.

use super::{FamilyArgs, directory, family, open_to_read, open_with, read_whole};
use crate::formats::escape;
use crate::{Result, interrupt, output};
use bench::host::now_ns;
use bench::report::{counted, human_bytes, human_count};
use clap::Args;
use lavastore::{
    CompactProgress, CompactRequest, Db, Event, EventListener, GcPlan, GcProgress, GcReport, GcRequest,
    Options, PlannedGc,
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `gc`.
#[derive(Args)]
pub struct GcArgs {
    /// Only print the plan: the files with the bytes to read, write and free. Nothing is changed,
    /// and another process may have the store open
    #[arg(long)]
    dry_run: bool,
    /// Collect until at most this share of all separated values is garbage: 0 to 1 or 0% to 100%,
    /// such as 0.1 or 10%. A lower share saves space and costs rewrites [default: until each value
    /// file is below gc_ratio_percent of its column family]
    #[arg(long, value_name = "RATIO", value_parser = percent)]
    until: Option<u32>,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Parses a ratio, as a fraction or with a percent sign. Rounds down, to less garbage.
fn percent(text: &str) -> Result<u32, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(ratio) if (0.0..=whole).contains(&ratio) => Ok((ratio / whole * 100.0 + 1e-9) as u32),
        _ => Err("a ratio is a number from 0 to 1, or from 0% to 100%".to_owned()),
    }
}

/// Collects garbage, or prints the plan.
pub fn gc(db: Option<PathBuf>, args: &GcArgs) -> Result<()> {
    let request = GcRequest { until_percent: args.until, ..Default::default() };
    if args.dry_run {
        let store = open_to_read(db)?;
        let (plan, hidden) = (store.gc_plan(&request)?, Hidden::of(&store)?);
        let report = hidden.added_to(plan_json(&plan));
        output::report(args.json, &report, || plan_text(&plan) + &hidden.text())?;
        return read_whole(&store);
    }
    let start_ns = now_ns();
    let request = GcRequest { cancel: Some(interrupt::cancel()), ..request };
    let store = open_with(directory(db)?, Options { create_if_missing: false, ..Options::default() })?;
    let collected = store.collect_garbage_with(&request, &mut progress());
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr());
    }
    let report = interrupt::or_kept(collected, "collected garbage stays freed; lava gc continues")?;
    let hidden = Hidden::of(&store)?;
    store.close()?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let all = hidden.added_to(report_json(&report, seconds));
    output::report(args.json, &all, || report_text(&report, seconds) + &hidden.text())
}

/// Unexposed garbage, which collection does not see yet.
struct Hidden {
    likely: u64,
    min: u64,
    max: u64,
}

impl Hidden {
    fn of(store: &Db) -> Result<Hidden> {
        let space = store.space()?;
        Ok(Hidden { likely: space.hidden_bytes, min: space.hidden_bytes_min, max: space.hidden_bytes_max })
    }

    fn added_to(&self, mut report: Value) -> Value {
        report["hidden_garbage_bytes"] = self.likely.into();
        report["hidden_garbage_bytes_min"] = self.min.into();
        report["hidden_garbage_bytes_max"] = self.max.into();
        report
    }

    /// Returns a line that names the way to expose it.
    fn text(&self) -> String {
        if self.likely.max(self.min) == 0 {
            return String::new();
        }
        let [likely, min, max] = [self.likely, self.min, self.max].map(human_bytes);
        format!(
            "hidden garbage: about {likely} ({min} to {max}), lava compact turns it into exposed garbage\n"
        )
    }
}

/// Interval of progress lines outside of a terminal.
const LINE_NS: u64 = 1_000_000_000;

/// Prints progress on standard error: on a terminal in one line that is overwritten, otherwise in a
/// line per second.
fn progress() -> impl FnMut(&GcProgress) {
    let terminal = std::io::stderr().is_terminal();
    let mut told_ns = None;
    move |progress| {
        let ended = progress.remaining_bytes == 0;
        if terminal {
            // Returns to the start of the line and erases the rest of a longer one.
            let _ = write!(std::io::stderr(), "\r{}\x1b[K", progress_text(progress));
        } else if ended || told_ns.is_none_or(|at| progress.elapsed_ns - at >= LINE_NS) {
            told_ns = Some(progress.elapsed_ns);
            let _ = writeln!(std::io::stderr(), "{}", progress_text(progress));
        }
    }
}

fn progress_text(progress: &GcProgress) -> String {
    let [freed, left, rate] =
        [progress.freed_bytes, progress.remaining_bytes, progress.freed_bytes_per_s()].map(human_bytes);
    let eta = progress.eta_ns().map_or("not known yet".to_owned(), |ns| format!("{:.0} s", ns as f64 / 1e9));
    let share = share(progress.garbage_bytes, progress.record_bytes);
    format!("freed {freed}, about {left} to go at {rate}/s: {eta}; garbage {share}")
}

/// Options that report background work on a terminal.
fn with_progress(create_if_missing: bool) -> Options {
    let listener: Option<Arc<dyn EventListener>> =
        if std::io::stderr().is_terminal() { Some(Arc::new(JobListener)) } else { None };
    Options { create_if_missing, listener, ..Options::default() }
}

/// Prints a line on standard error for each finished job.
struct JobListener;

impl EventListener for JobListener {
    fn event(&self, event: &Event) {
        match event {
            Event::Gc { family, input_bytes, output_bytes } => {
                let (from, to) = (human_bytes(*input_bytes), human_bytes(*output_bytes));
                let _ = writeln!(std::io::stderr(), "{family}: vSSTs of {from} became {to}");
            }
            Event::Compaction { family, level, output_level, input_bytes, output_bytes } => {
                let (from, to) = (human_bytes(*input_bytes), human_bytes(*output_bytes));
                let line = format!("{family}: L{level} to L{output_level}, tables of {from} became {to}");
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            _ => {}
        }
    }
}

fn planned_json(gc: &PlannedGc) -> Value {
    json!({
        "family": gc.family,
        "files": gc.files,
        "input_bytes": gc.input_bytes,
        "read_bytes": gc.read_bytes,
        "written_bytes": gc.written_bytes,
        "freed_bytes": gc.freed_bytes,
        "exact": gc.exact,
    })
}

fn plan_json(plan: &GcPlan) -> Value {
    let total = plan.total();
    json!({
        "dry_run": true,
        "collections": plan.collections.iter().map(planned_json).collect::<Vec<_>>(),
        "files": total.files.len(),
        "read_bytes": total.read_bytes,
        "written_bytes": total.written_bytes,
        "freed_bytes": total.freed_bytes,
        "garbage_bytes": plan.garbage_bytes,
        "record_bytes": plan.record_bytes,
    })
}

fn share(garbage: u64, records: u64) -> String {
    let percent = 100.0 * garbage as f64 / records.max(1) as f64;
    format!("{} of {} of separated values ({percent:.1} %)", human_bytes(garbage), human_bytes(records))
}

fn plan_text(plan: &GcPlan) -> String {
    let mut text = format!("exposed garbage: {}\n", share(plan.garbage_bytes, plan.record_bytes));
    if plan.collections.is_empty() {
        return text + "nothing to collect\n";
    }
    let _ = writeln!(
        text,
        "{:<16} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "collection", "vSSTs", "size", "read", "write", "free"
    );
    let mut line = |name: &str, gc: &PlannedGc| {
        let [size, read, write, free] =
            [gc.input_bytes, gc.read_bytes, gc.written_bytes, gc.freed_bytes].map(human_bytes);
        let about = if gc.exact { "" } else { "  (estimated)" };
        let _ = writeln!(
            text,
            "{name:<16} {:>6} {size:>12} {read:>12} {write:>12} {free:>12}{about}",
            gc.files.len()
        );
    };
    plan.collections.iter().for_each(|gc| line(&gc.family, gc));
    line("total", &plan.total());
    text + "(read: keys and live records, and what lies between these where they are close together)\n"
}

fn report_json(report: &GcReport, seconds: f64) -> Value {
    json!({
        "dry_run": false,
        "collections": report.collections,
        "abandoned": report.abandoned,
        "read_bytes": report.read_bytes,
        "written_bytes": report.written_bytes,
        "freed_bytes": report.freed_bytes,
        "garbage_bytes_before": report.garbage_bytes_before,
        "garbage_bytes": report.garbage_bytes,
        "record_bytes": report.record_bytes,
        "seconds": seconds,
    })
}

fn report_text(report: &GcReport, seconds: f64) -> String {
    let [read, written, freed] =
        [report.read_bytes, report.written_bytes, report.freed_bytes].map(human_bytes);
    let mut text = format!(
        "collected {} in {seconds:.2} s: read {read}, wrote {written}, freed {freed}\n",
        counted(report.collections, "time")
    );
    if report.abandoned > 0 {
        let _ = writeln!(text, "cancelled {}: less garbage than expected", counted(report.abandoned, "time"));
    }
    let _ = writeln!(text, "exposed garbage: {}", share(report.garbage_bytes, report.record_bytes));
    text
}

/// Options of `compact`.
#[derive(Args)]
pub struct CompactArgs {
    /// Column family, which must exist [default: all]
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    #[command(flatten)]
    options: FamilyArgs,
    /// Rewrite all tables and values under the present options for compression, separation and
    /// placement, which reads and writes all data. After an interruption, --from resumes at the
    /// last reported key
    #[arg(long)]
    rewrite: bool,
    /// Only keys from this one on, escaped as in the progress report [default: all keys]
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Reports the progress of a rewrite on standard error, at most once a second. `kept` receives the
/// command to resume.
fn rewrite_progress<'a>(family: &str, kept: &'a mut String) -> impl FnMut(&CompactProgress) + 'a {
    let (mut told_ns, family) = (now_ns(), family.to_owned());
    move |progress| {
        let Some(key) = &progress.rewritten_to else { return };
        let on = format!("--family {family} --from '{}'", escape::escape(key));
        *kept = format!("rewritten data stays; lava compact --rewrite {on} continues there");
        if now_ns().saturating_sub(told_ns) < LINE_NS {
            return;
        }
        told_ns = now_ns();
        let _ = writeln!(std::io::stderr(), "{}", rewritten_text(progress, &on));
    }
}

/// Formats the progress of a rewrite, with the command to resume unless nothing is left.
fn rewritten_text(progress: &CompactProgress, on: &str) -> String {
    let rewritten = counted(progress.rewritten_tables, "table");
    match progress.remaining_tables {
        0 => format!("rewrote {rewritten}, none left"),
        left => {
            let bytes = human_bytes(progress.remaining_bytes);
            format!("rewrote {rewritten}, {} left with {bytes}; to continue: {on}", human_count(left))
        }
    }
}

/// Compacts families down to their last level: this drops superseded entries, and exposes the
/// garbage of their separated values.
pub fn compact(db: Option<PathBuf>, args: &CompactArgs) -> Result<()> {
    let start_ns = now_ns();
    let from = args.from.as_ref().map(|from| escape::unescape(from.as_bytes()));
    let from = from.transpose().or_else(|e| output::usage(format!("--from: {e}")))?;
    let cancel = interrupt::cancel();
    let store = open_with(directory(db)?, with_progress(false))?;
    let before = store.space()?;
    let names = match &args.family {
        Some(name) => vec![name.clone()],
        None => store.family_names(),
    };
    for name in &names {
        let family = family(&store, Some(name))?;
        args.options.apply(&family)?;
        let request = CompactRequest { rewrite: args.rewrite, cancel: Some(cancel.clone()) };
        let mut kept = "compacted data stays; the same command continues".to_owned();
        let mut tell = rewrite_progress(name, &mut kept);
        let compacted = match &from {
            Some(from) => family.compact_range_with(from.as_slice().., &request, &mut tell),
            None => family.compact_range_with(.., &request, &mut tell),
        };
        drop(tell);
        interrupt::or_kept(compacted, &kept)?;
    }
    let after = store.space()?;
    let stats = store.stats();
    store.close()?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let report = json!({
        "families": names,
        "read_bytes": stats.compaction_bytes_read,
        "written_bytes": stats.compaction_bytes_written,
        "table_bytes_before": before.table_bytes,
        "table_bytes": after.table_bytes,
        "garbage_bytes": after.garbage_bytes,
        "seconds": seconds,
    });
    output::report(args.json, &report, || {
        let [read, written, from, to, garbage] = [
            stats.compaction_bytes_read,
            stats.compaction_bytes_written,
            before.table_bytes,
            after.table_bytes,
            after.garbage_bytes,
        ]
        .map(human_bytes);
        format!(
            "compacted in {seconds:.2} s: read {read}, wrote {written}; tables {from}, now {to}; exposed garbage {garbage}\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_rate_and_remaining_time() {
        let mut progress =
            GcProgress { remaining_bytes: 3 << 20, elapsed_ns: 2_000_000_000, ..GcProgress::default() };
        assert!(progress_text(&progress).contains("not known yet"));
        progress.freed_bytes = 1 << 20;
        assert!(progress_text(&progress).contains("/s: 6 s;"), "{}", progress_text(&progress));
    }

    #[test]
    fn an_unfinished_rewrite_prints_the_command_to_continue() {
        let mut progress = CompactProgress { rewritten_tables: 1, remaining_tables: 2, ..Default::default() };
        assert!(rewritten_text(&progress, "--from x").contains("1 table, 2 left"));
        assert!(rewritten_text(&progress, "--from x").ends_with("to continue: --from x"));
        progress.remaining_tables = 0;
        assert_eq!(rewritten_text(&progress, "--from x"), "rewrote 1 table, none left");
    }

    #[test]
    fn a_ratio_is_a_fraction_or_has_a_percent_sign() {
        for (text, expected) in
            [("0", 0), ("0.1", 10), ("0.29", 29), ("1", 100), ("10%", 10), ("12.9 %", 12), ("100%", 100)]
        {
            assert_eq!(percent(text), Ok(expected), "{text}");
        }
        for text in ["", "-0.1", "1.1", "20", "101%", "NaN", "inf", "x"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
