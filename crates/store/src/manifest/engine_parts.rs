//! The part of each engine in a store's state.
//!
//! A *present* engine was named at open, and its state is in memory. Of an *absent* engine the
//! store keeps the opaque steps, in order and each by itself: an engine need not treat two steps
//! like one. (In an edit of LavaKV removals take effect before additions. So the steps "add a file"
//! and "remove it and add it elsewhere", merged into one, would contradict each other.) The store
//! also keeps the engine's floor and files, which it understands. Commits, rolls and copies of the
//! store preserve both.

use super::contradiction::{fault, refuse};
use super::engine::{AnyEngine, AnyState, Engine, Engines};
use super::record::{ENGINES_MAX, EngineFile, EngineId, Record, put_step};
use super::state::ManifestState;
use crate::IdMap;
use crate::field::newer;
use crate::names::FileKind;
use crate::volumes::Volume;
use base::{Error, Result, SeqNo};
use std::fmt;
use std::sync::Arc;

/// The engines of a store, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineParts(Vec<EnginePart>);

/// The part of one engine in a store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EnginePart {
    pub(super) id: EngineId,
    name: Arc<str>,
    format: u32,
    /// The engine was added to this store. Otherwise it is only present.
    added: bool,
    /// Its floor as last written out.
    floor: Option<SeqNo>,
    /// The log was closed without the engine: see [`Record::EngineMissed`].
    missed: bool,
    /// The engine was removed: see [`Record::RemoveEngine`].
    gone_below: Option<u64>,
    files: IdMap<u64, EngineFile>,
    body: Body,
}

impl Eq for EnginePart {}

#[derive(Clone)]
enum Body {
    Here {
        engine: &'static dyn AnyEngine,
        /// The state of this engine.
        state: AnyState,
    },
    Away {
        /// Steps by their position.
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

/// The public view of an engine in a store.
#[derive(Clone, Copy, Debug)]
pub struct EngineView<'a> {
    /// Id of the engine.
    pub id: EngineId,
    /// Name of the engine; empty if unknown, which is possible for the key-value engine.
    pub name: &'a str,
    /// The store was opened with the engine, which knows the format.
    pub is_here: bool,
    /// The engine needs nothing below this sequence from the log.
    pub floor: SeqNo,
    /// The log was closed without the engine, which has not been opened since: see
    /// [`Record::EngineMissed`].
    pub missed: bool,
    /// The files that the store lists for the engine.
    pub files: &'a IdMap<u64, EngineFile>,
}

impl EnginePart {
    fn new(id: EngineId, name: &str, format: u32, body: Body) -> EnginePart {
        EnginePart {
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

    /// Returns true if the store holds any data of the engine, or for it.
    fn counts(&self) -> bool {
        // The key-value engine was never added: it counts once any record names it.
        let is_met = match &self.body {
            Body::Here { .. } => true,
            Body::Away { steps } => !steps.is_empty() || self.floor.is_some() || !self.files.is_empty(),
        };
        self.added || self.missed || (self.id == EngineId::NATIVE && is_met)
    }

    /// Appends the records that rebuild this part.
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
            // An engine without commits is not part of the store, whatever its empty state looks
            // like.
            Body::Here { .. } if !self.counts() => {}
            Body::Here { engine, state } => put_own_step(out, self.id, &engine.snapshot(state)),
            Body::Away { steps } => steps.values().for_each(|step| put_step(out, engine, step)),
        }
    }

    /// Returns true if the number is that of a file of the engine.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.files.contains_key(&number)
            || matches!(&self.body, Body::Here { engine, state } if engine.holds(state, number))
    }

