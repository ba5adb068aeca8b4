//! Rows of a log group, read from its pages: the origin of its index file.

use crate::entry::{Entry, LogId, Lsn};
use crate::log_writer::place_of;
use crate::manifest::TENANT;
use crate::ops::{Op, Ops};
use base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use store::commit::LoggedBatch;

/// Returns true if a file or a group is damaged or missing, so that another source of its rows may
/// help.
pub(crate) fn is_damage(e: &Error) -> bool {
    e.is_corruption() || e.kind() == ErrorKind::NotFound
}

/// Collects the rows of the wanted records of a batch. For each LSN, the row with the highest
/// sequence number stays.
pub(crate) fn take_rows(
    rows: &mut BTreeMap<(LogId, Lsn), Entry>,
    batch: &LoggedBatch<'_>,
    is_wanted: impl Fn(LogId, Lsn) -> bool,
) -> Result<()> {
    if batch.tenant != TENANT {
        return Ok(());
    }
    for op in Ops::of(batch.bytes)? {
        let op = op?;
        let Op::Append { log, lsn, bytes } = op.op else { continue };
        if is_wanted(log, lsn) {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let (seq, at) = (batch.first_seq + op.index as u64, place_of(batch.place.at(op.offset)).at);
            let row = rows.entry((log, lsn)).or_insert(Entry { log, lsn, seq, at, len });
            if row.seq < seq {
                *row = Entry { log, lsn, seq, at, len };
            }
        }
    }
    Ok(())
}
