//! What replay knows of placed values.
//!
//! A value that is not in its file, but in a tail, is as good: the file lost it, or did not get it before the process
//! died. Damage is told from this as in the log: every reference states how far its file was durable when it was logged.
//! If a value is not in its file and lies below that mark of any reference, or if the store was closed cleanly, it is
//! damage. Such a value does not refuse the open (unless it is to): its key gets an error, and its file is set aside and
//! listed by the manifest as soon as a table refers to it ([`crate::large::placement::Placement::lost`]). Marks may stand anywhere in the log, so with
//! the first value that is missing the log is read once more for them.

use super::tail::FoundTails;
use crate::batch::{self, Change};
use crate::context::Context;
use crate::files::log::Log;
use crate::large::Large;
use base::key::{compare, encode};
use base::{Error, ErrorKind, HashMap, Result, SeqNo, ValueKind};
use io::{Access, ReadFile};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, read_loose};
use version::{FamilyId, VsstMeta, names};
use wal::{LogGroup, TenantId};

/// See the module.
pub(crate) struct Replayed {
    /// The log.
    groups: Vec<LogGroup>,
    /// Values that are lost do not refuse the open.
    serves_the_rest: bool,
    marks: Option<Marks>,
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

/// What the whole log says of the files of placed values.
#[derive(Default)]
struct Marks {
    /// It was closed cleanly: everything was durable.
    closed: bool,
    /// How far each file was durable, and what lies in it as far as the log refers to it.
    files: HashMap<u64, (u64, VsstMeta)>,
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
        large: &Large,
        user_key: &[u8],
        seq: SeqNo,
        reference: &RecordReference,
    ) -> Result<()> {
        let why = match self.in_file(large, reference)? {
            Ok(record) => return is_of(large, &record, user_key, seq, reference),
            Err(why) => why,
        };
        if large.tree.space.gauges.serves() && self.reaches(reference) {
            // It was handed over. What a tail has of it does not outlive a loss of power.
            return Err(why);
        }
        if self.in_tails(large, reference)?.is_some() {
            return Ok(());
        }
        // What was opened may be of before the file was begun, or the record has moved on.
        (self.tails, _) = (None, self.open.remove(&reference.file));
        if self.in_tails(large, reference)?.is_some() || self.in_file(large, reference)?.is_ok() {
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
    fn in_tails(&mut self, large: &Large, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        let tails = match &mut self.tails {
            Some(tails) => tails,
            None => self.tails.insert(FoundTails::open(&large.tree.context)?),
        };
        tails.find(reference)
    }

    /// The record from its file, or why it is not there.
    fn in_file(
        &mut self,
        large: &Large,
        reference: &RecordReference,
    ) -> Result<std::result::Result<LooseRecord, Error>> {
        let path = large.tree.context.path(&names::vsst(reference.file));
        let open = || match large.tree.context.env.fs.open(&path, Access::Buffered) {
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

/// Why a value cannot be read that only the log refers to.
pub(crate) fn lost(context: &Context, reference: &RecordReference) -> Error {
    let why = "a value that was placed in the log and was durable is gone; restore the file from a checkpoint or backup";
    Error::corruption(why).at_file(context.path(&names::vsst(reference.file))).at_offset(reference.offset)
}

/// Fails if a record is not the one that a change refers to.
pub(super) fn is_of(
    large: &Large,
    record: &LooseRecord,
    user_key: &[u8],
    seq: SeqNo,
    reference: &RecordReference,
) -> Result<()> {
    if (&record.user_key[..], record.seq) == (user_key, seq) {
        return Ok(());
    }
    let why = "the record that the log refers to is of another key";
    let path = large.tree.context.path(&names::vsst(reference.file));
    Err(Error::corruption(why).at_file(path).at_offset(reference.offset))
}

impl Marks {
    /// Reads the log for them.
    fn read(large: &Large, groups: &[LogGroup]) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut take = wal::only(TenantId::FIRST, |seq, payload: &[u8]| marks.take(seq, payload));
        let (env, dir, store) =
            (&large.tree.context.env, &large.tree.context.dir, large.tree.files.manifest.store());
        let (report, _) = wal::recover_up_to_damage(env, dir, store, groups, &mut take)?;
        drop(take);
        marks.closed = Log::was_closed(&large.tree.files.manifest.state(), &report);
        Ok(marks)
    }

    fn take(&mut self, first_seq: SeqNo, payload: &[u8]) -> Result<()> {
        for (seq, change) in (first_seq..).zip(batch::decode(payload)?.2) {
            let change = change?;
            if !change.is_placed() {
                continue;
            }
            let r = RecordReference::decode(change.value)?;
            let (synced_bytes, meta) = self.files.entry(r.file).or_default();
            *synced_bytes = (*synced_bytes).max(r.synced_bytes);
            let ikey = encode(change.key, seq, ValueKind::Value);
            if meta.entries == 0 || compare(&ikey, &meta.smallest).is_lt() {
                meta.smallest.clone_from(&ikey);
            }
            if meta.entries == 0 || compare(&ikey, &meta.largest).is_gt() {
                meta.largest = ikey;
            }
            meta.min_seq = if meta.entries == 0 { seq } else { meta.min_seq.min(seq) };
            (meta.number, meta.uid, meta.max_seq) = (r.file, r.uid, meta.max_seq.max(seq));
            meta.entries += 1;
            meta.record_bytes = meta.record_bytes.saturating_add(r.stored_len);
            meta.raw_bytes = meta.raw_bytes.saturating_add(r.raw_len);
            meta.len = meta.len.max(r.offset.saturating_add(r.stored_len));
        }
        Ok(())
    }
}

impl Replayed {
    /// Of the log in these groups.
    pub fn new(groups: Vec<LogGroup>, serves_the_rest: bool) -> Replayed {
        Replayed {
            groups,
            serves_the_rest,
            marks: None,
            files: HashMap::default(),
            records: PlacedValues::default(),
            absent: HashMap::default(),
            ended: false,
            ignored_to: None,
        }
    }

    /// The values of a batch's placed entries, in order, without those that are lost; `None` if the batch is to be ignored.
    pub fn values(
        &mut self,
        large: &Large,
        placed: &[(SeqNo, Change<'_>)],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        let mut values = Vec::new();
        for (seq, change) in placed {
            let reference = RecordReference::decode(change.value)?;
            let known = self.files.entry(reference.file).or_insert((0, change.family));
            known.0 = known.0.max(reference.synced_bytes);
            if self.ended {
                continue;
            }
            match self.find(large, &reference)? {
                Some(record) => {
                    is_of(large, &record, change.key, *seq, &reference)?;
                    values.push(Some(record.value));
                }
                None if self.is_lost(large, change.family, &reference)? => values.push(None),
                None => self.ended = true,
            }
        }
        Ok((!self.ended).then_some(values))
    }

    /// True if a value that is nowhere was durable, and the store goes on without it: then its file is set aside.
    fn is_lost(&mut self, large: &Large, family: FamilyId, reference: &RecordReference) -> Result<bool> {
        if !self.serves_the_rest || base::canary::is("lost-value-taken-for-a-torn-end") {
            return Ok(false);
        }
        let marks = match &self.marks {
            Some(marks) => marks,
            None => self.marks.insert(Marks::read(large, &self.groups)?),
        };
        let Some((synced_bytes, meta)) = marks.files.get(&reference.file) else { return Ok(false) };
        let end = reference.offset.saturating_add(reference.stored_len);
        let Some(family) = large.tree.family(family).filter(|_| marks.closed || end <= *synced_bytes) else {
            return Ok(false);
        };
        if large
            .tree
            .files
            .manifest
            .state()
            .place_of(reference.file)
            .is_some_and(|_| !large.placement.is_lost(meta.number))
        {
            let why = "a value that the log refers to is lost, and its file's number was given away; run `lava repair`";
            return Err(Error::corruption(why).at_file(large.tree.context.path(&names::vsst(reference.file))));
        }
        let why = self.absent.get(&reference.file).map(|(_, why)| why.clone());
        let why = why.unwrap_or_else(|| lost(&large.tree.context, reference));
        large.tree.set_placed_aside(&family, meta, &why);
        large.placement.set_lost(meta);
        Ok(true)
    }

    fn find(&mut self, large: &Large, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        let why = match self.records.in_file(large, reference)? {
            Ok(record) => return Ok(Some(record)),
            Err(why) => why,
        };
        self.absent.entry(reference.file).or_insert((*reference, why));
        if let Some(record) = self.records.in_tails(large, reference)? {
            return Ok(Some(record));
        }
        // A process that writes the store may have moved it from the tail to the file meanwhile.
        Ok(self.records.in_file(large, reference)?.ok())
    }

    /// True if the log refers to placed values.
    pub fn is_any(&self) -> bool {
        !self.files.is_empty()
    }

    /// After the whole log: fails if a value is gone that was durable. `closed`: the log was closed cleanly.
    pub fn judge(&mut self, large: &Large, closed: bool) -> Result<()> {
        if self.serves_the_rest {
            // What is lost was set aside; what a tail has is in memory now, and in tables before the store serves.
            return Ok(());
        }
        for (reference, why) in std::mem::take(&mut self.absent).into_values() {
            let synced_bytes = self.files.get(&reference.file).map_or(0, |(synced_bytes, _)| *synced_bytes);
            let durable = reference.offset.saturating_add(reference.stored_len) <= synced_bytes;
            // The process that writes the store may have synced it since.
            if (closed || durable) && self.records.in_file(large, &reference)?.is_err() {
                let advice = "a value that was durable is gone; restore the file from a checkpoint or backup, or run `lava repair`";
                return Err(why.context(advice));
            }
        }
        Ok(())
    }

    /// Keeps the files until what was read from them is in tables.
    pub fn hold(&self, large: &Large) {
        for (&number, &(_, family)) in &self.files {
            let Some(family) = large.tree.family(family) else { continue };
            let active = family.read_state().active.clone();
            if !active.is_empty() {
                large.segments.hold(number, family.id, &active, 0);
            }
        }
    }
}