    /// Returns true if the store lists a file of this number for the engine.
    pub(super) fn lists(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    /// Returns the number of the first log group without batches of the engine, if it was removed.
    pub(super) fn gone_below(&self) -> Option<u64> {
        self.gone_below
    }

    /// Returns true if the part lists no file and has no steps. The steps of an absent engine
    /// cannot be decoded: in a new store (`is_new`) they count as nothing.
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

    /// Removes a file. Returns false if it is not listed.
    pub(super) fn remove_file(&mut self, number: u64) -> bool {
        self.files.remove(&number).is_some()
    }

    /// Stores a step of an absent engine. For a present engine it returns the engine and its state,
    /// and the caller applies the step.
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

    /// Checks the part, and passes the numbers of its files to `occupy`.
    ///
    /// # Errors
    /// `Corruption`; errors of `occupy`.
    pub(super) fn verify(
        &self,
        state: &ManifestState,
        mut occupy: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
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

/// Appends a step of a present engine, in the form of its records.
pub(super) fn put_own_step(out: &mut Vec<u8>, engine: EngineId, step: &[u8]) {
    match engine {
        EngineId::NATIVE => out.extend_from_slice(step),
        _ if step.is_empty() => {}
        _ => put_step(out, engine, step),
    }
}

impl EngineParts {
    /// Returns the parts of an empty store.
    pub(super) fn of(engines: &Engines) -> EngineParts {
        let here = |engine: &'static dyn AnyEngine| {
            let body = Body::Here { engine, state: engine.empty() };
            EnginePart::new(engine.id(), engine.name(), engine.format(), body)
        };
        let mut parts: Vec<EnginePart> = engines.iter().map(here).collect();
        parts.sort_by_key(|part| part.id);
        EngineParts(parts)
    }

    /// Returns the engines with data in the store, and the key-value engine if the store was opened
    /// with it.
    pub fn iter(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.0.iter().filter(|part| part.counts()).map(EnginePart::view)
    }

    /// Returns the absent engines.
    pub fn away(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.iter().filter(|engine| !engine.is_here)
    }

    /// Returns true if the log was closed without an engine that had batches there, and the engine
    /// has not been opened since.
    pub fn has_missed(&self, id: EngineId) -> bool {
        self.get(id).is_some_and(|part| part.missed)
    }

    /// Returns the floor of each engine; a removed engine needs nothing at all.
    pub fn floors(&self) -> impl Iterator<Item = (EngineId, SeqNo)> + '_ {
        let gone = self.0.iter().filter(|part| part.gone_below.is_some());
        self.iter().map(|engine| (engine.id, engine.floor)).chain(gone.map(|part| (part.id, SeqNo::MAX)))
    }

    /// Returns true if this is a file of a removed engine, which is an orphan.
    pub fn is_of_removed(&self, file: FileKind) -> bool {
        let FileKind::Engine { engine, .. } = file else { return false };
        self.get(EngineId(engine)).is_some_and(|part| part.gone_below.is_some())
    }

    /// Returns true if an unlisted file may belong to an absent engine. Then it is unknown whether
    /// the file is still needed.
    pub fn is_of_away(&self, file: FileKind) -> bool {
        let Some(owner) = EngineId::owner(file) else { return false };
        !self.get(owner).is_some_and(|part| matches!(part.body, Body::Here { .. }))
    }

    /// Returns the files that the store lists for engines, with their names.
    pub fn files(&self) -> impl Iterator<Item = (EngineId, EngineFile, FileKind)> + '_ {
        let name =
            |id: EngineId, f: EngineFile| FileKind::Engine { engine: id.0, kind: f.kind, number: f.number };
        self.0
            .iter()
            .flat_map(move |part| part.files.values().map(move |&file| (part.id, file, name(part.id, file))))
    }

    /// Returns the files on a volume that the records of present engines name.
    pub fn files_on(&self, volume: Volume) -> Vec<FileKind> {
        self.own_files().filter(|(_, on)| *on == volume).map(|(file, _)| file).collect()
    }

