//! The shape of the code base, checked: layers point down, files and functions stay short, modules say what they are.

#![allow(clippy::disallowed_methods, reason = "reads the sources, not a store")]

use std::fs;
use std::path::{Path, PathBuf};

/// Crates in layers, the lowest first. A crate may depend on lower layers only.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["io"],
    &["cache", "critbit", "lavafs"],
    &["table"],
    &["version"],
    &["lsm", "values", "wal", "memtable"],
    &["lavakv"],
    &["lavastore"],
    &["bench"],
    &["lava", "torture", "fuzz"],
];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer, with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&name))
}

fn members() -> Vec<(String, PathBuf)> {
    let mut out: Vec<(String, PathBuf)> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().into_string().unwrap(), e.path()))
        .collect();
    for (name, path) in [("bench", "bench"), ("lava", "apps/lava"), ("torture", "torture"), ("fuzz", "fuzz")]
    {
        out.push((name.into(), root().join(path)));
    }
    out.sort();
    out
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            if !entry.ends_with("target") && !entry.ends_with("golden") {
                sources(&entry, out);
            }
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push(entry);
        }
    }
}

fn all_sources() -> Vec<PathBuf> {
    let mut out = Vec::new();
    members().iter().for_each(|(_, path)| sources(path, &mut out));
    out.sort();
    assert!(out.len() > 50, "the sources were found");
    out
}

/// The names in `[dependencies]` of a crate.
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

#[test]
fn only_the_facade_is_used_from_outside() {
    for (name, path) in members().iter().filter(|(n, _)| n == "lava" || n == "bench" || n == "torture") {
        let dependencies = dependencies(path);
        for inner in ["lavakv", "lsm", "values", "wal", "memtable", "version", "table", "critbit", "cache"] {
            assert!(!dependencies.iter().any(|d| d == inner), "{name} must use the facade, not {inner}");
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines < FILE_LINES_MAX, "{} has {lines} lines, at most {FILE_LINES_MAX}", path.display());
        let is_test = path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
        assert!(is_test || text.starts_with("//!"), "{} must open with what it is", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        for banned in ["manager", "util", "utils", "helper", "helpers"] {
            assert_ne!(name, banned, "{} has a name that says nothing", path.display());
        }
    }
}

/// Functions as rustfmt lays them out: from the line with `fn` to the closing brace at the same indentation.
#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let is_fn = code.split_whitespace().take_while(|w| !w.contains('(')).any(|w| w == "fn")
                || code.split('(').next().is_some_and(|head| head.split_whitespace().any(|w| w == "fn"));
            if !is_fn || code.starts_with("//") || code.ends_with(';') {
                continue;
            }
            // A declaration without a body.
            let end_of_head = lines[start..].iter().find(|l| l.ends_with('{') || l.ends_with(';'));
            if end_of_head.is_some_and(|l| l.ends_with(';')) {
                continue;
            }
            let indent = &line[..line.len() - code.len()];
            let end = lines[start..].iter().position(|l| *l == format!("{indent}}}")).unwrap_or(0);
            let name = code.split("fn ").nth(1).unwrap_or(code).split(['(', '<']).next().unwrap();
            if end + 1 > FUNCTION_LINES_MAX && !LONG_FUNCTIONS.iter().any(|(n, _)| *n == name) {
                long.push(format!("{}:{} {name}: {} lines", path.display(), start + 1, end + 1));
            }
        }
    }
    assert!(long.is_empty(), "functions over {FUNCTION_LINES_MAX} lines:\n{}", long.join("\n"));
}

/// Whatever threads synchronize by comes from `base::sync`, where campaigns impose a schedule on it (see there for the three
/// kinds). Tests may use the standard library's types for themselves.
#[test]
fn threads_synchronize_by_base_sync() {
    /// The kernel's side, the simulated machine, and the model of the skiplist's memory order.
    const OTHERWISE: &[&str] = &["crates/base/", "crates/io/", "crates/memtable/src/sync.rs"];
    /// Locks in which nothing is waited for.
    const LEAVES: &[&str] = &["crates/base/", "crates/io/", "crates/cache/"];
    let root = root();
    for path in all_sources() {
        let shown = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let is_test = shown.contains("tests") || !shown.contains("/src/") || !shown.starts_with("crates/");
        let is = |list: &[&str]| list.iter().any(|prefix| shown.starts_with(prefix));
        if is_test {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        for line in code {
            let standard = line.split("std::sync::").skip(1).any(|after| {
                let names = after.trim_start_matches('{').split(['}', ';', '(', '<', ')']).next().unwrap();
                names.split(',').any(|n| !matches!(n.split("::").next().unwrap().trim(), "Arc" | "Weak"))
            });
            assert!(!standard || is(OTHERWISE), "{shown}: take it from base::sync: {line}");
            let leaf = line.contains("sync::leaf");
            assert!(
                !leaf || is(LEAVES),
                "{shown}: a lock of base::sync::leaf is seen by no schedule: {line}"
            );
        }
        let relaxed_only = text.contains("sync::statistic::") && !text.contains("sync::atomic::");
        let stronger = ["Ordering::Acquire", "Ordering::Release", "AcqRel", "SeqCst"];
        let found = stronger.iter().find(|order| text.contains(**order));
        assert!(
            !relaxed_only || found.is_none(),
            "{shown}: a statistic needs no {found:?}: use base::sync::atomic"
        );
    }
}

/// Calls to the operating system go through one table (`io::kernel::calls`), whose test form sees them all.
#[test]
fn the_kernel_is_called_through_one_table() {
    let kernel = root().join("crates/io/src");
    let mut files = Vec::new();
    sources(&kernel, &mut files);
    let table = |path: &Path| {
        let path = path.strip_prefix(&kernel).unwrap();
        path.starts_with("kernel/calls")
            || path == Path::new("kernel/calls.rs")
            || path == Path::new("kernel/ffi.rs")
    };
    let is_test =
        |path: &Path| path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
    for path in files.iter().filter(|path| !table(path) && !is_test(path)) {
        let text = fs::read_to_string(path).unwrap();
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let calls = [
                "rustix::fs::",
                "rustix::io::",
                "rustix::mm::",
                "rustix::process::",
                "libc::",
                "ffi::",
                "std::fs::",
            ];
            let called = calls.iter().any(|prefix| {
                let rest = line.split(prefix).nth(1).unwrap_or_default();
                // A type or a constant begins with a capital letter, a call does not.
                rest.starts_with(|c: char| c.is_lowercase())
                    && rest
                        .split(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                        .is_some_and(|name| rest[name.len()..].starts_with('('))
            });
            let ring =
                [".submit(", ".submit_and_wait(", "IoUring::new("].iter().any(|call| line.contains(call));
            assert!(
                !called && !ring,
                "{}:{} calls the kernel around the table: {line}",
                path.display(),
                nth + 1
            );
        }
    }
}
