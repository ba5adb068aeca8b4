//! Live bytes and records of each file.
//!
//! A file without live records can be deleted; one with few is worth collecting. The counts follow
//! the index. They are exact while the index has single records in memory, and per run of LSNs
//! afterwards ([`crate::lsn_set`]). Records count in addition to bytes, because a record may be
//! empty: a file is dead when it has no live *record*.

use crate::entry::Source;
use crate::lsn_set::Size;
use std::collections::BTreeMap;

/// Written and live records of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All records written to the file.
    pub written: Size,
    /// The live ones among them.
    pub live: Size,
}

/// Live bytes and records of each file.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    files: BTreeMap<Source, Counted>,
    /// Files marked as changed; some may have been removed since.
    changed: Vec<Source>,
    /// Live records of all files.
    live: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    usage: Usage,
    /// Whether records of the file have died since the last [`Ledger::take_changed`].
    is_changed: bool,
}

impl Ledger {
    /// Adds live records to a file.
    pub fn add(&mut self, source: Source, size: Size) {
        let usage = &mut self.files.entry(source).or_default().usage;
        usage.written += size;
        usage.live += size;
        self.live += size;
    }

    /// Marks records of a file as dead.
    pub fn lose(&mut self, source: Source, size: Size) {
        if size != Size::default() {
            self.recount(source, size, Size::default());
        }
    }

    /// Replaces a contribution `was` to the live count of a file by `is`. Ignores a forgotten file:
    /// a deleted log may still refer to a file that was collected meanwhile.
    pub(crate) fn recount(&mut self, source: Source, was: Size, is: Size) {
        let Some(counted) = self.files.get_mut(&source) else { return };
        for live in [&mut counted.usage.live, &mut self.live] {
            *live -= was;
            *live += is;
        }
        if !std::mem::replace(&mut counted.is_changed, true) {
            self.changed.push(source);
        }
    }

    /// Removes a file from the ledger.
    pub fn forget(&mut self, source: Source) {
        if let Some(counted) = self.files.remove(&source) {
            self.live -= counted.usage.live;
        }
    }

    /// Returns at most `limit` files with new garbage since they were last returned.
    pub(crate) fn take_changed(&mut self, limit: usize) -> Vec<(Source, Usage)> {
        let from = self.changed.len().saturating_sub(limit);
        let mut out = Vec::with_capacity(self.changed.len() - from);
        for source in self.changed.drain(from..) {
            if let Some(counted) = self.files.get_mut(&source) {
                counted.is_changed = false;
                out.push((source, counted.usage));
            }
        }
        out
    }

    /// Returns the usage of a file; zero for an unknown file.
    pub fn usage(&self, source: Source) -> Usage {
        self.files.get(&source).map(|counted| counted.usage).unwrap_or_default()
    }

    /// Returns the live records of all files.
    pub fn live(&self) -> Size {
        self.live
    }

    /// Iterates over all files, groups first, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Source, Usage)> + '_ {
        self.files.iter().map(|(source, counted)| (*source, counted.usage))
    }
}
