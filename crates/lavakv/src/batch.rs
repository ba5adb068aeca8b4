//! Write batches: changes over any column families that are applied atomically.
//!
//! Encoding in the write-ahead log:
//!
//! ```text
//! batch := first_seq u64 | count u32 | entry * count
//! entry := kind u8 | family varint | key_len varint | key | [value_len varint | value]
//! ```
//!
//! Entry `i` has sequence `first_seq + i`. Tombstones have no value. The key of a range tombstone
//! is its start, the value its end (exclusive). A single put is logged in the same encoding without
//! building a batch ([`Change`]). A value above a quarter of a log group goes into a segment before
//! the batch is logged. Its entry then holds the reference (see `segments`).

pub(crate) mod frame;
pub(crate) mod payload;
mod range;

use crate::tree::family::ColumnFamily;
use base::codec::Reader;
use base::{Error, ErrorKind, Result, SeqNo, ValueKind, limits};
use frame::Frame;
use range::Deletion;
use std::ops::Bound;
use table::SegmentReference;
use table::segment::RecordReference;
use version::FamilyId;

/// Bytes before the first entry.
pub const HEADER_LEN: usize = 12;

/// Changes applied atomically. Limits, checked by the write: keys of 64 KB, values of 1 GiB, and 16
/// MB in total. Values above a quarter of [`crate::ExpertOptions::log_group_bytes`] get files of
/// their own and do not count towards the total.
///
/// ```no_run
/// # use lavastore_lavakv::{Db, WriteBatch};
/// # let db = Db::open("/tmp/example")?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"account/1", b"90");
/// batch.put(b"account/2", b"110");
/// db.write(&batch)?;
/// # Ok::<(), lavastore_lavakv::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    body: Vec<u8>,
    count: u32,
    error: Option<Error>,
    families: Vec<FamilyId>,
    figures: BatchFigures,
}

