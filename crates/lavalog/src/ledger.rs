//! How much of each file is alive.
//!
//! A file can go when nothing of it is alive, and is worth copying from when little is. Records are counted as the index knows
//! them: exactly as long as they are in memory one by one, and by whole runs of LSNs behind that ([`crate::lsn_set`]). Records are
//! counted beside their bytes, because a record may have none: a file is dead when it has no *record*.

use crate::entry::Source;
use crate::lsn_set::Size;
use std::collections::BTreeMap;

/// What a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that came into it.
    pub written: Size,
    /// What of that is alive.
    pub live: Size,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<Source, Usage>);

impl Ledger {
    /// Records came into a file, and live.
    pub fn add(&mut self, source: Source, size: Size) {
        let usage = self.0.entry(source).or_default();
        usage.written += size;
        usage.live += size;
    }

    /// Records of a file died.
    pub fn lose(&mut self, source: Source, size: Size) {
        if size != Size::default() {
            self.0.entry(source).or_default().live -= size;
        }
    }

    /// What lives of a file is this much, and not that much.
    pub(crate) fn recount(&mut self, source: Source, was: Size, is: Size) {
        let live = &mut self.0.entry(source).or_default().live;
        *live -= was;
        *live += is;
    }

    /// Nothing is asked of a file any more.
    pub fn forget(&mut self, source: Source) {
        self.0.remove(&source);
    }

    /// What a file has; nothing, if nobody knows it.
    pub fn usage(&self, source: Source) -> Usage {
        self.0.get(&source).copied().unwrap_or_default()
    }

    /// All files, groups first, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Source, Usage)> + '_ {
        self.0.iter().map(|(source, usage)| (*source, *usage))
    }
}
