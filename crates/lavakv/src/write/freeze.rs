//! Memtables that take no more: frozen whole, with everything that was logged for them.

use super::WritePath;
use super::writer::Writer;
use crate::tree::family::Family;
use std::sync::Arc;

impl WritePath {
    /// Under the writer's lock: waits until everything that was logged is in the memtables, and visible. Nothing follows as long
    /// as the writer's lock is held.
    pub fn settle(&self) {
        if !base::canary::is("frozen-while-a-write-is-under-way") {
            // One that never will be has poisoned the store.
            self.order.settle(self.looks());
        }
    }

    /// Freezes the active memtables of all families. Those with nothing in them are not asked.
    pub fn freeze_all(&self, writer: &mut Writer) {
        self.freeze_of(writer, None);
    }

    /// Freezes the active memtable of a family (of all families, if a volatile batch spans several) and wakes the flush.
    pub fn freeze(&self, writer: &mut Writer, family: &Arc<Family>) {
        self.freeze_of(writer, Some(family));
    }

    /// `only`: of no other family.
    fn freeze_of(&self, writer: &mut Writer, only: Option<&Arc<Family>>) {
        self.settle();
        let over_families = std::mem::take(&mut writer.volatile_over_families)
            && !base::canary::is("volatile-batch-frozen-by-halves");
        let families: Vec<Arc<Family>> = match only.filter(|_| !over_families) {
            Some(family) => {
                writer.changed.remove(&family.id);
                vec![Arc::clone(family)]
            }
            None => std::mem::take(&mut writer.changed).into_values().collect(),
        };
        {
            let together = over_families && !base::canary::is("flush-picked-while-families-freeze");
            let _freezing = together.then(|| self.tree.together.freezing());
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
        self.context.signals.notify_work();
    }
}