/// Figures of a batch for the write path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchFigures {
    /// Bytes of the longest value.
    pub longest_value: usize,
    /// True if some key is empty, which not every format allows. An empty start of a range does not
    /// count: every format allows it.
    pub has_empty_key: bool,
    /// True if some change is a merge operand, which the operator of its family checks.
    pub has_operands: bool,
    /// Number of deletes.
    pub deletes: u32,
    /// Bytes of keys and values of the other changes.
    pub data_bytes: usize,
}

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` in the default family.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(ValueKind::Value, DEFAULT_FAMILY, key, value);
    }

    /// Deletes `key` from the default family.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(ValueKind::Deletion, DEFAULT_FAMILY, key, &[]);
    }

    /// Adds a merge operand to `key` in the default family: see [`WriteBatch::merge_cf`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) {
        self.push(ValueKind::Merge, DEFAULT_FAMILY, key, operand);
    }

    /// Deletes `key` from the default family: see [`WriteBatch::single_delete_cf`].
    pub fn single_delete(&mut self, key: &[u8]) {
        self.push(ValueKind::SingleDeletion, DEFAULT_FAMILY, key, &[]);
    }

    /// Deletes every key in `[start, end)` of the default family.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.push(ValueKind::RangeDeletion, DEFAULT_FAMILY, start, end);
    }

    /// Sets `key` in a family.
    pub fn put_cf(&mut self, family: &ColumnFamily, key: &[u8], value: &[u8]) {
        self.push(ValueKind::Value, family.id(), key, value);
    }

    /// Deletes `key` from a family.
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: &[u8]) {
        self.push(ValueKind::Deletion, family.id(), key, &[]);
    }

    /// Adds a merge operand to `key` in a family, which reads and compactions fold into the value
    /// by the family's merge operator. The write fails with `InvalidArgument` if the family has
    /// none, or if the operator refuses the operand.
    pub fn merge_cf(&mut self, family: &ColumnFamily, key: &[u8], operand: &[u8]) {
        self.push(ValueKind::Merge, family.id(), key, operand);
    }

    /// Deletes `key` from a family. Tombstone and value vanish as soon as they meet in a compaction.
    /// For keys that are only put and single-deleted, in turn: after an overwrite, a merge or another
    /// kind of delete, older values of the key may come back.
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: &[u8]) {
        self.push(ValueKind::SingleDeletion, family.id(), key, &[]);
    }

    /// Deletes every key in `[start, end)` of a family.
    pub fn delete_range_cf(&mut self, family: &ColumnFamily, start: &[u8], end: &[u8]) {
        self.push(ValueKind::RangeDeletion, family.id(), start, end);
    }

    /// Deletes every key of a family between two bounds. Without an end it takes 128 KiB of the
    /// batch, since the batch then holds the largest possible key twice.
    pub fn delete_bounds_cf(&mut self, family: &ColumnFamily, bounds: (Bound<&[u8]>, Bound<&[u8]>)) {
        push_bounds(self, family.id(), bounds);
    }

    /// Deletes every key of the default family between two bounds: see
    /// [`WriteBatch::delete_bounds_cf`].
    pub fn delete_bounds(&mut self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) {
        push_bounds(self, DEFAULT_FAMILY, bounds);
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.body.clear();
        self.families.clear();
        (self.count, self.error, self.figures) = (0, None, BatchFigures::default());
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoded length in the log, bytes.
    pub fn byte_len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    /// Returns the changes in the encoding of the log, `count u32 | entry * count`, to store them;
    /// [`WriteBatch::decode`] reads them.
    pub fn encode(&self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.body].concat()
    }

    /// Reads a batch from the bytes of [`WriteBatch::encode`].
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(bytes: &[u8]) -> Result<WriteBatch> {
        let mut reader = Reader::new(bytes);
        let (count, mut batch) = (reader.u32()?, WriteBatch::new());
        let changes = BatchEntries { reader, value_len_max: limits::LARGE_VALUE_LEN_MAX as usize };
        for change in changes {
            let Change { kind, family, key, value } = change?;
            if kind == ValueKind::PlacedReference {
                let why = format!("a stored batch has an entry of the kind {kind:?}, which only the log has");
                return Err(Error::corruption(why));
            }
            batch.push(kind, family, key, value);
        }
        if batch.count != count {
            let why = format!("a stored batch has {} entries, expected {count}", batch.count);
            return Err(Error::corruption(why));
        }
        Ok(batch)
    }

    pub(crate) fn push(&mut self, kind: ValueKind, family: FamilyId, key: &[u8], value: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let change = Change { kind, family, key, value };
        let counted = self
            .count
            .checked_add(1)
            .ok_or_else(|| too_large("batch", self.byte_len(), limits::BATCH_LEN_MAX));
        match change.validate_to(limits::LARGE_VALUE_LEN_MAX as usize).and(counted) {
            Ok(count) => self.count = count,
            Err(e) => {
                self.error = Some(e);
                return;
            }
        }
        change.encode_into(&mut self.body);
        let figures = &mut self.figures;
        figures.longest_value = figures.longest_value.max(value.len());
        figures.has_empty_key |= change.has_empty_key();
        figures.has_operands |= kind == ValueKind::Merge;
        match change.is_delete() {
            true => figures.deletes += 1,
            false => figures.data_bytes += key.len() + value.len(),
        }
        if !self.families.contains(&family) {
            self.families.push(family);
        }
    }

    /// Fails if a change broke a limit, or if the batch is too long for the log without the
    /// `elsewhere` bytes in other files.
    pub(crate) fn check(&self, elsewhere: usize) -> Result<()> {
        self.check_changes()?;
        match self.byte_len().saturating_sub(elsewhere) {
            len if len > limits::BATCH_LEN_MAX => Err(too_large("batch", len, limits::BATCH_LEN_MAX)),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_changes(&self) -> Result<()> {
        match &self.error {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn families(&self) -> &[FamilyId] {
        &self.families
    }

    /// Returns the figures of its changes.
    pub(crate) fn figures(&self) -> &BatchFigures {
        &self.figures
    }
}

/// Adds a delete of every key between two bounds.
fn push_bounds(batch: &mut WriteBatch, family: FamilyId, bounds: (Bound<&[u8]>, Bound<&[u8]>)) {
    let Some(deletion) = Deletion::of(bounds) else { return };
    batch.push(ValueKind::RangeDeletion, family, &deletion.start, &deletion.end);
    if let Some(last) = deletion.last {
        batch.push(ValueKind::Deletion, family, last, &[]);
    }
}

fn too_large(what: &str, len: usize, max: usize) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("{what} of {len} bytes is over the limit: at most {max} bytes are supported"),
    )
}

/// Most bytes of a key in a message.
const KEY_SHOWN_LEN: usize = 64;

/// Returns a key for a message.
pub(crate) fn shown_key(key: &[u8]) -> String {
    match key.get(..KEY_SHOWN_LEN) {
        Some(start) if start.len() < key.len() => format!("key \"{}...\"", start.escape_ascii()),
        _ => format!("key \"{}\"", key.escape_ascii()),
    }
}

/// Id of the family `default`.
pub const DEFAULT_FAMILY: FamilyId = 0;

/// One change, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The kind: a value, a tombstone, or a reference to a value.
    pub kind: ValueKind,
    /// The id of its family.
    pub family: FamilyId,
    /// The key; of a range tombstone the start.
    pub key: &'a [u8],
    /// The value; of a range tombstone the end, of a reference its encoding.
    pub value: &'a [u8],
}

impl Change<'_> {
    /// Fails for keys and values over the limits of the log, and for reversed ranges.
    pub fn validate(&self) -> Result<()> {
        self.validate_to(limits::VALUE_LEN_MAX)
    }

    /// The same with another limit for values: the long values of a new write get files of their
    /// own before the batch is logged.
    pub(crate) fn validate_to(&self, value_len_max: usize) -> Result<()> {
        if self.key.len() > limits::KEY_LEN_MAX {
            return Err(too_large("key", self.key.len(), limits::KEY_LEN_MAX));
        }
        if self.kind == ValueKind::RangeDeletion {
            if self.value.len() > limits::KEY_LEN_MAX {
                return Err(too_large("key", self.value.len(), limits::KEY_LEN_MAX));
            }
            if self.key > self.value {
                return Err(Error::invalid("delete_range: the start is after the end: swap the two keys"));
            }
        } else if self.value.len() > value_len_max {
            return Err(too_large("value", self.value.len(), value_len_max));
        }
        if self.kind == ValueKind::PlacedReference {
            if RecordReference::is_one(self.value) {
                RecordReference::decode(self.value)?;
            } else {
                SegmentReference::decode(self.value)?;
            }
        }
        Ok(())
    }

    /// True if its key is empty. The bounds of a range do not count.
    pub fn has_empty_key(&self) -> bool {
        self.key.is_empty() && self.kind != ValueKind::RangeDeletion
    }

    /// True if it deletes a key or a range.
    pub fn is_delete(&self) -> bool {
        self.kind.is_tombstone() || self.kind == ValueKind::RangeDeletion
    }

    /// True if its value is in a value log file (in the log only).
    pub fn is_placed(&self) -> bool {
        self.kind == ValueKind::PlacedReference && RecordReference::is_one(self.value)
    }

    /// Returns the number of the file with its value (in the log only).
    pub fn file(&self) -> Result<Option<u64>> {
        match self.kind {
            ValueKind::PlacedReference if self.is_placed() => {
                Ok(Some(RecordReference::decode(self.value)?.file))
            }
            ValueKind::PlacedReference => Ok(Some(SegmentReference::decode(self.value)?.file)),
            _ => Ok(None),
        }
    }

    fn has_value(&self) -> bool {
        has_value(self.kind)
    }

    /// Appends the encoded entry.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        Frame::of(self).around(self).into_iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

fn has_value(kind: ValueKind) -> bool {
    use ValueKind::{Merge, PlacedReference, RangeDeletion, Value};
    matches!(kind, Value | Merge | RangeDeletion | PlacedReference)
}

/// Encodes the header of a batch.
pub fn header(first_seq: SeqNo, count: u32) -> [u8; HEADER_LEN] {
    let words = (u128::from(count) << 64 | u128::from(first_seq)).to_le_bytes();
    *words.first_chunk().expect("16 bytes begin with 12")
}

/// Decodes the header of a logged batch. Returns its first sequence, the number of changes, and the
/// entries.
pub fn decode(payload: &[u8]) -> Result<(SeqNo, u32, BatchEntries<'_>)> {
    let mut r = Reader::new(payload);
    let (first_seq, count) = (r.u64()?, r.u32()?);
    if first_seq.saturating_add(u64::from(count)) > base::MAX_SEQ {
        return Err(Error::corruption(format!(
            "a batch in the log has a sequence number over 56 bits: {count} changes from sequence \
             {first_seq} on"
        )));
    }
    // Never logged. Without entries and sequence, "the sequence before the batch" would be
    // undefined.
    if first_seq == 0 || count == 0 {
        return Err(Error::corruption(format!(
            "a batch in the log has no entries, or sequence number 0: {count} changes from sequence \
             {first_seq} on"
        )));
    }
    Ok((first_seq, count, BatchEntries { reader: r, value_len_max: limits::VALUE_LEN_MAX }))
}

/// An iterator over the entries of a batch that checks each of them.
#[derive(Clone, Debug)]
pub struct BatchEntries<'a> {
    reader: Reader<'a>,
    value_len_max: usize,
}

impl<'a> BatchEntries<'a> {
    /// Iterates over the body of a batch that is not logged yet, and so contains its long values.
    pub fn of(body: &'a [u8]) -> Self {
        BatchEntries { reader: Reader::new(body), value_len_max: limits::LARGE_VALUE_LEN_MAX as usize }
    }

    fn entry(&mut self) -> Result<Change<'a>> {
        let kind = self.reader.u8()?;
        let kind = match ValueKind::from_u8(kind) {
            Some(k) if k.is_tombstone() || has_value(k) => k,
            _ => {
                return Err(Error::corruption(format!(
                    "a batch in the log has an entry of the unknown kind {kind}"
                )));
            }
        };
        let id = self.reader.varint()?;
        let family = FamilyId::try_from(id).map_err(|_| {
            Error::corruption(format!("a batch in the log has a column family id over 32 bits: {id}"))
        })?;
        let key = self.reader.bytes()?;
        let value = if has_value(kind) { self.reader.bytes()? } else { &[] };
        let change = Change { kind, family, key, value };
        // Memtables and tables rely on the limits, which the writer of the log has enforced.
        change.validate_to(self.value_len_max).map_err(|e| e.with_kind(ErrorKind::Corruption))?;
        Ok(change)
    }
}

impl<'a> Iterator for BatchEntries<'a> {
    type Item = Result<Change<'a>>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() { None } else { Some(self.entry()) }
    }
}

#[cfg(test)]
mod tests;
