//! Applying changes to a copy of a state, and checking a state from scratch.
//!
//! The store's own records take effect before the engines' steps, and removals of log groups and
//! files before everything else. A file number has a single owner. An engine takes the numbers of
//! the files that its records name from its [`StateBuilder`], which checks all other owners.

use super::contradiction::{fault, refuse};
use super::engine::Engine;
use super::engine_parts::{EnginePart, put_own_step};
use super::record::{
    ENGINE_ID_MAX, ENGINE_NAME_LEN_MAX, EngineFile, EngineId, LogGroupMeta, Payload, Record, is_file_number,
};
use super::state::{Commit, ManifestState, StateBuilder, StateOf, raise, raise_seq};
use crate::IdMap;
use crate::field::{damaged, newer};
use crate::numbers::NUMBER_MAX;
use base::{Error, ErrorKind, MAX_SEQ, Result};
use std::sync::Arc;

impl ManifestState {
    /// Returns the state after an edit read from a manifest.
    ///
    /// # Errors
    /// `Corruption` if the edit contradicts the state or is damaged, `Unsupported` if a newer
    /// release wrote it.
    pub fn after(&self, edit: &[u8]) -> Result<ManifestState> {
        let edit = Payload::decode(edit)?;
        let mut next = ManifestState { edit_number: self.edit_number + 1, ..self.clone() };
        let applied = apply(&mut next, &edit.records)
            .and_then(|()| edit.all_steps().try_for_each(|(id, step)| apply_step(&mut next, id, step)));
        applied.map_err(|e| if e.kind() == ErrorKind::InvalidArgument { damaged(e) } else { e })?;
        Ok(next)
    }

    /// Returns the state after changes of the store's own records, and the bytes of that edit.
    ///
    /// # Errors
    /// `InvalidArgument` if they contradict the state.
    pub(super) fn changed(&self, records: &[Record]) -> Result<(ManifestState, Vec<u8>)> {
        let mut next = ManifestState { edit_number: self.edit_number + 1, ..self.clone() };
        apply(&mut next, records)?;
        let mut out = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut out));
        Ok((next, out))
    }

    /// Returns the state with these log groups added: for a copy of the store.
    ///
    /// # Errors
    /// `InvalidArgument` if a group or its file is there already.
    pub fn with_log(mut self, groups: Vec<LogGroupMeta>) -> Result<ManifestState> {
        let volume = self.log_volume();
        let here = |group| Record::AddLogGroup { group: LogGroupMeta { volume, ..group } };
        let records: Vec<Record> = groups.into_iter().map(here).collect();
        apply(&mut self, &records)?;
        Ok(self)
    }

    /// Recomputes everything that is derived and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    pub fn verify(&self) -> Result<()> {
        verify(self)
    }
}

impl<E: Engine> StateOf<E> {
    /// Returns the state after an edit, with the next edit number. The state itself does not
    /// change.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state.
    pub fn apply(&self, commit: impl Into<Commit<E>>) -> Result<Self> {
        self.committed(&commit.into()).map(|(next, _)| next)
    }

    /// Returns the state after a commit, and the bytes of that edit.
    pub(super) fn committed(&self, commit: &Commit<E>) -> Result<(Self, Vec<u8>)> {
        let (next, own, records) = apply_commit(&self.store, &self.own, commit)?;
        let mut out = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut out));
        put_own_step(&mut out, E::ID, &E::encode(&commit.own));
        Ok((StateOf { store: Arc::new(next), own }, out))
    }
}

/// Applies the store's own records of one edit.
fn apply(state: &mut ManifestState, records: &[Record]) -> Result<()> {
    for record in records {
        match record {
            Record::RemoveLogGroup { ltn } => state.log_groups.remove(*ltn)?,
            Record::RemoveEngineFile { engine, number } => remove_file(state, *engine, *number)?,
            _ => {}
        }
    }
    records.iter().try_for_each(|record| one(state, record))
}

fn one(state: &mut ManifestState, record: &Record) -> Result<()> {
    match record {
        Record::RemoveLogGroup { .. } | Record::RemoveEngineFile { .. } => Ok(()), // applied first
        Record::AddLogGroup { group } => add_log_group(state, *group),
        Record::SealLogGroup { ltn, end_lpn } => state.log_groups.seal(*ltn, *end_lpn),
        Record::RetainLogGroup { ltn, bytes } => state.log_groups.retain(*ltn, *bytes),
        Record::ShareLogGroup { ltn } => state.log_groups.share(*ltn),
        Record::BeginLogGroup { ltn, begin } => state.log_groups.begin(*ltn, *begin),
        Record::DiscardLogGroup { ltn } => state.log_groups.discard(*ltn),
        Record::NextFileNumber(n) => raise(&mut state.next_file_number, *n),
        Record::NextLtn(n) => raise(&mut state.next_ltn, *n),
        Record::LastSeq(n) => raise_seq(state, *n),
        Record::AddEngine { engine, name, format } => add_engine(state, *engine, name, *format),
        Record::EngineFloor { engine, seq } => {
            if *seq > MAX_SEQ {
                return refuse(format!(
                    "the log floor {seq} of engine {engine} is out of range: at most {MAX_SEQ}"
                ));
            }
            state.engines.added(*engine)?.set_floor(*seq);
            Ok(())
        }
        Record::AddEngineFile { engine, file } => add_file(state, *engine, *file),
        Record::EngineMissed { engine, missed } => {
            state.engines.added(*engine)?.set_missed(*missed);
            Ok(())
        }
        Record::RemoveEngine { engine, below_ltn } => state.engines.remove(*engine, *below_ltn),
        Record::SpaceCeiling { bytes } => {
            state.space_ceiling = Some(*bytes).filter(|bytes| *bytes > 0);
            Ok(())
        }
        Record::FastTier { disk } => {
            state.speed = disk.clone().map(Arc::new);
            let volume = state.log_volume();
            state.log_groups.move_to(volume);
            Ok(())
        }
    }
}

