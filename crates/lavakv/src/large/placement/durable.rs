//! When placed values become durable, and who sees to it.
//!
//! Mostly the log's thread does, outside of all locks, before anybody has to wait for it:
//!
//! * when half of a tail is taken by values that are not durable, so that writes find room in the other half meanwhile;
//! * when one of them is as old as a buffered record may become (`Options::buffered_age_ms_max`): the log's pages that
//!   are so old are made durable after that, and would else refer to values that a loss of power takes;
//! * when the log is idle and its end is confirmed.
//!
//! A write for which a tail has no room all the same waits with nothing locked, once ([`Places::full`]). Does it find the tail full
//! again, it syncs under the writer's lock: it could be overtaken for ever. So does one that is longer than a tail.
//!
//! Whoever waits for a sync of a file shares it with all that wait for it ([`super::beside`]).
//!
//! A sync that fails, whoever made it, stops the store: what is in tails alone would not outlive a loss of power, and no later durable write
//! could be acknowledged.

use super::beside::Syncs;
use super::{Arrival, ArrivalFile, Placement, State};
use crate::tree::family::Family;
use base::Result;
use base::sync::atomic::Ordering;
use base::sync::lock;
use std::sync::Arc;

impl ArrivalFile {
    /// Bytes that no sync was begun for.
    fn waiting_bytes(&self) -> u64 {
        self.written_bytes().saturating_sub(self.syncing_bytes)
    }

    /// True if half of the tail is taken by them.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.waiting_bytes() >= self.tail_len()
    }

    /// True if the values in it should be made durable now, by somebody for whom nobody waits. `age_ns`: how old one may become.
    fn is_due(&self, now_ns: u64, age_ns: u64) -> bool {
        let is_old = |since_ns: u64| age_ns > 0 && now_ns.saturating_sub(since_ns) >= age_ns;
        let is_open = matches!(self.state, State::Open(_));
        is_open && (self.is_half_full() || self.waits_since_ns.is_some_and(is_old))
    }

    /// True if a sync makes room in the tail for so many bytes, and there is too little without one.
    fn is_full_for(&self, bytes: u64) -> bool {
        let fits_tail = bytes <= self.tail_len();
        let has_values = !self.places.is_empty() && self.written_bytes() > self.synced_bytes;
        fits_tail && has_values && self.written_bytes() + bytes > self.synced_bytes + self.tail_len()
    }
}

impl Placement {
    fn all(&self, is_meant: impl Fn(u64) -> bool) -> Vec<Arc<Arrival>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        // The map is asked for by every writer, and under the lock of what is in progress: nobody may wait there for a device.
        lock(&self.files).iter().filter(|(id, _)| is_meant(**id)).map(|(_, file)| file.clone()).collect()
    }

    /// Makes every value placed so far durable.
    pub fn sync(&self) -> Result<()> {
        self.sync_all_but(|_| false)
    }

    /// The same, but for values of memtables that are in tables in a moment.
    pub fn sync_all_but(&self, in_tables: impl Fn(u64) -> bool) -> Result<()> {
        let skipped = usize::from(base::canary::is("placed-values-of-one-file-not-synced"));
        let files = self.all(|id| !in_tables(id));
        files.iter().skip(skipped).try_for_each(|file| file.sync(&self.tree))
    }

    /// Makes durable what is in these files, before a write for which their tails have no room.
    ///
    /// # Errors
    /// As [`Placement::sync_due`].
    pub fn sync_full(&self, full: &[Arc<Arrival>]) -> Result<()> {
        self.told(full.iter().try_for_each(|file| file.sync(&self.tree)))
    }

    /// The file of the family's active memtable, if a write of so many bytes is to wait until it is durable.
    pub(super) fn full_for(&self, family: &Family, bytes: u64) -> Option<Arc<Arrival>> {
        let file = self.of(family.read_state().active.id())?;
        let is_full = file.lock().is_full_for(bytes);
        is_full.then_some(file)
    }

    /// True if [`Placement::sync_due`] has something to do.
    pub fn is_due(&self) -> bool {
        !self.due().is_empty()
    }

    /// Makes durable what is due; false if nothing is.
    ///
    /// # Errors
    /// Those of the file system: the store is poisoned.
    pub fn sync_due(&self) -> Result<bool> {
        let due = self.due();
        self.told(due.iter().try_for_each(|file| file.sync(&self.tree)))?;
        Ok(!due.is_empty())
    }

    /// Makes all durable, for somebody who does not wait for it.
    ///
    /// # Errors
    /// As [`Placement::sync_due`].
    pub fn sync_unasked(&self) -> Result<()> {
        self.told(self.sync())
    }

    fn told(&self, synced: Result<()>) -> Result<()> {
        synced.inspect_err(|e| self.tree.context.health.poison(e))
    }

    fn due(&self) -> Vec<Arc<Arrival>> {
        let (context, mut files) = (&self.tree.context, self.all(|_| true));
        if files.is_empty() {
            return files;
        }
        let age_ns = context.options.aging().age_ms_max.saturating_mul(1_000_000);
        let now_ns = context.now_ns();
        files.retain(|file| file.lock().is_due(now_ns, age_ns));
        files
    }
}
