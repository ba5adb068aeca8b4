//! A store at one edit number: what it knows of itself, and the part of each engine.
//!
//! An engine that is *here* (it was named at open) has its state in memory. Of one that is *away* the store keeps what it
//! must not lose and does not understand: the steps that the engine wrote, in their order and each for itself, because what
//! an engine makes of two steps need not be what it makes of one; and what it does understand: its floor and its files.
//! Both come through commits, rolls and copies of the store unchanged.
//!
//! What an engine's step moves of the store's own (the counters, its floor) is written out beside it as soon as there is
//! more than one engine in the store, for those who cannot read the step. In a store that the key-value engine has for
//! itself nothing is: its manifest is the same to the byte as before there were others.

use super::engine::{AnyEngine, AnyState, Engine, Engines};
use super::record::{EngineFile, EngineId, LogGroupMeta, Payload, Record, put_step};
use super::{InitialState, apply};
use crate::IdMap;
use crate::field::damaged;
use crate::format::StoreFormat;
use crate::names::FileKind;
use crate::volumes::{SpeedDisk, Volume, identity};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::Env;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use wal::Lane;

/// A new store begins with this edit at the latest: LavaKV's with its default family, which is an edit after none. Whoever keeps
/// anything has listed a log group before, which is one more.
const NEW_STORE_EDIT_MAX: u64 = 2;

/// A store at one edit number. A clone costs a few reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The identity of the store.
    pub uid: Uid,
    /// Its format: of the manifest as a whole, which no edit changes.
    pub format: StoreFormat,
    /// The number of the last edit in it.
    pub edit_number: u64,
    /// No file of a larger or equal number has ever been in the store.
    pub next_file_number: u64,
    /// The largest sequence known to be in use in files of engines.
    pub last_seq: SeqNo,
    /// No log group of a larger or equal tag has ever been in the store.
    pub next_ltn: u64,
    /// What its files may occupy, bytes: see [`Record::SpaceCeiling`]. `None`: as much as there is, or nobody said.
    pub space_ceiling: Option<u64>,
    /// The second disk, if the log lies on one.
    pub speed: Option<Arc<SpeedDisk>>,
    /// The living log groups by tag.
    pub log_groups: IdMap<u64, LogGroupMeta>,
    /// The tag of each file that is a log group.
    pub(super) log_files: IdMap<u64, u64>,
    /// By id.
    pub(super) parts: Vec<Part>,
}

/// What the store has of one engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) id: EngineId,
    pub(super) name: Arc<str>,
    pub(super) format: u32,
    /// It was added to this store. Otherwise it is only here.
    pub(super) added: bool,
    /// Its floor as it was written out.
    pub(super) floor: Option<SeqNo>,
    /// The log was ended without it: see [`Record::EngineMissed`].
    pub(super) missed: bool,
    /// It was removed: see [`Record::RemoveEngine`].
    pub(super) gone_below: Option<u64>,
    pub(super) files: IdMap<u64, EngineFile>,
    pub(super) body: Body,
}

impl Eq for Part {}

