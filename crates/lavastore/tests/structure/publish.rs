//! Crates are ready to be published, or say that they are not to be.

use crate::sources;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn manifests() -> Vec<(PathBuf, String)> {
    let dirs = sources::members().into_iter().map(|(_, dir)| dir);
    dirs.map(|dir| (dir.clone(), fs::read_to_string(dir.join("Cargo.toml")).unwrap())).collect()
}

/// The value of a field of `[package]`, as it stands.
fn field<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let package = manifest.split("[package]").nth(1)?.split("\n[").next()?;
    package
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start_matches(['.', ' ']).split('=').nth(1))
        .map(str::trim)
}

/// What a crate lacks of what the registry asks for.
fn lacks(manifest: &str) -> Vec<&'static str> {
    if field(manifest, "publish") == Some("false") {
        return Vec::new();
    }
    let needed = ["description", "license", "keywords", "rust-version", "version"];
    let mut out: Vec<_> = needed.into_iter().filter(|name| field(manifest, name).is_none()).collect();
    // Names without it are taken, or would be taken for somebody else's.
    if !field(manifest, "name").is_some_and(|name| name.trim_matches('"').starts_with("lavastore")) {
        out.push("a name that begins with lavastore");
    }
    out
}

#[test]
fn every_crate_can_be_published_or_says_that_it_must_not() {
    for (dir, manifest) in manifests() {
        assert!(lacks(&manifest).is_empty(), "{}: {:?}", dir.display(), lacks(&manifest));
    }
    assert!(!lacks("[package]\nname = \"lava\"\n").is_empty());
    assert!(lacks("[package]\nname = \"fuzz\"\npublish = false\n").is_empty());
}

/// `cargo run --example NAME` must mean one of them.
#[test]
fn examples_have_names_of_their_own() {
    let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (dir, _) in manifests() {
        for entry in fs::read_dir(dir.join("examples")).into_iter().flatten().flatten() {
            let name = entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
            if let Some(other) = seen.insert(name.clone(), dir.clone()) {
                panic!("{} and {} both have an example {name}", other.display(), dir.display());
            }
        }
    }
}
