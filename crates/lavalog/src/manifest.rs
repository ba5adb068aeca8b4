//! LavaLog's part of the manifest: which of its files serve as what, and where replay goes on.
//!
//! ```text
//! step: flags u8: 1 has a floor | [floor varint] | files that leave: count varint, numbers | files that come: count varint, each:
//!   role u8 | number varint | uid (16 bytes) | length varint
//!   | [log tag number of its group varint, for an index file; generation varint, for a cold file]
//! ```
//!
//! The store lists the files as well, for those who open it without this engine ([`commit`] writes both from one [`Step`]). Log groups
//! that are kept as storage are the store's.
//!
//! Invariants: there are at most two checkpoints, copies of each other that one step named, and one index file for a group. Whatever is below the floor is found
//! without the log: by the checkpoint, index files and cold files that one step named together.

use crate::entry::Source;
use base::codec::{Reader, put_varint};
use base::{Error, Result, SeqNo, Uid};
use store::IdMap;
use store::commit::TenantId;
use store::field::{damaged, flags, newer, number, numbers, put_numbers, sequence, small};
use store::manifest::{Commit, Engine, EngineFile, EngineId, Ground, Record, State as StoreState};
use store::names::FileKind;
use store::volumes::Volume;

/// Under this number the engine's batches are in the log.
pub const TENANT: TenantId = TenantId(1);

/// How many copies of the checkpoint there are, where there is room for them.
pub const CHECKPOINTS: usize = 2;

/// What a file serves as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Says where the records of a group are.
    Index {
        /// The group.
        ltn: u64,
    },
    /// Says what there is of logs besides.
    Checkpoint,
    /// Has records that were collected.
    Cold {
        /// How often they were.
        generation: u32,
    },
}

impl Role {
    /// As in the name of the file.
    pub fn kind(self) -> u8 {
        match self {
            Role::Index { .. } => 1,
            Role::Checkpoint => 2,
            Role::Cold { .. } => 3,
        }
    }
}

/// A file of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// Its number.
    pub number: u64,
    /// Its identity.
    pub uid: Uid,
    /// Its length, bytes.
    pub len: u64,
    /// What it serves as.
    pub role: Role,
}

impl FileMeta {
    /// Its name.
    pub fn name(&self) -> String {
        file_name(self.number, self.role.kind())
    }

    /// What its rows lead to; `None` for a checkpoint.
    pub fn source(&self) -> Option<Source> {
        match self.role {
            Role::Index { ltn } => Some(Source::Group(ltn)),
            Role::Cold { .. } => Some(Source::Cold(self.number)),
            Role::Checkpoint => None,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.role.kind());
        put_varint(out, self.number);
        out.extend_from_slice(&self.uid.0);
        put_varint(out, self.len);
        match self.role {
            Role::Index { ltn } => put_varint(out, ltn),
            Role::Cold { generation } => put_varint(out, generation.into()),
            Role::Checkpoint => {}
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<FileMeta> {
        let kind = r.u8()?;
        let (file, uid, len) = (number(r)?, Uid(r.array()?), r.varint()?);
        let role = match kind {
            1 => Role::Index { ltn: number(r)? },
            2 => Role::Checkpoint,
            3 => Role::Cold { generation: small(r)? },
            kind => return Err(newer(format!("kind {kind} of files of LavaLog"))),
        };
        Ok(FileMeta { number: file, uid, len, role })
    }
}

/// The name of a file.
pub fn file_name(number: u64, kind: u8) -> String {
    FileKind::Engine { engine: LavaLog::ID.0, kind, number }.to_string()
}

/// What one edit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Where replay goes on.
    pub floor: Option<SeqNo>,
    /// Files that leave.
    pub remove: Vec<u64>,
    /// Files that come.
    pub add: Vec<FileMeta>,
}

/// What the steps lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Nothing below is needed from the log.
    pub floor: SeqNo,
    /// By number.
    pub files: IdMap<u64, FileMeta>,
    /// The index file of each group that has one.
    index_of: IdMap<u64, u64>,
    /// Copies of the same, the one written first in front.
    checkpoints: Vec<u64>,
}

impl State {
    /// The copies of the checkpoint.
    pub fn checkpoints(&self) -> impl Iterator<Item = FileMeta> + '_ {
        self.checkpoints.iter().filter_map(|number| self.files.get(number).copied())
    }

    /// What has the rows of a source.
    pub fn rows_of(&self, source: Source) -> Option<FileMeta> {
        let number = match source {
            Source::Cold(number) => number,
            Source::Group(ltn) => *self.index_of.get(&ltn)?,
        };
        self.files.get(&number).copied()
    }

    fn remove(&mut self, number: u64) -> Result<()> {
        match self.files.remove(&number).map(|file| file.role) {
            Some(Role::Index { ltn }) => drop(self.index_of.remove(&ltn)),
            Some(Role::Checkpoint) => self.checkpoints.retain(|copy| *copy != number),
            Some(Role::Cold { .. }) => {}
            None => return contradiction(format!("there is no file {number}")),
        }
        Ok(())
    }

    fn add(&mut self, file: &FileMeta) -> Result<()> {
        let twice = match file.role {
            Role::Checkpoint => {
                self.checkpoints.push(file.number);
                self.checkpoints.len() > CHECKPOINTS
            }
            Role::Cold { .. } => false,
            Role::Index { ltn } => self.index_of.insert(ltn, file.number).is_some(),
        };
        match twice || self.files.insert(file.number, *file).is_some() {
            true => contradiction(format!("file {} is one too many", file.name())),
            false => Ok(()),
        }
    }
}

