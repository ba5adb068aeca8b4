//! Locations of the sources.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crates of the workspace with their directories, by name.
pub fn members() -> Vec<(String, PathBuf)> {
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

/// All sources below a directory.
pub fn below(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            if !entry.ends_with("target") && !entry.ends_with("golden") {
                below(&entry, out);
            }
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push(entry);
        }
    }
}

pub fn all() -> Vec<PathBuf> {
    let mut out = Vec::new();
    members().iter().for_each(|(_, path)| below(path, &mut out));
    out.sort();
    assert!(out.len() > 50, "the sources were found");
    out
}

pub fn is_test(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs")
}
