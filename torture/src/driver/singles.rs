//! Keys that may be single-deleted: only put and single-deleted so far, in turn.

use crate::plan;
use crate::state::{Change, FamilyId};
use io::Rng;
use lavastore::Family;
use std::collections::BTreeMap;

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// Put once, or once since its last single delete.
    Put,
    /// Single-deleted.
    Deleted,
    /// Overwritten, merged or deleted in another way.
    Other,
}

/// The state of each key that was ever written.
#[derive(Debug, Default)]
pub(super) struct Singles {
    keys: BTreeMap<(FamilyId, Vec<u8>), Key>,
    /// A kill may take a change and leave a later one.
    may_lose: bool,
}

impl Singles {
    pub fn new(may_lose: bool) -> Singles {
        Singles { may_lose, ..Singles::default() }
    }

    /// Makes some puts merges and some deletes single deletes, drawn aside so that recorded seeds keep
    /// their draws, and notes the change.
    pub fn variant(&mut self, rng: &Rng, family: &Family, change: Change) -> Change {
        let may_vary = !plan::aside(rng, 0x7369_6e67_6c65).one_in(3);
        let change = match plan::with_merges(rng, family, change) {
            Change::Delete(key) if may_vary && self.allow(family.id(), &key) => Change::SingleDelete(key),
            change => change,
        };
        self.note(family.id(), &change);
        change
    }

    /// Returns true if a key may be single-deleted.
    fn allow(&self, family: FamilyId, key: &[u8]) -> bool {
        !self.may_lose && self.keys.get(&(family, key.to_vec())) == Some(&Key::Put)
    }

    /// Notes a change that will be written.
    pub fn note(&mut self, family: FamilyId, change: &Change) {
        let (key, before) = match change {
            Change::Put(key, _) | Change::Merge(key, _) | Change::Delete(key) | Change::SingleDelete(key) => {
                (key, self.keys.get(&(family, key.clone())))
            }
            Change::DeleteRange(..) => {
                let inside = |(id, key): &(FamilyId, Vec<u8>)| *id == family && change.touches(key);
                self.keys.iter_mut().filter(|(at, _)| inside(at)).for_each(|(_, key)| *key = Key::Other);
                return;
            }
        };
        let after = match (change, before) {
            (Change::Put(..), None | Some(Key::Deleted)) => Key::Put,
            (Change::SingleDelete(_), Some(Key::Put)) => Key::Deleted,
            _ => Key::Other,
        };
        self.keys.insert((family, key.clone()), after);
    }

    /// Notes a change that was refused or failed, so that it may be there or not.
    pub fn doubt(&mut self, family: FamilyId, change: &Change) {
        match change {
            Change::Put(key, _) | Change::Merge(key, _) | Change::Delete(key) | Change::SingleDelete(key) => {
                self.keys.insert((family, key.clone()), Key::Other);
            }
            Change::DeleteRange(..) => self.note(family, change),
        }
    }
}
