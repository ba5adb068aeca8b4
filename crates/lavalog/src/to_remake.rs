//! Which groups' rows are to be made again, and what was tried: each file once, so that who meets the same damage again and again reads
//! no group again and again.

use crate::entry::Source;
use crate::files::RowFiles;
use base::SeqNo;
use base::sync::{Mutex, lock, rank};
use std::collections::{BTreeMap, BTreeSet};

/// Why the rows of a group are to be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// They are in memory, and in no file; the sequences of the group.
    InMemory((SeqNo, SeqNo)),
    /// Somebody met a block that is damaged.
    Damaged,
}

/// The index files to make again, shared by the readers that meet damage and the job that mends it.
#[derive(Debug, Default)]
pub(crate) struct Remakes {
    /// Guards which index files are to be made again.
    queue: Mutex<ToRemake, rank::RecordRemakes>,
}

impl Remakes {
    /// Of what an open found lost.
    pub fn new(found: ToRemake) -> Remakes {
        Remakes { queue: Mutex::new(found) }
    }

    /// True if there is something to do.
    pub fn is_wanted(&self) -> bool {
        lock(&self.queue).is_wanted()
    }

    /// True if the rows of a group are in memory and in no file: they cannot be collected by it.
    pub fn is_in_memory(&self, source: Source) -> bool {
        lock(&self.queue).is_in_memory(source)
    }

    /// Rows of these groups may be damaged: a collection met something.
    pub fn check(&self, rows: &RowFiles, sources: &[Source]) {
        for source in sources {
            if let (Source::Group(ltn), Some(number)) = (source, rows.number(*source)) {
                lock(&self.queue).want(*ltn, number);
            }
        }
    }

    /// A reader met damage in the file of this number. True if it is worth a wait: the file was not tried, and the job is not late.
    pub fn is_worth_a_wait(&self, ltn: u64, number: u64) -> bool {
        let mut queue = lock(&self.queue);
        queue.want(ltn, number) && !queue.is_late(number)
    }

    /// True if the file of this number was tried.
    pub fn is_tried(&self, number: u64) -> bool {
        lock(&self.queue).is_tried(number)
    }

    /// Notes that a reader has waited for the file of this number in vain.
    pub fn note_late(&self, number: u64) {
        lock(&self.queue).note_late(number);
    }

    /// The oldest group whose rows are to be made again, and the number of its index file.
    pub fn first(&self) -> Option<(u64, u64, Why)> {
        lock(&self.queue).first()
    }

    /// The rows of a group are in memory, and the file of this number is lost; with the sequences of the group.
    pub fn in_memory(&self, ltn: u64, number: u64, seqs: (SeqNo, SeqNo)) {
        lock(&self.queue).in_memory(ltn, number, seqs);
    }

    /// It was tried.
    pub fn done(&self, ltn: u64, number: u64) {
        lock(&self.queue).done(ltn, number);
    }
}

/// What is to be made again, and what was tried.
#[derive(Debug, Default)]
pub(crate) struct ToRemake {
    /// By group: the number of the index file.
    wanted: BTreeMap<u64, (u64, Why)>,
    /// The numbers of files that were tried, with whatever outcome.
    tried: BTreeSet<u64>,
    /// The numbers of files that a reader has waited for in vain: the job is late, and the next readers do not wait.
    late: BTreeSet<u64>,
}

impl ToRemake {
    /// True if there is something to do.
    pub fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// True if the rows of a group are in memory and in no file: they cannot be collected by it.
    pub fn is_in_memory(&self, source: Source) -> bool {
        let wanted = |ltn| self.wanted.get(&ltn);
        matches!(source, Source::Group(ltn) if matches!(wanted(ltn), Some((_, Why::InMemory(_)))))
    }

    /// Somebody met damage in the file of this number. False if that was tried already.
    pub fn want(&mut self, ltn: u64, number: u64) -> bool {
        let is_new = !self.tried.contains(&number);
        if is_new {
            self.wanted.entry(ltn).or_insert((number, Why::Damaged));
        }
        is_new
    }

    /// It was tried.
    pub fn done(&mut self, ltn: u64, number: u64) {
        self.wanted.remove(&ltn);
        self.late.remove(&number);
        self.tried.insert(number);
    }

    /// The rows of a group are in memory, and the file of this number is lost; with the sequences of the group.
    pub fn in_memory(&mut self, ltn: u64, number: u64, seqs: (SeqNo, SeqNo)) {
        self.wanted.insert(ltn, (number, Why::InMemory(seqs)));
    }

    /// The oldest group whose rows are to be made again, and the number of its index file.
    pub fn first(&self) -> Option<(u64, u64, Why)> {
        self.wanted.first_key_value().map(|(ltn, (number, why))| (*ltn, *number, *why))
    }

    /// Notes that a reader has waited for the file of this number in vain.
    pub fn note_late(&mut self, number: u64) {
        if !self.tried.contains(&number) {
            self.late.insert(number);
        }
    }

    /// True if a reader has waited for the file of this number in vain, and no job has tried it since.
    pub fn is_late(&self, number: u64) -> bool {
        self.late.contains(&number)
    }

    /// True if the file of this number was tried.
    pub fn is_tried(&self, number: u64) -> bool {
        self.tried.contains(&number)
    }
}
