//! The families of a store, by id.

use super::family::Family;
use super::family_work::{FamilyWork, SettledTree};
use base::sync::{RwLock, rank, read, write};
use base::{Error, HashMap, Result, SeqNo};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use version::FamilyId;

/// Families listed under one hold of the lock.
const PIECE: usize = 256;

/// The families of a store. Methods that visit every family do not hold the lock while they visit.
pub(crate) struct Families {
    /// All families, by id.
    by_id: RwLock<BTreeMap<FamilyId, Arc<Family>>, rank::Families>,
    /// The families with unflushed changes.
    pub work: Arc<FamilyWork>,
}

impl Families {
    pub fn new(families: HashMap<FamilyId, Arc<Family>>) -> Families {
        let work = Arc::<FamilyWork>::default();
        families.values().for_each(|family| family.tells_work(&work));
        Families { by_id: RwLock::new(families.into_iter().collect()), work }
    }

    /// Returns the family with this id, if it still exists.
    pub fn get(&self, id: FamilyId) -> Option<Arc<Family>> {
        read(&self.by_id).get(&id).cloned()
    }

    /// True if this very family is in the store.
    pub fn has(&self, family: &Arc<Family>) -> bool {
        read(&self.by_id).get(&family.id).is_some_and(|own| Arc::ptr_eq(own, family))
    }

    /// Returns all families, by id.
    pub fn all(&self) -> Vec<Arc<Family>> {
        let mut all: Vec<Arc<Family>> = Vec::new();
        loop {
            let after = all.last().map_or(Bound::Unbounded, |f| Bound::Excluded(f.id));
            let before = all.len();
            let families = read(&self.by_id);
            all.extend(families.range((after, Bound::Unbounded)).take(PIECE).map(|(_, f)| f.clone()));
            if all.len() - before < PIECE {
                return all;
            }
        }
    }

    /// Returns the families with these ids, without those dropped.
    fn living(&self, ids: &[FamilyId]) -> Vec<Arc<Family>> {
        let mut living = Vec::with_capacity(ids.len());
        for piece in ids.chunks(PIECE) {
            let families = read(&self.by_id);
            living.extend(piece.iter().filter_map(|id| families.get(id).cloned()));
        }
        living
    }

    /// Returns the families with changes in memtables, by id.
    pub fn unflushed(&self) -> Vec<Arc<Family>> {
        self.living(&self.work.unflushed())
    }

    /// Returns the families with frozen memtables, by id.
    pub fn frozen(&self) -> Vec<Arc<Family>> {
        self.living(&self.work.frozen())
    }

    /// Returns the families with frozen memtables or a tree that may need a job, by id, and the sum of
    /// the trees of all other families.
    pub fn with_work(&self) -> (Vec<Arc<Family>>, SettledTree) {
        let (ids, others) = self.work.with_work();
        (self.living(&ids), others)
    }

    /// Returns the families with these ids; the error names the first missing id.
    ///
    /// # Errors
    /// `NotFound`: one of them was dropped.
    pub fn find_all(&self, ids: &[FamilyId]) -> Result<Vec<Arc<Family>>> {
        let all = read(&self.by_id);
        let dropped = |id| {
            Error::not_found(format!(
                "column family with id {id} does not exist: it was dropped; create a new one"
            ))
        };
        ids.iter().map(|id| all.get(id).cloned().ok_or_else(|| dropped(id))).collect()
    }

    pub fn are_several(&self) -> bool {
        read(&self.by_id).len() > 1
    }

    pub fn add(&self, family: &Arc<Family>) {
        family.tells_work(&self.work);
        write(&self.by_id).insert(family.id, family.clone());
    }

    pub fn remove(&self, id: FamilyId) {
        write(&self.by_id).remove(&id);
        self.work.leave(id);
    }

    /// Returns the family with the oldest unflushed change, and the sequence of that change.
    pub fn oldest_unflushed(&self) -> Option<(SeqNo, Arc<Family>)> {
        debug_assert!(!rank::holds::<rank::Writer>(), "writers do not wait for a walk over all families");
        let families = self.unflushed().into_iter();
        families
            .filter_map(|f| f.read_state().oldest_unflushed_seq().map(|seq| (seq, f)))
            .min_by_key(|(seq, _)| *seq)
    }

    /// Returns the families with the largest active memtables, largest first, up to `bytes` in
    /// total.
    pub fn largest_memtables(&self, bytes: u64) -> Vec<Arc<Family>> {
        debug_assert!(!rank::holds::<rank::Writer>(), "writers do not wait for a walk over all families");
        let size =
            |f: &Arc<Family>| f.look(|seen| if seen.active.is_empty() { 0 } else { seen.active.bytes() });
        let families = self.unflushed().into_iter().map(|f| (size(&f), f));
        let mut families: Vec<_> = families.filter(|(size, _)| *size > 0).collect();
        families.sort_by_key(|(size, _)| Reverse(*size));
        let mut taken = 0;
        let as_many = families.into_iter().take_while(|(size, _)| {
            let wanted = taken < bytes;
            taken += *size as u64;
            wanted
        });
        as_many.map(|(_, family)| family).collect()
    }
}
