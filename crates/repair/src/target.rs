//! The destination of the saved records: a new store, or nothing in a dry run.
//!
//! Records are written without the log, and flushed at the end. Until then the store is marked as
//! unfinished ([`store::files::unfinished`]), and every open rejects it. In all other respects it
//! is an ordinary store with ordinary background jobs.

use super::judge::Plan;
use super::operands::LOST_NAME;
use base::{ErrorKind, HashMap, Result};
use io::Cancel;
use lavakv::repairing::{Change, DEFAULT_FAMILY, discard, make_marked, stored_options};
use lavakv::{ColumnFamily, Db, FamilyOptions, MergeChoice, Options, ReadOptions, WriteBatch, WriteOptions};
use std::sync::Arc;
use store::files::unfinished::Mark;
use store::format::Feature;
use store::repair::Places;
use store::secondary_engine::SecondaryEngine;
use table::SegmentReader;
use version::FamilyId;

/// Destination of the saved records: see the module.
pub(super) enum Target {
    /// Nothing is written: a dry run.
    Nowhere,
    /// A new store, its families by their old ids, and the mark of an unfinished store.
    Store(Db, HashMap<FamilyId, ColumnFamily>, Mark, Option<Cancel>),
}

/// Returns true if the new store's version of a key is older than the replayed change.
pub(super) type IsOlder<'a> = dyn FnMut(&[u8]) -> Result<bool> + 'a;

/// Number of segment bytes read and written at a time.
const RUN_LEN: usize = 1 << 20;

impl Target {
    /// Creates the store, with a secondary engine if the damaged store has one.
    pub fn make(
        places: &Places<'_>,
        options: &Options,
        plan: &Plan,
        names: &HashMap<FamilyId, String>,
        secondary: Option<&mut dyn SecondaryEngine>,
    ) -> Result<Target> {
        let stored = |id: FamilyId| {
            let stored = plan.get(&id).and_then(|family| family.options.as_deref());
            stored.and_then(|bytes| stored_options(bytes).ok())
        };
        let own = stored(DEFAULT_FAMILY).unwrap_or_else(|| options.family.clone());
        let own_operator = own.merge_operator.clone();
        let options = Options {
            create_if_missing: true,
            error_if_exists: true,
            family: own,
            fast_tier: None,
            ..options.clone()
        }
        .expert(|expert| {
            let stored = plan.keys().filter_map(|id| stored(*id)?.merge_operator);
            for operator in stored.chain(own_operator).chain([MergeChoice::custom(LOST_NAME)]) {
                // One that the program does not have fails each fold, so that operands stay.
                let known = expert.merge_operators.clone();
                if let Some(found) = known.of_reads(Some(&operator)) {
                    expert.merge_operators = known.with(operator.name(), found);
                }
            }
            expert.fast_tier_values_bytes_max = 0;
            expert.fast_tier_values_flushed = false;
        });
        let (env, into) = places.into;
        let mark = places.mark_target()?;
        let db = make_marked(env.clone(), into, options, &mark, secondary)?;
        let mut families = HashMap::default();
        families.insert(DEFAULT_FAMILY, db.default_column_family().clone());
        for id in plan.keys().copied().filter(|id| *id != DEFAULT_FAMILY) {
            let name = names.get(&id).cloned().unwrap_or_default();
            match db.create_column_family(&name, stored(id).unwrap_or_default()) {
                Ok(family) => drop(families.insert(id, family)),
                Err(e) => {
                    discard(db);
                    return Err(e);
                }
            }
        }
        Ok(Target::Store(db, families, mark, places.cancel.cloned()))
    }

    /// Returns the destination for records of a family; `None` in a dry run.
    fn family(&self, id: FamilyId) -> Result<Option<(&Db, &ColumnFamily)>> {
        match self {
            Target::Nowhere => Ok(None),
            Target::Store(db, families, _, cancel) => {
                io::cancel::check(cancel.as_ref())?;
                Ok(families.get(&id).map(|family| (db, family)))
            }
        }
    }

