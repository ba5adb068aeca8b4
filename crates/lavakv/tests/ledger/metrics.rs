//! The Prometheus text: every line parses, names are unique, and numbers match the store.

use crate::common::*;
use crate::separated;
use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{Db, ErrorKind, Options, ReadOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A sample: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// Parses a label's value. Returns it with the rest after its closing quotation mark.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().unwrap().1 {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                c => panic!("\\{c} is no escape"),
            },
            c => value.push(c),
        }
    }
    panic!("no end: {text}")
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap();
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            let (value, after) = quoted(value);
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = after.strip_prefix('}').unwrap(),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
}

/// Parses the text as strictly as the format requires.
fn parse(text: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let (mut types, mut samples, mut series) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    let mut present = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(name.starts_with("lavastore_") && !types.contains_key(name), "twice: {line}");
            assert!(name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_')), "{line}");
            assert!(help.len() > 3 && !help.contains("nanosecond") && !name.contains("percent"), "{line}");
            // Rules of `promtool check metrics`: no abbreviated units, no suffixes of other types.
            let short = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
            assert!(!name.split('_').any(|word| short.contains(&word)), "{line}");
            assert!(!["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)), "{line}");
            present = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == present && ["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none());
        } else {
            let (name, mut labels, value) = sample(line);
            assert_eq!(labels.remove(0), ("store".to_owned(), DIR.to_owned()), "{line}");
            // The samples of a histogram have their own names.
            let of = |end: &&str| types[&present] == "histogram" && name == format!("{present}{end}");
            let end = ["_bucket", "_sum", "_count"].into_iter().find(of);
            assert!(name == present && types[&present] != "histogram" || end.is_some(), "{line}");
            assert_eq!(end == Some("_bucket"), labels.iter().any(|(label, _)| label == "le"), "{line}");
            assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
            samples.push((name, labels, value));
        }
    }
    let is_of = |name: &str, kind: &str, sample: &str| match kind {
        "histogram" => sample.strip_prefix(name) == Some("_count"),
        _ => name == sample,
    };
    assert!(types.iter().all(|(name, kind)| samples.iter().any(|(n, ..)| is_of(name, kind, n))));
    histograms_add_up(&types, &samples);
    (types, samples)
}

/// Checks that the buckets of a histogram are cumulative, and that the last equals the count.
fn histograms_add_up(types: &BTreeMap<String, String>, samples: &[Sample]) {
    for name in types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        for (_, labels, count) in samples.iter().filter(|(n, ..)| *n == format!("{name}_count")) {
            let buckets = samples.iter().filter(|(n, of, _)| {
                *n == format!("{name}_bucket") && of.iter().filter(|(label, _)| label != "le").eq(labels)
            });
            let bound = |of: &[(String, String)]| -> f64 {
                let le = &of.iter().find(|(label, _)| label == "le").unwrap().1;
                le.replace("+Inf", "inf").parse().unwrap()
            };
            let rows: Vec<(f64, f64)> = buckets.map(|(_, of, value)| (bound(of), *value)).collect();
            assert!(rows.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels:?}: {rows:?}");
            assert_eq!(rows.last(), Some(&(f64::INFINITY, *count)), "{name} {labels:?}");
        }
    }
}

#[test]
fn metrics_parse_and_agree_with_statistics() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (Db::open_in(env(&sim), DIR, separated()).unwrap(), Model::new());
    parse(&db.metrics().unwrap());
    let odd = "a \"quoted\"\\ name\nof two lines";
    let other = db.create_column_family(odd, separated().family).unwrap();
    let snapshots = [db.snapshot_named("backup"), db.snapshot_named("backup"), db.snapshot_named(odd)];
    for round in 0..3 {
        fill(&db, &mut model, 0..1000, round);
        db.put_cf(&other, &key(round), &value(1, round)).unwrap();
    }
    let _iterator = db.iter(ReadOptions { name: "export".to_owned(), ..Default::default() }).unwrap();
    db.flush().unwrap();
    settle(&db);
    sim.advance_ns(2_500_000_000);
    let (space, stats) = (db.space().unwrap(), db.stats());
    let (types, samples) = parse(&db.metrics().unwrap());
    let find = |name: &str, labels: &[(&str, &str)]| {
        let labels: Vec<_> = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let all = samples.iter().find(|(n, l, _)| n.strip_prefix("lavastore_") == Some(name) && *l == labels);
        all.unwrap_or_else(|| panic!("{name} {labels:?}")).2
    };
    let parts: f64 = samples.iter().filter(|(n, ..)| n == "lavastore_space_bytes").map(|s| s.2).sum();
    assert_eq!(parts, space.total_bytes as f64);
    assert_eq!(find("space_bytes", &[("part", "wal")]), space.wal_bytes as f64);
    assert_eq!(find("space_hidden_garbage_bytes", &[("bound", "max")]), space.hidden_bytes_max as f64);
    assert_eq!(find("holders", &[("kind", "snapshot"), ("name", "backup")]), 2.0);
    assert!(find("holder_age_seconds", &[("kind", "snapshot"), ("name", odd)]) >= 2.5);
    find("holder_bytes", &[("kind", "iterator"), ("name", "export"), ("what", "files")]);
    assert_eq!(find("family_references", &[("family", odd)]), 3.0);
    let deepest = space.families[0].levels.last().unwrap();
    let labels = [("family", "default"), ("level", &deepest.level.to_string()[..])];
    assert_eq!(find("level_bytes", &labels), deepest.bytes as f64);
    assert_eq!(find("user_bytes_written_total", &[]), stats.user_bytes_written as f64);
    assert_eq!(find("stall_seconds_total", &[]), stats.stall_ns as f64 / 1e9);
    let counters = types.values().filter(|kind| *kind == "counter").count();
    assert_eq!(
        counters,
        stats.fields().len() - 18 + 6,
        "all of statistics but two maxima and sixteen gauges, and six of the cache"
    );
    let of_put = |end: &str| find(&format!("operation_seconds_{end}"), &[("operation", "put")]);
    let puts = stats.histograms.operation("put").unwrap();
    assert_eq!((of_put("count"), puts.count()), (3003.0, 3003), "in simulation each is timed");
    assert_eq!(of_put("sum"), puts.sum() as f64 / 1e9);
    let width = &stats.histograms.compaction_width;
    assert_eq!(find("compaction_width_bytes_sum", &[]), stats.compaction_bytes_read as f64);
    assert_eq!(width.count(), stats.compactions - stats.compaction_moves);
    assert_eq!(stats.histograms.compaction_chain.count(), width.count());
    let waits: u64 = stats.histograms.waits.iter().map(|(_, waits)| waits.sum()).sum();
    assert_eq!(waits, stats.stall_ns, "nobody waited for the ring of the log in simulation");
    drop(snapshots);
}

