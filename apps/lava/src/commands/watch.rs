//! `stat --watch`: periodic activity of the process that has the store open; also the process part
//! of `stat`.
//!
//! The metrics file of that process ([`lavastore::Options::metrics_file`]) is rewritten every few
//! seconds; the store itself is not opened. Rates are differences between two pages divided by the
//! time between them on the clock of the pages. A sample between two pages shows the last page
//! again.

use super::metrics_page::{Histogram, MetricsPage};
use crate::Result;
use crate::output;
use bench::report::{counted, human_bytes, human_count, human_us};
use lavastore::Env;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Counters shown as rates: metric, label, whether the unit is bytes.
const RATES: [(&str, &str, bool); 11] = [
    ("write_entries_total", "changes", false),
    ("user_bytes_written_total", "written", true),
    ("gets_total", "gets", false),
    ("wal_bytes_written_total", "log", true),
    ("wal_syncs_total", "log syncs", false),
    ("flush_bytes_written_total", "flush", true),
    ("compaction_bytes_read_total", "compaction reads", true),
    ("compaction_bytes_written_total", "compaction writes", true),
    ("gc_bytes_read_total", "collection reads", true),
    ("gc_bytes_written_total", "collection writes", true),
    ("gc_bytes_freed_total", "collection frees", true),
];

/// Gauges of space and garbage: metric, label.
const SIZES: [(&str, &str); 8] = [
    ("space_total_bytes", "on disk"),
    ("space_limit_bytes", "limit"),
    ("volume_available_bytes", "available"),
    ("space_values_bytes", "values"),
    ("family_garbage_bytes", "garbage"),
    ("family_hidden_garbage_bytes", "hidden garbage"),
    ("space_wal_in_use_bytes", "log in use"),
    ("memtable_bytes", "memtables"),
];

/// Background I/O by purpose: metric of bytes, label.
const TRAFFIC: [(&str, &str); 4] = [
    ("io_flush_bytes_total", "flush"),
    ("io_compaction_bytes_total", "compaction"),
    ("io_gc_bytes_total", "collection"),
    ("io_other_bytes_total", "other"),
];