#[derive(Clone)]
pub(super) enum Body {
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
    pub(super) fn new(id: EngineId, name: &str, format: u32, body: Body) -> Part {
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

    fn encode(&self, out: &mut Vec<u8>) {
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
}

/// Appends a step of an engine that is here, in the form that its records have.
pub(super) fn put_own_step(out: &mut Vec<u8>, engine: EngineId, step: &[u8]) {
    match engine {
        EngineId::NATIVE => out.extend_from_slice(step),
        _ if step.is_empty() => {}
        _ => put_step(out, engine, step),
    }
}

impl State {
    /// A store without anything in it.
    pub fn empty(uid: Uid, edit_number: u64, engines: &Engines) -> State {
        let here = |engine: &'static dyn AnyEngine| {
            let body = Body::Here { engine, state: engine.empty() };
            Part::new(engine.id(), engine.name(), engine.format(), body)
        };
        let mut parts: Vec<Part> = engines.iter().map(here).collect();
        parts.sort_by_key(|part| part.id);
        State {
            uid,
            format: StoreFormat::OLDEST,
            edit_number,
            next_file_number: 1,
            last_seq: 0,
            next_ltn: 1,
            space_ceiling: None,
            speed: None,
            log_groups: IdMap::new(),
            log_files: IdMap::new(),
            parts,
        }
    }

    /// The state to which a snapshot leads, with the edit number it had.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`.
    pub fn from_snapshot(uid: Uid, edit_number: u64, snapshot: &[u8], engines: &Engines) -> Result<State> {
        let mut state = State::empty(uid, 0, engines).after(snapshot)?;
        state.edit_number = edit_number;
        Ok(state)
    }

    /// The state, when its history was read to its end: see [`Engine::at_end`].
    pub(super) fn at_end(mut self) -> State {
        for part in &mut self.parts {
            if let Body::Here { engine, state } = &mut part.body {
                *state = engine.at_end(state);
            }
        }
        self
    }

    /// The state after an edit that lies in a manifest.
    ///
    /// # Errors
    /// `Corruption` if the edit contradicts the state or is damaged, `Unsupported` if a newer release wrote it.
    pub fn after(&self, edit: &[u8]) -> Result<State> {
        let edit = Payload::decode(edit)?;
        let mut next = State { edit_number: self.edit_number + 1, ..self.clone() };
        let applied = apply::records(&mut next, &edit.records)
            .and_then(|()| edit.all_steps().try_for_each(|(id, step)| apply::step(&mut next, id, step)));
        applied.map_err(|e| if e.kind() == ErrorKind::InvalidArgument { damaged(e) } else { e })?;
        Ok(next)
    }

    /// The edit that leads from an empty store to this state: what a new manifest begins with.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Record::NextFileNumber(self.next_file_number).encode_into(&mut out);
        Record::LastSeq(self.last_seq).encode_into(&mut out);
        Record::NextLtn(self.next_ltn).encode_into(&mut out);
        self.ceiling_record().into_iter().for_each(|record| record.encode_into(&mut out));
        self.speed_record().into_iter().for_each(|record| record.encode_into(&mut out));
        self.log_groups.values().for_each(|&group| Record::AddLogGroup { group }.encode_into(&mut out));
        self.parts.iter().for_each(|part| part.encode(&mut out));
        out
    }

    fn speed_record(&self) -> Option<Record> {
        let disk = self.speed.as_ref().map(|disk| SpeedDisk::clone(disk))?;
        Some(Record::SpeedDisk { disk: Some(disk) })
    }

    /// Where log groups are.
    pub fn log_volume(&self) -> Volume {
        if self.speed.is_some() { Volume::SPEED } else { Volume::DIRECTORY }
    }

    fn ceiling_record(&self) -> Option<Record> {
        self.space_ceiling.map(|bytes| Record::SpaceCeiling { bytes })
    }

