//! Point lookups of many keys in one table, whose reads are made together.
//!
//! Each key advances until it needs a read. The blocks that all keys need are read in one
//! submission, a block that several need only once, and each key continues. A lookup passes a
//! filter, an index partition and a reference block. So there are at most three submissions for any
//! number of keys, and one if only the reference blocks are not cached. Sequential lookups would
//! wait for each block separately, while the device could serve dozens.
//!
//! Read blocks are kept until all keys of a batch are answered, so that no block is read twice,
//! however small the cache.

use super::GcEnv;
use super::window::Window;
use base::Result;
use table::{FetchedBlocks, Ksst, ReadCounters, Reference, Source, Stopped};

/// Pending point lookups: see the module.
#[derive(Default)]
pub(crate) struct Points {
    fetched: FetchedBlocks,
    /// Entries of the window without an answer yet.
    asked: Vec<usize>,
    /// Entries found in the table, with their references.
    found: Vec<(usize, Reference)>,
}

impl Points {
    /// Adds an entry of the window to the batch.
    pub(crate) fn add(&mut self, entry: usize) {
        self.asked.push(entry);
    }

    /// Returns the number of entries in the batch.
    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Looks up all added entries, and returns those that are in the table.
    ///
    /// # Errors
    /// The error of the first lookup that fails.
    pub(crate) fn ask(
        &mut self,
        table: &Ksst,
        window: &Window,
        world: &dyn GcEnv,
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

    /// Advances each lookup as far as possible. Returns true if some wait for reads.
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
