//! Operations of the log engine and their encoding in atomic batches.
//!
//! ```text
//! batch := version u8 | operation *, up to the end
//! operation := kind and flags u8 | [log varint, unless the flag says: that of the operation before] | the rest, by kind
//!   create: name | delete: | append: [lsn varint, unless the flag says: one more than that of the operation before] bytes
//!   trim: below varint | truncate: lsn varint | metadata: bytes
//! ```
//!
//! A batch may embed a batch of the host engine ([`store::secondary_engine`]). The embedded batch
//! comes first and counts as one operation; the batch then needs no others.
//!
//! Byte map: `docs/format/lavalog.md`. Operation `i` has the sequence number of the batch plus `i`,
//! so sequence numbers are not stored. Record bytes are stored unchanged, and writer and reader
//! both know their offset in the batch. So a record can be read from its page without decoding the
//! batch.
//!
//! Invariants: a batch has at least one operation. Decoded values are within the [`limits`], and no
//! stored number sizes an allocation. An unknown kind or flag comes from a newer release: the whole
//! batch is refused, since skipping a change is never correct.

use crate::entry::{LogId, Lsn};
use crate::limits;
use base::codec::{Reader, put_varint, varint_len};
use base::{Error, ErrorKind, Result};
use store::field::newer;
use store::secondary_engine::EmbeddedPrimaryBatch;

/// Format version of batches.
const VERSION: u8 = 1;

/// Flag: the operation has the same log as the previous one.
const SAME_LOG: u8 = 0x80;
/// Flag: the LSN is one more than that of the previous operation, an append to the same log.
const NEXT_LSN: u8 = 0x40;

/// Encoded kinds of operations.
mod kind {
    pub const CREATE: u8 = 1;
    pub const DELETE: u8 = 2;
    pub const APPEND: u8 = 3;
    pub const TRIM: u8 = 4;
    pub const TRUNCATE_AFTER: u8 = 5;
    pub const SET_METADATA: u8 = 6;
}

/// One operation on one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Creates a log.
    Create {
        /// Number of the new log, above the numbers of all earlier logs.
        log: LogId,
        /// Name, unique among living logs.
        name: &'a str,
    },
    /// Deletes a log with all its records.
    Delete {
        /// The log.
        log: LogId,
    },
    /// Appends a record to a log.
    Append {
        /// The log.
        log: LogId,
        /// The number of the record.
        lsn: Lsn,
        /// Bytes of the record.
        bytes: &'a [u8],
    },
    /// Removes all records below an LSN for good, and refuses later appends there.
    Trim {
        /// The log.
        log: LogId,
        /// First LSN that stays.
        below: Lsn,
    },
    /// Removes all existing records above an LSN. Later records can reuse these LSNs.
    TruncateAfter {
        /// The log.
        log: LogId,
        /// Last LSN that stays.
        lsn: Lsn,
    },
    /// Replaces the metadata of a log.
    SetMetadata {
        /// The log.
        log: LogId,
        /// The new metadata, opaque bytes.
        bytes: &'a [u8],
    },
}

