//! Pins: names that running jobs may still emit, and pruning, which drops the names and files that nothing needs.
//!
//! Names come and go: garbage collection replaces file `F` by `G` and leaves the alias `F -> G`; compaction renews the
//! references it copies to the newest name of their file, so old aliases lose their last reference and are dropped. Two
//! things must not happen: that a name vanishes which a running job is about to write into a table, and that a file
//! vanishes which a table references. The argument that neither does:
//!
//! 1. *A job emits few names.* A compaction copies references as they are in its inputs, or renewed, in the version it
//!    started from, to the number of the file they lead to. Both are in [`names_to_pin`] of its inputs in that version.
//!    A flush or a separation emits numbers of files that come into the version with the tables that reference them,
//!    in one edit: no version knows them before, so nothing can prune them.
//! 2. *Pinned names stay.* The job pins before it starts, under the lock under which edits are committed (or on a
//!    version that it revalidates there), and gives the pins up after its own edit. In between [`prune`] leaves these
//!    names alone, and replacing a file keeps all its names and makes an alias of its number. So a name that was there
//!    when the job started is there when it is installed.
//! 3. *Pinned names lead to the records.* An input of a running job is a table of every version until the job is
//!    installed: inputs are busy. So each reference that it copies stays in the latest version under its old name, that
//!    name is referenced, and its file is not pruned; and since the reference counts as live, garbage collection copies
//!    its record to wherever the name leads next. The old and the new name of a reference lead to the same file at the
//!    start, and every replacement moves all names of a file alike, with the same borders: they lead to the same file
//!    ever after.
//! 4. *A file of which nothing is live can go*, even with pinned names: by 3, no running job copies a reference to it.
//!    For the same reason liveness only falls: a reference that is in no table of a version comes back in no later one,
//!    so what garbage collection found dead in its version is dead at its install.
//!
//! Renewed names that a compaction takes from a *later* version than the one it pinned in need pins of their own
//! ([`PinGuard::extend`], under the same lock).

use crate::ledger::Ledger;
use base::HashMap;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeSet;
use std::sync::Arc;
use version::{BlobId, FileMeta, IdMap, Record, Version, VsstMeta};

/// The pinned names of a store. See the module.
#[derive(Debug, Default)]
pub struct Pins {
    /// How many guards hold each name.
    counts: Mutex<HashMap<BlobId, u32>, rank::Pins>,
}

impl Pins {
    /// Nothing is pinned.
    pub fn new() -> Arc<Pins> {
        Arc::default()
    }

    /// Pins `names` until the guard is dropped.
    pub fn pin(self: &Arc<Self>, names: impl IntoIterator<Item = BlobId>) -> PinGuard {
        let mut guard = PinGuard { pins: self.clone(), names: Vec::new() };
        guard.extend(names);
        guard
    }

    /// True if a running job may emit `name`.
    pub fn is_pinned(&self, name: BlobId) -> bool {
        lock(&self.counts).contains_key(&name)
    }

    /// Number of pinned names.
    pub fn len(&self) -> usize {
        lock(&self.counts).len()
    }

    /// True if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps names pinned until it is dropped.
#[derive(Debug)]
pub struct PinGuard {
    pins: Arc<Pins>,
    names: Vec<BlobId>,
}

impl PinGuard {
    /// Pins more names.
    pub fn extend(&mut self, names: impl IntoIterator<Item = BlobId>) {
        let from = self.names.len();
        self.names.extend(names);
        let mut counts = lock(&self.pins.counts);
        for &name in &self.names[from..] {
            *counts.entry(name).or_default() += 1;
        }
    }

    /// The names, as often as they were pinned.
    pub fn names(&self) -> &[BlobId] {
        &self.names
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        let mut counts = lock(&self.pins.counts);
        for name in &self.names {
            let count = counts.get_mut(name).expect("a guard counts each of its names");
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}

/// Every name that a job over the tables `files` of `version` can emit: those that the tables use, and the numbers of
/// the files these lead to. Ascending.
pub fn names_to_pin(version: &Version, files: &[Arc<FileMeta>]) -> Vec<BlobId> {
    let used: BTreeSet<BlobId> = files.iter().flat_map(|f| &f.dependencies).map(|d| d.blob_id).collect();
    let mut names = used.clone();
    for &name in &used {
        names.extend(version.resolve_all(name).map(|file| file.number));
    }
    names.into_iter().collect()
}

/// `version` for a job over its tables `files` that resolves references, but reads no vSST other than `read`: it tells
/// where their names lead, and holds no other. Those that a collection replaces while the job runs need not wait for its
/// end.
pub fn outline(version: &Version, files: &[Arc<FileMeta>], read: &[u64]) -> Version {
    let mut vssts = IdMap::new();
    let used: BTreeSet<BlobId> = files.iter().flat_map(|f| &f.dependencies).map(|d| d.blob_id).collect();
    for file in used.iter().flat_map(|&name| version.resolve_all(name)) {
        if read.contains(&file.number) {
            vssts.insert(file.number, file.clone());
        } else if !vssts.contains_key(&file.number) {
            // Another description, which does not count among the copies of this one.
            let (blob_ids, copies) = (Vec::new(), Arc::default());
            vssts.insert(file.number, Arc::new(VsstMeta { blob_ids, copies, ..VsstMeta::clone(file) }));
        }
    }
    Version { vssts, references: IdMap::new(), ..version.clone() }
}

/// What nothing needs any more: the records that drop it from `version` (which must be the latest, or what the edit at
/// hand makes of it, with its ledger), and the files that leave.
///
/// An alias goes when no table depends on it and nobody pinned it, a file when that is true of each of its names.
pub fn prune(version: &Version, ledger: &Ledger, pins: &Pins) -> (Vec<Record>, Vec<Arc<VsstMeta>>) {
    let family = version.family;
    if !ledger.has_unused() {
        return (Vec::new(), Vec::new());
    }
    let counts = lock(&pins.counts);
    let mut records: Vec<Record> = ledger
        .unused_aliases()
        .filter(|name| !counts.contains_key(name) || base::canary::is("pinned-name-pruned"))
        .map(|blob_id| Record::DropAlias { family, blob_id })
        .collect();
    let mut removed = Vec::new();
    for number in ledger.unused_files() {
        let pinned = version
            .names_of(number)
            .iter()
            .any(|name| counts.contains_key(name) && !base::canary::is("pinned-file-pruned"));
        if let Some(meta) = version.vssts.get(&number).filter(|_| !pinned) {
            records.push(Record::RemoveVsst { family, number });
            removed.push(meta.clone());
        }
    }
    (records, removed)
}

#[cfg(test)]
mod tests;
