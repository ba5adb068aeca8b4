//! Memtables that may be flushed.
//!
//! All frozen memtables may be flushed. During a checkpoint those with a change above the *ceiling*
//! may not: the ceiling is the last sequence of the checkpoint. The checkpoint rotates all
//! memtables and sets the ceiling under the writer's lock, so that memtables frozen later hold
//! later writes.
//!
//! **The memtables are read first, the ceiling after them.** So a memtable above a ceiling was
//! either not seen, or seen when the ceiling was set. In the other order a checkpoint could begin,
//! and a later write be frozen, between the two reads. The flush would then include that write. The
//! copy would hold changes after the checkpoint's sequence in one family and not in another.
//!
//! A ceiling that is lifted in between does no harm: the checkpoint has captured its state.

use crate::tree::family::Family;
use base::SeqNo;
use memtable::MemTable;
use std::sync::Arc;

/// The flushable memtables of a family, and the oldest sequence in them.
pub(crate) type Flushable = (SeqNo, Arc<Family>, Vec<Arc<MemTable>>);

/// Returns the frozen memtables of `families` up to the ceiling. `ceiling` is called after all
/// families were read.
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