/// The engine. A type without values: everything it has to say is a function.
#[derive(Debug)]
pub enum LavaLog {}

/// An edit of the engine with what the store has to know of it: the files, and `records` of the caller's, which are the store's own.
pub fn commit(step: Step, mut records: Vec<Record>) -> Commit<LavaLog> {
    let engine = LavaLog::ID;
    records.extend(step.remove.iter().map(|&number| Record::RemoveEngineFile { engine, number }));
    records.extend(step.add.iter().map(|file| Record::AddEngineFile {
        engine,
        file: EngineFile { number: file.number, kind: file.role.kind(), volume: Volume::DIRECTORY },
    }));
    Commit { store: records, own: step }
}

fn contradiction<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::invalid(format!("the edit contradicts the state of LavaLog: {why}")))
}

/// Its name in a store, for people.
pub const NAME: &str = "LavaLog";

impl Engine for LavaLog {
    const ID: EngineId = EngineId(1);
    const NAME: &'static str = NAME;
    const FORMAT: u32 = 1;
    type State = State;
    type Edit = Step;

    fn empty() -> State {
        State { floor: 1, files: IdMap::new(), index_of: IdMap::new(), checkpoints: Vec::new() }
    }

    fn encode(step: &Step) -> Vec<u8> {
        if *step == Step::default() {
            return Vec::new();
        }
        let mut out = vec![u8::from(step.floor.is_some())];
        step.floor.iter().for_each(|floor| put_varint(&mut out, *floor));
        put_numbers(&mut out, &step.remove);
        put_varint(&mut out, step.add.len() as u64);
        step.add.iter().for_each(|file| file.put(&mut out));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Step> {
        let mut r = Reader::new(bytes);
        if r.is_empty() {
            return Ok(Step::default());
        }
        let floor = if flags(&mut r, 1)? == 1 { Some(sequence(&mut r)?) } else { None };
        let remove = numbers(&mut r)?;
        let count = r.length(r.rest().len())?;
        let add = (0..count).map(|_| FileMeta::take(&mut r)).collect::<Result<_>>()?;
        match r.is_empty() {
            true => Ok(Step { floor, remove, add }),
            false => Err(newer("a step of LavaLog with more behind it")),
        }
    }

    fn apply(state: &State, step: &Step, ground: &mut Ground<'_>) -> Result<State> {
        let mut next = state.clone();
        if let Some(floor) = step.floor {
            if floor < state.floor {
                return contradiction(format!("the floor {floor} is below {}", state.floor));
            }
            next.floor = floor;
            ground.raise_seq(floor.saturating_sub(1))?;
        }
        step.remove.iter().try_for_each(|number| next.remove(*number))?;
        step.add.iter().try_for_each(|file| next.add(file))?;
        Ok(next)
    }

    fn snapshot(state: &State) -> Step {
        let floor = Some(state.floor).filter(|floor| *floor > 1);
        Step { floor, remove: Vec::new(), add: state.files.values().copied().collect() }
    }

    fn verify(state: &State, store: &StoreState) -> Result<()> {
        let listed = store.engines.iter().find(|engine| engine.id == LavaLog::ID);
        let listed = |number: &u64| listed.as_ref().and_then(|engine| engine.files.get(number));
        for (number, file) in state.files.iter() {
            if listed(&number).is_none_or(|listed| listed.kind != file.role.kind()) {
                let why = format!("the store does not list {}, or as another kind", file.name());
                return Err(damaged(Error::invalid(why)));
            }
        }
        Ok(())
    }

    fn floor(state: &State) -> SeqNo {
        state.floor
    }

    fn describe(state: &State) -> String {
        let mut out = format!("LavaLog from {}\n", state.floor);
        state.files.values().for_each(|file| out += &format!("{}\n", described(file)));
        out
    }

    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        let step = Self::decode(bytes)?;
        let floor = step.floor.map(|floor| format!("floor {floor}"));
        let removed = step.remove.iter().map(|number| format!("remove file {number}"));
        let added = step.add.iter().map(|file| format!("add {}", described(file)));
        Ok(floor.into_iter().chain(removed).chain(added).collect())
    }
}

fn described(file: &FileMeta) -> String {
    let role = match file.role {
        Role::Index { ltn } => format!("index of group {ltn}"),
        Role::Checkpoint => "checkpoint".to_owned(),
        Role::Cold { generation } => format!("cold, copied {generation} times,"),
    };
    format!("{role} {} of {} bytes, uid {:?}", file.name(), file.len, file.uid)
}

#[cfg(test)]
mod tests;
