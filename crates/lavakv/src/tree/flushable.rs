//! Which memtables may be flushed.
//!
//! All that are frozen may, but while a checkpoint is taken none with a change above the *ceiling*: the sequence up to which its
//! state is to reach. Whoever takes it freezes everything and sets the ceiling under the writer's lock, so that whatever is frozen after that is
//! of later writes.
//!
//! **The memtables are looked at first**, and the ceiling after them. So what is above a ceiling was not seen, or was seen when that was set. In the other
//! order a checkpoint could begin, and a later write be frozen, between the two: the flush would take it for one that may be, and the copy would have what one
//! family got after the checkpoint's sequence, and not what others did.
//!
//! A ceiling that is lifted meanwhile has done its work: the state of its checkpoint is taken.

use crate::tree::family::Family;
use base::SeqNo;
use memtable::MemTable;
use std::sync::Arc;

/// The memtables of a family that may be flushed, and the oldest sequence in them.
pub(crate) type Flushable = (SeqNo, Arc<Family>, Vec<Arc<MemTable>>);

/// What is frozen of these families, up to the ceiling, which is asked for when all have been looked at.
pub(crate) fn flushable(
    families: impl IntoIterator<Item = Arc<Family>>,
    ceiling: impl FnOnce() -> SeqNo,
) -> Vec<Flushable> {
    let look = |family: Arc<Family>| {
        let frozen = family.read_state().frozen.clone();
        (family, frozen)
    };
    let seen: Vec<_> = families.into_iter().map(look).filter(|(_, frozen)| !frozen.is_empty()).collect();
    let ceiling = ceiling();
    let of_family = |(family, frozen): (Arc<Family>, Vec<Arc<MemTable>>)| {
        let fits = |memtable: &Arc<MemTable>| memtable.seq_range().is_none_or(|(_, high)| high <= ceiling);
        let memtables: Vec<_> = frozen.into_iter().filter(fits).collect();
        let oldest = memtables.iter().filter_map(|m| m.seq_range()).map(|(low, _)| low).min()?;
        Some((oldest, family, memtables))
    };
    seen.into_iter().filter_map(of_family).collect()
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
