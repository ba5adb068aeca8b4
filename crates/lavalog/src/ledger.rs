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
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    files: BTreeMap<Source, Counted>,
    /// Those that are marked as changed, and some that have gone since.
    changed: Vec<Source>,
    /// What is alive in all of them.
    live: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    usage: Usage,
    /// Something of it has died since somebody took note of it.
    is_changed: bool,
}

impl Ledger {
    /// Records came into a file, and live.
    pub fn add(&mut self, source: Source, size: Size) {
        let usage = &mut self.files.entry(source).or_default().usage;
        usage.written += size;
        usage.live += size;
        self.live += size;
    }

    /// Records of a file died.
    pub fn lose(&mut self, source: Source, size: Size) {
        if size != Size::default() {
            self.recount(source, size, Size::default());
        }
    }

    /// What lives of a file is this much, and not that much. Nothing, if nobody knows the file: one that was collected while a log that was
    /// deleted before still led to it has been forgotten with all that it had.
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

    /// Nothing is asked of a file any more.
    pub fn forget(&mut self, source: Source) {
        if let Some(counted) = self.files.remove(&source) {
            self.live -= counted.usage.live;
        }
    }

    /// The files of which something has died since they were last returned here, `limit` at most.
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

    /// What a file has; nothing, if nobody knows it.
    pub fn usage(&self, source: Source) -> Usage {
        self.files.get(&source).map(|counted| counted.usage).unwrap_or_default()
    }

    /// What is alive in all files.
    pub fn live(&self) -> Size {
        self.live
    }

    /// All files, groups first, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Source, Usage)> + '_ {
        self.files.iter().map(|(source, counted)| (*source, counted.usage))
    }
}