    /// Returns the files that the records of present engines name.
    pub(super) fn own_files(&self) -> impl Iterator<Item = (FileKind, Volume)> + '_ {
        self.0.iter().flat_map(|part| match &part.body {
            Body::Here { engine, state } => engine.files(state),
            Body::Away { .. } => Vec::new(),
        })
    }

    /// Returns the present engines.
    pub(super) fn here(&self) -> Engines {
        let here = self.0.iter().filter_map(|part| match &part.body {
            Body::Here { engine, .. } => Some(*engine),
            Body::Away { .. } => None,
        });
        here.collect()
    }

    /// Returns all parts, including those without data in the store.
    pub(super) fn all(&self) -> &[EnginePart] {
        &self.0
    }

    /// Returns the parts after the end of a replay: see [`Engine::at_end`].
    pub(super) fn at_end(mut self) -> EngineParts {
        for part in &mut self.0 {
            if let Body::Here { engine, state } = &mut part.body {
                *state = engine.at_end(state);
            }
        }
        self
    }

    pub(super) fn get(&self, id: EngineId) -> Option<&EnginePart> {
        self.0.iter().find(|part| part.id == id)
    }

    fn get_mut(&mut self, id: EngineId) -> Option<&mut EnginePart> {
        self.0.iter_mut().find(|part| part.id == id)
    }

    /// Returns the part of an added engine. That of the key-value engine is created at its first
    /// use.
    ///
    /// # Errors
    /// `InvalidArgument` if it has not been added.
    pub(super) fn added(&mut self, id: EngineId) -> Result<&mut EnginePart> {
        if id == EngineId::NATIVE && self.get(id).is_none() {
            self.0.insert(0, EnginePart::new(id, "", 0, Body::Away { steps: IdMap::new() }));
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
                return refuse(format!("the store has {} engines already, its limit", self.0.len()));
            }
            let at = self.0.partition_point(|part| part.id < id);
            self.0.insert(at, EnginePart::new(id, name, format, Body::Away { steps: IdMap::new() }));
        }
        let Some(part) = self.get_mut(id) else { return Ok(()) };
        let had_steps = part.added;
        (part.name, part.format, part.added, part.gone_below) = (name.into(), format, true, None);
        if let Body::Here { engine, state } = &part.body
            && format > engine.format()
        {
            // This engine does not know the later records: from here on its steps are only kept.
            let mut steps = IdMap::new();
            let step = engine.snapshot(state);
            if had_steps && !step.is_empty() {
                steps.insert(0, step.into());
            }
            part.body = Body::Away { steps };
        }
        Ok(())
    }

    /// Removes an engine; log groups from `below_ltn` on have no batches of it.
    ///
    /// # Errors
    /// `InvalidArgument` if it has not been added.
    pub(super) fn remove(&mut self, id: EngineId, below_ltn: u64) -> Result<()> {
        let Some(part) = self.get_mut(id).filter(|part| part.added) else {
            return refuse(format!("there is no engine {id} to remove"));
        };
        let body = match &part.body {
            Body::Here { engine, .. } => Body::Here { engine: *engine, state: engine.empty() },
            Body::Away { .. } => Body::Away { steps: IdMap::new() },
        };
        *part =
            EnginePart { gone_below: Some(below_ltn), ..EnginePart::new(id, &part.name.clone(), 0, body) };
        Ok(())
    }

    /// Replaces the state of a present engine.
    pub(super) fn put(&mut self, id: EngineId, new: AnyState) {
        if let Some(Body::Here { state, .. }) = self.get_mut(id).map(|part| &mut part.body) {
            *state = new;
        }
    }

    /// Returns the state of an engine.
    ///
    /// # Errors
    /// `InvalidArgument` if the engine is absent, `Unsupported` if the store has a newer format of
    /// it.
    pub(super) fn own<E: Engine>(&self) -> Result<Arc<E::State>> {
        match self.get(E::ID).map(|part| &part.body) {
            Some(Body::Here { state, .. }) => {
                let own = Arc::clone(state).downcast::<E::State>();
                own.map_err(|_| Error::invalid(format!("engine {} was opened as another engine", E::ID)))
            }
            Some(Body::Away { .. }) if self.get(E::ID).is_some_and(|part| part.format > E::FORMAT) => {
                Err(newer(format!("the format of engine {} in this store", E::NAME)))
            }
            _ => Err(Error::invalid(format!(
                "the store was opened without engine {}: open it with that engine",
                E::NAME
            ))),
        }
    }

    /// Returns true if an engine is present and was never added.
    pub(super) fn is_first(&self, id: EngineId) -> bool {
        id != EngineId::NATIVE && self.get(id).is_some_and(|part| !part.added)
    }

    /// Returns true if an engine was added, so that values changed by steps are also written out.
    pub(super) fn has_added(&self) -> bool {
        self.0.iter().any(|part| part.added)
    }

    /// Returns records of the floors that rose since they were last written out.
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

    /// Returns a listing for people.
    pub(super) fn describe(&self) -> String {
        let mut out = String::new();
        for part in self.0.iter().filter(|part| part.gone_below.is_some()) {
            out += &format!("engine {} \"{}\" removed\n", part.id, part.name.escape_debug());
        }
        self.0.iter().filter(|part| part.counts()).for_each(|part| part.describe(&mut out));
        out
    }

    /// Adds a contradiction for tests: an engine out of order, or a file under another number.
    #[cfg(test)]
    pub(super) fn contradict(&mut self, id: EngineId, (number, file): (u64, EngineFile)) {
        match self.get_mut(id) {
            Some(part) => drop(part.files.insert(number, file)),
            None => self.0.push(EnginePart::new(id, "", 0, Body::Away { steps: IdMap::new() })),
        }
    }
}