    /// Sets a key.
    pub fn put(&self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<()> {
        match self.family(family)? {
            Some((db, family)) => {
                admit(db, key)?;
                db.put_opt(family, key, value, &WriteOptions::volatile())
            }
            None => Ok(()),
        }
    }

    /// Sets a key to the value in a segment, and verifies every byte on the way. Returns
    /// `Ok(Err(_))` if the segment is damaged; then nothing was written.
    pub fn put_segment(
        &self,
        family: FamilyId,
        key: &[u8],
        segment: &Arc<SegmentReader>,
    ) -> Result<Result<()>> {
        let mut writer = match self.family(family)? {
            Some((db, family)) => {
                admit(db, key)?;
                Some(db.put_stream(family, key, WriteOptions::volatile())?)
            }
            None => None,
        };
        let mut at = 0;
        let mut run = vec![0; RUN_LEN];
        while at < segment.raw_len() {
            let n = (segment.raw_len() - at).min(RUN_LEN as u64) as usize;
            let bytes = run.get_mut(..n).unwrap_or_default();
            if let Err(e) = segment.read_range(at, bytes) {
                return Ok(Err(e));
            }
            if let Some(writer) = &mut writer {
                self.family(family)?;
                writer.append(bytes)?;
            }
            at += n as u64;
        }
        writer.map_or(Ok(()), |writer| writer.finish())?;
        Ok(Ok(()))
    }

    /// Adds a merge operand to a key. If the stored options of the family are lost, it gets an unknown
    /// operator, which keeps operands. Returns `Ok(Err(_))` if its operator refuses the operand; then
    /// nothing was written.
    pub fn merge(&self, family: FamilyId, key: &[u8], operand: &[u8]) -> Result<Result<()>> {
        let Some((db, family)) = self.family(family)? else { return Ok(Ok(())) };
        admit(db, key)?;
        let options = family.options();
        if options.merge_operator.is_none() {
            let merge_operator = Some(MergeChoice::custom(LOST_NAME));
            db.set_family_options(family, FamilyOptions { merge_operator, ..options })?;
        }
        match db.merge_opt(family, key, operand, &WriteOptions::volatile()) {
            Err(e) if is_refusal(e.kind()) => Ok(Err(e.with_kind(ErrorKind::Corruption))),
            written => written.map(Ok),
        }
    }

    /// Deletes a key.
    pub fn delete(&self, family: FamilyId, key: &[u8]) -> Result<()> {
        match self.family(family)? {
            Some((db, family)) => {
                admit(db, key)?;
                db.delete_opt(family, key, &WriteOptions::volatile())
            }
            None => Ok(()),
        }
    }

    /// Deletes the keys in `[start, end)` that `is_older` accepts, or all of them without it.
    pub fn delete_range(
        &self,
        family: FamilyId,
        change: &Change<'_>,
        is_older: Option<&mut IsOlder<'_>>,
    ) -> Result<()> {
        let Some((db, family)) = self.family(family)? else { return Ok(()) };
        let (start, end) = (change.key, change.value);
        let Some(is_older) = is_older else {
            let mut batch = WriteBatch::new();
            batch.delete_range_cf(family, start, end);
            return db.write_opt(&batch, &WriteOptions::volatile());
        };
        let read = ReadOptions {
            lower_bound: Some(start.to_vec()),
            upper_bound: Some(end.to_vec()),
            keys_only: true,
            ..ReadOptions::default()
        };
        let mut keys = db.iter_cf(family, read)?;
        keys.seek_to_first()?;
        while keys.valid() {
            if is_older(keys.key())? {
                db.delete_opt(family, keys.key(), &WriteOptions::volatile())?;
            }
            keys.next()?;
        }
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// `Cancelled`; the errors of a flush.
    pub fn flush(&self, cancel: Option<&Cancel>) -> Result<()> {
        match self {
            Target::Nowhere => Ok(()),
            Target::Store(db, ..) => db.flush_unless(cancel),
        }
    }

    /// Removes the mark and closes the store, once everything is durable.
    pub fn finish(self) -> Result<()> {
        match self {
            Target::Nowhere => Ok(()),
            Target::Store(db, families, mark, _) => {
                drop(families);
                // This happens under the lock: if the mark stayed, the next repair would delete the
                // new store.
                mark.finish()?;
                db.close()
            }
        }
    }

    /// Closes the store after a failed repair, and leaves its mark.
    pub fn discard(self) {
        if let Target::Store(db, ..) = self {
            discard(db);
        }
    }
}

/// Returns true if the operator of a family refuses an operand.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidArgument | ErrorKind::UserCallback)
}

/// Raises the format of the new store if it must hold an empty key, as the damaged store did.
fn admit(db: &Db, key: &[u8]) -> Result<()> {
    let format = Feature::EmptyKeys.since();
    match key.is_empty() && db.format() < format {
        true => db.upgrade(format),
        false => Ok(()),
    }
}