/// Background I/O since the store was opened.
struct BackgroundIo {
    /// Budget in bytes per second; 0: unlimited.
    budget: f64,
    /// Number of concurrent I/O operations.
    depth: f64,
    /// Time of an undisturbed read in seconds.
    usual_read: f64,
    bytes: [(&'static str, f64); TRAFFIC.len()],
    /// Number of waits for a slot, and their sum in seconds.
    waits: (f64, f64),
    priority_refused: bool,
}

impl BackgroundIo {
    fn of(page: &MetricsPage) -> BackgroundIo {
        BackgroundIo {
            budget: page.sum("io_budget_bytes_per_second"),
            depth: page.sum("io_depth_milli") / 1000.0,
            usual_read: page.sum("io_usual_read_seconds"),
            bytes: TRAFFIC.map(|(metric, name)| (name, page.sum(metric))),
            waits: (page.sum("io_waits_total"), page.sum("io_wait_seconds_total")),
            priority_refused: page.sum("io_priority_refused") > 0.0,
        }
    }

    fn json(&self) -> Value {
        let bytes: Map<String, Value> =
            self.bytes.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect();
        json!({
            "budget_bytes_per_second": self.budget, "depth": self.depth, "usual_read_seconds": self.usual_read, "bytes": bytes,
            "waits": self.waits.0, "wait_seconds": self.waits.1, "priority_refused": self.priority_refused,
        })
    }

    fn text(&self) -> String {
        let budget = match self.budget {
            0.0 => "no budget".to_owned(),
            budget => format!("{}/s", bytes_text(budget)),
        };
        let us = |seconds: f64| human_us(seconds * 1e6);
        let (depth, read) = (self.depth, us(self.usual_read));
        let waits = counted(self.waits.0 as u64, "wait");
        let mut text = format!(
            "background I/O       {budget}; {depth:.2} concurrent; undisturbed read {read}\n\
             background waits     {waits} of {} in total\n",
            us(self.waits.1)
        );
        if self.priority_refused {
            text.push_str("background priority  not lowered: refused by the system\n");
        }
        pairs(&mut text, self.bytes.map(|(name, bytes)| (format!("{name} I/O"), bytes_text(bytes))));
        text
    }
}

/// The fast tier of a store that has one.
struct FastTier {
    bytes: f64,
    /// Number of levels with tables in the fast tier.
    levels: f64,
    /// Number of changes of that level, and of tables moved there and back.
    changes: f64,
    moved: (f64, f64),
}

impl FastTier {
    fn of(page: &MetricsPage) -> Option<FastTier> {
        page.has("fast_tier_bytes").then(|| FastTier {
            bytes: page.sum("fast_tier_bytes"),
            levels: page.sum("fast_tier_levels_milli") / 1000.0,
            changes: page.sum("fast_tier_pointer_moves_total"),
            moved: (
                page.sum("fast_tier_tables_moved_up_total"),
                page.sum("fast_tier_tables_moved_down_total"),
            ),
        })
    }

    fn json(&self) -> Value {
        json!({
            "bytes": self.bytes, "levels": self.levels, "level_changes": self.changes,
            "tables_moved_up": self.moved.0, "tables_moved_down": self.moved.1,
        })
    }

    fn text(&self) -> String {
        format!(
            "fast tier            {}; {:.2} levels, {:.0} changes\ntables moved         {:.0} to it, {:.0} back\n",
            bytes_text(self.bytes),
            self.levels,
            self.changes,
            self.moved.0,
            self.moved.1
        )
    }
}

/// Durations of one kind in seconds.
struct Times {
    name: String,
    /// Histogram between two pages, or since the store was opened.
    seen: Histogram,
    per_second: Option<f64>,
    /// Maximum since the store was opened.
    max: f64,
}

impl Times {
    /// Returns all kinds of a metric, by the values of a label.
    fn all(pages: &Pages<'_>, (metric, max, label): (&str, &str, &str)) -> Vec<Times> {
        let counts = format!("{metric}_count");
        let names = pages.now.labels(&counts, label);
        let one = |name: &str| Times {
            name: name.to_owned(),
            seen: pages.histogram(metric, Some((label, name))),
            per_second: pages.seconds.map(|s| pages.histogram(metric, Some((label, name))).count / s),
            max: pages.now.sum_of(max, label, name),
        };
        names.into_iter().map(one).collect()
    }

    fn json(&self) -> Value {
        let quantile = |part| self.seen.quantile(part, self.max);
        json!({
            "count": self.seen.count, "per_second": self.per_second, "mean_seconds": self.seen.mean(),
            "p50_seconds": quantile(0.5), "p90_seconds": quantile(0.9), "p99_seconds": quantile(0.99),
            "p999_seconds": quantile(0.999), "max_seconds": self.max,
        })
    }
}

/// A page and the previous one.
struct Pages<'a> {
    before: Option<&'a MetricsPage>,
    now: &'a MetricsPage,
    /// Time between them.
    seconds: Option<f64>,
}

impl<'a> Pages<'a> {
    fn new(before: Option<&'a MetricsPage>, now: &'a MetricsPage) -> Pages<'a> {
        let passed = before.map(|before| clock_of(now) - clock_of(before));
        // A clock that went back belongs to another process.
        let seconds = passed.filter(|passed| *passed > 0.0);
        Pages { before: before.filter(|_| seconds.is_some()), now, seconds }
    }

    fn histogram(&self, name: &str, of: Option<(&str, &str)>) -> Histogram {
        let now = self.now.histogram(name, of);
        self.before.map_or_else(|| now.clone(), |before| now.since(&before.histogram(name, of)))
    }

