//! LavaLog's part of the manifest: its files with their roles, and the start of replay.
//!
//! ```text
//! step: flags u8: 1 has a floor | [floor varint] | files that leave: count varint, numbers | files that come: count varint, each:
//!   role u8 | number varint | uid (16 bytes) | length varint
//!   | [log tag number of its group varint, for an index file; generation varint, for a cold file]
//! ```
//!
//! The store lists the files as well, for opens without this engine ([`commit`] derives both lists
//! from one [`LogEdit`]). The store also lists the sealed log groups.
//!
//! Invariants: there are at most two checkpoints, which are copies of each other added by one step,
//! and at most one index file per group. Everything below the floor is available without replay,
//! from the checkpoint, index files and cold files added by one step.

use crate::entry::Source;
use base::codec::{Reader, put_varint};
use base::{Error, Result, SeqNo, Uid};
use store::IdMap;
use store::commit::TenantId;
use store::field::{damaged, flags, newer, number, numbers, put_numbers, sequence, small};
use store::manifest::{Commit, Engine, EngineFile, EngineId, ManifestState, Record, StateBuilder};
use store::names::FileKind;
use store::volumes::Volume;

/// Tenant number of the engine's batches in the log.
pub const TENANT: TenantId = TenantId(1);

/// Number of copies of the checkpoint, if space permits.
pub const CHECKPOINTS: usize = 2;

/// Role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// Index of a log group.
    Index {
        /// Segment number (LTN) of the group.
        ltn: u64,
    },
    /// State of all logs without the record index.
    Checkpoint,
    /// Records copied by garbage collection.
    Cold {
        /// Number of times that the records were copied.
        generation: u32,
    },
}

impl FileRole {
    /// Returns the number of the role in file names.
    pub fn kind(self) -> u8 {
        match self {
            FileRole::Index { .. } => 1,
            FileRole::Checkpoint => 2,
            FileRole::Cold { .. } => 3,
        }
    }
}

/// A file of the engine in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// Number of the file.
    pub number: u64,
    /// Identity of the file.
    pub uid: Uid,
    /// Length of the file, bytes.
    pub len: u64,
    /// Role of the file.
    pub role: FileRole,
}

impl FileMeta {
    /// Returns the name of the file.
    pub fn name(&self) -> String {
        file_name(self.number, self.role.kind())
    }

    /// Returns the source that the file's rows refer to; `None` for a checkpoint.
    pub fn source(&self) -> Option<Source> {
        match self.role {
            FileRole::Index { ltn } => Some(Source::Group(ltn)),
            FileRole::Cold { .. } => Some(Source::Cold(self.number)),
            FileRole::Checkpoint => None,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.role.kind());
        put_varint(out, self.number);
        out.extend_from_slice(&self.uid.0);
        put_varint(out, self.len);
        match self.role {
            FileRole::Index { ltn } => put_varint(out, ltn),
            FileRole::Cold { generation } => put_varint(out, generation.into()),
            FileRole::Checkpoint => {}
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<FileMeta> {
        let kind = r.u8()?;
        let (file, uid, len) = (number(r)?, Uid(r.array()?), r.varint()?);
        let role = match kind {
            1 => FileRole::Index { ltn: number(r)? },
            2 => FileRole::Checkpoint,
            3 => FileRole::Cold { generation: small(r)? },
            kind => return Err(newer(format!("the kind {kind} of a file of the log engine (LavaLog)"))),
        };
        Ok(FileMeta { number: file, uid, len, role })
    }
}

/// Returns the name of a file.
pub fn file_name(number: u64, kind: u8) -> String {
    FileKind::Engine { engine: LavaLog::ID.0, kind, number }.to_string()
}

/// The engine's part of a manifest edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEdit {
    /// New start of replay.
    pub floor: Option<SeqNo>,
    /// Removed files, by number.
    pub remove: Vec<u64>,
    /// Added files.
    pub add: Vec<FileMeta>,
}

/// The engine's part of the manifest's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogManifestState {
    /// Start of replay: nothing below this sequence number is needed from the log.
    pub floor: SeqNo,
    /// Files by number.
    pub files: IdMap<u64, FileMeta>,
    /// File number of each group's index file.
    index_of: IdMap<u64, u64>,
    /// Numbers of the checkpoint's copies, in the order of writing.
    checkpoints: Vec<u64>,
}

impl LogManifestState {
    /// Iterates over the copies of the checkpoint.
    pub fn checkpoints(&self) -> impl Iterator<Item = FileMeta> + '_ {
        self.checkpoints.iter().filter_map(|number| self.files.get(number).copied())
    }

    /// Returns the file with the rows of a source.
    pub fn rows_of(&self, source: Source) -> Option<FileMeta> {
        let number = match source {
            Source::Cold(number) => number,
            Source::Group(ltn) => *self.index_of.get(&ltn)?,
        };
        self.files.get(&number).copied()
    }

    fn remove(&mut self, number: u64) -> Result<()> {
        match self.files.remove(&number).map(|file| file.role) {
            Some(FileRole::Index { ltn }) => drop(self.index_of.remove(&ltn)),
            Some(FileRole::Checkpoint) => self.checkpoints.retain(|copy| *copy != number),
            Some(FileRole::Cold { .. }) => {}
            None => return contradiction(format!("it removes file {number}, which is not in the list")),
        }
        Ok(())
    }

    fn add(&mut self, file: &FileMeta) -> Result<()> {
        let twice = match file.role {
            FileRole::Checkpoint => {
                self.checkpoints.push(file.number);
                self.checkpoints.len() > CHECKPOINTS
            }
            FileRole::Cold { .. } => false,
            FileRole::Index { ltn } => self.index_of.insert(ltn, file.number).is_some(),
        };
        match twice || self.files.insert(file.number, *file).is_some() {
            true => contradiction(format!(
                "it adds file {}, which is in the list, or is one more than its role allows",
                file.name()
            )),
            false => Ok(()),
        }
    }
}

