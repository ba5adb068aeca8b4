//! `stat`, `verify`, `dump`.

use super::metrics_page::MetricsPage;
use super::place::{StoreLocation, volume_of};
use super::space::{family_json, family_text, space_json};
use super::watch::{self, MetricsView};
use super::{Halves, directory, log, open_to_read};
use crate::status::{Status, failure, with_message};
use crate::{Result, interrupt, nearest, output, progress};
use bench::host::now_ns;
use bench::report::{counted, human_bytes, human_count};
use clap::Args;
use lavastore::{
    Db, Env, ErrorKind, ExplainedOption, Explanation, FamilySpace, Options, Space, VerifyOptions,
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a command that only reports.
#[derive(Args)]
pub struct ReportArgs {
    /// Print JSON instead of text, for programs
    #[arg(long)]
    pub json: bool,
}

/// Options of `stat`.
#[derive(Args)]
pub struct StatArgs {
    /// Print JSON instead of text; with --watch, a line per sample. Not with --prometheus
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print the Prometheus metrics of the process that has the store open, which must use
    /// Options::metrics_file. Metrics of an ended process, or older than 60 s, are refused. Not
    /// with --watch or --json
    #[arg(long, group = "process")]
    prometheus: bool,
    /// Show the activity of that process periodically: rates, times, waits by cause, levels,
    /// garbage, space. It reads only the metrics file. Not with --prometheus
    #[arg(long, group = "process")]
    watch: bool,
    /// Seconds between samples, 0.05 to 3600. Below 5 the same metrics are shown repeatedly. Only
    /// with --watch [default: 5, the interval at which processes write metrics]
    #[arg(long, value_name = "SECONDS", requires = "watch", value_parser = seconds)]
    interval: Option<Duration>,
    /// Number of samples, at least 1. Only with --watch [default: until interrupted, or until the
    /// process ends]
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// File with the metrics of that process, as in its Options::metrics_file. Only with
    /// --prometheus or --watch [default: METRICS in the directory of the store]
    #[arg(long, value_name = "FILE", requires = "process")]
    metrics_file: Option<PathBuf>,
}

/// Allowed intervals.
const INTERVAL_SECONDS: std::ops::RangeInclusive<f64> = 0.05..=3600.0;
const INTERVAL: Duration = Duration::from_secs(5);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| INTERVAL_SECONDS.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "an interval is a number of seconds from 0.05 to 3600".to_owned())
}

/// Shows column families with their options, the shape of the tree and counters.
pub fn stat(db: Option<PathBuf>, args: &StatArgs) -> Result<()> {
    if args.prometheus {
        return prometheus(&Metrics::of(db, args.metrics_file.as_deref())?);
    }
    if args.watch {
        let metrics = Metrics::of(db, args.metrics_file.as_deref())?;
        let interval = args.interval.unwrap_or(INTERVAL);
        let how = watch::Watch { interval, count: args.count, json: args.json };
        return watch::watch(&how, || Ok((metrics.read_of_living()?, metrics.age())));
    }
    let process = process(db.clone())?;
    let halves = Halves::open(db)?;
    let keys = halves.keys.as_ref().map(StatOfKeys::of).transpose()?;
    let (logs, logs_whole) = halves.logs(|store| Ok(store.stats()))?.unzip();
    let mut report = keys.as_ref().map_or_else(|| json!({}), StatOfKeys::json);
    if let Some(logs) = &logs {
        report["logs"] = log::stats_json(logs);
    }
    if let Some((view, age)) = &process {
        report["process"] = view.json();
        report["process"]["age_seconds"] = age.map(|age| age.as_secs_f64()).into();
    }
    output::report(args.json, &report, || {
        let mut text = keys.as_ref().map(StatOfKeys::text).unwrap_or_default();
        if let Some(logs) = &logs {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(&log::stats_text(logs));
        }
        if let Some((view, age)) = &process {
            let age = age.map_or(String::new(), |age| format!(", {} s ago", age.as_secs()));
            let _ = write!(
                text,
                "\nthe process that has the store open, since it did so{age}\n{}",
                view.times_text()
            );
        }
        text
    })?;
    halves.keys_whole().and(logs_whole.unwrap_or(Ok(())))
}

/// Contents of `stat` for keys.
struct StatOfKeys {
    families: Vec<(FamilySpace, Map<String, Value>)>,
    names: Vec<String>,
    shape: String,
    space: Space,
    counters: Map<String, Value>,
    /// Options derived for an open with default options.
    derived: Explanation,
}

