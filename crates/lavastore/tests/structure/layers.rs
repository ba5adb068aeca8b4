//! Layers of crates.

use crate::sources::members;
use std::fs;
use std::path::Path;

/// Layers of crates, lowest first. A crate may depend on lower layers only.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["io"],
    &["cache", "critbit", "lavafs", "memtable", "wal"],
    &["store"],
    &["table", "version"],
    &["lsm", "values"],
    &["requests"],
    &["lavakv", "lavalog"],
    &["repair", "transactions"],
    &["lavastore"],
    &["bench", "lavastore-c", "openraft-lavalog"],
    &["lava", "torture", "fuzz"],
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&name))
}

/// Returns the names in `[dependencies]` of a crate.
fn dependencies(path: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|l| !l.trim().is_empty());
    lines.map(|l| l.split(['.', ' ', '=']).next().unwrap().to_owned()).collect()
}

#[test]
fn crates_depend_downward_only() {
    for (name, path) in members() {
        let own = layer(&name).unwrap_or_else(|| panic!("crate {name} is in no layer: add it to LAYERS"));
        for dependency in dependencies(&path) {
            if let Some(other) = layer(&dependency) {
                assert!(other < own, "{name} (layer {own}) must not depend on {dependency} (layer {other})");
            }
        }
    }
}

/// Dependencies of programs on crates below the facade. The torture row `engines` runs a toy log
/// engine in stores; engines build on `store`, so this bypasses the facade for no user feature. The
/// log rows share workloads and models with the tests of `lavalog`, which know the engines only.
const ALLOWED: &[(&str, &str)] = &[("torture", "store"), ("torture", "lavalog"), ("torture", "lavakv")];

#[test]
fn only_the_facade_is_used_from_outside() {
    for (name, path) in members().iter().filter(|(n, _)| n == "lava" || n == "bench" || n == "torture") {
        let dependencies = dependencies(path);
        for inner in [
            "lavakv",
            "lavalog",
            "repair",
            "requests",
            "lsm",
            "values",
            "wal",
            "memtable",
            "store",
            "version",
            "table",
            "critbit",
            "cache",
            "transactions",
        ] {
            let used = dependencies.iter().any(|d| d == inner);
            let allowed = ALLOWED.contains(&(name, inner));
            assert_eq!(
                used, allowed,
                "{name} must use the facade, not {inner}; and ALLOWED lists no more than is used"
            );
        }
    }
}
