//! Indexes over the families of a state: kept with each change, so that no edit looks at all families.

use super::FamilyState;
use crate::meta::FamilyId;
use base::SeqNo;
use base::hash::key_hash;
use std::sync::Arc;
use store::IdMap;

/// The families by name, and their log floors in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    /// Families by the hash of their names, ascending.
    names: IdMap<u64, Arc<[FamilyId]>>,
    /// How many families have a log floor.
    floors: IdMap<SeqNo, usize>,
}

impl Directory {
    /// The families whose names have the hash of this one.
    pub fn candidates(&self, name: &str) -> &[FamilyId] {
        self.names.get(&key_hash(name.as_bytes())).map_or(&[], |ids| ids)
    }

    /// The lowest log floor.
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

    /// A family is as `after`; before it was as `before`, if it was there. Its name is noted ([`Directory::name`]).
    pub fn change(&mut self, before: Option<&FamilyState>, after: &FamilyState) {
        let (before, after) = (before.map(|before| before.version.log_floor), after.version.log_floor);
        if before != Some(after) {
            before.into_iter().for_each(|floor| self.remove_floor(floor));
            self.add_floor(after);
        }
    }

    /// A family is gone. `before`: as it was before the edit, if it was there.
    pub fn drop_family(&mut self, before: Option<&FamilyState>, name: &str, id: FamilyId) {
        self.forget_name(id, name);
        before.into_iter().for_each(|before| self.remove_floor(before.version.log_floor));
    }

    /// The directory of these families.
    pub fn of<'f>(families: impl Iterator<Item = &'f Arc<FamilyState>>) -> Directory {
        let mut directory = Directory::default();
        for family in families {
            directory.name(family.id, &family.name);
            directory.change(None, family);
        }
        directory
    }
}
