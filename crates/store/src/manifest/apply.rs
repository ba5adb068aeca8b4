//! Applying changes to a copy of a state, and checking one from scratch.
//!
//! The store's own records take effect before the engines' steps, removals of log groups and files first among them. A file
//! number lives in one place only, whoever has it: an engine takes the numbers of the files that its records name from its
//! [`Ground`], which asks all others.

use super::engine::{AnyState, Engine};
use super::record::{
    ENGINE_ID_MAX, ENGINE_NAME_LEN_MAX, ENGINES_MAX, EngineFile, EngineId, LogGroupMeta, Record,
    is_file_number,
};
use super::state::{Body, Commit, Part, State};
use crate::IdMap;
use crate::field::newer;
use crate::numbers::NUMBER_MAX;
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo};
use std::sync::Arc;
use wal::{Lane, LogBegin};

/// An edit that contradicts the state.
///
/// # Errors
/// Always: `InvalidArgument`.
pub fn refuse<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::invalid(format!("the edit contradicts the state of the store: {why}")))
}

/// The store under an engine whose edit is being applied.
pub struct Ground<'a> {
    state: &'a mut State,
    engine: EngineId,
}

impl Ground<'_> {
    /// A file of the engine's own records takes this number.
    ///
    /// # Errors
    /// `InvalidArgument` if it is out of range, or somebody else has it. What the engine has itself it must know.
    pub fn take_number(&mut self, number: u64) -> Result<()> {
        let (state, own) = (&mut *self.state, self.engine);
        if !is_file_number(number) {
            return refuse(format!("file number {number} is out of range"));
        }
        let elsewhere =
            |part: &Part| part.holds(number) && (part.id != own || part.files.contains_key(&number));
        if state.log_files.contains_key(&number) || state.parts.iter().any(elsewhere) {
            return refuse(format!("file {number} exists already, and is not of engine {own}"));
        }
        raise(&mut state.next_file_number, number + 1)
    }

    /// This sequence is in use in files.
    ///
    /// # Errors
    /// `InvalidArgument` if it is out of range.
    pub fn raise_seq(&mut self, seq: SeqNo) -> Result<()> {
        raise_seq(self.state, seq)
    }
}

/// Counters only rise; a smaller value is no contradiction but old news.
fn raise(counter: &mut u64, to: u64) -> Result<()> {
    if to > NUMBER_MAX + 1 {
        return refuse(format!("number {to} is out of range"));
    }
    *counter = (*counter).max(to);
    Ok(())
}

fn raise_seq(state: &mut State, to: SeqNo) -> Result<()> {
    if to > MAX_SEQ {
        return refuse(format!("sequence {to} is out of range"));
    }
    state.last_seq = state.last_seq.max(to);
    Ok(())
}

/// The store's own records of one edit.
pub(super) fn records(state: &mut State, records: &[Record]) -> Result<()> {
    for record in records {
        match record {
            Record::RemoveLogGroup { ltn } => remove_log_group(state, *ltn)?,
            Record::RemoveEngineFile { engine, number } => remove_file(state, *engine, *number)?,
            _ => {}
        }
    }
    records.iter().try_for_each(|record| one(state, record))
}