impl StatOfKeys {
    fn of(store: &Db) -> lavastore::Result<StatOfKeys> {
        let space = store.space()?;
        let with_options = |family: &FamilySpace| (family.clone(), options_of(store, &family.name));
        Ok(StatOfKeys {
            families: space.families.iter().map(with_options).collect(),
            names: store.family_names(),
            shape: store.describe(),
            counters: store.stats().fields().iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
            derived: Options::default().explain(),
            space,
        })
    }

    fn json(&self) -> Value {
        let families = self.families.iter().map(|(family, options)| {
            let mut all = family_json(family);
            all["options"] = options.clone().into();
            all
        });
        json!({
            "column_families": self.names,
            "families": families.collect::<Vec<_>>(),
            "shape": self.shape.lines().collect::<Vec<_>>(),
            "space": space_json(&self.space),
            "counters_since_open": self.counters,
            "derived_options": self.derived.options.iter().map(derived_json).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("column families      {}\n", self.names.join(", "));
        let counter = |name: &str| self.counters.get(name).and_then(Value::as_u64).unwrap_or(0);
        text.push_str(&output::format_line(counter("format"), counter("format_newest")));
        let _ = writeln!(text, "on disk              {}", human_bytes(self.space.total_bytes));
        let _ = writeln!(text, "live data, at least  {}", human_bytes(self.space.live_bytes_min));
        let _ = writeln!(text, "in memtables         {}", human_bytes(self.space.memtable_bytes));
        for (family, options) in &self.families {
            let _ = write!(text, "\n{}", family_text(family));
            for (name, value) in options {
                let _ =
                    writeln!(text, "  {name} {}", value.as_str().map_or(value.to_string(), str::to_owned));
            }
        }
        let _ = write!(text, "\nderived options, of an open with the defaults\n{}", self.derived);
        text
    }
}

fn derived_json(option: &ExplainedOption) -> Value {
    let ExplainedOption { name, value, unit, source, reason } = option;
    json!({ "name": name, "value": value, "unit": unit, "source": source.name(), "reason": reason })
}

/// Default name of the metrics file of a process that has a store open.
const METRICS: &str = "METRICS";
/// Maximum accepted size of a metrics file.
const METRICS_LEN_MAX: usize = 64 << 20;
/// Metrics younger than this need no check of the lock.
const METRICS_FRESH: Duration = Duration::from_secs(8);
/// Metrics older than this are stale.
const METRICS_AGE_MAX: Duration = Duration::from_secs(60);

/// The metrics file of the process that has the store open. Counters belong to a process, and this
/// one has none.
struct Metrics {
    env: Env,
    file: PathBuf,
    /// The lock held by a living process, in a directory of the machine.
    lock: Option<PathBuf>,
}

/// Lock file of a store.
const LOCK: &str = "LOCK";

/// Returns true if no process holds the lock. The check takes a shared lock for an instant.
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "looks at the lock as any program may, without the store"
)]
fn is_free(lock: &Path) -> bool {
    std::fs::File::open(lock).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn seconds_text(age: Duration) -> String {
    match age.as_secs() {
        0..120 => counted(age.as_secs(), "second"),
        120..7200 => counted(age.as_secs() / 60, "minute"),
        seconds => counted(seconds / 3600, "hour"),
    }
}

impl Metrics {
    fn of(db: Option<PathBuf>, file: Option<&Path>) -> Result<Metrics> {
        if let Some(file) = file {
            let lock = db.filter(|db| volume_of(db).is_none()).map(|db| db.join(LOCK));
            return Ok(Metrics { env: Env::kernel(), file: file.to_owned(), lock });
        }
        let db = directory(db)?;
        let lock = volume_of(&db).is_none().then(|| db.join(LOCK));
        let StoreLocation { env, dir } = StoreLocation::to_read(&db)?;
        Ok(Metrics { env, file: dir.join(METRICS), lock })
    }

    /// Reads the present metrics.
    fn read(&self) -> Result<Vec<u8>> {
        self.env.fs.read_all(&self.file, METRICS_LEN_MAX).map_err(|e| match e.kind() {
            ErrorKind::NotFound => failure(
                Status::NotFound,
                format!(
                    "no metrics in {}: run a program that opens the store with Options::metrics_file; the store was not opened",
                    self.file.display()
                ),
            ),
            _ => e.into(),
        })
    }

    /// Reads the present metrics of a living process: those of a dead one must not pass for the
    /// present.
    fn read_of_living(&self) -> Result<Vec<u8>> {
        let page = self.read()?;
        let age = self.age().unwrap_or_default();
        // The file is rewritten every five seconds: a younger one belongs to a process that lives
        // or just died.
        let is_dead = age > METRICS_FRESH && self.lock.as_deref().is_some_and(is_free);
        if !is_dead && age <= METRICS_AGE_MAX {
            return Ok(page);
        }
        let file = self.file.display();
        let what = if is_dead {
            format!(
                "the process that wrote {file} has exited: nobody holds the store's lock, and the last metrics are {} old (rewritten every 5 seconds while a process has the store open); the store was not opened: open it in a program with Options::metrics_file, then repeat",
                seconds_text(age)
            )
        } else {
            format!(
                "the metrics in {file} are {} old (rewritten every 5 seconds while a process has the store open): the process that wrote them has exited or hangs; the store was not opened: end that process, open the store with Options::metrics_file, then repeat",
                seconds_text(age)
            )
        };
        Err(failure(Status::NotFound, what))
    }

    /// Age of the file, if it is in a directory of the machine.
    fn age(&self) -> Option<Duration> {
        std::fs::metadata(&self.file).and_then(|found| found.modified()).ok()?.elapsed().ok()
    }
}

/// Returns the metrics of the process that has the store open, if any.
fn process(db: Option<PathBuf>) -> Result<Option<(MetricsView, Option<Duration>)>> {
    let metrics = Metrics::of(db, None)?;
    // Unreadable metrics must not prevent the report on the store.
    let Ok(page) = metrics.read() else { return Ok(None) };
    let page = MetricsPage::parse(&String::from_utf8_lossy(&page));
    Ok(Some((MetricsView::of(None, &page), metrics.age())))
}

/// Prints the metrics verbatim.
fn prometheus(metrics: &Metrics) -> Result<()> {
    let page = metrics.read_of_living()?;
    let mut out = output::stdout();
    out.write_all(&page)?;
    Ok(out.flush()?)
}

/// Returns the storage options of a family.
fn options_of(store: &Db, family: &str) -> Map<String, Value> {
    let Ok(family) = store.open_family(family) else { return Map::new() };
    let own = family.options();
    let operator = own.merge_operator.map(|operator| operator.name().to_owned());
    let prefix = own.prefix.map(|prefix| prefix.to_string());
    let all: [(&str, Value); 8] = [
        ("compression", own.compression.name().into()),
        ("prefix", prefix.into()),
        ("min_blob_size", own.min_blob_size.into()),
        ("vsst_bytes", own.expert.vsst_bytes.into()),
        ("gc_ratio_percent", own.expert.gc_ratio_percent.into()),
        ("file_bytes", own.expert.file_bytes.into()),
        ("policy", own.policy.name.into()),
        ("merge_operator", operator.into()),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Reads and checks every byte; damage is an error.
pub fn verify(db: Option<PathBuf>, args: &ReportArgs) -> Result<()> {
    let start_ns = now_ns();
    let store = open_to_read(db)?;
    let total = store.space()?.total_bytes;
    let options = VerifyOptions { cancel: Some(interrupt::cancel()) };
    let found = progress::shown(progress::of_reading("verify", total), || store.verify_with(&options));
    let found = interrupt::or_kept(found, interrupt::NOT_CHECKED)?;
    let vssts: u64 = store.space()?.families.iter().map(|f| f.vssts).sum();
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let errors: Vec<String> = found.errors.iter().map(|e| output::one_line(&e.to_string())).collect();
    let checked = found.checked.fields().into_iter().filter(|(_, n)| n.count > 0);
    let checked: Vec<_> = checked.collect();
    let counts: serde_json::Map<String, Value> = found
        .checked
        .fields()
        .into_iter()
        .map(|(name, n)| (name.replace(' ', "_"), json!({ "count": n.count, "bytes": n.bytes })))
        .collect();
    let report = json!({
        "files": found.files, "vssts": vssts, "bytes": found.bytes, "entries": found.entries, "checked": counts,
        "errors": errors, "more_errors": found.more_errors, "seconds": seconds,
    });
    output::report(args.json, &report, || {
        let mut text: String = errors.iter().map(|e| format!("{e}\n")).collect();
        if found.more_errors > 0 {
            let _ = writeln!(text, "and {} more", human_count(found.more_errors));
        }
        let (files, entries) = (counted(found.files, "file"), counted(found.entries, "entry"));
        let _ = writeln!(
            text,
            "{files} ({vssts} of them vSSTs), {}, {entries} checked in {seconds:.2} s",
            human_bytes(found.bytes)
        );
        for (name, n) in &checked {
            let _ = writeln!(text, "  {:>10}  {:>10}  {name}", human_count(n.count), human_bytes(n.bytes));
        }
        text
    })?;
    match found.damages() {
        0 => Ok(()),
        1 => Err(failure(
            Status::Damage,
            "one damage was found, as listed; nothing was changed: restore a checkpoint or backup, or run lava repair",
        )),
        count => Err(failure(
            Status::Damage,
            format!(
                "{count} damages were found, as listed; nothing was changed: restore a checkpoint or backup, or run lava repair"
            ),
        )),
    }
}

/// Options of `dump`.
#[derive(Args)]
pub struct DumpArgs {
    /// Files of the store by name, or without --db by path [default: all tables, value files
    /// (vSSTs), log files and manifests]
    files: Vec<String>,
    /// Also print every entry of tables and value files, which may be very long. No effect on other
    /// files
    #[arg(long)]
    entries: bool,
    /// Print JSON lines instead of text: file and text of each line
    #[arg(long)]
    json: bool,
}

/// Prints the contents of the store's files, even if the store does not open.
pub fn dump(db: Option<PathBuf>, args: &DumpArgs) -> Result<()> {
    let chosen = !args.files.is_empty();
    let dir = if chosen { db.unwrap_or_default() } else { directory(db)? };
    let StoreLocation { env, dir } = StoreLocation::to_read(&dir)?;
    let files =
        if chosen { args.files.clone() } else { env.fs.list(&dir)?.into_iter().map(|e| e.name).collect() };
    let mut lines = PrefixedLines {
        out: output::stdout(),
        json: args.json,
        file: String::new(),
        line: String::new(),
        failed: None,
    };
    let (mut damaged, mut first) = (0u64, None);
    for file in files {
        let path = dir.join(&file);
        lines.file = file;
        let shown = lavastore::inspect::dump(&env, &path, args.entries, &mut lines);
        lines.end()?;
        match shown {
            // The lock and the open pages of the log have no dump.
            Err(e) if e.kind() == ErrorKind::InvalidArgument && !chosen => {}
            Err(e) => {
                damaged += 1;
                let tip = if chosen && e.kind() == ErrorKind::NotFound {
                    nearest::of_file(&*env.fs, &path)
                } else {
                    String::new()
                };
                lines.print(&format!("error: {}{tip}", output::one_line(&e.to_string())))?;
                first.get_or_insert(e);
            }
            Ok(()) => {}
        }
    }
    lines.out.flush()?;
    match first {
        None => Ok(()),
        // Uses the status of the first error.
        Some(error) => Err(with_message(error, |_| {
            format!(
                "{} could not be printed completely, as listed; the others are complete",
                counted(damaged, "file")
            )
        })),
    }
}

/// Prefixes each line with the file's name.
struct PrefixedLines<W> {
    out: W,
    json: bool,
    file: String,
    line: String,
    failed: Option<std::io::Error>,
}

impl<W: std::io::Write> PrefixedLines<W> {
    fn print(&mut self, line: &str) -> std::io::Result<()> {
        if self.json {
            writeln!(self.out, "{}", json!({ "file": self.file, "text": line }))
        } else {
            writeln!(self.out, "{}: {line}", self.file)
        }
    }

    /// Ends a file: prints an unterminated last line, and reports deferred errors.
    fn end(&mut self) -> std::io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let rest = std::mem::take(&mut self.line);
        if rest.is_empty() { Ok(()) } else { self.print(&rest) }
    }
}

impl<W: std::io::Write> std::fmt::Write for PrefixedLines<W> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for piece in text.split_inclusive('\n') {
            let Some(end) = piece.strip_suffix('\n') else {
                self.line.push_str(piece);
                continue;
            };
            self.line.push_str(end);
            let line = std::mem::take(&mut self.line);
            if let Err(error) = self.print(&line) {
                self.failed = Some(error);
                return Err(std::fmt::Error);
            }
        }
        Ok(())
    }
}