fn add_log_group(state: &mut ManifestState, group: LogGroupMeta) -> Result<()> {
    state.log_groups.check_new(group.ltn)?;
    take(state, group.file)?;
    state.log_groups.add(group);
    raise(&mut state.next_ltn, group.ltn + 1)
}

/// Takes a file number for the store itself.
fn take(state: &mut ManifestState, number: u64) -> Result<()> {
    if !is_file_number(number) {
        return refuse(format!("file number {number} is out of range: 1 to {NUMBER_MAX}"));
    }
    if state.holds(number) {
        return refuse(format!("file {number} exists already"));
    }
    raise(&mut state.next_file_number, number + 1)
}

fn add_engine(state: &mut ManifestState, id: EngineId, name: &str, format: u32) -> Result<()> {
    if id == EngineId::NATIVE || name.len() > ENGINE_NAME_LEN_MAX {
        return refuse(format!(
            "engine {id} cannot be added: its id is 0, that of LavaKV, or its name has {} bytes (at most \
             {ENGINE_NAME_LEN_MAX})",
            name.len()
        ));
    }
    if id.0 > ENGINE_ID_MAX {
        return Err(newer(format!("engine {id}: an id above {ENGINE_ID_MAX}, too large for the log,")));
    }
    check_gone(state, id)?;
    state.engines.add(id, name, format)
}

/// Fails if the log may still hold batches of an engine that was removed: after it is added again,
/// replay would hand them to it.
fn check_gone(state: &ManifestState, id: EngineId) -> Result<()> {
    let Some(below) = state.engines.get(id).and_then(EnginePart::gone_below) else { return Ok(()) };
    let group = state.log_groups.values().find(|group| group.ltn < below);
    let Some(group) = group else {
        return Ok(());
    };
    let why = format!(
        "engine {id} was removed from this store, and log group {} may still hold its batches: \
         flush the other engines and reopen the store, then add the engine again",
        group.ltn
    );
    Err(Error::new(ErrorKind::Busy, why))
}

fn add_file(state: &mut ManifestState, id: EngineId, file: EngineFile) -> Result<()> {
    state.engines.added(id)?;
    take(state, file.number)?;
    state.engines.added(id)?.add_file(file);
    Ok(())
}

fn remove_file(state: &mut ManifestState, id: EngineId, number: u64) -> Result<()> {
    match state.engines.added(id)?.remove_file(number) {
        true => Ok(()),
        false => refuse(format!("engine {id} has no file {number}")),
    }
}

/// Applies a step of an engine, as read from a manifest.
fn apply_step(state: &mut ManifestState, id: EngineId, step: &[u8]) -> Result<()> {
    if let Some((engine, own)) = state.engines.added(id)?.take_step(step) {
        let own = engine.apply(&own, step, &mut StateBuilder::of(state, id))?;
        state.engines.put(id, own);
    }
    Ok(())
}

/// Applies an engine's commit. Returns the next state, the engine's part of it, and the store's
/// records of the edit. These include values that a reader without the engine cannot take from its
/// step.
fn apply_commit<E: Engine>(
    before: &ManifestState,
    own: &Arc<E::State>,
    commit: &Commit<E>,
) -> Result<(ManifestState, Arc<E::State>, Vec<Record>)> {
    let mut next = ManifestState { edit_number: before.edit_number + 1, ..before.clone() };
    let mut all = commit.store.clone();
    let is_first = before.engines.is_first(E::ID);
    if is_first {
        all.insert(0, Record::AddEngine { engine: E::ID, name: E::NAME.to_owned(), format: E::FORMAT });
    }
    apply(&mut next, &all)?;
    let own = Arc::new(E::apply(own, &commit.own, &mut StateBuilder::of(&mut next, E::ID))?);
    next.engines.put(E::ID, own.clone());
    if next.engines.has_added() {
        let moved = [
            (next.last_seq != before.last_seq || is_first).then_some(Record::LastSeq(next.last_seq)),
            (next.next_file_number != before.next_file_number || is_first)
                .then_some(Record::NextFileNumber(next.next_file_number)),
        ];
        all.extend(moved.into_iter().flatten());
        all.extend(next.engines.write_out_floors());
    }
    Ok((next, own, all))
}

fn verify(state: &ManifestState) -> Result<()> {
    let mut taken: IdMap<u64, EngineId> = IdMap::new();
    let mut occupy = |number: u64, owner: EngineId| match taken.insert(number, owner) {
        Some(other) => {
            fault(format!("file {number} is listed twice: by engine {other} and by engine {owner}"))
        }
        None if number >= state.next_file_number => {
            let next = state.next_file_number;
            fault(format!("file {number} is past the next number, {next}"))
        }
        None => Ok(()),
    };
    state.log_groups.verify(state.next_ltn, |file| occupy(file, EngineId::NATIVE))?;
    let parts = state.engines.all();
    if !parts.is_sorted_by(|a, b| a.id < b.id) {
        return fault("the engines are not in their order of ascending ids");
    }
    parts.iter().try_for_each(|part| part.verify(state, |number| occupy(number, part.id)))
}

#[cfg(test)]
mod tests;