fn one(state: &mut State, record: &Record) -> Result<()> {
    match record {
        Record::RemoveLogGroup { .. } | Record::RemoveEngineFile { .. } => Ok(()), // done before all others
        Record::AddLogGroup { group } => add_log_group(state, *group),
        Record::SealLogGroup { ltn, end_lpn } => log_group(state, *ltn, |g| match g.sealed_end {
            Some(end) if end != *end_lpn => refuse(format!("log group {ltn} is sealed at page {end}")),
            _ => {
                g.sealed_end = Some(*end_lpn);
                Ok(())
            }
        }),
        Record::RetainLogGroup { ltn, bytes } => log_group(state, *ltn, |g| {
            let known = g.retained_bytes.is_some_and(|known| known != *bytes);
            if !g.lane.retains() || known || g.discarded || *bytes > g.len {
                return refuse(format!("log group {ltn} cannot be kept with {bytes} bytes"));
            }
            g.retained_bytes = Some(*bytes);
            Ok(())
        }),
        Record::ShareLogGroup { ltn } => log_group(state, *ltn, |g| {
            g.shared = true;
            match g.retained_bytes {
                Some(_) => Ok(()),
                None => refuse(format!("log group {ltn} is not kept as storage, and cannot be shared")),
            }
        }),
        Record::BeginLogGroup { ltn, begin } => begin_log_group(state, *ltn, *begin),
        Record::DiscardLogGroup { ltn } => log_group(state, *ltn, |g| {
            g.discarded = true;
            Ok(())
        }),
        Record::NextFileNumber(n) => raise(&mut state.next_file_number, *n),
        Record::NextLtn(n) => raise(&mut state.next_ltn, *n),
        Record::LastSeq(n) => raise_seq(state, *n),
        Record::AddEngine { engine, name, format } => add_engine(state, *engine, name, *format),
        Record::EngineFloor { engine, seq } => {
            if *seq > MAX_SEQ {
                return refuse(format!("the floor of engine {engine} is out of range"));
            }
            part(state, *engine)?.floor = Some(*seq);
            Ok(())
        }
        Record::AddEngineFile { engine, file } => add_file(state, *engine, *file),
        Record::EngineMissed { engine, missed } => {
            part(state, *engine)?.missed = *missed;
            Ok(())
        }
        Record::RemoveEngine { engine, below_ltn } => remove_engine(state, *engine, *below_ltn),
        Record::SpaceCeiling { bytes } => {
            state.space_ceiling = Some(*bytes).filter(|bytes| *bytes > 0);
            Ok(())
        }
        Record::SpeedDisk { disk } => {
            state.speed = disk.clone().map(Arc::new);
            let volume = state.log_volume();
            let elsewhere = state.log_groups.values().filter(|group| group.volume != volume);
            for group in elsewhere.copied().collect::<Vec<_>>() {
                state.log_groups.insert(group.ltn, LogGroupMeta { volume, ..group });
            }
            Ok(())
        }
    }
}

fn add_log_group(state: &mut State, group: LogGroupMeta) -> Result<()> {
    let (ltn, file) = (group.ltn, group.file);
    if ltn > NUMBER_MAX || state.log_groups.contains_key(&ltn) {
        return refuse(format!("log group {ltn} exists already, or cannot"));
    }
    take(state, file)?;
    state.log_groups.insert(ltn, group);
    state.log_files.insert(file, ltn);
    raise(&mut state.next_ltn, ltn + 1)
}

/// The log begins in its oldest group, not before where it began, and not behind the end of that.
fn begin_log_group(state: &mut State, ltn: u64, begin: LogBegin) -> Result<()> {
    let oldest = state.log_chain(Lane::FIRST).next().map(|group| group.ltn);
    log_group(state, ltn, |g| {
        let falls = g.begin.is_some_and(|known| known.lpn > begin.lpn || known.first_lpn != begin.first_lpn);
        let is_over = g.sealed_end.is_some_and(|end| end < begin.lpn) || begin.offset(g.lane) > g.len;
        if oldest != Some(ltn) || g.discarded || falls || is_over || begin.lpn < begin.first_lpn {
            return refuse(format!("the log cannot begin at page {} of log group {ltn}", begin.lpn));
        }
        g.begin = Some(begin);
        Ok(())
    })
}

fn remove_log_group(state: &mut State, ltn: u64) -> Result<()> {
    match state.log_groups.remove(&ltn) {
        Some(group) => {
            state.log_files.remove(&group.file);
            Ok(())
        }
        None => refuse(format!("there is no log group {ltn}")),
    }
}

fn log_group(
    state: &mut State,
    ltn: u64,
    change: impl FnOnce(&mut LogGroupMeta) -> Result<()>,
) -> Result<()> {
    let Some(mut group) = state.log_groups.get(&ltn).copied() else {
        return refuse(format!("there is no log group {ltn}"));
    };
    change(&mut group)?;
    state.log_groups.insert(ltn, group);
    Ok(())
}

/// The store itself takes a number.
fn take(state: &mut State, number: u64) -> Result<()> {
    if !is_file_number(number) {
        return refuse(format!("file number {number} is out of range"));
    }
    if state.holds(number) {
        return refuse(format!("file {number} exists already"));
    }
    raise(&mut state.next_file_number, number + 1)
}

