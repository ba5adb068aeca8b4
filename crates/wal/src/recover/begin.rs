//! A log that begins inside its oldest group.
//!
//! The manifest records the place ([`LogBegin`]): every batch with a part before it is durably in
//! tables, and its pages may never have been written. So nothing before that place is read. The run
//! of accepted pages begins as if all earlier pages existed: with the number and the fill of the
//! last page before. The first page may continue a batch that began earlier, which is skipped.
//!
//! All pages below count as durable. A page opened after they were skipped records the same in
//! `durable_end`, so the log is refused if the manifest has lost the beginning.

use super::{Accepted, Cursor, Scan};
use crate::history::Chain;
use crate::tenant::Spans;

impl Scan<'_> {
    /// Enters a group in which the log may begin. Returns the offset of the first page to read.
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
