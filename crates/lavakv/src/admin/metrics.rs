//! Counters and gauges as text for Prometheus, in its exposition format 0.0.4.
//!
//! The page has every number of [`Space`], [`Statistics`] and [`CacheStats`]. Names end in the
//! unit: `_bytes`, `_seconds`, `_ratio`; only counters end in `_total`. Each sample has the label
//! of its store. Histograms: see `histograms`. The structs are destructured field by field, so that
//! a new field cannot be forgotten. Readers are aggregated by name, so the number of series is
//! bounded by the number of names in a program.

mod histograms;

use crate::admin::space_report::{FamilySpace, Holder, LevelSpace, RestReport, Space};
use crate::context::stats::Statistics;
use crate::work::jobs::Jobs;
use base::Result;
use cache::{CacheStats, SegmentStats};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The value of a sample.
enum MetricValue {
    Count(u64),
    /// Nanoseconds, printed in seconds.
    Seconds(u64),
    Ratio(f64),
}

impl MetricValue {
    fn text(&self) -> String {
        match self {
            MetricValue::Count(n) => n.to_string(),
            MetricValue::Seconds(ns) => format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
            MetricValue::Ratio(ratio) => ratio.to_string(),
        }
    }
}

/// Labels and value.
type Sample<'a> = (Vec<(&'static str, &'a str)>, MetricValue);

/// The text of a page under construction.
struct Page {
    text: String,
    /// Value of the label `store` of every sample.
    store: String,
}

impl Page {
    /// Appends one metric with all its samples.
    fn put<'a>(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = Sample<'a>>) {
        let help = help.replace('\\', "\\\\").replace('\n', " ");
        let mut head = Some(format!("# HELP lavastore_{name} {help}\n# TYPE lavastore_{name} {kind}\n"));
        for (labels, value) in samples {
            self.text.push_str(&head.take().unwrap_or_default());
            self.sample(name, labels, &value);
        }
    }

    /// Appends one sample.
    fn sample(&mut self, name: &str, labels: Vec<(&'static str, &str)>, value: &MetricValue) {
        let labels = [("store", &self.store[..])].into_iter().chain(labels);
        let labels: Vec<String> =
            labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let _ = writeln!(self.text, "lavastore_{name}{{{}}} {}", labels.join(","), value.text());
    }

    fn gauges<'a>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample<'a>>) {
        self.put(name, "gauge", help, samples);
    }

    fn gauge(&mut self, name: &str, help: &str, value: MetricValue) {
        self.gauges(name, help, [(Vec::new(), value)]);
    }
}

/// Escapes a label value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the metrics of a store.
pub(crate) fn metrics(jobs: &Jobs) -> Result<String> {
    let space = crate::admin::space_report::known_space(jobs)?;
    let store = jobs.context.dir.display().to_string();
    let statistics = crate::admin::describe::statistics(jobs);
    // Read together with the counters, so that rates between two pages are exact.
    let clock_ns = jobs.context.now_ns();
    let mut page = page(store, &space, &statistics, &jobs.files.cache.stats());
    put_clock(&mut page, clock_ns);
    Ok(page.text)
}

/// Appends the time of the page: monotonic, from an arbitrary origin.
fn put_clock(page: &mut Page, clock_ns: u64) {
    page.gauge(
        "clock_seconds",
        "Monotonic clock of the process at the time of this page, seconds.",
        MetricValue::Seconds(clock_ns),
    );
}

fn page(store: String, space: &Space, statistics: &Statistics, cache: &CacheStats) -> Page {
    let mut page = Page { text: String::new(), store };
    put_space(&mut page, space);
    put_holders(&mut page, &space.holders);
    put_families(&mut page, &space.families);
    put_levels(&mut page, &space.families);
    put_statistics(&mut page, statistics);
    histograms::put(&mut page, &statistics.histograms);
    put_cache(&mut page, cache);
    page
}

