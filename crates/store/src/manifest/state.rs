//! A store at one edit number: what it knows of itself, and the part of each engine.
//!
//! What an engine's step moves of the store's own (the counters, its floor) is written out beside it as soon as there is
//! more than one engine in the store, for those who cannot read the step. In a store that the key-value engine has for
//! itself nothing is: its manifest is the same to the byte as before there were others.

use super::InitialState;
use super::contradiction::refuse;
use super::engine::{Engine, Engines};
use super::engine_parts::{EngineParts, Part};
use super::listed_groups::ListedGroups;
use super::record::{EngineId, Record, is_file_number};
use crate::format::StoreFormat;
use crate::names::FileKind;
use crate::numbers::NUMBER_MAX;
use crate::volumes::{SpeedDisk, Volume, identity};
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo, Uid};
use io::Env;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

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
    pub log_groups: ListedGroups,
    /// What it has of each engine.
    pub engines: EngineParts,
}

impl State {
    /// A store without anything in it.
    pub fn empty(uid: Uid, edit_number: u64, engines: &Engines) -> State {
        State {
            uid,
            format: StoreFormat::OLDEST,
            edit_number,
            next_file_number: 1,
            last_seq: 0,
            next_ltn: 1,
            space_ceiling: None,
            speed: None,
            log_groups: ListedGroups::default(),
            engines: EngineParts::of(engines),
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
    pub(super) fn at_end(self) -> State {
        State { engines: self.engines.at_end(), ..self }
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
        self.engines.all().iter().for_each(|part| part.encode(&mut out));
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

    /// True if the store lists a file of this number: a log group's, or one of an engine as far as it can be known.
    pub fn holds(&self, number: u64) -> bool {
        self.log_groups.in_file(number).is_some() || self.engines.all().iter().any(|part| part.holds(number))
    }

    /// True if it lists nothing. What an engine that is away says cannot be read: then it is what a store begins with, or not.
    pub(super) fn is_blank(&self) -> bool {
        let is_new = self.edit_number <= NEW_STORE_EDIT_MAX;
        self.log_groups.is_empty() && self.engines.all().iter().all(|part| part.is_blank(is_new))
    }

    /// The same store in another format.
    pub fn in_format(&self, format: StoreFormat) -> State {
        State { format, ..self.clone() }
    }

    /// The same store without its log, as another one: what a copy begins with, once everything is in files.
    pub fn without_log(&self, uid: Uid) -> State {
        State { uid, speed: None, log_groups: ListedGroups::default(), ..self.clone() }
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
        let listed = self.engines.files().map(|(_, file, name)| (name, file.volume));
        let is_on_speed = |file: FileKind, volume| file.is_data_of_speed_disk() && volume == Volume::SPEED;
        let is_there = |&(file, volume): &(FileKind, Volume)| {
            volume == Volume::DIRECTORY || (is_on_speed(file, volume) && self.speed.is_some())
        };
        let Some((file, volume)) =
            groups.chain(listed.chain(self.engines.own_files()).filter(|it| !is_there(it))).next()
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
        out += &self.engines.describe();
        out
    }
}

/// The store under an engine whose edit is being applied.
pub struct Ground<'a> {
    state: &'a mut State,
    engine: EngineId,
}

impl<'a> Ground<'a> {
    /// Of an engine whose edit is being applied to `state`.
    pub(super) fn of(state: &'a mut State, engine: EngineId) -> Ground<'a> {
        Ground { state, engine }
    }

    /// A file of the engine's own records takes this number.
    ///
    /// # Errors
    /// `InvalidArgument` if it is out of range, or somebody else has it. What the engine has itself it must know.
    pub fn take_number(&mut self, number: u64) -> Result<()> {
        let (state, own) = (&mut *self.state, self.engine);
        if !is_file_number(number) {
            return refuse(format!("file number {number} is out of range"));
        }
        let elsewhere = |part: &Part| part.holds(number) && (part.id != own || part.lists(number));
        if state.log_groups.in_file(number).is_some() || state.engines.all().iter().any(elsewhere) {
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
pub(super) fn raise(counter: &mut u64, to: u64) -> Result<()> {
    if to > NUMBER_MAX + 1 {
        return refuse(format!("number {to} is out of range"));
    }
    *counter = (*counter).max(to);
    Ok(())
}

pub(super) fn raise_seq(state: &mut State, to: SeqNo) -> Result<()> {
    if to > MAX_SEQ {
        return refuse(format!("sequence {to} is out of range"));
    }
    state.last_seq = state.last_seq.max(to);
    Ok(())
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
    pub(super) own: Arc<E::State>,
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
        store.engines.put(E::ID, own.clone());
        StateOf { store: Arc::new(store), own }
    }

    /// How the engine sees a store.
    ///
    /// # Errors
    /// `InvalidArgument` if the store was opened without it, `Unsupported` if it has a newer format here.
    pub fn of(store: Arc<State>) -> Result<Self> {
        let own = store.engines.own::<E>()?;
        Ok(StateOf { store, own })
    }

    /// The state to which a snapshot leads, with the edit number it had.
    ///
    /// # Errors
    /// As [`State::from_snapshot`].
    pub fn from_snapshot(uid: Uid, edit_number: u64, snapshot: &[u8]) -> Result<Self> {
        Self::of(Arc::new(State::from_snapshot(uid, edit_number, snapshot, &Engines::of::<E>())?))
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
