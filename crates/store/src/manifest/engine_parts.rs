//! What a store has of each of its engines.
//!
//! An engine that is *here* (it was named at open) has its state in memory. Of one that is *away* the store keeps what it
//! must not lose and does not understand: the steps that the engine wrote, in their order and each for itself, because what
//! an engine makes of two steps need not be what it makes of one; and what it does understand: its floor and its files.
//! Both come through commits, rolls and copies of the store unchanged.

use super::contradiction::{fault, refuse};
use super::engine::{AnyEngine, AnyState, Engine, Engines};
use super::record::{ENGINES_MAX, EngineFile, EngineId, Record, put_step};
use super::state::State;
use crate::IdMap;
use crate::field::newer;
use crate::names::FileKind;
use crate::volumes::Volume;
use base::{Error, Result, SeqNo};
use std::fmt;
use std::sync::Arc;

/// The engines of a store, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineParts(Vec<Part>);

/// What the store has of one engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) id: EngineId,
    name: Arc<str>,
    format: u32,
    /// It was added to this store. Otherwise it is only here.
    added: bool,
    /// Its floor as it was written out.
    floor: Option<SeqNo>,
    /// The log was ended without it: see [`Record::EngineMissed`].
    missed: bool,
    /// It was removed: see [`Record::RemoveEngine`].
    gone_below: Option<u64>,
    files: IdMap<u64, EngineFile>,
    body: Body,
}

impl Eq for Part {}

#[derive(Clone)]
enum Body {
    Here {
        engine: &'static dyn AnyEngine,
        /// Of this engine.
        state: AnyState,
    },
    Away {
        /// By place in their order.
        steps: IdMap<u64, Arc<[u8]>>,
    },
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        match (self, other) {
            (Body::Here { engine, state }, Body::Here { engine: other, state: theirs }) => {
                engine.id() == other.id() && engine.equal(state, theirs)
            }
            (Body::Away { steps }, Body::Away { steps: theirs }) => steps == theirs,
            _ => false,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Here { engine, state } => f.write_str(&engine.describe(state)),
            Body::Away { steps } => write!(f, "{} steps", steps.len()),
        }
    }
}

/// An engine of a store, as anybody sees it.
#[derive(Clone, Copy, Debug)]
pub struct EngineView<'a> {
    /// Its id.
    pub id: EngineId,
    /// Its name; empty if nobody here knows it, as may be for the key-value engine.
    pub name: &'a str,
    /// True if the store was opened with it, and it knows the format.
    pub is_here: bool,
    /// Nothing of it below this sequence is needed from the log.
    pub floor: SeqNo,
    /// The log was ended without it, and it has not been here since: see [`Record::EngineMissed`].
    pub missed: bool,
    /// The files that the store lists for it.
    pub files: &'a IdMap<u64, EngineFile>,
}

impl Part {
    fn new(id: EngineId, name: &str, format: u32, body: Body) -> Part {
        Part {
            id,
            name: name.into(),
            format,
            added: false,
            floor: None,
            missed: false,
            gone_below: None,
            files: IdMap::new(),
            body,
        }
    }

