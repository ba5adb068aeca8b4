//! The state of a store at one edit number: its own part, and the part of each engine.
//!
//! An engine's step may change the store's own values (the counters, its floor). Once the store has
//! more than one engine, these values are also written out beside the step, for readers that cannot
//! decode it. In a store with only the key-value engine they are not: its manifest is the same to
//! the byte as before other engines existed.

use super::InitialState;
use super::contradiction::refuse;
use super::engine::{Engine, Engines};
use super::engine_parts::{EnginePart, EngineParts};
use super::listed_groups::ListedGroups;
use super::record::{EngineId, Record, is_file_number};
use crate::format::StoreFormat;
use crate::names::FileKind;
use crate::numbers::NUMBER_MAX;
use crate::volumes::{FastTier, Volume, identity};
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo, Uid};
use io::Env;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// The last edit of a new store without data: LavaKV's first edit, which adds its default family. A
/// store with data has listed a log group before, which is one more edit.
const NEW_STORE_EDIT_MAX: u64 = 2;

/// A store at one edit number. A clone costs a few reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestState {
    /// The identity of the store.
    pub uid: Uid,
    /// Format of the store: a property of the whole manifest, which no edit changes.
    pub format: StoreFormat,
    /// The number of its last edit.
    pub edit_number: u64,
    /// No file with this number or a larger one has ever been in the store.
    pub next_file_number: u64,
    /// The largest sequence known to be in use in files of engines.
    pub last_seq: SeqNo,
    /// No log group with this number or a larger one has ever been in the store.
    pub next_ltn: u64,
    /// The space ceiling, bytes: see [`Record::SpaceCeiling`]. `None`: unlimited, or unknown.
    pub space_ceiling: Option<u64>,
    /// The fast tier, if the log is on one.
    pub speed: Option<Arc<FastTier>>,
    /// The live log groups.
    pub log_groups: ListedGroups,
    /// The part of each engine.
    pub engines: EngineParts,
}

impl ManifestState {
    /// Returns the state of an empty store.
    pub fn empty(uid: Uid, edit_number: u64, engines: &Engines) -> ManifestState {
        ManifestState {
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

    /// Returns the state that a snapshot encodes, with its edit number.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`.
    pub fn from_snapshot(
        uid: Uid,
        edit_number: u64,
        snapshot: &[u8],
        engines: &Engines,
    ) -> Result<ManifestState> {
        let mut state = ManifestState::empty(uid, 0, engines).after(snapshot)?;
        state.edit_number = edit_number;
        Ok(state)
    }

    /// Returns the state at the end of a replay: see [`Engine::at_end`].
    pub(super) fn at_end(self) -> ManifestState {
        ManifestState { engines: self.engines.at_end(), ..self }
    }

    /// Encodes the edit that leads from an empty store to this state: the start of a new manifest.
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
        let disk = self.speed.as_ref().map(|disk| FastTier::clone(disk))?;
        Some(Record::FastTier { disk: Some(disk) })
    }

    /// Returns the volume of the log groups.
    pub fn log_volume(&self) -> Volume {
        if self.speed.is_some() { Volume::FAST } else { Volume::DIRECTORY }
    }

    fn ceiling_record(&self) -> Option<Record> {
        self.space_ceiling.map(|bytes| Record::SpaceCeiling { bytes })
    }

    /// Returns true if the store lists a file of this number: of a log group, or of an engine as
    /// far as known.
    pub fn holds(&self, number: u64) -> bool {
        self.log_groups.in_file(number).is_some() || self.engines.all().iter().any(|part| part.holds(number))
    }

    /// Returns true if the state lists nothing. The steps of an absent engine cannot be decoded, so
    /// they count as nothing only in a new store.
    pub(super) fn is_blank(&self) -> bool {
        let is_new = self.edit_number <= NEW_STORE_EDIT_MAX;
        self.log_groups.is_empty() && self.engines.all().iter().all(|part| part.is_blank(is_new))
    }

    /// Returns the same state in another format.
    pub fn in_format(&self, format: StoreFormat) -> ManifestState {
        ManifestState { format, ..self.clone() }
    }

    /// Returns the state without its log, under another identity: the start of a copy, once
    /// everything is in files.
    pub fn without_log(&self, uid: Uid) -> ManifestState {
        ManifestState { uid, speed: None, log_groups: ListedGroups::default(), ..self.clone() }
    }

    /// Checks that every listed file is on a possible volume. Log groups are all on one volume.
    /// Tables and value files may be on either disk, and all other files are in the directory.
    ///
    /// # Errors
    /// `Unsupported` with the file; `Corruption` if it is on a fast tier that the store does not
    /// have.
    pub fn check_volumes(&self, dir: &Path) -> Result<()> {
        let log_volume = self.log_volume();
        let groups = self
            .log_groups
            .values()
            .filter(|group| group.volume != log_volume)
            .map(|group| (FileKind::Log(group.file), group.volume));
        let listed = self.engines.files().map(|(_, file, name)| (name, file.volume));
        let is_on_speed = |file: FileKind, volume| file.is_data_on_fast_tier() && volume == Volume::FAST;
        let is_there = |&(file, volume): &(FileKind, Volume)| {
            volume == Volume::DIRECTORY || (is_on_speed(file, volume) && self.speed.is_some())
        };
        let Some((file, volume)) =
            groups.chain(listed.chain(self.engines.own_files()).filter(|it| !is_there(it))).next()
        else {
            return Ok(());
        };
        let error = match is_on_speed(file, volume) {
            true => Error::corruption("the manifest lists this file on a fast tier, and lists no fast tier"),
            false => Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the manifest lists this file on volume {volume}, which this release does \
                     not know: open the store with the release that wrote it"
                ),
            ),
        };
        Err(error.at_file(io::fs::join(dir, &file.to_string())))
    }

    /// Checks that the log is on the recorded disk: see [`identity::check`].
    ///
    /// # Errors
    /// As [`identity::check`].
    pub fn check_disk(&self, env: &Env, dir: &Path, read_only: bool) -> Result<()> {
        identity::check(env, dir, (self.uid, self.speed.as_deref()), read_only)
    }

    /// Returns a listing for people.
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

