//! Point lookups of many keys in one table, whose reads are made together.
//!
//! Each key goes as far as it comes without a read. What all that have stopped wait for is read in one submission, a block that several wait for once, and
//! each of them goes on. A lookup passes a filter, a partition of the index and a block of references, so three submissions are the most for any
//! number of keys, and one where only the last of these is not in the cache. One key after the other a lookup waits for each of its blocks by itself, where the device could
//! work on dozens.
//!
//! What was read is kept until the keys that were asked together have their answers, so that none is read twice, however small the cache.

use super::GcWorld;
use super::window::Window;
use base::Result;
use table::{Fetched, Ksst, ReadCounters, Reference, Source, Stopped};

/// See the module.
#[derive(Default)]
pub(crate) struct Points {
    fetched: Fetched,
    /// Entries of the window that have no answer yet.
    asked: Vec<usize>,
    /// Those that are in the table, with what is there.
    found: Vec<(usize, Reference)>,
}

impl Points {
    /// This entry of the window is asked for with the others.
    pub(crate) fn add(&mut self, entry: usize) {
        self.asked.push(entry);
    }

    /// How many are asked for.
    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Looks up all that were added, and gives those that are there.
    ///
    /// # Errors
    /// Of the first of them that has one.
    pub(crate) fn ask(
        &mut self,
        table: &Ksst,
        window: &Window,
        world: &dyn GcWorld,
        counters: &mut ReadCounters,
    ) -> Result<std::vec::Drain<'_, (usize, Reference)>> {
        let mut done = Ok(true);
        while matches!(done, Ok(true)) {
            done = self.go_on(table, window);
            let mut wants = self.fetched.take_wanted();
            wants.sort_unstable_by_key(|want| want.extent);
            wants.dedup_by_key(|want| want.extent);
            if matches!(done, Ok(true)) {
                world.read_wanted(&mut self.fetched, &wants);
            }
        }
        counters.add(&std::mem::take(self.fetched.counters()));
        self.fetched.clear();
        self.asked.clear();
        done.map(|_| self.found.drain(..))
    }

    /// Each goes as far as it comes. True if some wait for reads.
    fn go_on(&mut self, table: &Ksst, window: &Window) -> Result<bool> {
        let asked = std::mem::take(&mut self.asked);
        for at in asked {
            let entry = &window.entries[at];
            let found = table.get_reference(window.user_key(entry), entry.seq, entry.hash, &mut self.fetched);
            match found {
                Ok(reference) => self.found.extend(reference.map(|reference| (at, reference))),
                Err(Stopped::Wanting) => self.asked.push(at),
                Err(Stopped::Failed(e)) => return Err(e),
            }
        }
        Ok(!self.asked.is_empty())
    }
}
