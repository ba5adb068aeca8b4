//! Pins: blob ids that running jobs may still emit. Pruning drops the blob ids and files that are
//! no longer needed.
//!
//! Blob ids come and go. Garbage collection replaces file `F` by `G` and leaves the alias `F -> G`;
//! compaction renews the references that it copies to the newest blob id of their file, so old
//! aliases lose their last reference and are dropped. Two things must not happen: that a blob id
//! disappears which a running job is about to write into a table, and that a file disappears which
//! a table references. The argument that neither does:
//!
//! 1. *A job emits few blob ids.* A compaction copies references as they are in its inputs. Or it
//!    renews them to the number of the file to which they resolve in the version from which it
//!    started. Both are in [`names_to_pin`] of its inputs in that version. Only the tables list the
//!    blob ids that they use; until the job has read these lists, nothing of the family is pruned
//!    ([`Pins::hold`]). A flush or a separation emits numbers of files that enter the version with
//!    the tables that reference them, in one edit: no version knows them before, so they cannot be
//!    pruned.
//! 2. *Pinned blob ids stay.* The job pins before it starts, under the lock under which edits are
//!    committed, or on a version that it revalidates there. It releases the pins after its own
//!    edit. In between [`prune`] keeps these blob ids, and replacing a file keeps all its blob ids
//!    and makes an alias of its number. So a blob id that existed when the job started exists when
//!    it is installed.
//! 3. *Pinned blob ids resolve to the records.* An input of a running job is a table of every
//!    version until the job is installed: inputs are busy. So each reference that the job copies
//!    stays in the latest version under its old blob id, that blob id is referenced, and its file
//!    is not pruned. Since the reference counts as live, garbage collection copies its record to
//!    the next target of the blob id. The old and the new blob id of a reference resolve to the
//!    same file at the start. Every replacement moves all blob ids of a file alike, with the same
//!    key bounds. So they resolve to the same file ever after.
//! 4. *A file without live records may be deleted*, even with pinned blob ids: by 3, no running job
//!    copies a reference to it. For the same reason liveness only decreases: a reference that is in
//!    no table of a version comes back in no later one. So a record that garbage collection found
//!    dead in its version is dead at its install.
//!
//! Renewed blob ids that a compaction takes from a *later* version than the one it pinned in need
//! separate pins ([`PinGuard::extend`], under the same lock).
//!
//! A compaction holds no value file that it does not relocate: an [`outline`] of its version
//! suffices. It writes blob ids, and these are pinned, so they resolve to a file whichever job
//! replaces that file. If it reads a value (a changed `min_blob_size`, a rewrite), it reads in the
//! current version, in which its inputs still are.

use crate::ledger::Ledger;
use base::HashMap;
use base::sync::{Mutex, lock, rank};
use std::sync::Arc;
use version::{BlobId, Dependency, FamilyId, IdMap, Record, Version, VsstMeta};

/// Pinned blob ids of a store: see the module.
#[derive(Debug, Default)]
pub struct Pins {
    /// Number of guards that hold each blob id, and each family.
    pinned: Mutex<Pinned, rank::Pins>,
}

#[derive(Debug, Default)]
struct Pinned {
    names: HashMap<BlobId, u32>,
    /// Families with a job that does not know yet which blob ids it may emit.
    families: HashMap<FamilyId, u32>,
}

impl Pinned {
    fn hold(&mut self, family: FamilyId) {
        *self.families.entry(family).or_default() += 1;
    }

    fn let_go(&mut self, family: FamilyId) {
        count_down(&mut self.families, family);
    }
}

