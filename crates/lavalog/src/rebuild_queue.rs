//! The queue of index files to rebuild. Each file is tried once, so that repeated reads of the same
//! damage do not read the group repeatedly.

use crate::entry::Source;
use crate::files::RowFiles;
use base::SeqNo;
use base::sync::{Mutex, lock, rank};
use std::collections::{BTreeMap, BTreeSet};

/// Reason to rebuild an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildReason {
    /// The rows are only in memory. With the first and last sequence number of the group.
    InMemory((SeqNo, SeqNo)),
    /// A reader met a damaged block.
    Damaged,
}

/// The queue of index files to rebuild, shared by readers and the job.
#[derive(Debug, Default)]
pub(crate) struct RebuildQueue {
    /// Guards the queue.
    queue: Mutex<ToRemake, rank::RecordRemakes>,
}

impl RebuildQueue {
    /// Creates the queue with the losses found at open.
    pub fn new(found: ToRemake) -> RebuildQueue {
        RebuildQueue { queue: Mutex::new(found) }
    }

    /// Returns true if the queue is not empty.
    pub fn is_wanted(&self) -> bool {
        lock(&self.queue).is_wanted()
    }

    /// Returns true if the rows of a group are only in memory, so that it cannot be collected.
    pub fn is_in_memory(&self, source: Source) -> bool {
        lock(&self.queue).is_in_memory(source)
    }

    /// Queues the index files of sources in which a collection met damage.
    pub fn check(&self, rows: &RowFiles, sources: &[Source]) {
        for source in sources {
            if let (Source::Group(ltn), Some(number)) = (source, rows.number(*source)) {
                lock(&self.queue).want(*ltn, number);
            }
        }
    }

    /// Queues an index file in which a reader met damage. Returns true if waiting is worthwhile:
    /// the file was not tried, and the job is not late.
    pub fn is_worth_a_wait(&self, ltn: u64, number: u64) -> bool {
        let mut queue = lock(&self.queue);
        queue.want(ltn, number) && !queue.is_late(number)
    }

    /// Returns true if the file of this number was tried.
    pub fn is_tried(&self, number: u64) -> bool {
        lock(&self.queue).is_tried(number)
    }

    /// Notes that a reader waited for this file in vain.
    pub fn note_late(&self, number: u64) {
        lock(&self.queue).note_late(number);
    }

    /// Returns the oldest group to rebuild, the number of its index file, and the reason.
    pub fn first(&self) -> Option<(u64, u64, RebuildReason)> {
        lock(&self.queue).first()
    }

    /// Notes that the rows of a group are in memory and its index file is lost. `seqs` are the
    /// first and last sequence number of the group.
    pub fn in_memory(&self, ltn: u64, number: u64, seqs: (SeqNo, SeqNo)) {
        lock(&self.queue).in_memory(ltn, number, seqs);
    }

    /// Notes that the file was tried.
    pub fn done(&self, ltn: u64, number: u64) {
        lock(&self.queue).done(ltn, number);
    }
}

/// The queue of index files to rebuild, and the files already tried.
#[derive(Debug, Default)]
pub(crate) struct ToRemake {
    /// By group: the number of the index file, and the reason.
    wanted: BTreeMap<u64, (u64, RebuildReason)>,
    /// Numbers of the files tried, successfully or not.
    tried: BTreeSet<u64>,
    /// Numbers of files for which a reader waited in vain: the job is late, and later readers do
    /// not wait.
    late: BTreeSet<u64>,
}

impl ToRemake {
    /// Returns true if the queue is not empty.
    pub fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns true if the rows of a group are only in memory, so that it cannot be collected.
    pub fn is_in_memory(&self, source: Source) -> bool {
        let wanted = |ltn| self.wanted.get(&ltn);
        matches!(source, Source::Group(ltn) if matches!(wanted(ltn), Some((_, RebuildReason::InMemory(_)))))
    }

    /// Queues an index file with damage. Returns false if it was tried already.
    pub fn want(&mut self, ltn: u64, number: u64) -> bool {
        let is_new = !self.tried.contains(&number);
        if is_new {
            self.wanted.entry(ltn).or_insert((number, RebuildReason::Damaged));
        }
        is_new
    }

    /// Notes that the file was tried.
    pub fn done(&mut self, ltn: u64, number: u64) {
        self.wanted.remove(&ltn);
        self.late.remove(&number);
        self.tried.insert(number);
    }

    /// Notes that the rows of a group are in memory and its index file is lost. `seqs` are the
    /// first and last sequence number of the group.
    pub fn in_memory(&mut self, ltn: u64, number: u64, seqs: (SeqNo, SeqNo)) {
        self.wanted.insert(ltn, (number, RebuildReason::InMemory(seqs)));
    }

    /// Returns the oldest group to rebuild, the number of its index file, and the reason.
    pub fn first(&self) -> Option<(u64, u64, RebuildReason)> {
        self.wanted.first_key_value().map(|(ltn, (number, why))| (*ltn, *number, *why))
    }

    /// Notes that a reader waited for this file in vain.
    pub fn note_late(&mut self, number: u64) {
        if !self.tried.contains(&number) {
            self.late.insert(number);
        }
    }

    /// Returns true if a reader waited for this file in vain, and no job has tried it since.
    pub fn is_late(&self, number: u64) -> bool {
        self.late.contains(&number)
    }

    /// Returns true if the file of this number was tried.
    pub fn is_tried(&self, number: u64) -> bool {
        self.tried.contains(&number)
    }
}
