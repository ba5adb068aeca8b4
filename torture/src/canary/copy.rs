//! The patched copy of the tree, and its build.

#![expect(clippy::disallowed_methods, reason = "copies the sources, not a store")]

use super::apply::{self, Edits};
use super::patch::Catcher;
use super::switch;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders that are no sources: builds, the history, downloads of `peers`.
const LEFT_OUT: [&str; 3] = ["target", ".git", ".deps"];

/// A copy of the tree with the patches of one build.
pub(super) struct TreeCopy {
    tree: PathBuf,
    target: PathBuf,
}

impl TreeCopy {
    /// Brings the copy `into` up to date. Equal files keep their time, so that cargo compiles only
    /// changed crates.
    pub(super) fn make(root: &Path, into: &Path, of_patches: &[&Edits]) -> std::io::Result<TreeCopy> {
        let tree = into.join("tree");
        let (mut files, mut kept) = (Vec::new(), BTreeSet::new());
        list(root, Path::new(""), &mut files)?;
        for file in files {
            let mut bytes = std::fs::read(root.join(&file))?;
            let name = file.to_string_lossy();
            let of_file = of_patches.iter().filter_map(|edits| edits.get(&*name)).flatten();
            let edits: Vec<_> = of_file.collect();
            if !edits.is_empty() {
                bytes = apply::apply(&String::from_utf8_lossy(&bytes), edits).into_bytes();
            }
            if name == switch::DECLARATION.0 {
                bytes.extend_from_slice(switch::DECLARATION.1.as_bytes());
            }
            write(&tree.join(&file), &bytes)?;
            kept.insert(file);
        }
        write(&tree.join(switch::MODULE.0), switch::MODULE.1.as_bytes())?;
        kept.insert(PathBuf::from(switch::MODULE.0));
        let mut there = Vec::new();
        list(&tree, Path::new(""), &mut there)?;
        there
            .iter()
            .filter(|file| !kept.contains(*file))
            .try_for_each(|file| std::fs::remove_file(tree.join(file)))?;
        Ok(TreeCopy { tree, target: into.join("target") })
    }

    /// The program of the rows.
    pub(super) fn torture(&self) -> Command {
        let mut command = Command::new(self.target.join("debug/torture"));
        command.current_dir(&self.tree);
        command
    }

    /// Cargo, with the selection that builds what `by` needs. With `torture` in each selection,
    /// cargo takes the same features for all of them, and compiles the engine once.
    pub(super) fn cargo(&self, by: &Catcher) -> Command {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        match by {
            Catcher::Row { .. } => command.args(["build", "--quiet", "-p", "torture", "--bin", "torture"]),
            Catcher::Test { package, target, .. } => command
                .args(["test", "--quiet", "-p", "torture", "-p", package])
                .args(target.split_whitespace()),
        };
        command
    }

    /// Builds the program of the rows, or the tests of a package.
    ///
    /// # Errors
    /// The messages of the compiler.
    pub(super) fn build(&self, by: &Catcher) -> Result<(), String> {
        let mut command = self.cargo(by);
        if matches!(by, Catcher::Test { .. }) {
            command.arg("--no-run");
        }
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// Lists the files of `root` below `folder`, relative to it.
fn list(root: &Path, folder: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (path, file_type) = (folder.join(entry.file_name()), entry.file_type()?);
        if file_type.is_file() {
            out.push(path);
        } else if file_type.is_dir() && !LEFT_OUT.iter().any(|name| *name == entry.file_name()) {
            list(root, &path, out)?;
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, bytes)
}