/// Returns the value of a counter in the metrics file.
fn told(sim: &SimEnv, file: &Path, name: &str) -> Option<f64> {
    let text = env(sim).fs.read_all(file, 1 << 20).ok()?;
    let (_, samples) = parse(&String::from_utf8(text).unwrap());
    samples.iter().find(|(n, ..)| n == name).map(|s| s.2)
}

/// Writes, and runs all due work.
fn work(db: &Db, sim: &SimEnv, round: u64) {
    sim.advance_ns(6_000_000_000);
    fill(db, &mut Model::new(), 0..50, round);
    db.flush().unwrap();
    settle(db);
}

#[test]
fn a_running_store_keeps_its_metrics_in_a_file() {
    let sim = SimEnv::new(3);
    let options = Options { metrics_file: Some("METRICS".into()), ..separated() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let file = path("METRICS");
    let mut last = -1.0;
    for round in 0..5 {
        work(&db, &sim, round);
        let flushes = told(&sim, &file, "lavastore_flushes_total").expect("the file is there");
        assert!(flushes > last, "a counter of a process that works goes up: {last}, {flushes}");
        last = flushes;
    }
    assert_eq!(db.stats().metrics_write_errors, 0);
    assert!(env(&sim).fs.metadata(&path("METRICS.tmp")).is_err(), "what it is made of is not left");
    db.close().unwrap();
    assert!(env(&sim).fs.metadata(&file).is_err(), "a store that is closed has no metrics");
    // The names of files that it would replace.
    let names = files(&sim).into_iter().map(|(name, _)| name).chain(["000000000007.tail".into()]);
    for name in names.chain(["..".into()]) {
        let options = Options { metrics_file: Some(name.clone().into()), ..separated() };
        fails(Db::open_in(env(&sim), DIR, options), ErrorKind::InvalidArgument);
    }
    Db::open_in(env(&sim), DIR, separated()).unwrap().close().unwrap();
}

#[test]
fn an_unwritable_metrics_file_has_no_other_effect() {
    // In a missing directory.
    let sim = SimEnv::new(4);
    let options = Options { metrics_file: Some("/gone/metrics".into()), ..separated() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    (0..3).for_each(|round| work(&db, &sim, round));
    assert!(db.stats().metrics_write_errors >= 2, "{:?}", db.stats());
    assert_eq!((db.stats().background_errors, contents(&db).len()), (0, 50));
    db.close().unwrap();

    // No room for this file only.
    let sim = SimEnv::new(5);
    let db =
        Db::open_in(env(&sim), DIR, Options { metrics_file: Some("METRICS".into()), ..separated() }).unwrap();
    work(&db, &sim, 0);
    if on_lavafs() {
        return;
    }
    sim.inject(FaultPlan::nth(1, FaultEffect::NoSpace).kinds(&[OpKind::Create]).path("METRICS").sticky());
    (1..4).for_each(|round| work(&db, &sim, round));
    assert!(db.stats().metrics_write_errors >= 2, "{:?}", db.stats());
    assert_eq!((db.stats().background_errors, contents(&db).len()), (0, 50));
    assert!(told(&sim, &path("METRICS"), "lavastore_flushes_total").is_some(), "the last page stays");
    db.close().unwrap();
}