/// Returns true if the operations take only a few bytes of log and may free more. Reserved space
/// exists for them. They may include metadata of limited size, in which users store their trim
/// position.
pub fn frees(ops: &[Op<'_>]) -> bool {
    let mut metadata_len = 0;
    let only_frees = ops.iter().all(|op| match op {
        Op::SetMetadata { bytes, .. } => {
            metadata_len += bytes.len();
            metadata_len <= limits::METADATA_LEN_MAX
        }
        op => op.frees(),
    });
    // An empty batch only asks for durability.
    only_frees && (ops.is_empty() || ops.iter().any(Op::frees))
}

impl<'a> Op<'a> {
    fn frees(&self) -> bool {
        matches!(self, Op::Trim { .. } | Op::TruncateAfter { .. } | Op::Delete { .. })
    }

    /// Returns the log of the operation.
    pub fn log(&self) -> LogId {
        match *self {
            Op::Create { log, .. }
            | Op::Delete { log }
            | Op::Append { log, .. }
            | Op::Trim { log, .. }
            | Op::TruncateAfter { log, .. }
            | Op::SetMetadata { log, .. } => log,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Op::Create { .. } => kind::CREATE,
            Op::Delete { .. } => kind::DELETE,
            Op::Append { .. } => kind::APPEND,
            Op::Trim { .. } => kind::TRIM,
            Op::TruncateAfter { .. } => kind::TRUNCATE_AFTER,
            Op::SetMetadata { .. } => kind::SET_METADATA,
        }
    }

    fn lsn(&self) -> Option<Lsn> {
        match *self {
            Op::Append { lsn, .. } | Op::Trim { below: lsn, .. } | Op::TruncateAfter { lsn, .. } => Some(lsn),
            _ => None,
        }
    }

    fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Op::Create { name, .. } => Some(name.as_bytes()),
            Op::Append { bytes, .. } | Op::SetMetadata { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Checks the operation against the limits.
    fn check(&self) -> Result<()> {
        let too_large = |what, len, max| {
            let why = format!("{what} of {len} bytes is over its limit of {max} bytes");
            Err(Error::new(ErrorKind::TooLarge, why))
        };
        let len = self.bytes().map_or(0, <[u8]>::len);
        match self {
            Op::Create { .. } if len == 0 => Err(Error::invalid("the name of a log is empty: give it one")),
            Op::Create { .. } if len > limits::NAME_LEN_MAX => {
                too_large("the name of a log", len, limits::NAME_LEN_MAX)
            }
            Op::Append { .. } if len > limits::RECORD_LEN_MAX => {
                too_large("a record", len, limits::RECORD_LEN_MAX)
            }
            Op::SetMetadata { .. } if len > limits::METADATA_LEN_MAX => {
                too_large("metadata of a log", len, limits::METADATA_LEN_MAX)
            }
            Op::Append { lsn, .. } if *lsn > limits::LSN_MAX => Err(Error::invalid(format!(
                "the LSN {lsn} of a record is above the largest LSN, {}",
                limits::LSN_MAX
            ))),
            _ => Ok(()),
        }
    }
}

/// Context of the next operation, from which it can omit fields.
#[derive(Clone, Copy, Debug, Default)]
struct PreviousOp {
    log: Option<LogId>,
    /// LSN after that of the previous operation, if that was an append.
    next_lsn: Option<Lsn>,
}

impl PreviousOp {
    fn after(op: &Op<'_>) -> PreviousOp {
        let next_lsn = match op {
            Op::Append { lsn, .. } => lsn.checked_add(1),
            _ => None,
        };
        PreviousOp { log: Some(op.log()), next_lsn }
    }

    /// Returns the first byte of an operation: kind and flags.
    fn lead(&self, op: &Op<'_>) -> u8 {
        let same_log = self.log == Some(op.log());
        let next = same_log && matches!(op, Op::Append { lsn, .. } if self.next_lsn == Some(*lsn));
        op.kind() | if same_log { SAME_LOG } else { 0 } | if next { NEXT_LSN } else { 0 }
    }
}

/// A batch under construction. It borrows the bytes of records; [`Batch::pieces`] returns the
/// encoded batch as slices.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Encoded batch without the bytes of operations.
    head: Vec<u8>,
    /// Bytes of operations, each with the length of `head` that precedes them.
    bodies: Vec<(usize, &'a [u8])>,
    count: usize,
    len: usize,
    before: PreviousOp,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Batch { head: vec![VERSION], bodies: Vec::new(), count: 0, len: 1, before: PreviousOp::default() }
    }
}

impl<'a> Batch<'a> {
    /// Creates an empty batch.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Creates a batch with an embedded batch of the host engine.
    ///
    /// # Errors
    /// `TooLarge` if the embedded batch does not fit.
    pub fn carrying(embedded: &EmbeddedPrimaryBatch<'a>) -> Result<Batch<'a>> {
        let mut batch = Batch { head: embedded.head(), ..Batch::default() };
        let end = batch.head.len();
        batch.bodies.extend(embedded.pieces.iter().map(|piece| (end, *piece)));
        batch.len = end + embedded.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        batch.count = 1;
        if batch.len > limits::BATCH_LEN_MAX {
            let why = format!(
                "an embedded batch of {} bytes is over the limit of {} bytes: split the batch",
                batch.len,
                limits::BATCH_LEN_MAX
            );
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        Ok(batch)
    }

    /// Adds an operation. Returns the offset of its bytes in the batch (of its end, if it has no
    /// bytes).
    ///
    /// # Errors
    /// `TooLarge` if the name, the record, the metadata or the batch would be too long, or has too
    /// many operations. `InvalidArgument` for an empty name or an LSN above the largest. The batch
    /// is then unchanged.
    pub fn push(&mut self, op: Op<'a>) -> Result<usize> {
        op.check()?;
        let lead = self.before.lead(&op);
        let body = op.bytes();
        let log = (lead & SAME_LOG == 0).then_some(op.log());
        let lsn = op.lsn().filter(|_| lead & NEXT_LSN == 0);
        let numbers = [log, lsn, body.map(|bytes| bytes.len() as u64)];
        let head_len = 1 + numbers.iter().flatten().map(|n| varint_len(*n)).sum::<usize>();
        let at = self.len + head_len;
        let len = at + body.map_or(0, <[u8]>::len);
        if len > limits::BATCH_LEN_MAX || self.count == limits::OPS_MAX {
            let why = format!(
                "a batch of {} operations and {len} bytes is over the limit of {} operations or {} bytes: split the batch",
                self.count + 1,
                limits::OPS_MAX,
                limits::BATCH_LEN_MAX
            );
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        self.head.push(lead);
        numbers.iter().flatten().for_each(|n| put_varint(&mut self.head, *n));
        self.bodies.extend(body.map(|bytes| (self.head.len(), bytes)));
        (self.len, self.count, self.before) = (len, self.count + 1, PreviousOp::after(&op));
        Ok(at)
    }

    /// Returns the number of operations, which is also the number of sequence numbers it takes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns true if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the length of the encoded batch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the encoded batch as slices, in order.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let mut out = Vec::with_capacity(2 * self.bodies.len() + 1);
        let mut from = 0;
        for (at, body) in &self.bodies {
            out.extend([&self.head[from..*at], body]);
            from = *at;
        }
        out.push(&self.head[from..]);
        out.retain(|piece| !piece.is_empty());
        out
    }
}

/// One decoded operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRead<'a> {
    /// Index in the batch. The operation's sequence number is that of the batch plus this.
    pub index: usize,
    /// The operation.
    pub op: Op<'a>,
    /// Offset of its bytes in the batch (of its end, if it has no bytes).
    pub offset: usize,
}

/// Iterator over the operations of an encoded batch. It ends after an error.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    rest: Reader<'a>,
    len: usize,
    index: usize,
    before: PreviousOp,
    failed: bool,
}

impl<'a> Ops<'a> {
    /// Decodes the start of a batch.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote the batch. `Corruption` if the batch is empty or too
    /// long.
    pub fn of(batch: &'a [u8]) -> Result<Ops<'a>> {
        if let Some(embedded) = EmbeddedPrimaryBatch::read(batch)?
            && batch.len() <= limits::BATCH_LEN_MAX
        {
            let rest = Reader::new(embedded.rest);
            return Ok(Ops {
                rest,
                len: batch.len(),
                index: 1,
                before: PreviousOp::default(),
                failed: false,
            });
        }
        let mut rest = Reader::new(batch);
        match rest.u8()? {
            VERSION => {}
            0 => {
                return Err(Error::corruption(
                    "a batch of log operations has the version 0, which no release writes",
                ));
            }
            version => return Err(newer(format!("version {version} of batches of log operations"))),
        }
        if rest.is_empty() || batch.len() > limits::BATCH_LEN_MAX {
            return Err(Error::corruption(format!(
                "a batch of log operations has {} bytes, instead of 2 to {} bytes",
                batch.len(),
                limits::BATCH_LEN_MAX
            )));
        }
        Ok(Ops { rest, len: batch.len(), index: 0, before: PreviousOp::default(), failed: false })
    }

    fn read(&mut self) -> Result<OpRead<'a>> {
        if self.index == limits::OPS_MAX {
            return Err(Error::corruption(format!(
                "a batch has over {} log operations, the limit",
                limits::OPS_MAX
            )));
        }
        let r = &mut self.rest;
        let lead = r.u8()?;
        let (kind, same_log, next_lsn) =
            (lead & !(SAME_LOG | NEXT_LSN), lead & SAME_LOG != 0, lead & NEXT_LSN != 0);
        if !(kind::CREATE..=kind::SET_METADATA).contains(&kind) || (next_lsn && kind != kind::APPEND) {
            return Err(newer(format!("kind {lead:#04x} of log operations")));
        }
        let nothing_before = || {
            Error::corruption("a log operation takes its log or LSN from the one before it, which has none")
        };
        let log = if same_log { self.before.log.ok_or_else(nothing_before)? } else { r.varint()? };
        let mut lsn = || match next_lsn {
            true => self.before.next_lsn.filter(|_| same_log).ok_or_else(nothing_before),
            false => r.varint(),
        };
        let op = match kind {
            kind::CREATE => {
                let name = std::str::from_utf8(r.bytes()?);
                Op::Create {
                    log,
                    name: name.map_err(|_| {
                        Error::corruption("the name of a log that a batch creates is not UTF-8")
                    })?,
                }
            }
            kind::DELETE => Op::Delete { log },
            kind::APPEND => Op::Append { log, lsn: lsn()?, bytes: r.bytes()? },
            kind::TRIM => Op::Trim { log, below: lsn()? },
            kind::TRUNCATE_AFTER => Op::TruncateAfter { log, lsn: lsn()? },
            _ => Op::SetMetadata { log, bytes: r.bytes()? },
        };
        op.check().map_err(store::field::damaged)?;
        let offset = self.len - r.rest().len() - op.bytes().map_or(0, <[u8]>::len);
        let index = self.index;
        (self.index, self.before) = (index + 1, PreviousOp::after(&op));
        Ok(OpRead { index, op, offset })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<OpRead<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        self.failed = read.is_err();
        Some(read)
    }
}

#[cfg(test)]
mod tests;
