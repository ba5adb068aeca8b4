//! Files that no manifest edit names any more, waiting for their last reader.
//!
//! A table is removed only after the edit that drops it is durable (only then is it added here) **and** the last Version
//! that holds it is gone. Versions hold tables by reference count, so the second condition is that this list holds the
//! only reference. A table that was moved or marked as shared has several descriptions, one in each of the versions
//! before and after; they count as one ([`FileMeta::copies`]). Readers that let go of a view wake the clean-up.

use base::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use version::FileMeta;

#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    pending: Mutex<Vec<Arc<FileMeta>>>,
    count: AtomicUsize,
}

impl Obsolete {
    /// Takes over tables whose removal from the manifest is durable.
    pub fn add(&self, files: impl IntoIterator<Item = Arc<FileMeta>>) {
        let mut pending = lock(&self.pending);
        pending.extend(files);
        self.count.store(pending.len(), Ordering::Release);
    }

    /// Tables that nobody reads any more, taken off the list.
    pub fn take_ready(&self) -> Vec<Arc<FileMeta>> {
        let mut pending = lock(&self.pending);
        let (ready, held) = pending.drain(..).partition(is_unread);
        *pending = held;
        self.count.store(pending.len(), Ordering::Release);
        ready
    }

    /// True if a table could be removed now.
    pub fn has_ready(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(is_unread)
    }

    /// Numbers of all tables on the list.
    pub fn numbers(&self) -> Vec<u64> {
        lock(&self.pending).iter().map(|f| f.number).collect()
    }
}

/// True if only the list knows the table: in no version, under no description.
fn is_unread(file: &Arc<FileMeta>) -> bool {
    Arc::strong_count(file) == 1 && Arc::strong_count(&file.copies) == 1
}