    fn view(&self) -> EngineView<'_> {
        let (is_here, floor) = match &self.body {
            Body::Here { engine, state } => (true, engine.floor(state)),
            Body::Away { .. } => (false, self.floor.unwrap_or(0)),
        };
        let (name, missed, files) = (&*self.name, self.missed, &self.files);
        EngineView { id: self.id, name, is_here, floor, missed, files }
    }

    /// True if the store holds something of it, or for it.
    fn counts(&self) -> bool {
        // The key-value engine was never added: it is there if anything is said of it.
        let is_met = match &self.body {
            Body::Here { .. } => true,
            Body::Away { steps } => !steps.is_empty() || self.floor.is_some() || !self.files.is_empty(),
        };
        self.added || self.missed || (self.id == EngineId::NATIVE && is_met)
    }

    /// Appends the records that lead to it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let engine = self.id;
        if let Some(below_ltn) = self.gone_below {
            Record::AddEngine { engine, name: self.name.to_string(), format: self.format }.encode_into(out);
            Record::RemoveEngine { engine, below_ltn }.encode_into(out);
        }
        if !self.counts() {
            return;
        }
        if self.added {
            let (name, format) = (self.name.to_string(), self.format);
            Record::AddEngine { engine, name, format }.encode_into(out);
        }
        if let Some(seq) = self.floor {
            Record::EngineFloor { engine, seq }.encode_into(out);
        }
        if self.missed {
            Record::EngineMissed { engine, missed: true }.encode_into(out);
        }
        self.files.values().for_each(|&file| Record::AddEngineFile { engine, file }.encode_into(out));
        match &self.body {
            // One that has not committed anything yet is no part of the store, whatever its empty state looks like.
            Body::Here { .. } if !self.counts() => {}
            Body::Here { engine, state } => put_own_step(out, self.id, &engine.snapshot(state)),
            Body::Away { steps } => steps.values().for_each(|step| put_step(out, engine, step)),
        }
    }

    /// True if the number is that of a file of the engine.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.files.contains_key(&number)
            || matches!(&self.body, Body::Here { engine, state } if engine.holds(state, number))
    }

    /// True if the store lists a file of this number for the engine.
    pub(super) fn lists(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    /// The number of the first log group that has nothing of it, if the engine was removed.
    pub(super) fn gone_below(&self) -> Option<u64> {
        self.gone_below
    }

    /// True if it lists no file and says nothing else. The steps of an engine that is away cannot be read: those with which a new
    /// store begins (`is_new`) count as nothing.
    pub(super) fn is_blank(&self, is_new: bool) -> bool {
        self.files.is_empty()
            && match &self.body {
                Body::Here { engine, state } => engine.files(state).is_empty(),
                Body::Away { steps } => steps.is_empty() || is_new,
            }
    }

    pub(super) fn set_floor(&mut self, floor: SeqNo) {
        self.floor = Some(floor);
    }

    pub(super) fn set_missed(&mut self, missed: bool) {
        self.missed = missed;
    }

    pub(super) fn add_file(&mut self, file: EngineFile) {
        self.files.insert(file.number, file);
    }

    /// Removes a file. False if it is not listed.
    pub(super) fn remove_file(&mut self, number: u64) -> bool {
        self.files.remove(&number).is_some()
    }

    /// Takes a step of an engine that is away. One that is here must apply it first: returns the engine and its state.
    pub(super) fn take_step(&mut self, step: &[u8]) -> Option<(&'static dyn AnyEngine, AnyState)> {
        match &mut self.body {
            Body::Away { steps } => {
                let next = steps.last().map_or(0, |(last, _)| last + 1);
                steps.insert(next, step.into());
                None
            }
            Body::Here { engine, state } => Some((*engine, state.clone())),
        }
    }

    /// Checks the part, and hands out the numbers of its files.
    ///
    /// # Errors
    /// `Corruption`; those of `occupy`.
    pub(super) fn verify(&self, state: &State, mut occupy: impl FnMut(u64) -> Result<()>) -> Result<()> {
        for (number, file) in self.files.iter() {
            if number != file.number {
                return fault(format!("file {} of engine {} is listed as {number}", file.number, self.id));
            }
            occupy(number)?;
        }
        if let Body::Here { engine, state: own } = &self.body {
            let numbers = engine.files(own).into_iter().filter_map(|(kind, _)| kind.number());
            numbers.into_iter().try_for_each(occupy)?;
            engine.verify(own, state)?;
        }
        Ok(())
    }

    fn describe(&self, out: &mut String) {
        if self.added || matches!(self.body, Body::Away { .. }) {
            let (view, format) = (self.view(), self.format);
            *out += &format!("engine {} \"{}\" format {format}", self.id, self.name.escape_debug());
            *out += &format!(", floor {}, {} files", view.floor, self.files.len());
            *out += &match &self.body {
                Body::Here { .. } => "\n".to_owned(),
                Body::Away { steps } => format!(", away, {} steps kept\n", steps.len()),
            };
        }
        if let Body::Here { engine, state } = &self.body {
            *out += &engine.describe(state);
        }
    }
}

/// Appends a step of an engine that is here, in the form that its records have.
pub(super) fn put_own_step(out: &mut Vec<u8>, engine: EngineId, step: &[u8]) {
    match engine {
        EngineId::NATIVE => out.extend_from_slice(step),
        _ if step.is_empty() => {}
        _ => put_step(out, engine, step),
    }
}