    /// The state after changes of the store's own, and the bytes of that edit.
    ///
    /// # Errors
    /// `InvalidArgument` if they contradict the state.
    pub(super) fn changed(&self, records: &[Record]) -> Result<(State, Vec<u8>)> {
        let mut next = State { edit_number: self.edit_number + 1, ..self.clone() };
        apply::records(&mut next, records)?;
        let mut out = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut out));
        Ok((next, out))
    }

    /// The tag of the log group in this file.
    pub fn log_group_in(&self, file: u64) -> Option<u64> {
        self.log_files.get(&file).copied()
    }

    /// The groups of a lane that are replayed, oldest first.
    pub fn log_chain(&self, lane: Lane) -> impl DoubleEndedIterator<Item = &LogGroupMeta> {
        self.log_groups.values().filter(move |g| g.lane == lane && g.retained_bytes.is_none())
    }

    /// The groups of a lane that are kept as storage, by their tags.
    pub fn log_retained(&self, lane: Lane) -> impl DoubleEndedIterator<Item = &LogGroupMeta> {
        self.log_groups.values().filter(move |g| g.lane == lane && g.retained_bytes.is_some())
    }

    /// True if the store lists a file of this number: a log group's, or one of an engine as far as it can be known.
    pub fn holds(&self, number: u64) -> bool {
        self.log_files.contains_key(&number) || self.parts.iter().any(|part| part.holds(number))
    }

    /// The engines that keep something in the store, and the key-value engine if the store was opened with it.
    pub fn engines(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.parts.iter().filter(|part| part.counts()).map(Part::view)
    }

    /// True if the log was ended without an engine that had batches there, and the engine has not been here since.
    pub fn has_missed(&self, id: EngineId) -> bool {
        self.part(id).is_some_and(|part| part.missed)
    }

    /// Those of them that are away.
    pub fn engines_away(&self) -> impl Iterator<Item = EngineView<'_>> + '_ {
        self.engines().filter(|engine| !engine.is_here)
    }

    /// Below which sequence each engine needs nothing of the log; one that was removed needs nothing at all.
    pub fn log_floors(&self) -> impl Iterator<Item = (EngineId, SeqNo)> + '_ {
        let gone = self.parts.iter().filter(|part| part.gone_below.is_some());
        self.engines().map(|engine| (engine.id, engine.floor)).chain(gone.map(|part| (part.id, SeqNo::MAX)))
    }

    /// True if this is a file of an engine that was removed: nobody wants it any more.
    pub fn is_of_engine_removed(&self, file: FileKind) -> bool {
        let FileKind::Engine { engine, .. } = file else { return false };
        self.part(EngineId(engine)).is_some_and(|part| part.gone_below.is_some())
    }

    /// True if the engine has to be thought of when `file` is found and not listed: the store was opened without it, so
    /// that nobody knows whether the file is still needed.
    pub fn is_of_engine_away(&self, file: FileKind) -> bool {
        let Some(owner) = EngineId::owner(file) else { return false };
        !self.part(owner).is_some_and(|part| matches!(part.body, Body::Here { .. }))
    }

    /// The files that the store lists for engines, with their names.
    pub fn engine_files(&self) -> impl Iterator<Item = (EngineId, EngineFile, FileKind)> + '_ {
        let name =
            |id: EngineId, f: EngineFile| FileKind::Engine { engine: id.0, kind: f.kind, number: f.number };
        self.parts
            .iter()
            .flat_map(move |part| part.files.values().map(move |&file| (part.id, file, name(part.id, file))))
    }

    /// True if it lists nothing. What an engine that is away says cannot be read: then it is what a store begins with, or not.
    pub(super) fn is_blank(&self) -> bool {
        let says_nothing = |part: &Part| {
            part.files.is_empty()
                && match &part.body {
                    Body::Here { engine, state } => engine.files(state).is_empty(),
                    Body::Away { steps } => steps.is_empty() || self.edit_number <= NEW_STORE_EDIT_MAX,
                }
        };
        self.log_groups.is_empty() && self.parts.iter().all(says_nothing)
    }

    /// The same store in another format.
    pub fn in_format(&self, format: StoreFormat) -> State {
        State { format, ..self.clone() }
    }

    /// The same store without its log, as another one: what a copy begins with, once everything is in files.
    pub fn without_log(&self, uid: Uid) -> State {
        State { uid, speed: None, log_groups: IdMap::new(), log_files: IdMap::new(), ..self.clone() }
    }

    /// The same store with these groups of the log: what a copy has of it.
    ///
    /// # Errors
    /// `InvalidArgument` if one is there already, or its file.
    pub fn with_log(mut self, groups: Vec<LogGroupMeta>) -> Result<State> {
        let volume = self.log_volume();
        let here = |group| Record::AddLogGroup { group: LogGroupMeta { volume, ..group } };
        let records: Vec<Record> = groups.into_iter().map(here).collect();
        apply::records(&mut self, &records)?;
        Ok(self)
    }

    /// Recomputes everything that is derived and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    pub fn verify(&self) -> Result<()> {
        apply::verify(self)
    }

    /// The files of engines that are here that are on a volume.
    pub fn files_on(&self, volume: Volume) -> Vec<FileKind> {
        self.own_files().filter(|(_, on)| *on == volume).map(|(file, _)| file).collect()
    }

    /// The files that the records of engines name that are here.
    fn own_files(&self) -> impl Iterator<Item = (FileKind, Volume)> + '_ {
        self.parts.iter().flat_map(|part| match &part.body {
            Body::Here { engine, state } => engine.files(state),
            Body::Away { .. } => Vec::new(),
        })
    }

    /// Checks that every file that is listed is on a volume that there is: log groups all on one, tables and files of values on either disk, all else
    /// in the directory.
    ///
    /// # Errors
    /// `Unsupported` with the file; `Corruption` if it is on a second disk, and the store has none.
    pub fn check_volumes(&self, dir: &Path) -> Result<()> {
        let log_volume = self.log_volume();
        let groups = self
            .log_groups
            .values()
            .filter(|group| group.volume != log_volume)
            .map(|group| (FileKind::Log(group.file), group.volume));
        let listed = self.engine_files().map(|(_, file, name)| (name, file.volume));
        let is_on_speed = |file: FileKind, volume| file.is_data_of_speed_disk() && volume == Volume::SPEED;
        let is_there = |&(file, volume): &(FileKind, Volume)| {
            volume == Volume::DIRECTORY || (is_on_speed(file, volume) && self.speed.is_some())
        };
        let Some((file, volume)) =
            groups.chain(listed.chain(self.own_files()).filter(|it| !is_there(it))).next()
        else {
            return Ok(());
        };
        let error = match is_on_speed(file, volume) {
            true => Error::corruption(
                "the manifest says that this file is on a speed disk, and that the store has none: run `lava repair`",
            ),
            false => Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the manifest says that this file is on volume {volume}, and this release knows none there: open the store \
                     with the release that put it there"
                ),
            ),
        };
        Err(error.at_file(io::fs::join(dir, &file.to_string())))
    }

    /// Checks that the log is on the disk that it is said to be on: see [`identity::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check_disk(&self, env: &Env, dir: &Path, read_only: bool) -> Result<()> {
        identity::check(env, dir, (self.uid, self.speed.as_deref()), read_only)
    }

    /// A listing for people.
    pub fn describe(&self) -> String {
        let mut out = format!(
            "store {:?}, edit {}, next file {}, last seq {}, next log group {}\n",
            self.uid, self.edit_number, self.next_file_number, self.last_seq, self.next_ltn
        );
        if self.format > StoreFormat::OLDEST {
            out += &format!("format {}\n", self.format);
        }
        let own = self.ceiling_record().into_iter().chain(self.speed_record());
        own.into_iter().for_each(|record| out += &format!("{record}\n"));
        for &group in self.log_groups.values() {
            out += &format!("{}\n", Record::AddLogGroup { group });
        }
        for part in self.parts.iter().filter(|part| part.gone_below.is_some()) {
            out += &format!("engine {} \"{}\" removed\n", part.id, part.name.escape_debug());
        }
        for part in self.parts.iter().filter(|part| part.counts()) {
            if part.added || matches!(part.body, Body::Away { .. }) {
                let (view, format) = (part.view(), part.format);
                out += &format!("engine {} \"{}\" format {format}", part.id, part.name.escape_debug());
                out += &format!(", floor {}, {} files", view.floor, part.files.len());
                out += &match &part.body {
                    Body::Here { .. } => "\n".to_owned(),
                    Body::Away { steps } => format!(", away, {} steps kept\n", steps.len()),
                };
            }
            if let Body::Here { engine, state } = &part.body {
                out += &engine.describe(state);
            }
        }
        out
    }

    /// The engines that are here.
    pub(super) fn engines_here(&self) -> Engines {
        let here = self.parts.iter().filter_map(|part| match &part.body {
            Body::Here { engine, .. } => Some(*engine),
            Body::Away { .. } => None,
        });
        here.collect()
    }

    pub(super) fn part(&self, id: EngineId) -> Option<&Part> {
        self.parts.iter().find(|part| part.id == id)
    }

    pub(super) fn part_mut(&mut self, id: EngineId) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.id == id)
    }
}