/// The store's part of the state while an engine's edit is being applied.
pub struct StateBuilder<'a> {
    state: &'a mut ManifestState,
    engine: EngineId,
}

impl<'a> StateBuilder<'a> {
    /// Returns the view for an engine whose edit is being applied to `state`.
    pub(super) fn of(state: &'a mut ManifestState, engine: EngineId) -> StateBuilder<'a> {
        StateBuilder { state, engine }
    }

    /// Takes a file number for the engine's own records.
    ///
    /// # Errors
    /// `InvalidArgument` if it is out of range, or has another owner. The engine itself checks its
    /// own files.
    pub fn take_number(&mut self, number: u64) -> Result<()> {
        let (state, own) = (&mut *self.state, self.engine);
        if !is_file_number(number) {
            return refuse(format!("file number {number} is out of range: 1 to {NUMBER_MAX}"));
        }
        let elsewhere = |part: &EnginePart| part.holds(number) && (part.id != own || part.lists(number));
        if state.log_groups.in_file(number).is_some() || state.engines.all().iter().any(elsewhere) {
            return refuse(format!("file {number} exists already, and is not of engine {own}"));
        }
        raise(&mut state.next_file_number, number + 1)
    }

    /// Records that this sequence is in use in files.
    ///
    /// # Errors
    /// `InvalidArgument` if it is out of range.
    pub fn raise_seq(&mut self, seq: SeqNo) -> Result<()> {
        raise_seq(self.state, seq)
    }
}

/// Raises a counter. A smaller value is an older one, not a contradiction.
pub(super) fn raise(counter: &mut u64, to: u64) -> Result<()> {
    if to > NUMBER_MAX + 1 {
        return refuse(format!(
            "the next file or log group number {to} is out of range: at most {}",
            NUMBER_MAX + 1
        ));
    }
    *counter = (*counter).max(to);
    Ok(())
}

pub(super) fn raise_seq(state: &mut ManifestState, to: SeqNo) -> Result<()> {
    if to > MAX_SEQ {
        return refuse(format!("the last sequence {to} is out of range: at most {MAX_SEQ}"));
    }
    state.last_seq = state.last_seq.max(to);
    Ok(())
}

/// One edit of an engine, with its changes of the store's own records.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit<E: Engine> {
    /// Changes of the store's own records.
    pub store: Vec<Record>,
    /// The engine's edit.
    pub own: E::Edit,
}

impl<E: Engine> Commit<E> {
    /// Returns a commit with only the engine's edit.
    pub fn own(own: E::Edit) -> Self {
        Commit { store: Vec::new(), own }
    }
}

/// A store at one edit number as one of its engines sees it: the engine's state beside the store's
/// own. A clone costs two reference counts.
pub struct StateOf<E: Engine> {
    /// The store's state.
    pub store: Arc<ManifestState>,
    pub(super) own: Arc<E::State>,
}

impl<E: Engine> StateOf<E> {
    /// Returns the state of an empty store.
    pub fn empty(uid: Uid, edit_number: u64) -> Self {
        let store = ManifestState::empty(uid, edit_number, &Engines::of::<E>());
        Self::of(Arc::new(store)).expect("the engine was named")
    }

    /// Returns the state of a new store with these numbers and this state of the engine.
    pub fn new(uid: Uid, seed: &InitialState, own: E::State) -> Self {
        let (mut store, own) = (seed.state(uid, &Engines::of::<E>()), Arc::new(own));
        store.engines.put(E::ID, own.clone());
        StateOf { store: Arc::new(store), own }
    }

    /// Returns the engine's view of a store.
    ///
    /// # Errors
    /// `InvalidArgument` if the store was opened without the engine, `Unsupported` if the store has
    /// a newer format of it.
    pub fn of(store: Arc<ManifestState>) -> Result<Self> {
        let own = store.engines.own::<E>()?;
        Ok(StateOf { store, own })
    }

    /// Returns the state that a snapshot encodes, with its edit number.
    ///
    /// # Errors
    /// As [`ManifestState::from_snapshot`].
    pub fn from_snapshot(uid: Uid, edit_number: u64, snapshot: &[u8]) -> Result<Self> {
        Self::of(Arc::new(ManifestState::from_snapshot(uid, edit_number, snapshot, &Engines::of::<E>())?))
    }

    /// Encodes the state: see [`ManifestState::snapshot`].
    pub fn snapshot(&self) -> Vec<u8> {
        self.store.snapshot()
    }

    /// Checks the state: see [`ManifestState::verify`].
    ///
    /// # Errors
    /// `Corruption`.
    pub fn verify(&self) -> Result<()> {
        self.store.verify()
    }

    /// Returns a listing: see [`ManifestState::describe`].
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
