//! Values in files of their own, written before they are logged: large values, and streams of
//! single values.

use super::WritePath;
use super::admission::write_deadline::{WriteDeadline, WriteTerms};
use super::commit::WriteOp;
use super::conditions::Conditions;
use super::operands;
use super::validation::Pins;
use crate::batch::frame::Frame;
use crate::batch::payload::{Body, OwnedPayload, Payload};
use crate::batch::{BatchEntries, Change, WriteBatch};
use crate::context::into_io;
use crate::context::options::Durability;
use crate::large::pending_segment::PendingSegment;
use crate::large::segments;
use crate::tree::family::Family;
use base::{Error, Result, ValueKind};
use std::io::Write;
use std::sync::Arc;
use table::SegmentReference;
use table::segment::CHUNK_LEN;

/// A pending segment whose bytes are charged like those of a logged write.
struct PaidDraft {
    writes: Arc<WritePath>,
    family: Arc<Family>,
    draft: PendingSegment,
    /// True if room for all of it was found at its beginning.
    admitted: bool,
}

impl PaidDraft {
    /// `expected_len` is a hint, 0: unknown.
    fn begin(
        writes: &Arc<WritePath>,
        family: &Arc<Family>,
        key: &[u8],
        expected_len: u64,
        patience: &mut WriteDeadline,
    ) -> Result<PaidDraft> {
        writes.context.health.check()?;
        writes.admission.admit_segment(expected_len, patience)?;
        let draft = PendingSegment::begin(&writes.files, family.id, key, expected_len)?;
        let (writes, family, admitted) = (writes.clone(), family.clone(), expected_len > 0);
        Ok(PaidDraft { writes, family, draft, admitted })
    }

    fn append(&mut self, data: &[u8], patience: &mut WriteDeadline) -> Result<()> {
        let mut payment = self.writes.admission.pay_for_segment(&self.family, data.len() as u64, patience)?;
        if !self.admitted {
            let admitted = self.writes.admission.admit_segment(data.len() as u64, patience);
            admitted.inspect_err(|_| payment.refund())?;
        }
        self.draft.append(data)
    }

    /// Returns the reference for the log, and the file, which is kept once the reference is logged.
    fn finish(mut self) -> Result<(SegmentReference, PendingSegment)> {
        let reference = self.draft.finish()?;
        Ok((reference, self.draft))
    }
}

/// A writer of one value of up to 1 GiB in pieces, in constant memory; made by
/// [`crate::Db::put_stream`].
///
/// The value exists once [`ValueWriter::finish`] has returned. A writer that is dropped before
/// leaves nothing behind. A value of up to 256 KiB is held in memory and written like any other; a
/// longer one goes into a file of its own.
///
/// ```no_run
/// use std::io::Write;
/// # let db = lavastore_lavakv::Db::open("/tmp/example")?;
/// let film = std::fs::File::open("film.mkv")?;
/// let mut value = db.put_stream(db.default_column_family(), b"film", Default::default())?;
/// std::io::copy(&mut &film, &mut value)?;
/// value.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueWriter {
    writes: Arc<WritePath>,
    family: Arc<Family>,
    key: Vec<u8>,
    durability: Durability,
    patience: WriteDeadline,
    /// The beginning of the value, while it may turn out to be short.
    held: Vec<u8>,
    draft: Option<PaidDraft>,
    len: u64,
    failed: Option<Error>,
}

impl ValueWriter {
    pub(crate) fn new(
        writes: &Arc<WritePath>,
        family: &Arc<Family>,
        key: &[u8],
        WriteTerms { durability, patience }: WriteTerms,
    ) -> Result<ValueWriter> {
        segments::validate(key, 0)?;
        if key.is_empty() {
            writes.check_empty_key()?;
        }
        writes.context.health.check()?;
        Ok(ValueWriter {
            writes: writes.clone(),
            family: family.clone(),
            key: key.to_vec(),
            durability,
            patience,
            held: Vec::new(),
            draft: None,
            len: 0,
            failed: None,
        })
    }

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no byte was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes to the value: like `write_all` of [`Write`], with the engine's errors.
    ///
    /// # Errors
    /// `TooLarge` beyond 1 GiB; `NoSpace` and others of writing. After an error the value cannot be
    /// finished.
    pub fn append(&mut self, data: &[u8]) -> Result<()> {
        let writes = self.writes.clone();
        let _entered = writes.context.enter()?;
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let appended = writes.context.times.put_stream.time(|| self.try_append(data));
        appended.inspect_err(|e| self.failed = Some(e.clone()))
    }

    fn try_append(&mut self, data: &[u8]) -> Result<()> {
        self.patience.renew(&self.writes.context);
        let len = self.len.saturating_add(data.len() as u64);
        segments::validate(&self.key, len)?;
        self.len = len;
        if self.draft.is_none() && self.held.len() + data.len() <= self.held_max() {
            self.held.extend_from_slice(data);
            return Ok(());
        }
        if self.draft.is_none() {
            let mut draft = PaidDraft::begin(&self.writes, &self.family, &self.key, 0, &mut self.patience)?;
            draft.append(&std::mem::take(&mut self.held), &mut self.patience)?;
            self.draft = Some(draft);
        }
        self.draft.as_mut().expect("begun above").append(data, &mut self.patience)
    }

    /// Returns the length of the longest value that is not worth a file.
    fn held_max(&self) -> usize {
        CHUNK_LEN.min(segments::threshold(&self.writes.context.options) - 1)
    }

