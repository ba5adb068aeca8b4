//! Memtables that take no more: frozen whole, with everything that was logged for them.
//!
//! A flush must not come before the log where another family has older changes, or a part of a batch, that are in the log alone (see
//! `write_path`). Where pages of the log wait to be overtaken that would write them all. So there the other families are frozen along with the one that
//! is full ([`WritePath::joins`]), and flushed in the same edit: what is in it is then a prefix, and needs nothing of the log.

use super::WritePath;
use super::writer::Writer;
use crate::tree::family::Family;
use std::sync::Arc;
use version::FamilyId;

/// So many families with changes are frozen together at most: each gets a table of its part of a memtable, and the shorter these are, the more often a level
/// below is read and written for them.
const JOINED_MAX: usize = 4;
/// With so many among them that have less than a part of a memtable. A short table in level 0 costs, when it is merged, about a quarter of what a
/// full memtable has, with the defaults. The log would be written once.
const SMALL_MAX: usize = 2;
/// The part: one in so many.
const SMALL_PART: usize = 8;

impl WritePath {
    /// Under the writer's lock: waits until everything that was logged is in the memtables, and visible. Nothing follows as long
    /// as the writer's lock is held.
    pub fn settle(&self) {
        // One that never will be has poisoned the store.
        self.order.settle(self.looks());
    }

    /// Freezes the active memtables of all families. Those with nothing in them are not asked.
    pub fn freeze_all(&self, writer: &mut Writer) {
        self.freeze_of(writer, None);
    }

    /// Freezes the active memtable of a family (of all families, if a volatile batch spans several) and wakes the flush.
    pub fn freeze(&self, writer: &mut Writer, family: &Arc<Family>) {
        self.freeze_of(writer, Some(family));
    }

    /// True if all families with changes are to be flushed in one edit, since that spares the log a write. `only`: as far as it goes, this one alone is full.
    fn joins(&self, writer: &Writer, only: Option<&Arc<Family>>) -> bool {
        let changed = &writer.changed;
        let keeps_pages = self.log.get().is_some_and(wal::Wal::keeps_pages);
        keeps_pages
            && (2..=JOINED_MAX).contains(&changed.len())
            && only.is_none_or(|only| changed.contains_key(&only.id) && self.few_are_small(writer, only.id))
    }

    /// True if few families with changes have little of them, but for this one.
    fn few_are_small(&self, writer: &Writer, but: FamilyId) -> bool {
        let small = self.context.options.memtable_bytes / SMALL_PART;
        let others = writer.changed.values().filter(|family| family.id != but);
        others.filter(|family| family.look(|seen| seen.active.bytes() < small)).count() <= SMALL_MAX
    }

    /// True if families that are flushed together hold as much, all together, as one memtable may. The pages that wait are so many as well, and there is
    /// room for no more ([`store::commit::Aging::ring_len`]).
    pub fn are_full_together(&self, writer: &Writer) -> bool {
        let (memory, memtable_bytes) = (&self.space.memory, self.context.options.memtable_bytes as u64);
        writer.changed.len() > 1
            && memory.used().saturating_sub(memory.backlog()) >= memtable_bytes
            && self.joins(writer, None)
            && self.few_are_small(writer, FamilyId::MAX)
    }

    /// `only`: of no other family, unless it is better, or has to be.
    fn freeze_of(&self, writer: &mut Writer, only: Option<&Arc<Family>>) {
        self.settle();
        let over_families = std::mem::take(&mut writer.volatile_over_families);
        let joins = self.joins(writer, only);
        let upto = writer.next_seq.saturating_sub(1);
        self.tree.together.freezes_to(upto);
        let families: Vec<Arc<Family>> = match only.filter(|_| !over_families && !joins) {
            Some(family) => {
                writer.changed.remove(&family.id);
                vec![Arc::clone(family)]
            }
            None => std::mem::take(&mut writer.changed).into_values().collect(),
        };
        {
            let _freezing = (over_families || joins).then(|| self.tree.together.freezing());
            if joins {
                self.tree.together.join_to(upto);
            }
            for family in families {
                let active = family.read_state().active.clone();
                if active.is_empty() && active.range_tombstones().is_empty() {
                    continue;
                }
                self.space.memory.froze(active.bytes());
                family.freeze(writer.next_memtable_id);
                writer.next_memtable_id += 1;
            }
        }
        self.context.signals.state_changed();
        self.context.signals.notify_work();
    }
}