impl EngineParts {
    /// The parts of a store without anything in it.
    pub(super) fn of(engines: &Engines) -> EngineParts {
        let here = |engine: &'static dyn AnyEngine| {
            let body = Body::Here { engine, state: engine.empty() };
            Part::new(engine.id(), engine.name(), engine.format(), body)
        };
        let mut parts: Vec<Part> = engines.iter().map(here).collect();
        parts.sort_by_key(|part| part.id);
        EngineParts(parts)
    }

    /// The engines that keep something in the store, and the key-value engine if the store was opened with it.
    pub fn iter(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.0.iter().filter(|part| part.counts()).map(Part::view)
    }

    /// Those of them that are away.
    pub fn away(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.iter().filter(|engine| !engine.is_here)
    }

    /// True if the log was ended without an engine that had batches there, and the engine has not been here since.
    pub fn has_missed(&self, id: EngineId) -> bool {
        self.get(id).is_some_and(|part| part.missed)
    }

    /// Below which sequence each engine needs nothing of the log; one that was removed needs nothing at all.
    pub fn floors(&self) -> impl Iterator<Item = (EngineId, SeqNo)> + '_ {
        let gone = self.0.iter().filter(|part| part.gone_below.is_some());
        self.iter().map(|engine| (engine.id, engine.floor)).chain(gone.map(|part| (part.id, SeqNo::MAX)))
    }

    /// True if this is a file of an engine that was removed: nobody wants it any more.
    pub fn is_of_removed(&self, file: FileKind) -> bool {
        let FileKind::Engine { engine, .. } = file else { return false };
        self.get(EngineId(engine)).is_some_and(|part| part.gone_below.is_some())
    }

    /// True if the engine has to be thought of when `file` is found and not listed: the store was opened without it, so
    /// that nobody knows whether the file is still needed.
    pub fn is_of_away(&self, file: FileKind) -> bool {
        let Some(owner) = EngineId::owner(file) else { return false };
        !self.get(owner).is_some_and(|part| matches!(part.body, Body::Here { .. }))
    }

    /// The files that the store lists for engines, with their names.
    pub fn files(&self) -> impl Iterator<Item = (EngineId, EngineFile, FileKind)> + '_ {
        let name =
            |id: EngineId, f: EngineFile| FileKind::Engine { engine: id.0, kind: f.kind, number: f.number };
        self.0
            .iter()
            .flat_map(move |part| part.files.values().map(move |&file| (part.id, file, name(part.id, file))))
    }

    /// The files of engines that are here that are on a volume.
    pub fn files_on(&self, volume: Volume) -> Vec<FileKind> {
        self.own_files().filter(|(_, on)| *on == volume).map(|(file, _)| file).collect()
    }

    /// The files that the records of engines name that are here.
    pub(super) fn own_files(&self) -> impl Iterator<Item = (FileKind, Volume)> + '_ {
        self.0.iter().flat_map(|part| match &part.body {
            Body::Here { engine, state } => engine.files(state),
            Body::Away { .. } => Vec::new(),
        })
    }

    /// The engines that are here.
    pub(super) fn here(&self) -> Engines {
        let here = self.0.iter().filter_map(|part| match &part.body {
            Body::Here { engine, .. } => Some(*engine),
            Body::Away { .. } => None,
        });
        here.collect()
    }

    /// All parts, those without anything of the store among them.
    pub(super) fn all(&self) -> &[Part] {
        &self.0
    }

    /// Those with which a store goes on whose history was read to its end: see [`Engine::at_end`].
    pub(super) fn at_end(mut self) -> EngineParts {
        for part in &mut self.0 {
            if let Body::Here { engine, state } = &mut part.body {
                *state = engine.at_end(state);
            }
        }
        self
    }

    pub(super) fn get(&self, id: EngineId) -> Option<&Part> {
        self.0.iter().find(|part| part.id == id)
    }

    fn get_mut(&mut self, id: EngineId) -> Option<&mut Part> {
        self.0.iter_mut().find(|part| part.id == id)
    }

    /// The part of an engine that has been added. The key-value engine's is made when it is first met.
    ///
    /// # Errors
    /// `InvalidArgument` if it has not been added.
    pub(super) fn added(&mut self, id: EngineId) -> Result<&mut Part> {
        if id == EngineId::NATIVE && self.get(id).is_none() {
            self.0.insert(0, Part::new(id, "", 0, Body::Away { steps: IdMap::new() }));
        }
        match self.get_mut(id) {
            Some(part) if part.added || id == EngineId::NATIVE => Ok(part),
            _ => refuse(format!("engine {id} has not been added to the store")),
        }
    }

    /// Adds an engine, or raises the format of one.
    ///
    /// # Errors
    /// `InvalidArgument`, `Unsupported` if it cannot be in a store.
    pub(super) fn add(&mut self, id: EngineId, name: &str, format: u32) -> Result<()> {
        if self.get(id).is_none() {
            if self.0.len() >= ENGINES_MAX {
                return refuse("there are too many engines");
            }
            let at = self.0.partition_point(|part| part.id < id);
            self.0.insert(at, Part::new(id, name, format, Body::Away { steps: IdMap::new() }));
        }
        let Some(part) = self.get_mut(id) else { return Ok(()) };
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

    /// Removes an engine; log groups from `below_ltn` on have nothing of it.
    ///
    /// # Errors
    /// `InvalidArgument` if it has not been added.
    pub(super) fn remove(&mut self, id: EngineId, below_ltn: u64) -> Result<()> {
        let Some(part) = self.get_mut(id).filter(|part| part.added) else {
            return refuse(format!("there is no engine {id} that could be removed"));
        };
        let body = match &part.body {
            Body::Here { engine, .. } => Body::Here { engine: *engine, state: engine.empty() },
            Body::Away { .. } => Body::Away { steps: IdMap::new() },
        };
        *part = Part { gone_below: Some(below_ltn), ..Part::new(id, &part.name.clone(), 0, body) };
        Ok(())
    }

    /// Puts another state of an engine that is here in place.
    pub(super) fn put(&mut self, id: EngineId, new: AnyState) {
        if let Some(Body::Here { state, .. }) = self.get_mut(id).map(|part| &mut part.body) {
            *state = new;
        }
    }

    /// The state of an engine.
    ///
    /// # Errors
    /// `InvalidArgument` if it is away, `Unsupported` if the store has a newer format of it.
    pub(super) fn own<E: Engine>(&self) -> Result<Arc<E::State>> {
        match self.get(E::ID).map(|part| &part.body) {
            Some(Body::Here { state, .. }) => {
                let own = Arc::clone(state).downcast::<E::State>();
                own.map_err(|_| Error::invalid(format!("engine {} is another one here", E::ID)))
            }
            Some(Body::Away { .. }) if self.get(E::ID).is_some_and(|part| part.format > E::FORMAT) => {
                Err(newer(format!("the format of engine {} in this store", E::NAME)))
            }
            _ => Err(Error::invalid(format!("the store was opened without engine {}", E::NAME))),
        }
    }

    /// True if an engine is here and was never added.
    pub(super) fn is_first(&self, id: EngineId) -> bool {
        id != EngineId::NATIVE && self.get(id).is_some_and(|part| !part.added)
    }

    /// True if an engine was added: what a step moves is written out beside it.
    pub(super) fn has_added(&self) -> bool {
        self.0.iter().any(|part| part.added)
    }

    /// The floors that rose and are to be written out.
    pub(super) fn write_out_floors(&mut self) -> Vec<Record> {
        let mut written_out = Vec::new();
        for part in &mut self.0 {
            let Body::Here { engine, state } = &part.body else { continue };
            let floor = Some(engine.floor(state)).filter(|_| part.added || part.id == EngineId::NATIVE);
            if let Some(seq) = floor.filter(|_| floor != part.floor) {
                part.floor = floor;
                written_out.push(Record::EngineFloor { engine: part.id, seq });
            }
        }
        written_out
    }

    /// A listing for people.
    pub(super) fn describe(&self) -> String {
        let mut out = String::new();
        for part in self.0.iter().filter(|part| part.gone_below.is_some()) {
            out += &format!("engine {} \"{}\" removed\n", part.id, part.name.escape_debug());
        }
        self.0.iter().filter(|part| part.counts()).for_each(|part| part.describe(&mut out));
        out
    }

    /// For tests of contradictions: an engine that stands out of order, or a file under another number.
    #[cfg(test)]
    pub(super) fn contradict(&mut self, id: EngineId, (number, file): (u64, EngineFile)) {
        match self.get_mut(id) {
            Some(part) => drop(part.files.insert(number, file)),
            None => self.0.push(Part::new(id, "", 0, Body::Away { steps: IdMap::new() })),
        }
    }
}
