//! Indexes over the families of a state, maintained with each change, so that no edit visits all
//! families.

use super::FamilyState;
use crate::meta::FamilyId;
use base::SeqNo;
use base::hash::key_hash;
use std::sync::Arc;
use store::IdMap;

/// Families by name, and their log floors in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    /// Families by the hash of their names, ascending.
    names: IdMap<u64, Arc<[FamilyId]>>,
    /// Number of families with each log floor.
    floors: IdMap<SeqNo, usize>,
}

impl Directory {
    /// Returns the families whose names have the same hash as this one.
    pub fn candidates(&self, name: &str) -> &[FamilyId] {
        self.names.get(&key_hash(name.as_bytes())).map_or(&[], |ids| ids)
    }

    /// Returns the lowest log floor.
    pub fn lowest_floor(&self) -> Option<SeqNo> {
        self.floors.keys().next()
    }

    pub fn name(&mut self, id: FamilyId, name: &str) {
        let mut ids = self.candidates(name).to_vec();
        ids.insert(ids.partition_point(|other| *other < id), id);
        self.names.insert(key_hash(name.as_bytes()), ids.into());
    }

    fn forget_name(&mut self, id: FamilyId, name: &str) {
        let mut ids = self.candidates(name).to_vec();
        ids.retain(|other| *other != id);
        let hash = key_hash(name.as_bytes());
        match ids.is_empty() {
            true => self.names.remove(&hash).map(drop),
            false => self.names.insert(hash, ids.into()).map(drop),
        };
    }

    fn add_floor(&mut self, floor: SeqNo) {
        let count = self.floors.get(&floor).copied().unwrap_or(0);
        self.floors.insert(floor, count + 1);
    }

    fn remove_floor(&mut self, floor: SeqNo) {
        match self.floors.get(&floor).copied() {
            Some(count) if count > 1 => drop(self.floors.insert(floor, count - 1)),
            _ => drop(self.floors.remove(&floor)),
        }
    }

    /// Updates a family from `before`, if it existed, to `after`. Its name must be added separately
    /// ([`Directory::name`]).
    pub fn change(&mut self, before: Option<&FamilyState>, after: &FamilyState) {
        let (before, after) = (before.map(|before| before.version.log_floor), after.version.log_floor);
        if before != Some(after) {
            before.into_iter().for_each(|floor| self.remove_floor(floor));
            self.add_floor(after);
        }
    }

    /// Removes a family. `before` is the family before the edit, if it existed.
    pub fn drop_family(&mut self, before: Option<&FamilyState>, name: &str, id: FamilyId) {
        self.forget_name(id, name);
        before.into_iter().for_each(|before| self.remove_floor(before.version.log_floor));
    }

    /// Returns the directory of these families.
    pub fn of<'f>(families: impl Iterator<Item = &'f Arc<FamilyState>>) -> Directory {
        let mut directory = Directory::default();
        for family in families {
            directory.name(family.id, &family.name);
            directory.change(None, family);
        }
        directory
    }
}
