//! Files that no manifest edit names any more, waiting for their last reader.
//!
//! A file is removed only after the edit that drops it is durable (only then is it added here) **and** the last Version
//! that holds it is gone. Versions hold files by reference count, so the second condition is that this list holds the
//! only reference. A file that was moved or marked as shared has several descriptions, one in each of the versions
//! before and after; they count as one ([`FileMeta::copies`]). Readers that let go of a read state wake the clean-up.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, lock, rank};
use std::sync::Arc;
use version::names::FileKind;
use version::{FileMeta, Place, State, Version, VsstMeta};

#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    /// Files that no edit names any more.
    pending: Mutex<Vec<DataFile>, rank::Obsolete>,
    /// The length of `pending`: changed under it, looked at without it.
    count: AtomicUsize,
}

/// A file of data, as a version or the list of obsolete files holds it.
#[derive(Debug)]
pub(crate) enum DataFile {
    Table(Arc<FileMeta>),
    Vsst(Arc<VsstMeta>),
}

impl DataFile {
    /// All files of a version.
    pub fn all_of(version: &Version) -> impl Iterator<Item = DataFile> + '_ {
        let tables = version.levels.iter().flatten().cloned().map(DataFile::Table);
        tables.chain(version.vssts.values().cloned().map(DataFile::Vsst))
    }

    /// A living file by its number; `None` also for a group of the log.
    pub fn find(state: &State, number: u64) -> Option<DataFile> {
        match state.place_of(number)? {
            Place::Table { .. } => state.table(number).cloned().map(DataFile::Table),
            Place::Vsst { family } => {
                let version = &state.families.get(&family)?.version;
                version.vssts.get(&number).cloned().map(DataFile::Vsst)
            }
        }
    }

    /// Which file it is.
    pub fn kind(&self) -> FileKind {
        match self {
            DataFile::Table(meta) => FileKind::Ksst(meta.number),
            DataFile::Vsst(meta) => FileKind::Vsst(meta.number),
        }
    }

    pub fn number(&self) -> u64 {
        match self {
            DataFile::Table(meta) => meta.number,
            DataFile::Vsst(meta) => meta.number,
        }
    }

    /// True if the file ever had a second hard link.
    pub fn is_shared(&self) -> bool {
        match self {
            DataFile::Table(meta) => meta.shared,
            DataFile::Vsst(meta) => meta.shared,
        }
    }

    /// True if only the list knows the file: in no version, under no description.
    fn is_unread(&self) -> bool {
        let (holders, copies) = match self {
            DataFile::Table(meta) => (Arc::strong_count(meta), &meta.copies),
            DataFile::Vsst(meta) => (Arc::strong_count(meta), &meta.copies),
        };
        (holders == 1 && Arc::strong_count(copies) == 1) || base::canary::is("removes-files-that-are-read")
    }
}

impl Obsolete {
    /// Takes over files whose removal from the manifest is durable.
    pub fn add(&self, files: impl IntoIterator<Item = DataFile>) {
        let mut pending = lock(&self.pending);
        pending.extend(files);
        self.count.store(pending.len(), Ordering::Release);
    }

    /// Files that nobody reads any more, taken off the list.
    pub fn take_ready(&self) -> Vec<DataFile> {
        let mut pending = lock(&self.pending);
        let (ready, held) = pending.drain(..).partition(DataFile::is_unread);
        *pending = held;
        self.count.store(pending.len(), Ordering::Release);
        ready
    }

    /// True if a file could be removed now.
    pub fn has_ready(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(DataFile::is_unread)
    }

    /// Numbers of the tables on the list, ascending; of more than `max` the latest to come.
    pub fn tables(&self, max: usize) -> Vec<u64> {
        let is_table = |file: &&DataFile| matches!(file, DataFile::Table(_));
        let pending = lock(&self.pending);
        let mut numbers: Vec<u64> =
            pending.iter().rev().filter(is_table).take(max).map(DataFile::number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Numbers of all files on the list.
    pub fn numbers(&self) -> Vec<u64> {
        lock(&self.pending).iter().map(DataFile::number).collect()
    }

    /// Names of all files on the list.
    pub fn names(&self) -> Vec<String> {
        lock(&self.pending).iter().map(|file| file.kind().to_string()).collect()
    }
}
