//! The text for Prometheus: every line parses, names are unique, numbers are those of the store.

use crate::common::*;
use crate::separated;
use lavastore_lavakv::{Db, ReadOptions, sim::SimEnv};
use std::collections::{BTreeMap, BTreeSet};

/// A sample: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// Takes a label's value apart: the rest after its closing quotation mark.
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

/// Parses all of it as strictly as the format asks.
fn parse(text: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let (mut types, mut samples, mut series) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    let mut present = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(name.starts_with("lavastore_") && !types.contains_key(name), "twice: {line}");
            assert!(name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_')), "{line}");
            assert!(help.len() > 3, "{line}");
            present = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == present && ["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none());
        } else {
            let (name, labels, value) = sample(line);
            assert_eq!(name, present, "{line}");
            assert!(types.contains_key(&name), "{line}");
            assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
            samples.push((name, labels, value));
        }
    }
    assert!(types.keys().all(|name| samples.iter().any(|(n, ..)| n == name)));
    (types, samples)
}

#[test]
fn metrics_parse_and_are_those_of_the_store() {
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
        stats.fields().len() - 1 + 6,
        "all of statistics but one maximum, and six of the cache"
    );
    drop(snapshots);
}
