//! Pins: names that running jobs may still emit, and pruning, which drops the names and files that nothing needs.
//!
//! Names come and go: garbage collection replaces file `F` by `G` and leaves the alias `F -> G`; compaction renews the
//! references it copies to the newest name of their file, so old aliases lose their last reference and are dropped. Two
//! things must not happen: that a name vanishes which a running job is about to write into a table, and that a file
//! vanishes which a table references. The argument that neither does:
//!
//! 1. *A job emits few names.* A compaction copies references as they are in its inputs, or renewed, in the version it
//!    started from, to the number of the file they lead to. Both are in [`names_to_pin`] of its inputs in that version.
//!    Which names its inputs use stands in the tables; until it has read that, nothing of the family is pruned
//!    ([`Pins::hold`]).
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
use std::sync::Arc;
use version::{BlobId, Dependency, FamilyId, IdMap, Record, Version, VsstMeta};

/// The pinned names of a store. See the module.
#[derive(Debug, Default)]
pub struct Pins {
    /// How many guards hold each name, and each family.
    pinned: Mutex<Pinned, rank::Pins>,
}

#[derive(Debug, Default)]
struct Pinned {
    names: HashMap<BlobId, u32>,
    /// Families of which some job does not know yet what it may emit.
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

/// One less.
fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) {
    let count = counts.get_mut(&key).expect("a guard counts what it holds");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

impl Pins {
    /// Nothing is pinned.
    pub fn new() -> Arc<Pins> {
        Arc::default()
    }

    /// Pins `names` until the guard is dropped.
    pub fn pin(self: &Arc<Self>, names: impl IntoIterator<Item = BlobId>) -> PinGuard {
        let mut guard = PinGuard { pins: self.clone(), names: Vec::new(), family: None };
        guard.extend(names);
        guard
    }

    /// Keeps all names and files of a family until the guard knows its own ([`PinGuard::narrow`]), or is dropped.
    pub fn hold(self: &Arc<Self>, family: FamilyId) -> PinGuard {
        lock(&self.pinned).hold(family);
        PinGuard { pins: self.clone(), names: Vec::new(), family: Some(family) }
    }

    /// True if a running job may emit `name` in this family.
    pub fn is_pinned(&self, family: FamilyId, name: BlobId) -> bool {
        let pinned = lock(&self.pinned);
        pinned.families.contains_key(&family) || pinned.names.contains_key(&name)
    }

    /// Number of pinned names, and of families of which all are.
    pub fn len(&self) -> usize {
        let pinned = lock(&self.pinned);
        pinned.names.len() + pinned.families.len()
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
    /// All of this family is held.
    family: Option<FamilyId>,
}

impl PinGuard {
    /// Pins more names.
    pub fn extend(&mut self, names: impl IntoIterator<Item = BlobId>) {
        let from = self.names.len();
        self.names.extend(names);
        let mut pinned = lock(&self.pins.pinned);
        for &name in &self.names[from..] {
            *pinned.names.entry(name).or_default() += 1;
        }
    }

    /// Pins these names, and lets go of the rest of the family.
    pub fn narrow(&mut self, names: impl IntoIterator<Item = BlobId>) {
        self.extend(names);
        if let Some(family) = self.family.take() {
            lock(&self.pins.pinned).let_go(family);
        }
    }

    /// The names, as often as they were pinned.
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

/// The names in lists of what tables reference, ascending.
pub fn used_names<'l>(lists: impl IntoIterator<Item = &'l [Dependency]>) -> Vec<BlobId> {
    let mut names: Vec<BlobId> = lists.into_iter().flatten().map(|d| d.blob_id).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Every name that a job over tables of `version` that use these names can emit: they, and the numbers of the files they lead
/// to. Ascending.
pub fn names_to_pin(version: &Version, used: &[BlobId]) -> Vec<BlobId> {
    let leads = used.iter().flat_map(|&name| version.resolve_all(name)).map(|file| file.number);
    let mut names: Vec<BlobId> = used.iter().copied().chain(leads).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// `version` for a job over tables of it that use these names, which resolves references, but reads no vSST other than `read`: it
/// tells where the names lead, and holds no other. Those that a collection replaces while the job runs need not wait for its
/// end.
pub fn outline(version: &Version, used: &[BlobId], read: &[u64]) -> Version {
    let mut vssts = IdMap::new();
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
/// An alias goes when no table depends on it and nobody pinned it, a file when that is true of each of its names. Of a family that
/// somebody holds nothing goes.
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