/// The part of an engine that has been added. The key-value engine's is made when it is first met.
fn part(state: &mut State, id: EngineId) -> Result<&mut Part> {
    if id == EngineId::NATIVE && state.part(id).is_none() {
        let part = Part::new(id, "", 0, Body::Away { steps: IdMap::new() });
        state.parts.insert(0, part);
    }
    match state.part_mut(id) {
        Some(part) if part.added || id == EngineId::NATIVE => Ok(part),
        _ => refuse(format!("engine {id} has not been added to the store")),
    }
}

fn add_engine(state: &mut State, id: EngineId, name: &str, format: u32) -> Result<()> {
    if id == EngineId::NATIVE || name.len() > ENGINE_NAME_LEN_MAX {
        return refuse(format!("engine {id} cannot be added: its id is taken, or its name too long"));
    }
    if id.0 > ENGINE_ID_MAX {
        return Err(newer(format!(
            "engine {id}: an id above {ENGINE_ID_MAX}, for which the log has no room,"
        )));
    }
    check_gone(state, id)?;
    if state.part(id).is_none() {
        if state.parts.len() >= ENGINES_MAX {
            return refuse("there are too many engines");
        }
        let at = state.parts.partition_point(|part| part.id < id);
        state.parts.insert(at, Part::new(id, name, format, Body::Away { steps: IdMap::new() }));
    }
    let Some(part) = state.part_mut(id) else { return Ok(()) };
    let had_steps = part.added;
    (part.name, part.format, part.added, part.gone_below) = (name.into(), format, true, None);
    if let Body::Here { engine, state } = &part.body
        && format > engine.format()
    {
        // It is not this engine that knows what comes: what there is of it is kept from here on.
        let mut steps = IdMap::new();
        let step = engine.snapshot(state);
        if had_steps && !step.is_empty() {
            steps.insert(0, step.into());
        }
        part.body = Body::Away { steps };
    }
    Ok(())
}

/// An engine that was removed and comes back would be handed what it had in the log before: that must have gone.
fn check_gone(state: &State, id: EngineId) -> Result<()> {
    let Some(below) = state.part(id).and_then(|part| part.gone_below) else { return Ok(()) };
    let group = state.log_groups.values().find(|group| group.ltn < below);
    let Some(group) = group else {
        return Ok(());
    };
    let why = format!(
        "engine {id} was removed from this store, and log group {} may still hold batches of it: it can be added again when \
         the other engines need none of these groups, which a flush and an open of the store see to",
        group.ltn
    );
    Err(Error::new(ErrorKind::Busy, why))
}

fn remove_engine(state: &mut State, id: EngineId, below_ltn: u64) -> Result<()> {
    let Some(part) = state.part_mut(id).filter(|part| part.added) else {
        return refuse(format!("there is no engine {id} that could be removed"));
    };
    let body = match &part.body {
        Body::Here { engine, .. } => Body::Here { engine: *engine, state: engine.empty() },
        Body::Away { .. } => Body::Away { steps: IdMap::new() },
    };
    *part = Part { gone_below: Some(below_ltn), ..Part::new(id, &part.name.clone(), 0, body) };
    Ok(())
}

fn add_file(state: &mut State, id: EngineId, file: EngineFile) -> Result<()> {
    part(state, id)?;
    take(state, file.number)?;
    part(state, id)?.files.insert(file.number, file);
    Ok(())
}

fn remove_file(state: &mut State, id: EngineId, number: u64) -> Result<()> {
    match part(state, id)?.files.remove(&number) {
        Some(_) => Ok(()),
        None => refuse(format!("engine {id} has no file {number}")),
    }
}

/// A step of an engine as it lies in a manifest.
pub(super) fn step(state: &mut State, id: EngineId, step: &[u8]) -> Result<()> {
    match &mut part(state, id)?.body {
        Body::Away { steps } => {
            let next = steps.last().map_or(0, |(last, _)| last + 1);
            steps.insert(next, step.into());
            Ok(())
        }
        Body::Here { engine, state: own } => {
            let (engine, own) = (*engine, own.clone());
            let own = engine.apply(&own, step, &mut Ground { state, engine: id })?;
            put(state, id, own);
            Ok(())
        }
    }
}

/// Puts another state of an engine that is here in place.
pub(super) fn put(state: &mut State, id: EngineId, new: AnyState) {
    if let Some(Body::Here { state, .. }) = state.part_mut(id).map(|part| &mut part.body) {
        *state = new;
    }
}

