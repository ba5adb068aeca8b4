//! All canaries: the files of `torture/canaries`, and whether they fit the sources.

#![expect(clippy::disallowed_methods, reason = "reads the sources, not a store")]

use super::apply::{self, Edits};
use super::patch::{Catcher, Patch};
use crate::rows::ROWS;
use std::path::{Path, PathBuf};

/// A canary and its edits.
#[derive(Debug)]
pub(super) struct Canary {
    pub patch: Patch,
    pub edits: Edits,
    /// The number of the build that it is in.
    pub build: usize,
}

/// The root of the tree: the folder with `torture/canaries` in or above the current one.
///
/// # Errors
/// There is none.
pub(super) fn root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let root = here.ancestors().find(|folder| folder.join("torture/canaries").is_dir());
    root.map(Path::to_path_buf).ok_or_else(|| format!("{} is not in the tree of the sources", here.display()))
}

/// Reads all canaries, by name.
///
/// # Errors
/// Each patch that does not apply, or names a row or a test that does not exist.
pub(super) fn canaries(root: &Path) -> Result<Vec<Canary>, Vec<String>> {
    let (mut patches, mut of_patches, mut defects) = (Vec::new(), Vec::new(), Vec::new());
    for path in sources(&root.join("torture/canaries"), "patch") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match read(root, &name, &path) {
            Ok((patch, edits)) => {
                patches.push(patch);
                of_patches.push(edits);
            }
            Err(why) => defects.push(format!("{name}: {why}")),
        }
    }
    if !defects.is_empty() {
        return Err(defects);
    }
    let builds = apply::builds(&of_patches);
    let all = patches.into_iter().zip(of_patches).zip(builds);
    Ok(all.map(|((patch, edits), build)| Canary { patch, edits, build }).collect())
}

fn read(root: &Path, name: &str, path: &Path) -> Result<(Patch, Edits), String> {
    let text = |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let patch = Patch::parse(name, &text(path)?)?;
    let edits = apply::edits(&patch, &mut |file| text(&root.join(file)))?;
    check_catcher(root, &patch.by)?;
    Ok((patch, edits))
}

fn check_catcher(root: &Path, by: &Catcher) -> Result<(), String> {
    match by {
        Catcher::Row { row, .. } if ROWS.iter().any(|r| r.name == row) => Ok(()),
        Catcher::Row { row, .. } => Err(format!("there is no row {row}")),
        Catcher::Test { package, target, name } => {
            let folder = package.strip_prefix("lavastore-").unwrap_or(package);
            match has_test(&root.join("crates").join(folder), target, name) {
                true => Ok(()),
                false => Err(format!("{package} {target} has no test {name}")),
            }
        }
    }
}

/// The files below `dir` with this extension, in order.
fn sources(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            out.extend(sources(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// Returns the module path of the tests in a file: `src/commit/pace.rs` is `commit::pace`,
/// `tests/api/sync.rs` is `sync` of the binary `api`, and `tests/api/main.rs` is its root.
fn module_of(file: &Path) -> Vec<String> {
    let parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let skipped = if parts.first().is_some_and(|first| first == "tests") { 2 } else { 1 };
    parts.into_iter().skip(skipped).filter(|part| part != "main").collect()
}

/// Returns true if a file of the package has the test: the function, in the modules of its name.
fn has_test(package: &Path, target: &str, name: &str) -> bool {
    let folder = match target.split_once("--test ") {
        Some((_, binary)) => Path::new("tests").join(binary),
        None => PathBuf::from("src"),
    };
    let (modules, function) = name.rsplit_once("::").unwrap_or(("", name));
    let modules: Vec<&str> = modules.split("::").filter(|module| !module.is_empty()).collect();
    // A test binary is a folder, or one file.
    let one = package.join(&folder).with_extension("rs");
    let files = if one.is_file() { vec![one] } else { sources(&package.join(folder), "rs") };
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let of_file = module_of(file.strip_prefix(package).unwrap_or(file));
        let inside = modules.iter().zip(&of_file).all(|(a, b)| a == b) && modules.len() >= of_file.len();
        let inline =
            modules.iter().skip(of_file.len()).all(|module| text.contains(&format!("mod {module} {{")));
        inside && inline && text.contains(&format!("fn {function}("))
    })
}