fn put_space(page: &mut Page, space: &Space) {
    use MetricValue::{Count, Ratio, Seconds};
    let part = |(name, bytes): (&'static str, u64)| (vec![("part", name)], Count(bytes));
    page.gauges(
        "space_bytes",
        "Bytes on disk by owner. All parts sum to the total.",
        space.parts().map(part),
    );
    // By destructuring: a new field must be used, or be listed because a part contains it.
    let Space {
        table_bytes: _,
        value_bytes,
        garbage_bytes: _,
        pinned_bytes: _,
        job_bytes: _,
        wal_bytes: _,
        manifest_bytes: _,
        other_bytes: _,
        engines_bytes: _,
        total_bytes,
        hidden_bytes,
        hidden_bytes_min,
        hidden_bytes_max,
        live_bytes_min,
        pinned_unheld_bytes,
        kept_bytes,
        damaged_bytes,
        wal_in_use_bytes,
        log_holder,
        holders: _,
        is_read_only,
        memtable_bytes,
        snapshots,
        oldest_snapshot_ns,
        available_bytes,
        speed,
        fast_tier_levels_milli: _, // A gauge of the statistics.
        limit_bytes,
        reserve_bytes,
        rest,
        families: _,
    } = space;
    page.gauge("space_total_bytes", "Bytes on disk, all parts.", Count(*total_bytes));
    page.gauge("space_values_bytes", "Bytes of vSSTs: live records, unexposed garbage.", Count(*value_bytes));
    let hidden = [("likely", hidden_bytes), ("min", hidden_bytes_min), ("max", hidden_bytes_max)];
    page.gauges(
        "space_hidden_garbage_bytes",
        "Unexposed garbage: separated values that newer entries hide and compaction has not \
         dropped; estimate and bounds.",
        hidden.map(|(bound, bytes)| (vec![("bound", bound)], Count(*bytes))),
    );
    page.gauge("space_live_min_bytes", "Lower bound of live data, logical bytes.", Count(*live_bytes_min));
    let help = "Bytes of pinned files that no iterator holds.";
    page.gauge("space_pinned_unheld_bytes", help, Count(*pinned_unheld_bytes));
    let help = "Bytes of versions that compactions kept because of snapshots that are still held.";
    page.gauge("space_kept_for_snapshots_bytes", help, Count(*kept_bytes));
    let help = "Bytes of log groups with records that recovery or an engine may need.";
    page.gauge("space_wal_in_use_bytes", help, Count(*wal_in_use_bytes));
    put_log_holder(page, log_holder.as_ref());
    page.gauge("read_only", "1 if the store is open for reading only.", Count(u64::from(*is_read_only)));
    page.gauge("memtable_bytes", "Bytes of memtables, in memory only.", Count(*memtable_bytes));
    page.gauge("snapshots", "Snapshots held.", Count(*snapshots));
    page.gauge("oldest_snapshot_age_seconds", "Age of the oldest snapshot.", Seconds(*oldest_snapshot_ns));
    put_limit(page, *limit_bytes, *reserve_bytes);
    put_volume(page, *damaged_bytes, *available_bytes);
    put_speed(page, speed.as_ref());
    put_rest(page, *rest);
    let help = "Compensated bytes of all levels over those of the last levels; 0 without tables.";
    page.gauge("index_space_amplification_ratio", help, Ratio(space.index_amplification()));
}

fn put_volume(page: &mut Page, damaged_bytes: u64, available_bytes: u64) {
    let help = "Bytes of tables and value files that are set aside because they cannot be read.";
    page.gauge("space_damaged_bytes", help, MetricValue::Count(damaged_bytes));
    page.gauge(
        "volume_available_bytes",
        "Bytes still free on the volume.",
        MetricValue::Count(available_bytes),
    );
}

fn put_rest(page: &mut Page, rest: RestReport) {
    let help = "State of rest work, with value 1: awake, at_rest, off, or the reason for its \
                suspension.";
    page.gauges("rest", help, [(vec![("state", rest.state.name())], MetricValue::Count(1))]);
}

fn put_limit(page: &mut Page, limit_bytes: u64, reserve_bytes: u64) {
    let help = "Limit on the bytes of all files; 0: no limit.";
    page.gauge("space_limit_bytes", help, MetricValue::Count(limit_bytes));
    let help = "Bytes kept free below the limit for background work and deletes.";
    page.gauge("space_reserve_bytes", help, MetricValue::Count(reserve_bytes));
}

/// Appends the metrics of the fast tier, if there is one.
fn put_speed(page: &mut Page, speed: Option<&store::fast_tier::FastTierSpace>) {
    let of = |bytes: fn(&store::fast_tier::FastTierSpace) -> u64| {
        speed.into_iter().map(move |speed| (Vec::new(), MetricValue::Count(bytes(speed))))
    };
    page.gauges("fast_tier_bytes", "Bytes of the store on its fast tier.", of(|speed| speed.bytes));
    page.gauges("fast_tier_table_bytes", "Bytes of tables on the fast tier.", of(|speed| speed.table_bytes));
    page.gauges(
        "fast_tier_value_bytes",
        "Bytes of value files on the fast tier.",
        of(|speed| speed.value_bytes),
    );
    page.gauges(
        "fast_tier_available_bytes",
        "Bytes still free on the fast tier.",
        of(|speed| speed.available_bytes),
    );
}

/// Appends the metrics of the family that holds the log.
fn put_log_holder(page: &mut Page, log_holder: Option<&crate::admin::space_report::LogHolder>) {
    use MetricValue::Count;
    let holder = |bytes: fn(&crate::admin::space_report::LogHolder) -> u64| {
        log_holder.into_iter().map(move |h| (vec![("family", &h.family[..])], Count(bytes(h))))
    };
    page.gauges(
        "wal_held_bytes",
        "Bytes of closed log groups held by the family with the oldest entry.",
        holder(|h| h.bytes),
    );
    page.gauges(
        "wal_held_alone_bytes",
        "Bytes of closed log groups that only this family holds.",
        holder(|h| h.alone_bytes),
    );
    page.gauges(
        "wal_held_sequence",
        "Sequence of the oldest entry of this family in the log.",
        holder(|h| h.oldest_sequence),
    );
}

/// Aggregate of the readers with one name.
#[derive(Default)]
struct OfName {
    count: u64,
    age_ns: u64,
    files: u64,
    kept: u64,
    hidden: u64,
    hidden_max: u64,
}

fn reader_labels<'a>((kind, name): &(&'static str, &'a str)) -> Vec<(&'static str, &'a str)> {
    vec![("kind", *kind), ("name", *name)]
}

