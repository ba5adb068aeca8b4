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
    open: HashMap<u64, Option<Arc<dyn ReadFile>>>,
    tails: Option<FoundTails>,
    /// Of each file the first value that is not in it, and why.
    absent: HashMap<u64, (RecordReference, Error)>,
    /// A value is in no tail either: what follows is ignored.
    ended: bool,
    /// The last sequence that is ignored.
    pub ignored_to: Option<SeqNo>,
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
            if (&record.user_key[..], record.seq) != (change.key, *seq) {
                let why = "the record that the log refers to is of another key";
                let path = engine.path(&names::vsst(reference.file));
                return Err(Error::corruption(why).at_file(path).at_offset(reference.offset));
            }
            values.push(record.value);
        }
        Ok((!self.ended).then_some(values))
    }

    fn find(&mut self, engine: &Engine, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        let why = match self.in_file(engine, reference)? {
            Ok(record) => return Ok(Some(record)),
            Err(why) => why,
        };
        self.absent.entry(reference.file).or_insert((*reference, why));
        let tails = match &mut self.tails {
            Some(tails) => tails,
            None => self.tails.insert(FoundTails::open(engine)?),
        };
        if let Some(record) = tails.find(reference)? {
            return Ok(Some(record));
        }
        // A process that writes the store may have moved it from the tail to the file meanwhile.
        Ok(self.in_file(engine, reference)?.ok())
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
        match read_loose(&**file, reference.uid, reference.offset, reference.stored_len) {
            Err(e) if !e.is_corruption() => Err(e),
            found => Ok(found),
        }
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
            if (closed || durable) && self.in_file(engine, &reference)?.is_err() {
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