impl Part {
    pub(super) fn holds(&self, number: u64) -> bool {
        self.files.contains_key(&number)
            || matches!(&self.body, Body::Here { engine, state } if engine.holds(state, number))
    }
}

/// What one edit of an engine changes, and what it changes of the store's own with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit<E: Engine> {
    /// Of the store's.
    pub store: Vec<Record>,
    /// Of the engine's.
    pub own: E::Edit,
}

impl<E: Engine> Commit<E> {
    /// Only the engine's part.
    pub fn own(own: E::Edit) -> Self {
        Commit { store: Vec::new(), own }
    }
}

/// A store at one edit number as one of its engines sees it: the engine's state, and the store's own beside it. A clone
/// costs two reference counts.
pub struct StateOf<E: Engine> {
    /// The store's.
    pub store: Arc<State>,
    own: Arc<E::State>,
}

impl<E: Engine> StateOf<E> {
    /// A store without anything in it.
    pub fn empty(uid: Uid, edit_number: u64) -> Self {
        let store = State::empty(uid, edit_number, &Engines::of::<E>());
        Self::of(Arc::new(store)).expect("the engine was named")
    }

    /// A new store that begins with these numbers, and this state of the engine.
    pub fn new(uid: Uid, seed: &InitialState, own: E::State) -> Self {
        let (mut store, own) = (seed.state(uid, &Engines::of::<E>()), Arc::new(own));
        apply::put(&mut store, E::ID, own.clone());
        StateOf { store: Arc::new(store), own }
    }