/// Decrements a count.
fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) {
    let count = counts.get_mut(&key).expect("a guard counts what it holds");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

impl Pins {
    /// Returns an empty set of pins.
    pub fn new() -> Arc<Pins> {
        Arc::default()
    }

    /// Pins `names` until the guard is dropped.
    pub fn pin(self: &Arc<Self>, names: impl IntoIterator<Item = BlobId>) -> PinGuard {
        let mut guard = PinGuard { pins: self.clone(), names: Vec::new(), family: None };
        guard.extend(names);
        guard
    }

    /// Keeps all blob ids and files of a family until the guard knows its own
    /// ([`PinGuard::narrow`]), or is dropped.
    pub fn hold(self: &Arc<Self>, family: FamilyId) -> PinGuard {
        lock(&self.pinned).hold(family);
        PinGuard { pins: self.clone(), names: Vec::new(), family: Some(family) }
    }

    /// Returns true if a running job may emit `name` in this family.
    pub fn is_pinned(&self, family: FamilyId, name: BlobId) -> bool {
        let pinned = lock(&self.pinned);
        pinned.families.contains_key(&family) || pinned.names.contains_key(&name)
    }

    /// Returns the number of pinned blob ids, plus that of completely pinned families.
    pub fn len(&self) -> usize {
        let pinned = lock(&self.pinned);
        pinned.names.len() + pinned.families.len()
    }

    /// Returns true if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps blob ids pinned until it is dropped.
#[derive(Debug)]
pub struct PinGuard {
    pins: Arc<Pins>,
    names: Vec<BlobId>,
    /// A family that is held completely.
    family: Option<FamilyId>,
}

impl PinGuard {
    /// Pins more blob ids.
    pub fn extend(&mut self, names: impl IntoIterator<Item = BlobId>) {
        let from = self.names.len();
        self.names.extend(names);
        let mut pinned = lock(&self.pins.pinned);
        for &name in &self.names[from..] {
            *pinned.names.entry(name).or_default() += 1;
        }
    }

    /// Pins these blob ids, and releases the rest of the family.
    pub fn narrow(&mut self, names: impl IntoIterator<Item = BlobId>) {
        self.extend(names);
        if let Some(family) = self.family.take() {
            lock(&self.pins.pinned).let_go(family);
        }
    }

    /// Returns the blob ids, as often as they were pinned.
    pub fn names(&self) -> &[BlobId] {
        &self.names
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        let mut pinned = lock(&self.pins.pinned);
        self.names.iter().for_each(|&name| count_down(&mut pinned.names, name));
        self.family.take().into_iter().for_each(|family| pinned.let_go(family));
    }
}

/// Returns the blob ids in these dependency lists of tables, ascending.
pub fn used_names<'l>(lists: impl IntoIterator<Item = &'l [Dependency]>) -> Vec<BlobId> {
    let mut names: Vec<BlobId> = lists.into_iter().flatten().map(|d| d.blob_id).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns every blob id that a job over tables of `version` with these blob ids can emit: these,
/// and the numbers of the files to which they resolve. Ascending.
pub fn names_to_pin(version: &Version, used: &[BlobId]) -> Vec<BlobId> {
    let leads = used.iter().flat_map(|&name| version.resolve_all(name)).map(|file| file.number);
    let mut names: Vec<BlobId> = used.iter().copied().chain(leads).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns an outline of `version` for a job over tables of it that use these blob ids. The job
/// resolves references, but reads no vSST other than `read`. The outline has the targets of the
/// blob ids, and holds no other file, so files that a collection replaces while the job runs need
/// not wait for its end.
pub fn outline(version: &Version, used: &[BlobId], read: &[u64]) -> Version {
    let mut vssts = IdMap::new();
    for file in used.iter().flat_map(|&name| version.resolve_all(name)) {
        if read.contains(&file.number) {
            vssts.insert(file.number, file.clone());
        } else if !vssts.contains_key(&file.number) {
            // A separate description, which does not count among the copies of this one.
            let (blob_ids, copies) = (Vec::new(), Arc::default());
            vssts.insert(file.number, Arc::new(VsstMeta { blob_ids, copies, ..VsstMeta::clone(file) }));
        }
    }
    Version { vssts, references: IdMap::new(), ..version.clone() }
}

/// Returns the records that drop unneeded blob ids and files from `version`, and the removed files.
/// `version` must be the latest, or the result of the current edit, with its ledger.
///
/// An alias is dropped when no table depends on it and no job has pinned it, a file when that is
/// true of each of its blob ids. Nothing is dropped of a family that is held.
pub fn prune(version: &Version, ledger: &Ledger, pins: &Pins) -> (Vec<Record>, Vec<Arc<VsstMeta>>) {
    let family = version.family;
    if !ledger.has_unused() {
        return (Vec::new(), Vec::new());
    }
    let pinned = lock(&pins.pinned);
    if pinned.families.contains_key(&family) {
        return (Vec::new(), Vec::new());
    }
    let counts = &pinned.names;
    let mut records: Vec<Record> = ledger
        .unused_aliases()
        .filter(|name| !counts.contains_key(name))
        .map(|blob_id| Record::DropAlias { family, blob_id })
        .collect();
    let mut removed = Vec::new();
    for number in ledger.unused_files() {
        let pinned = version.names_of(number).iter().any(|name| counts.contains_key(name));
        if let Some(meta) = version.vssts.get(&number).filter(|_| !pinned) {
            records.push(Record::RemoveVsst { family, number });
            removed.push(meta.clone());
        }
    }
    (records, removed)
}

#[cfg(test)]
mod tests;