/// The engine's own state in a store's.
pub(super) fn own<E: Engine>(state: &State) -> Result<Arc<E::State>> {
    match state.part(E::ID).map(|part| &part.body) {
        Some(Body::Here { state, .. }) => {
            let own = Arc::clone(state).downcast::<E::State>();
            own.map_err(|_| Error::invalid(format!("engine {} is another one here", E::ID)))
        }
        Some(Body::Away { .. }) if state.part(E::ID).is_some_and(|part| part.format > E::FORMAT) => {
            Err(newer(format!("the format of engine {} in this store", E::NAME)))
        }
        _ => Err(Error::invalid(format!("the store was opened without engine {}", E::NAME))),
    }
}

/// What an engine's commit makes of a state: the next one, the engine's part of it, and the store's records of the edit:
/// those of the commit, and what is written out for those who cannot read the engine's step.
pub(super) fn commit<E: Engine>(
    before: &State,
    own: &Arc<E::State>,
    commit: &Commit<E>,
) -> Result<(State, Arc<E::State>, Vec<Record>)> {
    let mut next = State { edit_number: before.edit_number + 1, ..before.clone() };
    let mut all = commit.store.clone();
    let is_first = E::ID != EngineId::NATIVE && before.part(E::ID).is_some_and(|part| !part.added);
    if is_first {
        all.insert(0, Record::AddEngine { engine: E::ID, name: E::NAME.to_owned(), format: E::FORMAT });
    }
    records(&mut next, &all)?;
    let own = Arc::new(E::apply(own, &commit.own, &mut Ground { state: &mut next, engine: E::ID })?);
    put(&mut next, E::ID, own.clone());
    if next.parts.iter().any(|part| part.added) {
        let moved = [
            (next.last_seq != before.last_seq || is_first).then_some(Record::LastSeq(next.last_seq)),
            (next.next_file_number != before.next_file_number || is_first)
                .then_some(Record::NextFileNumber(next.next_file_number)),
        ];
        let mut written_out: Vec<Record> = moved.into_iter().flatten().collect();
        for part in &mut next.parts {
            let Body::Here { engine, state } = &part.body else { continue };
            let floor = Some(engine.floor(state)).filter(|_| part.added || part.id == EngineId::NATIVE);
            if let Some(seq) = floor.filter(|_| floor != part.floor) {
                part.floor = floor;
                written_out.push(Record::EngineFloor { engine: part.id, seq });
            }
        }
        all.extend(written_out);
    }
    Ok((next, own, all))
}

/// Checks a state from scratch.
pub(super) fn verify(state: &State) -> Result<()> {
    let mut taken: IdMap<u64, EngineId> = IdMap::new();
    let mut log_files = IdMap::new();
    let mut occupy = |number: u64, owner: EngineId| match taken.insert(number, owner) {
        Some(_) => fault(format!("file {number} is listed twice")),
        None if number >= state.next_file_number => fault(format!("file {number} is past the next number")),
        None => Ok(()),
    };
    for (ltn, group) in state.log_groups.iter() {
        if ltn != group.ltn || ltn >= state.next_ltn {
            return fault(format!("log group {ltn} is out of place"));
        }
        occupy(group.file, EngineId::NATIVE)?;
        log_files.insert(group.file, ltn);
    }
    let mut chain = state.log_chain(Lane::FIRST);
    chain.next();
    if let Some(group) = chain.find(|group| group.begin.is_some()) {
        return fault(format!("the log begins in log group {}, which is not its oldest", group.ltn));
    }
    if log_files != state.log_files {
        return fault("the index of log files is not that of the groups");
    }
    if !state.parts.is_sorted_by(|a, b| a.id < b.id) {
        return fault("the engines are not in their order");
    }
    for part in &state.parts {
        for (number, file) in part.files.iter() {
            if number != file.number {
                return fault(format!("file {} of engine {} is listed as {number}", file.number, part.id));
            }
            occupy(number, part.id)?;
        }
        if let Body::Here { engine, state: own } = &part.body {
            let numbers = engine.files(own).into_iter().filter_map(|(kind, _)| kind.number());
            numbers.into_iter().try_for_each(|number| occupy(number, part.id))?;
            engine.verify(own, state)?;
        }
    }
    Ok(())
}

fn fault<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::corruption(format!("the manifest contradicts itself: {why}; run `lava repair`")))
}

#[cfg(test)]
mod tests;
