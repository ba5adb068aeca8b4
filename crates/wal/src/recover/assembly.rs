//! Assembly of batches from the fragments of pages.

use super::LoggedBatch;
use crate::page::{Fragment, FragmentKind};
use crate::place::LogAddress;
use crate::tenant::TenantId;
use base::limits::BATCH_LEN_MAX;
use base::{Error, Result, SeqNo};

/// Assembler of fragments.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(super) partial: Option<Partial>,
    /// The first fragments may be the rest of a batch whose beginning is not read.
    pub(super) begins_inside: bool,
}

/// A batch without its end.
#[derive(Debug)]
pub(super) struct Partial {
    tenant: TenantId,
    place: LogAddress,
    first_seq: SeqNo,
    last_seq: SeqNo,
    len: usize,
    /// The bytes so far.
    bytes: Vec<u8>,
}

/// A complete batch.
pub(crate) struct Whole {
    tenant: TenantId,
    first_seq: SeqNo,
    last_seq: SeqNo,
    place: LogAddress,
    /// `None`: the payload of the fragment, which is the whole batch.
    bytes: Option<Vec<u8>>,
}

impl Whole {
    /// Returns the batch, given its last fragment.
    pub fn batch<'a>(&'a self, last: &Fragment<'a>) -> LoggedBatch<'a> {
        let Whole { tenant, first_seq, last_seq, place, .. } = *self;
        let bytes = self.bytes.as_deref().unwrap_or(last.payload);
        LoggedBatch { tenant, first_seq, last_seq, place, bytes }
    }
}

impl Assembly {
    /// Returns true if the beginning of a batch was added, and not its end.
    pub(crate) fn has_begun(&self) -> bool {
        self.partial.is_some()
    }

    /// Drops the beginning of a batch.
    pub(crate) fn forget(&mut self) {
        self.partial = None;
    }

    /// Adds the next fragment of the log, in the page at `page`. The memory used never exceeds the
    /// actual fragments.
    pub(crate) fn add(&mut self, fragment: &Fragment<'_>, page: LogAddress) -> Result<Option<Whole>> {
        let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
        let ends = matches!(fragment.kind, FragmentKind::Full | FragmentKind::Last);
        let mut batch = match (begins, fragment.batch, self.partial.take()) {
            (true, Some(batch), None) => {
                let last_seq = batch.first_seq.checked_add(u64::from(batch.seq_span));
                let last_seq = last_seq.ok_or_else(|| disorder("has a last sequence number over 64 bits"))?;
                let (tenant, first_seq, len) = (batch.tenant, batch.first_seq, batch.len as usize);
                let place = page.in_page(fragment.pos + fragment.kind.header_len());
                Partial { tenant, place, first_seq, last_seq, len, bytes: Vec::new() }
            }
            (false, None, Some(partial)) => partial,
            (false, None, None) if self.begins_inside => return Ok(None),
            (true, ..) => return Err(disorder("begins before the end of the batch before it")),
            (false, ..) => return Err(disorder("continues without its first part")),
        };
        self.begins_inside = false;
        let Partial { tenant, place, first_seq, last_seq, len, .. } = batch;
        let have = batch.bytes.len() + fragment.payload.len();
        if len > BATCH_LEN_MAX || have > len || (have == len) != ends {
            return Err(disorder(&format!(
                "has {have} bytes up to this page, which do not fit the {len} bytes in its header (at most {BATCH_LEN_MAX})"
            )));
        }
        if fragment.tenant != tenant {
            return Err(disorder("has parts of two engines of the store"));
        }
        if begins && ends {
            return Ok(Some(Whole { tenant, first_seq, last_seq, place, bytes: None }));
        }
        batch.bytes.extend_from_slice(fragment.payload);
        if ends {
            return Ok(Some(Whole { tenant, first_seq, last_seq, place, bytes: Some(batch.bytes) }));
        }
        self.partial = Some(batch);
        Ok(None)
    }
}

/// Returns an error for pages that are intact and contradict each other: a bug, or a forgery.
pub(super) fn disorder(what: &str) -> Error {
    Error::corruption(format!("a batch in the log {what}"))
}