/// The engine, as a type without values for the manifest.
#[derive(Debug)]
pub enum LavaLog {}

/// Builds a commit from an edit of the engine and the store's records: the file list derived from
/// the edit, and the caller's `records`.
pub fn commit(step: LogEdit, mut records: Vec<Record>) -> Commit<LavaLog> {
    let engine = LavaLog::ID;
    records.extend(step.remove.iter().map(|&number| Record::RemoveEngineFile { engine, number }));
    records.extend(step.add.iter().map(|file| Record::AddEngineFile {
        engine,
        file: EngineFile { number: file.number, kind: file.role.kind(), volume: Volume::DIRECTORY },
    }));
    Commit { store: records, own: step }
}

fn contradiction<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::invalid(format!(
        "the edit of the manifest contradicts the files of the log engine (LavaLog): {why}"
    )))
}

/// Display name of the engine in a store.
pub const NAME: &str = "LavaLog";

impl Engine for LavaLog {
    const ID: EngineId = EngineId(1);
    const NAME: &'static str = NAME;
    const FORMAT: u32 = 1;
    type State = LogManifestState;
    type Edit = LogEdit;

    fn empty() -> LogManifestState {
        LogManifestState { floor: 1, files: IdMap::new(), index_of: IdMap::new(), checkpoints: Vec::new() }
    }

    fn encode(step: &LogEdit) -> Vec<u8> {
        if *step == LogEdit::default() {
            return Vec::new();
        }
        let mut out = vec![u8::from(step.floor.is_some())];
        step.floor.iter().for_each(|floor| put_varint(&mut out, *floor));
        put_numbers(&mut out, &step.remove);
        put_varint(&mut out, step.add.len() as u64);
        step.add.iter().for_each(|file| file.put(&mut out));
        out
    }

    fn decode(bytes: &[u8]) -> Result<LogEdit> {
        let mut r = Reader::new(bytes);
        if r.is_empty() {
            return Ok(LogEdit::default());
        }
        let floor = if flags(&mut r, 1)? == 1 { Some(sequence(&mut r)?) } else { None };
        let remove = numbers(&mut r)?;
        let count = r.length(r.rest().len())?;
        let add = (0..count).map(|_| FileMeta::take(&mut r)).collect::<Result<_>>()?;
        match r.is_empty() {
            true => Ok(LogEdit { floor, remove, add }),
            false => Err(newer("an edit of the log engine (LavaLog) with bytes behind its last field")),
        }
    }

    fn apply(
        state: &LogManifestState,
        step: &LogEdit,
        ground: &mut StateBuilder<'_>,
    ) -> Result<LogManifestState> {
        let mut next = state.clone();
        if let Some(floor) = step.floor {
            if floor < state.floor {
                return contradiction(format!(
                    "it moves the start of replay back to sequence number {floor} from {}",
                    state.floor
                ));
            }
            next.floor = floor;
            ground.raise_seq(floor.saturating_sub(1))?;
        }
        step.remove.iter().try_for_each(|number| next.remove(*number))?;
        step.add.iter().try_for_each(|file| next.add(file))?;
        Ok(next)
    }

    fn snapshot(state: &LogManifestState) -> LogEdit {
        let floor = Some(state.floor).filter(|floor| *floor > 1);
        LogEdit { floor, remove: Vec::new(), add: state.files.values().copied().collect() }
    }

    fn verify(state: &LogManifestState, store: &ManifestState) -> Result<()> {
        let listed = store.engines.iter().find(|engine| engine.id == LavaLog::ID);
        let listed = |number: &u64| listed.as_ref().and_then(|engine| engine.files.get(number));
        for (number, file) in state.files.iter() {
            if listed(&number).is_none_or(|listed| listed.kind != file.role.kind()) {
                let why = format!(
                    "the manifest's list of all files of the store lacks the file {} of the log engine, or has it as another kind",
                    file.name()
                );
                return Err(damaged(Error::invalid(why)));
            }
        }
        Ok(())
    }

    fn floor(state: &LogManifestState) -> SeqNo {
        state.floor
    }

    fn describe(state: &LogManifestState) -> String {
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
        FileRole::Index { ltn } => format!("index of group {ltn}"),
        FileRole::Checkpoint => "checkpoint".to_owned(),
        FileRole::Cold { generation } => format!("cold, copied {generation} times,"),
    };
    format!("{role} {} of {} bytes, uid {:?}", file.name(), file.len, file.uid)
}

#[cfg(test)]
mod tests;
