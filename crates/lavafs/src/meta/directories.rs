//! Directories: the names of all files, by directory path.
//!
//! A path has no leading slash; the root is the empty path. Each directory has its own key, so
//! renaming a directory renames the keys of all directories below it. No path is both a file and a
//! directory.
//!
//! The structure tracks the length of its operations in a dump.

use super::contradiction;
use crate::chunks::ChunkMap;
use crate::op::{Ino, Op};
use base::Result;
use std::collections::BTreeMap;

/// Files of a directory, by name.
pub(crate) type Names = ChunkMap<Box<str>, Ino>;

/// All directories; see the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Directories {
    by_path: BTreeMap<Box<str>, Names>,
    /// Upper bound on the dump length of the directories and names, in bytes.
    dump_len: u64,
}

impl Directories {
    /// Creates the root directory alone.
    pub(super) fn new() -> Self {
        Directories { by_path: BTreeMap::from([(Box::from(""), Names::default())]), dump_len: 0 }
    }

    /// Returns an upper bound on the dump length of the directories and names, in bytes.
    pub(super) fn dump_len(&self) -> u64 {
        self.dump_len
    }

    pub(crate) fn has(&self, dir: &str) -> bool {
        self.by_path.contains_key(dir)
    }

    /// Returns the file with this name.
    pub(crate) fn look_up(&self, dir: &str, name: &str) -> Option<Ino> {
        self.by_path.get(dir)?.get(name).copied()
    }

    /// Returns all paths of a file.
    pub(crate) fn paths_of(&self, ino: Ino) -> Vec<String> {
        let mut paths = Vec::new();
        for (dir, names) in &self.by_path {
            let links = names.iter().filter(|(_, named)| **named == ino);
            paths.extend(links.map(|(name, _)| format!("/{}", joined(dir, name))));
        }
        paths
    }

    /// Returns the sorted files of a directory, as a copy that shares its chunks.
    pub(crate) fn names(&self, dir: &str) -> Option<Names> {
        self.by_path.get(dir).cloned()
    }