    /// How the engine sees a store.
    ///
    /// # Errors
    /// `InvalidArgument` if the store was opened without it, `Unsupported` if it has a newer format here.
    pub fn of(store: Arc<State>) -> Result<Self> {
        let own = apply::own::<E>(&store)?;
        Ok(StateOf { store, own })
    }

    /// The state to which a snapshot leads, with the edit number it had.
    ///
    /// # Errors
    /// As [`State::from_snapshot`].
    pub fn from_snapshot(uid: Uid, edit_number: u64, snapshot: &[u8]) -> Result<Self> {
        Self::of(Arc::new(State::from_snapshot(uid, edit_number, snapshot, &Engines::of::<E>())?))
    }

    /// The state after an edit; its edit number is one larger. The state itself does not change.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state.
    pub fn apply(&self, commit: impl Into<Commit<E>>) -> Result<Self> {
        self.committed(&commit.into()).map(|(next, _)| next)
    }

    /// The state after a commit, and the bytes of that edit.
    pub(super) fn committed(&self, commit: &Commit<E>) -> Result<(Self, Vec<u8>)> {
        let (next, own, records) = apply::commit(&self.store, &self.own, commit)?;
        let mut out = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut out));
        put_own_step(&mut out, E::ID, &E::encode(&commit.own));
        Ok((StateOf { store: Arc::new(next), own }, out))
    }

    /// See [`State::snapshot`].
    pub fn snapshot(&self) -> Vec<u8> {
        self.store.snapshot()
    }

    /// See [`State::verify`].
    ///
    /// # Errors
    /// `Corruption`.
    pub fn verify(&self) -> Result<()> {
        self.store.verify()
    }

    /// See [`State::describe`].
    pub fn describe(&self) -> String {
        self.store.describe()
    }
}

impl<E: Engine> Deref for StateOf<E> {
    type Target = E::State;
    fn deref(&self) -> &E::State {
        &self.own
    }
}

impl<E: Engine> Clone for StateOf<E> {
    fn clone(&self) -> Self {
        StateOf { store: self.store.clone(), own: self.own.clone() }
    }
}

impl<E: Engine> PartialEq for StateOf<E> {
    fn eq(&self, other: &Self) -> bool {
        self.store == other.store
    }
}

impl<E: Engine> Eq for StateOf<E> {}

impl<E: Engine> fmt::Debug for StateOf<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
