//! The pages, owners and arrival times of batches that are not known to be durable.
//!
//! One note stands for the batches of a tenant that begin in the same page and end in the same
//! page. So there are at most about two notes for each page and tenant. Notes are in log order:
//! their pages ascend, and for each tenant their sequences.
//!
//! Invariant: every batch that a tenant may need has a note, or is counted in `gone`.

use crate::page::BatchHeader;
use crate::tenant::{Span, Spans, TenantId};
use base::SeqNo;
use std::collections::VecDeque;

/// Batches of a tenant that begin and end in the same pages.
#[derive(Clone, Copy, Debug)]
struct Note {
    tenant: TenantId,
    /// The highest sequence of the batches.
    last_seq: SeqNo,
    /// The page in which the batches begin, then the one in which they end.
    first_lpn: u64,
    last_lpn: u64,
    /// Arrival of the first batch, in clock nanoseconds.
    since_ns: u64,
}

/// Notes of the log; see the module.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    all: VecDeque<Note>,
    /// Sequences of the batches whose notes were dropped: they are durable, or were skipped.
    gone: Spans,
    /// First page of a batch that is being appended, across waits for the tail buffer.
    begun: Option<u64>,
}

impl Notes {
    /// Notes the first page of a batch, since readers may look before the batch ends.
    pub fn begin(&mut self, first_lpn: u64) {
        self.begun = Some(first_lpn);
    }

    /// Notes a batch in the pages from `first_lpn` to `last_lpn`. `now_ns` is called for the first
    /// batch in its page.
    pub fn add(
        &mut self,
        header: BatchHeader,
        (first_lpn, last_lpn): (u64, u64),
        now_ns: impl FnOnce() -> u64,
    ) {
        let last_seq = header.last_seq();
        self.begun = None;
        // Tenants may alternate in a page.
        let here = self.all.iter_mut().rev();
        let mut here = here.take_while(|note| (note.first_lpn, note.last_lpn) == (first_lpn, last_lpn));
        match here.find(|note| note.tenant == header.tenant) {
            Some(own) => own.last_seq = last_seq,
            None => {
                let since_ns = now_ns();
                self.all.push_back(Note { tenant: header.tenant, last_seq, first_lpn, last_lpn, since_ns });
            }
        }
    }

    /// Drops the notes of pages that are durable, or before the beginning of the log.
    pub fn forget_below(&mut self, durable_end: u64) {
        while let Some(note) = self.all.front().filter(|note| note.last_lpn < durable_end) {
            self.gone.add(note.tenant, note.last_seq, note.last_seq);
            self.all.pop_front();
        }
    }

    /// Returns the first page that a tenant needs, provided that no batch without a note is needed.
    /// `next_lpn`: no page is needed.
    pub fn needed_from(&self, next_lpn: u64, floors: &[(TenantId, SeqNo)]) -> Option<u64> {
        if self.gone.are_needed(floors) {
            return None;
        }
        let is_needed = |note: &&Note| {
            let Note { tenant, last_seq, .. } = **note;
            Span { tenant, first: last_seq, last: last_seq }.is_needed(floors)
        };
        let needed = self.all.iter().find(is_needed).map(|note| note.first_lpn);
        let lpn = needed.or(self.begun).unwrap_or(next_lpn);
        Some(lpn)
    }

    /// Returns the end of the pages with a record from `until_ns` or before; 0 if there are none.
    pub fn aged_end(&self, until_ns: u64) -> u64 {
        let aged = self.all.partition_point(|note| note.since_ns <= until_ns);
        aged.checked_sub(1).and_then(|last| self.all.get(last)).map_or(0, |note| note.last_lpn + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tenant: u8, seq: SeqNo) -> BatchHeader {
        BatchHeader { tenant: TenantId(tenant), first_seq: seq, seq_span: 0, len: 1 }
    }

    const A: TenantId = TenantId(0);
    const B: TenantId = TenantId(1);

    #[test]
    fn the_log_is_kept_from_the_start_of_the_oldest_needed_batch() {
        let mut notes = Notes::default();
        assert_eq!(notes.needed_from(7, &[]), Some(7), "nothing is in it");
        // Two batches in page 1, one in pages 1 to 3, one of another tenant in page 3, one in page
        // 4.
        let batches = [(0, 1, 1, 1), (0, 2, 1, 1), (0, 3, 1, 3), (1, 9, 3, 3), (0, 4, 4, 4)];
        for (tenant, seq, first, last) in batches {
            notes.add(header(tenant, seq), (first, last), || seq * 10);
        }
        assert_eq!(notes.all.len(), 4, "one note for the first two");
        let from = |notes: &Notes, a, b| notes.needed_from(5, &[(A, a), (B, b)]);
        assert_eq!((from(&notes, 1, 10), from(&notes, 2, 10)), (Some(1), Some(1)));
        assert_eq!(from(&notes, 3, 10), Some(1), "it begins there");
        assert_eq!(
            (from(&notes, 4, 9), from(&notes, 4, 10), from(&notes, 5, 10)),
            (Some(3), Some(4), Some(5))
        );
        assert_eq!(notes.needed_from(5, &[(A, 5)]), Some(3), "who states no floor needs all it has");

        notes.forget_below(3);
        assert_eq!((notes.all.len(), from(&notes, 2, 10)), (3, None), "what is gone is needed");
        notes.forget_below(4);
        assert_eq!((notes.all.len(), from(&notes, 3, 10), from(&notes, 4, 9)), (1, None, None));
        assert_eq!(from(&notes, 4, 10), Some(4));
    }

    #[test]
    fn alternating_tenants_take_one_note_each_per_page() {
        let mut notes = Notes::default();
        for seq in 1..=20 {
            notes.add(header((seq % 2) as u8, seq), (1, 1), || seq * 10);
        }
        notes.add(header(0, 21), (1, 2), || 210);
        notes.add(header(0, 22), (2, 2), || 220);
        assert_eq!(notes.all.len(), 4);
        let from = |a, b| notes.needed_from(3, &[(A, a), (B, b)]);
        assert_eq!(
            (from(20, 20), from(21, 19), from(22, 20), from(23, 20)),
            (Some(1), Some(1), Some(2), Some(3))
        );
        assert_eq!(
            (notes.aged_end(9), notes.aged_end(10), notes.aged_end(20), notes.aged_end(210)),
            (0, 2, 2, 3)
        );
    }

    #[test]
    fn pages_are_as_old_as_their_oldest_record() {
        let mut notes = Notes::default();
        for (seq, lpn) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            notes.add(header(0, seq), (lpn, lpn), || seq * 10);
        }
        let ends: Vec<u64> = [9, 10, 29, 30, 40].iter().map(|&until_ns| notes.aged_end(until_ns)).collect();
        assert_eq!(ends, [0, 2, 2, 3, 4]);
    }
}