    /// Returns the sorted paths of all directories.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(|dir| &**dir)
    }

    /// Returns the directories below `dir`, without `dir`.
    fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a str> {
        self.paths().filter(move |d| is_below(d, dir))
    }

    /// Returns true for a directory without files and subdirectories.
    pub(crate) fn is_empty(&self, dir: &str) -> bool {
        self.by_path.get(dir).is_some_and(Names::is_empty) && self.below(dir).next().is_none()
    }

    /// Returns true if a directory can be made at this path: its parent exists, and no file or
    /// directory has the path.
    fn is_vacant(&self, dir: &str) -> bool {
        parent(dir).is_some_and(|(above, name)| {
            self.has(above) && !self.has(dir) && self.look_up(above, name).is_none()
        })
    }

    pub(super) fn make(&mut self, dir: &str) -> Result<()> {
        if dir.is_empty() {
            return Err(contradiction("it creates the root directory, which always exists".into()));
        }
        if !self.is_vacant(dir) {
            return Err(contradiction(format!(
                "it creates the directory /{dir}, but the name is taken or its parent is missing"
            )));
        }
        self.by_path.insert(dir.into(), Names::default());
        self.dump_len += name_cost(dir, "");
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: &str) -> Result<()> {
        if dir.is_empty() || !self.is_empty(dir) {
            return Err(contradiction(format!(
                "it removes the directory /{dir}, which is missing or not empty"
            )));
        }
        self.by_path.remove(dir);
        self.dump_len -= name_cost(dir, "");
        Ok(())
    }

    /// Renames a directory and all paths below it.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        if from.is_empty() || !self.has(from) || !self.is_vacant(to) || is_below(to, from) {
            return Err(contradiction(format!(
                "it renames the directory /{from} to /{to}, but the former is missing or the latter is taken"
            )));
        }
        let moved: Vec<Box<str>> =
            self.below(from).map(Box::from).chain(std::iter::once(Box::from(from))).collect();
        for old in moved {
            let new = format!("{to}{}", old.get(from.len()..).unwrap_or_default());
            if let Some(names) = self.by_path.remove(&old) {
                let costs =
                    |dir: &str| names.keys().map(|n| name_cost(dir, n)).sum::<u64>() + name_cost(dir, "");
                self.dump_len = (self.dump_len + costs(&new)).saturating_sub(costs(&old));
                self.by_path.insert(new.into(), names);
            }
        }
        Ok(())
    }

    /// Links a name to a file. The caller has checked that the file exists.
    pub(super) fn link(&mut self, dir: &str, name: &str, ino: Ino) -> Result<()> {
        let is_dir = self.has(&joined(dir, name));
        let Some(names) = self.by_path.get_mut(dir) else { return Err(no_link(dir, name, ino)) };
        if is_dir || names.contains_key(name) {
            return Err(contradiction(format!("it creates the name /{dir}/{name}, which is taken")));
        }
        names.insert(name.into(), ino);
        self.dump_len += name_cost(dir, name);
        Ok(())
    }

    /// Removes a name and returns its file.
    pub(super) fn unlink(&mut self, dir: &str, name: &str) -> Result<Ino> {
        let ino = self.by_path.get_mut(dir).and_then(|names| names.remove(name));
        let ino = ino.ok_or_else(|| {
            contradiction(format!("it removes the name /{dir}/{name}, which does not exist"))
        })?;
        self.dump_len -= name_cost(dir, name);
        Ok(ino)
    }

    /// Renames a file. Returns the file that the new name referred to before. If both names refer
    /// to the same file, both stay, as in POSIX.
    pub(super) fn rename_file(&mut self, from: (&str, &str), to: (&str, &str)) -> Result<Option<Ino>> {
        let impossible = || {
            contradiction(format!(
                "it renames /{}/{} to /{}/{}, but the file or the directory is missing",
                from.0, from.1, to.0, to.1
            ))
        };
        let ino = self.look_up(from.0, from.1).ok_or_else(impossible)?;
        if !self.has(to.0) || self.has(&joined(to.0, to.1)) {
            return Err(impossible());
        }
        let replaced = self.look_up(to.0, to.1);
        if replaced == Some(ino) {
            return Ok(None);
        }
        if let Some(names) = self.by_path.get_mut(from.0) {
            names.remove(from.1);
        }
        if let Some(names) = self.by_path.get_mut(to.0) {
            names.insert(to.1.into(), ino);
        }
        self.dump_len -= name_cost(from.0, from.1);
        if replaced.is_none() {
            self.dump_len += name_cost(to.0, to.1);
        }
        Ok(replaced)
    }

    /// Removes all names of a file.
    pub(super) fn unlink_all(&mut self, ino: Ino) {
        for (dir, names) in &mut self.by_path {
            let its: Vec<Box<str>> =
                names.iter().filter(|(_, named)| **named == ino).map(|(name, _)| name.clone()).collect();
            for name in its {
                names.remove(&name);
                self.dump_len -= name_cost(dir, &name);
            }
        }
    }

    /// Emits the operations that make the directories, parents first.
    pub(super) fn dump_dirs(&self, emit: &mut impl FnMut(&Op)) {
        self.paths().filter(|dir| !dir.is_empty()).for_each(|dir| emit(&Op::MakeDir { dir: dir.to_owned() }));
    }

    /// Emits the operations that link the names.
    pub(super) fn dump_links(&self, emit: &mut impl FnMut(&Op)) {
        for (dir, names) in &self.by_path {
            for (name, &ino) in names.iter() {
                emit(&Op::Link { dir: dir.to_string(), name: name.to_string(), ino });
            }
        }
    }
}

/// Returns the error of a link in a missing directory, or to a file that cannot be linked.
pub(super) fn no_link(dir: &str, name: &str, ino: Ino) -> base::Error {
    contradiction(format!("it names file {ino} /{dir}/{name}, but the file or the directory is missing"))
}

fn name_cost(dir: &str, name: &str) -> u64 {
    (dir.len() + name.len() + 16) as u64
}

/// Returns the parent of a directory and its name there, or `None` for the root.
pub(crate) fn parent(dir: &str) -> Option<(&str, &str)> {
    match dir.rsplit_once('/') {
        Some((above, name)) => Some((above, name)),
        None if dir.is_empty() => None,
        None => Some(("", dir)),
    }
}

fn is_below(dir: &str, above: &str) -> bool {
    match dir.strip_prefix(above) {
        Some(rest) => rest.starts_with('/') || (above.is_empty() && !rest.is_empty()),
        None => false,
    }
}

/// Returns the path of a name in a directory.
pub(crate) fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