    /// Ends the value and commits it as one put.
    ///
    /// # Errors
    /// Those of a put, and of any earlier `append`. No file is left behind then, unless the store
    /// is poisoned.
    pub fn finish(mut self) -> Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let writes = self.writes.clone();
        let _entered = writes.context.enter()?;
        let begun = writes.context.times.put_stream.begin_long();
        let written = self.commit();
        writes.context.times.put_stream.end(begun);
        written
    }

    fn commit(mut self) -> Result<()> {
        self.patience.renew(&self.writes.context);
        let change = |kind, value| Change { kind, family: self.family.id, key: &self.key, value };
        match self.draft.take() {
            None => {
                let change = change(ValueKind::Value, &self.held);
                let frame = Frame::of(&change);
                let payload = Payload::one(&self.family, change, &frame);
                WriteOp::new(&self.writes, payload, self.durability).run(self.patience)
            }
            Some(draft) => {
                let (reference, draft) = draft.finish()?;
                let reference = reference.encode();
                let change = change(ValueKind::PlacedReference, &reference);
                let frame = Frame::of(&change);
                let payload = Payload::one(&self.family, change, &frame);
                WriteOp::with_drafts(&self.writes, payload, self.durability, vec![draft]).run(self.patience)
            }
        }
    }
}

impl Write for ValueWriter {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.append(data).map_err(into_io)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueWriter({} bytes)", self.len)
    }
}

/// Sets a key to a value above the [`segments::threshold`].
pub(crate) fn put(
    writes: &Arc<WritePath>,
    family: &Arc<Family>,
    key: &[u8],
    value: &[u8],
    WriteTerms { durability, mut patience }: WriteTerms,
) -> Result<()> {
    let (reference, draft) = write(writes, family, key, value, &mut patience)?;
    let change = Change { kind: ValueKind::PlacedReference, family: family.id, key, value: &reference };
    let frame = Frame::of(&change);
    let payload = Payload::one(family, change, &frame);
    WriteOp::with_drafts(writes, payload, durability, vec![draft]).run(patience)
}

/// Writes the values above the [`segments::threshold`] to files of their own. Returns the payload
/// with references to these files.
pub(crate) fn place(
    writes: &Arc<WritePath>,
    payload: OwnedPayload,
    patience: &mut WriteDeadline,
) -> Result<(OwnedPayload, Vec<PendingSegment>)> {
    match payload {
        OwnedPayload::One { family, key, value, .. } => {
            let (value, draft) = write(writes, &family, &key, &value, patience)?;
            Ok((OwnedPayload::one(family, ValueKind::PlacedReference, key, value), vec![draft]))
        }
        OwnedPayload::Batch(batch) => {
            let (referring, drafts) = place_of_batch(writes, &batch, patience)?;
            Ok((OwnedPayload::Batch(referring), drafts))
        }
    }
}

/// Writes a batch with values above the [`segments::threshold`], under the conditions of a
/// transaction.
pub(crate) fn write_batch(
    writes: &Arc<WritePath>,
    batch: &WriteBatch,
    conditions: Option<&Conditions>,
    WriteTerms { durability, mut patience }: WriteTerms,
) -> Result<()> {
    // A conflict that is there already spares the files.
    if let Some(reads) = conditions.and_then(|conditions| conditions.reads.as_ref()) {
        reads.check(&writes.tree, &Pins::default())?;
    }
    let (referring, drafts) = place_of_batch(writes, batch, &mut patience)?;
    let op = WriteOp::with_drafts(writes, Payload::batch(&referring), durability, drafts);
    op.under(conditions).run(patience)
}

/// Fails if a batch cannot be written as it is, now or later.
///
/// # Errors
/// `TooLarge`; `InvalidArgument` for an empty key in a store of format 1; `NotFound` for a dropped
/// family.
pub(crate) fn check_batch(writes: &WritePath, batch: &WriteBatch) -> Result<()> {
    if batch.figures().has_empty_key {
        writes.check_empty_key()?;
    }
    if batch.figures().has_operands {
        operands::check(writes, &Body::Batch(batch), true)?;
    }
    // The long values are not logged, so they do not count.
    let changes = BatchEntries::of(batch.body()).flatten().filter(|change| is_long(writes, change));
    batch.check(changes.map(|change| change.value.len()).sum())?;
    writes.tree.families.find_all(batch.families())?.iter().try_for_each(|family| family.check_there())
}

/// Returns true if a change gets a file of its own.
fn is_long(writes: &WritePath, change: &Change<'_>) -> bool {
    change.kind == ValueKind::Value && change.value.len() >= segments::threshold(&writes.context.options)
}

fn place_of_batch(
    writes: &Arc<WritePath>,
    batch: &WriteBatch,
    patience: &mut WriteDeadline,
) -> Result<(WriteBatch, Vec<PendingSegment>)> {
    // Before the first file.
    check_batch(writes, batch)?;
    let (mut referring, mut drafts) = (WriteBatch::new(), Vec::new());
    for change in BatchEntries::of(batch.body()) {
        let change = change.expect("a batch encodes its own entries");
        if !is_long(writes, &change) {
            referring.push(change.kind, change.family, change.key, change.value);
            continue;
        }
        let family = &writes.tree.families.find_all(&[change.family])?[0];
        let (reference, draft) = write(writes, family, change.key, change.value, patience)?;
        referring.push(ValueKind::PlacedReference, change.family, change.key, &reference);
        drafts.push(draft);
    }
    Ok((referring, drafts))
}

/// Writes a value to a segment. Returns the encoded reference.
fn write(
    writes: &Arc<WritePath>,
    family: &Arc<Family>,
    key: &[u8],
    value: &[u8],
    patience: &mut WriteDeadline,
) -> Result<(Vec<u8>, PendingSegment)> {
    segments::validate(key, value.len() as u64)?;
    let mut draft = PaidDraft::begin(writes, family, key, value.len() as u64, patience)?;
    draft.append(value, patience)?;
    let (reference, draft) = draft.finish()?;
    Ok((reference.encode(), draft))
}