fn put_holders(page: &mut Page, holders: &[Holder]) {
    let mut by_name: BTreeMap<(&'static str, &str), OfName> = BTreeMap::new();
    for h in holders {
        // Readers of one name mostly hold the same files, so the maximum is more useful than the
        // sum.
        let of_name = by_name.entry((h.kind.name(), &h.name)).or_default();
        of_name.count += 1;
        of_name.age_ns = of_name.age_ns.max(h.age_ns);
        of_name.files = of_name.files.max(h.file_bytes);
        of_name.kept = of_name.kept.max(h.kept_bytes);
        of_name.hidden = of_name.hidden.max(h.hidden_bytes);
        of_name.hidden_max = of_name.hidden_max.max(h.hidden_bytes_max);
    }
    let help = "Snapshots and iterators held, by kind and name.";
    page.gauges(
        "holders",
        help,
        by_name.iter().map(|(key, n)| (reader_labels(key), MetricValue::Count(n.count))),
    );
    let help = "Age of the oldest snapshot or iterator of the name.";
    page.gauges(
        "holder_age_seconds",
        help,
        by_name.iter().map(|(key, n)| (reader_labels(key), MetricValue::Seconds(n.age_ns))),
    );
    let what = |n: &OfName| {
        [("files", n.files), ("kept", n.kept), ("hidden", n.hidden), ("hidden_max", n.hidden_max)]
    };
    let bytes = by_name.iter().flat_map(|(key, n)| {
        what(n).map(|(what, bytes)| {
            ([reader_labels(key), vec![("what", what)]].concat(), MetricValue::Count(bytes))
        })
    });
    page.gauges(
        "holder_bytes",
        "Bytes that the largest reader of the name keeps on disk: see docs/guide/ledger.md.",
        bytes,
    );
}

fn put_families(page: &mut Page, families: &[FamilySpace]) {
    // Each field with its help. Family names are labels, and levels follow separately.
    let fields = |family: &FamilySpace| {
        let FamilySpace {
            name: _,
            levels: _,
            vssts,
            vsst_bytes,
            segments,
            aliases,
            references,
            record_bytes,
            garbage_bytes,
            garbage_percent_max,
            hidden_bytes,
            hidden_bytes_min,
            hidden_bytes_max,
            live_bytes_min,
            log_bytes,
        } = family;
        [
            ("vssts", "Number of vSSTs.", *vssts),
            ("vsst_bytes", "Bytes of vSSTs.", *vsst_bytes),
            ("segments", "Number of vSSTs that hold one large value.", *segments),
            ("aliases", "Number of aliases: names of former vSSTs that lead to present ones.", *aliases),
            ("references", "Number of references to separated values.", *references),
            ("record_bytes", "Bytes of records in vSSTs, garbage included.", *record_bytes),
            ("garbage_bytes", "Bytes of records that no table references.", *garbage_bytes),
            ("garbage_max_ratio", "Largest share of garbage in one vSST.", *garbage_percent_max),
            ("hidden_garbage_bytes", "Estimate of unexposed garbage, bytes.", *hidden_bytes),
            ("hidden_garbage_min_bytes", "Lower bound of unexposed garbage, bytes.", *hidden_bytes_min),
            ("hidden_garbage_max_bytes", "Upper bound of unexposed garbage, bytes.", *hidden_bytes_max),
            ("live_min_bytes", "Lower bound of live data, bytes.", *live_bytes_min),
            ("log_bytes", "Bytes of closed log groups held by entries that only memtables have.", *log_bytes),
        ]
    };
    let rows: Vec<_> = families.iter().map(|family| (&family.name[..], fields(family))).collect();
    let Some((_, first)) = rows.first() else { return };
    for (at, (field, help, _)) in first.iter().enumerate() {
        let samples = rows.iter().filter_map(|(name, fields)| {
            Some((vec![("family", *name)], of_family(field, fields.get(at)?.2)))
        });
        page.gauges(&format!("family_{field}"), help, samples);
    }
}

/// Returns the value of a family's field; percentages become ratios.
fn of_family(field: &str, value: u64) -> MetricValue {
    if field.ends_with("_ratio") {
        MetricValue::Ratio(value as f64 / 100.0)
    } else {
        MetricValue::Count(value)
    }
}

fn put_levels(page: &mut Page, families: &[FamilySpace]) {
    let levels = families.iter().flat_map(|family| family.levels.iter().map(move |level| (family, level)));
    let rows: Vec<(&str, String, &LevelSpace)> =
        levels.map(|(family, level)| (&family.name[..], level.level.to_string(), level)).collect();
    type Field = (&'static str, &'static str, fn(&LevelSpace) -> u64);
    let fields: [Field; 4] = [
        ("level_files", "Number of tables of a level.", |l| l.files),
        ("level_bytes", "Bytes of the tables of a level.", |l| l.bytes),
        (
            "level_compensated_bytes",
            "Compensated bytes of a level: tables with their separated values.",
            |l| l.compensated_bytes,
        ),
        ("level_entries", "Number of entries of a level.", |l| l.entries),
    ];
    for (name, help, value) in fields {
        let samples = rows.iter().map(|(family, number, level)| {
            (vec![("family", *family), ("level", &number[..])], MetricValue::Count(value(level)))
        });
        page.gauges(name, help, samples);
    }
}

fn put_statistics(page: &mut Page, statistics: &Statistics) {
    let helps = Statistics::help();
    for ((field, value), help) in statistics.fields().into_iter().zip(helps) {
        let (name, kind, value) = statistic(field, value);
        page.put(&name, kind, &help_text(&help), [(Vec::new(), value)]);
    }
}

/// Fields that are gauges, with their metric names.
const GAUGES: [(&str, &str); 16] = [
    ("format", "format"),
    ("format_newest", "format_newest"),
    ("fast_tier_levels_milli", "fast_tier_levels_milli"),
    ("gc_pace_bytes_per_s", "gc_pace_bytes_per_second"),
    ("io_budget_bytes_per_s", "io_budget_bytes_per_second"),
    ("io_depth_milli", "io_depth_milli"),
    ("io_usual_read_ns", "io_usual_read_seconds"),
    ("io_read_request_ns", "io_read_request_seconds"),
    ("io_read_mib_ns", "io_read_mib_seconds"),
    ("io_read_gap_bytes", "io_read_gap_bytes"),
    ("io_read_window_bytes", "io_read_window_bytes"),
    ("wal_loggers", "wal_loggers"),
    ("io_priority_refused", "io_priority_refused"),
    ("scrub_files_left", "scrub_files_left"),
    ("requests_in_flight", "requests_in_flight"),
    ("row_locks", "row_locks"),
];

/// Returns the name, type and value of a counter. Maxima (`_max`) are gauges in Prometheus.
fn statistic(field: &str, value: u64) -> (String, &'static str, MetricValue) {
    if let Some((_, name)) = GAUGES.iter().find(|(gauge, _)| *gauge == field) {
        let value =
            if field.ends_with("_ns") { MetricValue::Seconds(value) } else { MetricValue::Count(value) };
        return ((*name).to_owned(), "gauge", value);
    }
    let (stem, is_max) = field.strip_suffix("_max").map_or((field, false), |stem| (stem, true));
    let (stem, unit, value) = match stem.strip_suffix("_ns") {
        Some(stem) => (stem, "_seconds", MetricValue::Seconds(value)),
        None => (stem, "", MetricValue::Count(value)),
    };
    match is_max {
        true => (format!("{stem}_max{unit}"), "gauge", value),
        false => (format!("{stem}{unit}_total"), "counter", value),
    }
}

/// Adapts the description of a field: seconds instead of nanoseconds, and metric names instead of
/// fields.
fn help_text(help: &str) -> String {
    let help = help.replace("Nanoseconds", "Seconds").replace("nanoseconds", "seconds");
    let fields = Statistics::default().fields();
    let words = help.split('`').enumerate().map(|(at, word)| {
        match at % 2 == 1 && fields.iter().any(|(field, _)| *field == word) {
            true => format!("lavastore_{}", statistic(word, 0).0),
            false => word.to_owned(),
        }
    });
    words.collect()
}

fn put_cache(page: &mut Page, cache: &CacheStats) {
    let CacheStats { index, data, budget_bytes, ghost_bytes, index_share_per_mille } = cache;
    type Field = (&'static str, &'static str, &'static str, fn(&SegmentStats) -> u64);
    let fields: [Field; 9] = [
        ("cache_hits_total", "counter", "Cache lookups that found their block.", |s| s.hits),
        ("cache_misses_total", "counter", "Cache lookups that did not find their block.", |s| s.misses),
        ("cache_inserts_total", "counter", "Blocks inserted into the cache.", |s| s.inserts),
        ("cache_declined_total", "counter", "Blocks not cached because they are too large.", |s| s.declined),
        ("cache_evictions_total", "counter", "Blocks evicted from the cache.", |s| s.evictions),
        ("cache_returned_soon_total", "counter", "Inserts of blocks evicted shortly before.", |s| {
            s.returned_soon
        }),
        ("cache_used_bytes", "gauge", "Bytes charged to the cache now.", |s| s.bytes),
        ("cache_entries", "gauge", "Blocks in the cache now.", |s| s.entries),
        ("cache_capacity_bytes", "gauge", "Maximum bytes that may be charged to the cache now.", |s| {
            s.capacity
        }),
    ];
    for (name, kind, help, value) in fields {
        let segments = [("index", index), ("data", data)];
        let sample = |(name, s): (&'static str, &SegmentStats)| {
            (vec![("segment", name)], MetricValue::Count(value(s)))
        };
        page.put(name, kind, help, segments.map(sample));
    }
    page.gauge(
        "cache_budget_bytes",
        "Budget of both cache segments, bytes.",
        MetricValue::Count(*budget_bytes as u64),
    );
    page.gauge(
        "cache_ghost_bytes",
        "Bytes of the cache budget used by ghost tables.",
        MetricValue::Count(*ghost_bytes as u64),
    );
    let share = MetricValue::Ratio(*index_share_per_mille as f64 / 1000.0);
    page.gauge(
        "cache_index_share_ratio",
        "Share of the index segment in the budget without ghost tables.",
        share,
    );
}

#[cfg(test)]
mod tests;
