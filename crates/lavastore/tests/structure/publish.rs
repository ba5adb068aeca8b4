//! Crates are ready for publication, or marked as private.

use crate::sources;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn manifests() -> Vec<(PathBuf, String)> {
    let dirs = sources::members().into_iter().map(|(_, dir)| dir);
    dirs.map(|dir| (dir.clone(), fs::read_to_string(dir.join("Cargo.toml")).unwrap())).collect()
}

/// Returns the value of a field of `[package]` verbatim.
fn field<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let package = manifest.split("[package]").nth(1)?.split("\n[").next()?;
    package
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start_matches(['.', ' ']).split('=').nth(1))
        .map(str::trim)
}

/// Crates for other ecosystems, named by their conventions.
const USUAL_ELSEWHERE: [&str; 1] = ["openraft-lavalog"];

fn is_our_name(name: &str) -> bool {
    name.starts_with("lavastore") || USUAL_ELSEWHERE.contains(&name)
}

/// Returns the manifest fields that the registry requires and a crate lacks.
fn lacks(manifest: &str) -> Vec<&'static str> {
    if field(manifest, "publish") == Some("false") {
        return Vec::new();
    }
    let needed = ["description", "license", "keywords", "rust-version", "version"];
    let mut out: Vec<_> = needed.into_iter().filter(|name| field(manifest, name).is_none()).collect();
    // Names without the prefix are taken or misleading.
    if !field(manifest, "name").is_some_and(|name| is_our_name(name.trim_matches('"'))) {
        out.push("a name that begins with lavastore");
    }
    out
}

#[test]
fn every_crate_is_publishable_or_marked_unpublished() {
    for (dir, manifest) in manifests() {
        assert!(lacks(&manifest).is_empty(), "{}: {:?}", dir.display(), lacks(&manifest));
    }
    assert!(!lacks("[package]\nname = \"lava\"\n").is_empty());
    assert!(lacks("[package]\nname = \"fuzz\"\npublish = false\n").is_empty());
}

/// `cargo run --example NAME` must be unambiguous.
#[test]
fn example_names_are_unique() {
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

/// Returns the workspace crates that a manifest depends on, by the workspace's table of
/// dependencies.
fn needs(manifest: &str, names: &BTreeMap<String, String>) -> Vec<String> {
    let sections = manifest.split("\n[").filter(|section| {
        let head = section.lines().next().unwrap_or_default();
        head.ends_with("dependencies]")
    });
    let keys = sections.flat_map(|section| section.lines().skip(1));
    // The registry ignores dependencies with only a path, which are for tests.
    let keys = keys.filter(|line| !line.contains("path = \"") || line.contains("version = \""));
    let keys = keys.filter_map(|line| line.split(['.', ' ', '=']).next());
    keys.filter_map(|key| names.get(key).cloned()).collect()
}

/// docs/RELEASING.md lists the published crates, each after its dependencies (including those of
/// its tests, which the registry checks too).
#[test]
fn publication_order_follows_dependencies() {
    let page = fs::read_to_string(sources::root().join("docs/RELEASING.md")).unwrap();
    let listed: Vec<&str> = page.lines().filter(|line| is_our_name(line)).collect();
    let workspace = fs::read_to_string(sources::root().join("Cargo.toml")).unwrap();
    let ours = workspace.lines().filter(|line| line.contains("path = \""));
    let names: BTreeMap<String, String> = ours
        .map(|line| {
            let key = line.split(' ').next().unwrap();
            let package = line.split("package = \"").nth(1).and_then(|rest| rest.split('"').next());
            (key.to_owned(), package.unwrap_or(key).to_owned())
        })
        .collect();
    let mut published = 0;
    for (dir, manifest) in manifests() {
        if field(&manifest, "publish") == Some("false") {
            continue;
        }
        published += 1;
        let name = field(&manifest, "name").unwrap().trim_matches('"');
        let at =
            listed.iter().position(|&l| l == name).unwrap_or_else(|| panic!("RELEASING.md lacks {name}"));
        for needed in needs(&manifest, &names) {
            assert!(
                listed[..at].contains(&needed.as_str()),
                "{}: {needed} must come before {name}",
                dir.display()
            );
        }
    }
    assert_eq!(published, listed.len(), "RELEASING.md lists what is not published, or the same twice");
    let some = needs("[package]\nname = \"a\"\n\n[dependencies]\nio.workspace = true\n", &names);
    assert_eq!(some, ["lavastore-io"]);
    let by_path = "[dev-dependencies]\nio = { package = \"lavastore-io\", path = \"../io\" }\n";
    assert_eq!(needs(&format!("[package]\nname = \"a\"\n\n{by_path}"), &names), [""; 0]);
}
