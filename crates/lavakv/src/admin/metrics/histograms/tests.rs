//! Compares the text with a file byte by byte, because dashboards and alerts depend on it.

#![allow(clippy::disallowed_methods, reason = "writes the file of this test")]

use super::*;
use base::histogram::Histogram;

#[test]
fn histograms_are_rendered_in_prometheus_format() {
    let waits = Histogram::rare();
    [100, 255, 256, 5_000, 70_000_000_000].into_iter().for_each(|ns| waits.record(ns));
    let chain = Histogram::rare();
    [1, 1, 3].into_iter().for_each(|levels| chain.record(levels));
    let histograms = Histograms {
        operations: vec![("get", Distribution::default())],
        waits: vec![("l0", waits.read())],
        compaction_width: Distribution::default(),
        compaction_chain: chain.read(),
    };
    let mut page = Page { text: String::new(), store: "/a".to_owned() };
    put(&mut page, &histograms);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/metrics/histograms/golden.prom");
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(path, &page.text).unwrap();
    }
    assert_eq!(
        page.text,
        std::fs::read_to_string(path).unwrap(),
        "after a change that is meant: LAVASTORE_BLESS=1"
    );
}
