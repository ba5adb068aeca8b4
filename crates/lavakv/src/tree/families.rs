//! The families of a store, by id.

use super::family::Family;
use super::family_work::FamilyWork;
use base::sync::{RwLock, rank, read, write};
use base::{Error, HashMap, Result, SeqNo};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use version::FamilyId;

/// Families that are listed under one hold of the lock.
const PIECE: usize = 256;

/// The families of a store. No method that asks each of them holds the lock meanwhile.
pub(crate) struct Families {
    /// Each family, with its id as the key.
    by_id: RwLock<BTreeMap<FamilyId, Arc<Family>>, rank::Families>,
    /// Which of them have changes in memtables.
    pub work: Arc<FamilyWork>,
}

impl Families {
    pub fn new(families: HashMap<FamilyId, Arc<Family>>) -> Families {
        let work = Arc::<FamilyWork>::default();
        families.values().for_each(|family| family.tells_work(&work));
        Families { by_id: RwLock::new(families.into_iter().collect()), work }
    }

    /// The family with this id, if it still exists.
    pub fn get(&self, id: FamilyId) -> Option<Arc<Family>> {
        read(&self.by_id).get(&id).cloned()
    }

    /// True if this is one of them.
    pub fn has(&self, family: &Arc<Family>) -> bool {
        read(&self.by_id).get(&family.id).is_some_and(|own| Arc::ptr_eq(own, family))
    }

    /// All families, by id.
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

    /// Those of these families that still exist.
    fn living(&self, ids: &[FamilyId]) -> Vec<Arc<Family>> {
        let mut living = Vec::with_capacity(ids.len());
        for piece in ids.chunks(PIECE) {
            let families = read(&self.by_id);
            living.extend(piece.iter().filter_map(|id| families.get(id).cloned()));
        }
        living
    }

    /// The families with changes in memtables, by id.
    pub fn unflushed(&self) -> Vec<Arc<Family>> {
        self.living(&self.work.unflushed())
    }

    /// The families with frozen memtables, by id.
    pub fn frozen(&self) -> Vec<Arc<Family>> {
        self.living(&self.work.frozen())
    }

    /// The families with these ids; the error names the first id that is missing.
    ///
    /// # Errors
    /// `NotFound`: one of them was dropped.
    pub fn find_all(&self, ids: &[FamilyId]) -> Result<Vec<Arc<Family>>> {
        let all = read(&self.by_id);
        let dropped =
            |id| Error::not_found(format!("column family with id {id} does not exist: it was dropped"));
        ids.iter().map(|id| all.get(id).cloned().ok_or_else(|| dropped(id))).collect()
    }

    /// True if there is more than one.
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

    /// The family with the oldest change that is in memtables only, and the sequence of that change.
    pub fn oldest_unflushed(&self) -> Option<(SeqNo, Arc<Family>)> {
        debug_assert!(!rank::holds::<rank::Writer>(), "writers do not wait for a walk over all families");
        let families = self.unflushed().into_iter();
        families
            .filter_map(|f| f.read_state().oldest_unflushed_seq().map(|seq| (seq, f)))
            .min_by_key(|(seq, _)| *seq)
    }

    /// The families with the largest active memtables, the largest first, up to `bytes` together.
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
