//! What replay knows of placed values.
//!
//! A value that is not in its file, but in a tail, is as good: the file lost it, or did not get it before the process
//! died. Damage is told from this as in the log: every reference states how far its file was durable when it was logged.
//! If a value is not in its file and lies below that mark of any reference, or if the store was closed cleanly, it is
//! corruption, wherever else the value may be.

use super::tail::FoundTails;
use crate::batch::Change;
use crate::engine::Engine;
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use io::{Access, ReadFile};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, read_loose};
use version::{FamilyId, names};

/// See the module.
#[derive(Default)]
pub(crate) struct Replayed {
    /// How far each file is known to have been durable, and its family.
    files: HashMap<u64, (u64, FamilyId)>,
    records: PlacedValues,
    /// Of each file the first value that is not in it, and why.
    absent: HashMap<u64, (RecordReference, Error)>,
    /// A value is in no tail either: what follows is ignored.
    ended: bool,
    /// The last sequence that is ignored.
    pub ignored_to: Option<SeqNo>,
}

/// Values where the log says that they lie.
#[derive(Default)]
pub(crate) struct PlacedValues {
    open: HashMap<u64, Option<Arc<dyn ReadFile>>>,
    tails: Option<FoundTails>,
}

impl PlacedValues {
    /// Fails if the value of a change is neither in its file nor in a tail, whole: in a store that is at work as well.
    pub fn check(
        &mut self,
        engine: &Engine,
        user_key: &[u8],
        seq: SeqNo,
        reference: &RecordReference,
    ) -> Result<()> {
        let why = match self.in_file(engine, reference)? {
            Ok(record) => return is_of(engine, &record, user_key, seq, reference),
            Err(why) => why,
        };
        if engine.wal.get().is_some() && self.reaches(reference) {
            // It was handed over. What a tail has of it does not outlive a loss of power.
            return Err(why);
        }
        if self.in_tails(engine, reference)?.is_some() {
            return Ok(());
        }
        // What was opened may be of before the file was begun, or the record has moved on.
        (self.tails, _) = (None, self.open.remove(&reference.file));
        if self.in_tails(engine, reference)?.is_some() || self.in_file(engine, reference)?.is_ok() {
            return Ok(());
        }
        Err(why)
    }

    /// True if the file is as long as the record needs.
    fn reaches(&self, reference: &RecordReference) -> bool {
        let end = reference.offset.saturating_add(reference.stored_len);
        let file = self.open.get(&reference.file).and_then(Option::as_ref);
        file.is_some_and(|file| file.len().is_ok_and(|len| len >= end))
    }

    /// The record from a tail.
    fn in_tails(&mut self, engine: &Engine, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        let tails = match &mut self.tails {
            Some(tails) => tails,
            None => self.tails.insert(FoundTails::open(engine)?),
        };
        tails.find(reference)
    }

    /// The record from its file, or why it is not there.
    fn in_file(
        &mut self,
        engine: &Engine,
        reference: &RecordReference,
    ) -> Result<std::result::Result<LooseRecord, Error>> {
        let path = engine.path(&names::vsst(reference.file));
        let open = || match engine.env.fs.open(&path, Access::Buffered) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        let file = match self.open.entry(reference.file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(open()?),
        };
        let Some(file) = file else {
            let why = Error::corruption("a file with values that the log refers to is missing");
            return Ok(Err(why.at_file(path)));
        };
        let read = || read_loose(&**file, reference.uid, reference.offset, reference.stored_len);
        match read() {
            // What cannot be read, twice, is as good as damaged: it was not durable, or it is missed.
            Err(e) if io::is_unreadable(&e) => Ok(read()),
            Err(e) if !e.is_corruption() => Err(e),
            found => Ok(found),
        }
    }
}

/// Fails if a record is not the one that a change refers to.
fn is_of(
    engine: &Engine,
    record: &LooseRecord,
    user_key: &[u8],
    seq: SeqNo,
    reference: &RecordReference,
) -> Result<()> {
    if (&record.user_key[..], record.seq) == (user_key, seq) {
        return Ok(());
    }
    let why = "the record that the log refers to is of another key";
    let path = engine.path(&names::vsst(reference.file));
    Err(Error::corruption(why).at_file(path).at_offset(reference.offset))
}

impl Replayed {
    /// The values of a batch's placed entries, in order; `None` if the batch is to be ignored.
    pub fn values(
        &mut self,
        engine: &Engine,
        placed: &[(SeqNo, Change<'_>)],
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut values = Vec::new();
        for (seq, change) in placed {
            let reference = RecordReference::decode(change.value)?;
            let known = self.files.entry(reference.file).or_insert((0, change.family));
            known.0 = known.0.max(reference.synced_bytes);
            if self.ended {
                continue;
            }
            let Some(record) = self.find(engine, &reference)? else {
                self.ended = true;
                continue;
            };
            is_of(engine, &record, change.key, *seq, &reference)?;
            values.push(record.value);
        }
        Ok((!self.ended).then_some(values))
    }

    fn find(&mut self, engine: &Engine, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        let why = match self.records.in_file(engine, reference)? {
            Ok(record) => return Ok(Some(record)),
            Err(why) => why,
        };
        self.absent.entry(reference.file).or_insert((*reference, why));
        if let Some(record) = self.records.in_tails(engine, reference)? {
            return Ok(Some(record));
        }
        // A process that writes the store may have moved it from the tail to the file meanwhile.
        Ok(self.records.in_file(engine, reference)?.ok())
    }

    /// True if the log refers to placed values.
    pub fn is_any(&self) -> bool {
        !self.files.is_empty()
    }

    /// After the whole log: fails if a value is gone that was durable. `closed`: the log was closed cleanly.
    pub fn judge(&mut self, engine: &Engine, closed: bool) -> Result<()> {
        for (reference, why) in std::mem::take(&mut self.absent).into_values() {
            let synced_bytes = self.files.get(&reference.file).map_or(0, |(synced_bytes, _)| *synced_bytes);
            let durable = reference.offset.saturating_add(reference.stored_len) <= synced_bytes;
            // The process that writes the store may have synced it since.
            if (closed || durable) && self.records.in_file(engine, &reference)?.is_err() {
                let advice = "a value that was durable is gone; restore the file from a checkpoint or backup, or run `lava repair`";
                return Err(why.context(advice));
            }
        }
        Ok(())
    }

    /// Keeps the files until what was read from them is in tables.
    pub fn hold(&self, engine: &Engine) {
        for (&number, &(_, family)) in &self.files {
            let Some(family) = engine.family(family) else { continue };
            let active = family.view().active.clone();
            if !active.is_empty() {
                engine.segments.hold(engine, number, family.id, &active, 0);
            }
        }
    }
}
