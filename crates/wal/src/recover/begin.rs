//! A log that begins inside its oldest group.
//!
//! The manifest says where ([`LogBegin`]): every batch with a part before is in tables, durably, and its pages were perhaps never
//! written. So nothing before that place is looked at, and the run of accepted pages begins as if all of it had been there: with the number and the
//! fill of the last page before. The first page may go on with a batch that began before it, which is passed over.
//!
//! All pages below count as durable: who opened a page after they were skipped says the same (`durable_end`), and where the manifest
//! does not know it any more, the log is refused.

use super::{Accepted, Cursor, Scan};
use crate::history::Chain;
use crate::tenant::Spans;

impl Scan<'_> {
    /// Enters a group, in whose middle the log may begin. Returns the offset of the first page to be looked at.
    pub(super) fn begin(&mut self, cursor: &mut Cursor<'_>) -> u64 {
        if let Some(last) = self.last.take() {
            return self.begin_at(cursor, last);
        }
        let Some(begin) = cursor.group.begin else { return 0 };
        cursor.first_lpn = Some(begin.first_lpn);
        self.origin = begin.lpn;
        self.durable_end = self.durable_end.max(begin.lpn);
        let offset = begin.offset(self.lane);
        if offset == 0 {
            return 0;
        }
        let (ltn, end_lpn, used) = (cursor.group.ltn, begin.lpn, begin.used);
        self.end = Some(Chain { ltn, end_lpn, used });
        self.end_sealed = cursor.group.sealed_end.is_some();
        self.assembly.begins_inside = true;
        self.accepted.push(Accepted {
            group: cursor.index,
            first_lpn: begin.first_lpn,
            end_lpn,
            used,
            seqs: Spans::default(),
        });
        offset
    }
}