    /// Returns the waits over the stall budget, by cause.
    fn over_budget(&self) -> Vec<(String, f64)> {
        let causes = self.now.labels("wait_seconds_count", "cause");
        let gained = |cause: &str| {
            let name = format!("stalls_over_budget_{cause}_total");
            (self.now.sum(&name) - self.before.map_or(0.0, |before| before.sum(&name))).max(0.0)
        };
        causes.into_iter().map(|cause| (cause.to_owned(), gained(cause))).collect()
    }

    fn rate(&self, name: &str) -> Option<f64> {
        let (before, seconds) = self.before.zip(self.seconds)?;
        Some((self.now.sum(name) - before.sum(name)).max(0.0) / seconds)
    }
}

fn clock_of(page: &MetricsPage) -> f64 {
    page.sum("clock_seconds")
}

/// Displayed data of a page.
pub struct MetricsView {
    store: String,
    seconds: Option<f64>,
    rates: Vec<(&'static str, bool, Option<f64>)>,
    operations: Vec<Times>,
    waits: Vec<Times>,
    /// Operations over the stall budget, by their longest wait.
    over_budget: Vec<(String, f64)>,
    /// Width in bytes and chain length of compactions, with the maximum ever.
    compactions: [(Histogram, f64); 2],
    background_io: BackgroundIo,
    speed_disk: Option<FastTier>,
    /// Files and bytes of each level, over all families.
    levels: Vec<(String, f64, f64)>,
    /// Largest level 0 of a family.
    l0_files_max: f64,
    sizes: Vec<(&'static str, f64)>,
}

impl MetricsView {
    /// Computes the view between two pages, or since the store was opened without the first one.
    pub fn of(before: Option<&MetricsPage>, now: &MetricsPage) -> MetricsView {
        let pages = Pages::new(before, now);
        let compactions = [
            ("compaction_width_bytes", "compaction_width_max_bytes"),
            ("compaction_chain_levels", "compaction_chain_max_levels"),
        ];
        let level = |level: &str| {
            let sum = |name: &str| now.sum_of(name, "level", level);
            (level.to_owned(), sum("level_files"), sum("level_bytes"))
        };
        let l0_files = now.by("level_files", "level").filter(|(level, _)| *level == "0").map(|(_, n)| n);
        let mut levels: Vec<_> = now.labels("level_files", "level").into_iter().map(level).collect();
        levels.sort_by_key(|(level, ..)| level.parse::<u64>().unwrap_or(u64::MAX));
        MetricsView {
            store: now.store.clone(),
            seconds: pages.seconds,
            rates: RATES.map(|(metric, name, bytes)| (name, bytes, pages.rate(metric))).into(),
            operations: Times::all(&pages, ("operation_seconds", "operation_max_seconds", "operation")),
            waits: Times::all(&pages, ("wait_seconds", "wait_max_seconds", "cause")),
            over_budget: pages.over_budget(),
            compactions: compactions.map(|(name, max)| (pages.histogram(name, None), now.sum(max))),
            background_io: BackgroundIo::of(now),
            speed_disk: FastTier::of(now),
            l0_files_max: l0_files.fold(0.0, f64::max),
            levels,
            sizes: SIZES.map(|(metric, name)| (name, now.sum(metric))).into(),
        }
    }

    /// Formats the view as JSON.
    pub fn json(&self) -> Value {
        let key = |name: &str| name.replace(' ', "_");
        let times = |all: &[Times]| -> Map<String, Value> {
            all.iter().map(|times| (times.name.clone(), times.json())).collect()
        };
        let rates: Map<String, Value> = self
            .rates
            .iter()
            .map(|(name, bytes, rate)| (key(name) + if *bytes { "_bytes" } else { "" }, json!(rate)))
            .collect();
        let levels = self.levels.iter().map(|(level, files, bytes)| {
            json!({ "level": level.parse::<u64>().unwrap_or(0), "files": files, "bytes": bytes })
        });
        let sizes: Map<String, Value> =
            self.sizes.iter().map(|(name, bytes)| (key(name) + "_bytes", json!(bytes))).collect();
        let over_budget: Map<String, Value> =
            self.over_budget.iter().map(|(cause, count)| (cause.clone(), json!(count))).collect();
        let [width, chain] = &self.compactions;
        let of = |(seen, max): &(Histogram, f64)| json!({ "count": seen.count, "mean": seen.mean(), "p99": seen.quantile(0.99, *max), "max": max });
        json!({
            "store": self.store, "seconds": self.seconds, "per_second": rates, "operations": times(&self.operations),
            "waits": times(&self.waits), "waits_over_budget": over_budget, "compaction_width_bytes": of(width), "compaction_chain": of(chain),
            "background_io": self.background_io.json(), "speed_disk": self.speed_disk.as_ref().map(FastTier::json), "levels": levels.collect::<Vec<_>>(), "l0_files_max": self.l0_files_max, "space": sizes,
        })
    }

    /// Formats the times of operations and waits as text.
    pub fn times_text(&self) -> String {
        let mut text = String::new();
        table(&mut text, "operations", &self.operations);
        table(&mut text, "waits of writers", &self.waits);
        let over = self.over_budget.iter().filter(|(_, count)| *count > 0.0);
        let over: Vec<String> = over.map(|(cause, count)| format!("{cause} {count:.0}")).collect();
        let over = if over.is_empty() { "none".to_owned() } else { over.join(", ") };
        let _ = writeln!(text, "over the budget      {over}");
        let [(width, widest), (chain, longest)] = &self.compactions;
        let _ = writeln!(
            text,
            "compactions          {} mean, {} max; in a row {:.1} mean, {longest:.0} max",
            bytes_text(width.mean()),
            bytes_text(*widest),
            chain.mean()
        );
        text.push_str(&self.background_io.text());
        self.speed_disk.iter().for_each(|disk| text.push_str(&disk.text()));
        text
    }

    /// Formats the whole view as text, with the age of the page. Sizes and rates come first, for
    /// small screens.
    fn text(&self, age: Option<Duration>) -> String {
        let mut text = match self.seconds {
            Some(seconds) => format!("{}: {seconds:.1} s", self.store),
            None => format!("{}: totals since the open; rates follow with the next sample", self.store),
        };
        let age = age.map_or(String::new(), |age| format!(", as of {} s ago", age.as_secs()));
        let _ = writeln!(text, "{age}");
        let rate_of = |(name, is_bytes, rate): &(&str, bool, Option<f64>)| {
            let rate = rate.unwrap_or(0.0);
            let rate = if *is_bytes { bytes_text(rate) } else { human_count(rate as u64) };
            ((*name).to_owned(), rate + "/s")
        };
        pairs(&mut text, self.rates.iter().filter(|_| self.seconds.is_some()).map(rate_of));
        pairs(&mut text, self.sizes.iter().map(|(name, bytes)| ((*name).to_owned(), bytes_text(*bytes))));
        let level_of = |(level, files, bytes): &(String, f64, f64)| {
            format!("level {level}  {}, {}", counted(*files as u64, "file"), bytes_text(*bytes))
        };
        let mut levels: Vec<String> = self.levels.iter().map(level_of).collect();
        levels.push(format!("deepest level 0  {}", counted(self.l0_files_max as u64, "file")));
        columns(&mut text, &levels);
        text.push_str(&self.times_text());
        text
    }
}

fn bytes_text(bytes: f64) -> String {
    human_bytes(bytes as u64)
}

/// Appends cells in two columns, within 80 columns of a screen.
fn columns(text: &mut String, cells: &[String]) {
    for pair in cells.chunks(2) {
        let line: String = pair.iter().map(|cell| format!("{cell:<40}")).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Appends names with their values in two columns.
fn pairs(text: &mut String, all: impl IntoIterator<Item = (String, String)>) {
    let cells: Vec<String> = all.into_iter().map(|(name, value)| format!("{name:<20} {value}")).collect();
    columns(text, &cells);
}

/// Appends a table of the kinds that occurred.
fn table(text: &mut String, title: &str, all: &[Times]) {
    let any: Vec<&Times> = all.iter().filter(|times| times.seen.count > 0.0).collect();
    if any.is_empty() {
        let _ = writeln!(text, "{title}: none");
        return;
    }
    let columns = ["number", "per s", "mean", "P50", "P99", "longest"];
    let columns: String = columns.iter().map(|column| format!(" {column:>9}")).collect();
    let _ = writeln!(text, "{title:<20}{columns}");
    for times in any {
        let us = |seconds: f64| human_us(seconds * 1e6);
        let rate = times.per_second.map_or_else(|| "-".to_owned(), |rate| human_count(rate as u64));
        let told = [
            human_count(times.seen.count as u64),
            rate,
            us(times.seen.mean()),
            us(times.seen.quantile(0.5, times.max)),
            us(times.seen.quantile(0.99, times.max)),
            us(times.max),
        ];
        let columns: String = told.iter().map(|column| format!(" {column:>9}")).collect();
        let _ = writeln!(text, "  {:<18}{columns}", times.name);
    }
}

/// Interval and format of the samples.
pub struct Watch {
    pub interval: Duration,
    /// Number of samples; `None`: until interrupted, or until the process closes the store.
    pub count: Option<u64>,
    pub json: bool,
}

/// Cuts the text to the rows and columns of a screen.
fn fitted(text: &str, rows: usize, columns: usize) -> String {
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let lines: Vec<String> = text.lines().map(cut).collect();
    let room = rows.saturating_sub(1);
    if lines.len() <= room {
        return lines.join("\n");
    }
    let shown = room.saturating_sub(1);
    let more = format!("({} more: use a taller terminal)", counted((lines.len() - shown) as u64, "line"));
    let lines = lines.into_iter().take(shown).chain([cut(&more)]);
    lines.collect::<Vec<_>>().join("\n")
}

/// Repeatedly shows the page returned by `read` with its age, until `read` fails.
pub fn watch(how: &Watch, read: impl Fn() -> Result<(Vec<u8>, Option<Duration>)>) -> Result<()> {
    let terminal = console::Term::stdout();
    let clear = !how.json && terminal.is_term();
    let (mut before, mut now): (Option<MetricsPage>, Option<MetricsPage>) = (None, None);
    let clock = Env::kernel().clock;
    for look in 0.. {
        let (bytes, age) = read()?;
        let page = MetricsPage::parse(&String::from_utf8_lossy(&bytes));
        if now.as_ref().is_none_or(|now| clock_of(now) != clock_of(&page)) {
            before = now.replace(page);
        }
        let Some(now) = &now else { break };
        let view = MetricsView::of(before.as_ref(), now);
        let mut out = output::stdout();
        if how.json {
            writeln!(out, "{}", view.json())?;
        } else {
            let text = view.text(age);
            match terminal.size_checked().filter(|_| clear) {
                Some((rows, columns)) => {
                    write!(out, "\x1b[H\x1b[2J{}", fitted(&text, rows.into(), columns.into()))?;
                }
                None => writeln!(out, "{text}")?,
            }
        }
        out.flush()?;
        drop(out);
        if how.count.is_some_and(|count| look + 1 >= count) {
            break;
        }
        clock.sleep_ns(how.interval.as_nanos().try_into().unwrap_or(u64::MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_output_fits_the_terminal() {
        let text: String = (0..60).map(|i| format!("{i} {}\n", "x".repeat(100))).collect();
        let shown = fitted(&text, 24, 80);
        assert!(
            shown.lines().count() < 24 && shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        assert!(shown.lines().last().unwrap().starts_with("(38 lines more"), "{shown}");
        assert_eq!(fitted("a\nb\n", 24, 80), "a\nb");
        assert_eq!(fitted("a\nb\n", 1, 80).lines().count(), 1);
    }
}
