//! What can be learned from the manifests of a store that recovery refuses: for repair.
//!
//! If `CURRENT` is missing or damaged and the newest manifest is whole, that is the state. If the manifest is damaged, every
//! record in it that is intact is a witness, wherever it stands: it names families, log floors and tables that came and
//! went. These do not add up to a state, since the edits between them are missing, but they tell apart what the files
//! alone cannot: a table that was removed from one that counts, and a family by its name.

use super::format::{Current, HEADER_LEN, Header, RECORD_HEADER_LEN, read_record};
use super::replay;
use crate::edit::{Edit, Record};
use crate::meta::{FamilyId, FileMeta};
use crate::state::State;
use base::codec::Reader;
use base::{Error, Result, SeqNo, Uid};
use io::{Access, Env, PAGE};
use std::collections::BTreeMap;
use std::path::Path;
use store::names::{self, FileKind};

/// Bytes of a damaged manifest that are searched for records.
const SEARCH_LEN_MAX: u64 = 1 << 30;
/// Edits do not jump by more between two records that are found.
const EDIT_STEP_MAX: u64 = 1 << 32;

/// What the manifests of a directory tell.
#[derive(Debug, Default)]
pub struct ManifestWitness {
    /// The state, if a manifest tells it whole.
    pub state: Option<State>,
    /// What is wrong with the files: `CURRENT`, or a manifest. Nothing, if recovery would take the state as well.
    pub damage: Vec<Error>,
    /// The store.
    pub store: Option<Uid>,
    /// The highest edit that was seen.
    pub edit: u64,
    /// The families, those that were dropped among them.
    pub families: BTreeMap<FamilyId, FamilyWitness>,
    /// The tables, each with what was said of it last.
    pub tables: BTreeMap<u64, TableWitness>,
}

/// What is known of a family.
#[derive(Clone, Debug, Default)]
pub struct FamilyWitness {
    /// Its name, if a record that tells it is intact.
    pub name: Option<String>,
    /// Its options.
    pub options: Option<Vec<u8>>,
    /// Every record of it with a lower sequence is in tables.
    pub log_floor: SeqNo,
    /// It was dropped.
    pub is_dropped: bool,
}

/// What is known of a table.
#[derive(Clone, Debug)]
pub enum TableWitness {
    /// It was added, and no record that is intact removes it.
    Added(FamilyId, Box<FileMeta>),
    /// It was removed.
    Removed,
}

/// Looks through `CURRENT` and the manifests of a directory. Nothing is written.
///
/// # Errors
/// `Unsupported` if a newer release wrote them; those of listing the directory. Damage is no error.
pub fn look_through(env: &Env, dir: &Path) -> Result<ManifestWitness> {
    let mut witness = ManifestWitness::default();
    match replay::find(env, dir) {
        Ok(found) => {
            witness.edit = found.history.state.edit_number;
            witness.store = Some(found.history.state.store);
            witness.state = Some(found.history.state);
            return Ok(witness);
        }
        Err(e) if e.kind() == base::ErrorKind::Unsupported => return Err(e),
        Err(e) => witness.damage.push(e),
    }
    let mut numbers: Vec<u64> = Vec::new();
    for entry in env.fs.list(dir)? {
        if let Some(FileKind::Manifest(number)) = names::parse(&entry.name) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    let current = env.fs.read_all(&io::fs::join(dir, names::CURRENT), 4096);
    let current = current.ok().and_then(|bytes| Current::decode(&bytes).ok());
    for number in numbers.iter().rev().copied() {
        let path = io::fs::join(dir, &names::manifest(number));
        let bytes = read_what_can_be_read(env, &path);
        let own = current.as_ref().filter(|current| current.manifest == number);
        // Without `CURRENT` the newest manifest is the one: a new one holds what the one before did before it is named.
        if current.is_none() && numbers.last() == Some(&number) {
            let whole = replay::replay(&bytes).and_then(|history| history.state.verify().map(|()| history));
            match whole {
                Ok(history) if history.header.number == number => {
                    witness.edit = history.state.edit_number;
                    witness.store = Some(history.state.store);
                    witness.state = Some(history.state);
                    return Ok(witness);
                }
                Ok(_) => {}
                Err(e) => witness.damage.push(e.at_file(&path)),
            }
        }
        witness.take_records(&path, &bytes, own.map(|current| current.uid));
    }
    Ok(witness)
}

/// The bytes of a file, zeros where they cannot be read.
fn read_what_can_be_read(env: &Env, path: &Path) -> Vec<u8> {
    let Ok(file) = env.fs.open(path, Access::Buffered) else { return Vec::new() };
    let len =
        env.fs.scan_extent_tail(path).or_else(|_| file.len()).unwrap_or(0).min(replay::MANIFEST_LEN_MAX);
    let mut bytes = vec![0; len as usize];
    if file.read_at(&mut bytes, 0).is_err() {
        for (at, page) in (0..).step_by(PAGE).zip(bytes.chunks_mut(PAGE)) {
            if file.read_at(page, at).is_err() {
                page.fill(0);
            }
        }
    }
    bytes
}

impl ManifestWitness {
    /// Takes in every intact record of a manifest. Manifests come newest first, so what is known already stays.
    fn take_records(&mut self, path: &Path, bytes: &[u8], uid: Option<Uid>) {
        let header = Header::decode(bytes);
        let uid = match &header {
            Ok(header) => {
                self.store.get_or_insert(header.store);
                header.manifest
            }
            Err(e) => {
                self.damage.push(e.clone().at_file(path));
                let Some(uid) = uid else { return };
                uid
            }
        };
        let mut own = ManifestWitness::default();
        let (mut offset, mut budget, mut last) = (HEADER_LEN, SEARCH_LEN_MAX, 0);
        while offset < bytes.len() && budget > 0 {
            match plausible(bytes, offset, last, &mut budget).then(|| read_record(uid, bytes, offset)) {
                Some(Ok(record)) => {
                    last = record.edit;
                    if let Ok(edit) = Edit::decode(record.payload) {
                        own.edit = own.edit.max(record.edit);
                        // Removals of an edit take effect before its additions: a table may move.
                        let is_removal = |record: &Record| matches!(record, Record::RemoveFile { .. });
                        let (removals, others): (Vec<_>, Vec<_>) = edit.0.into_iter().partition(is_removal);
                        removals.into_iter().chain(others).for_each(|record| own.note(record));
                    }
                    offset += record.len();
                }
                _ => offset += 1,
            }
        }
        self.merge(own);
    }

    fn note(&mut self, record: Record) {
        match record {
            Record::AddFile { family, meta, .. } => {
                self.tables.insert(meta.number, TableWitness::Added(family, Box::new(meta)));
            }
            Record::RemoveFile { number, .. } => {
                self.tables.insert(number, TableWitness::Removed);
            }
            Record::LogFloor { family, seq } => {
                let known = self.families.entry(family).or_default();
                known.log_floor = known.log_floor.max(seq);
            }
            Record::CreateFamily { id, name, options } => {
                let known = self.families.entry(id).or_default();
                (known.name, known.options) = (Some(name), Some(options));
            }
            Record::UpdateFamily { id, options } => {
                self.families.entry(id).or_default().options = Some(options);
            }
            Record::DropFamily { id } => self.families.entry(id).or_default().is_dropped = true,
            _ => {}
        }
    }

    /// Takes in what an older manifest says.
    fn merge(&mut self, older: ManifestWitness) {
        self.edit = self.edit.max(older.edit);
        for (number, table) in older.tables {
            self.tables.entry(number).or_insert(table);
        }
        for (id, older) in older.families {
            let known = self.families.entry(id).or_default();
            known.name = known.name.take().or(older.name);
            known.options = known.options.take().or(older.options);
            known.log_floor = known.log_floor.max(older.log_floor);
            known.is_dropped |= older.is_dropped;
        }
    }
}

/// True if a record can begin at `offset`, by its numbers alone: its checksum is worth computing.
fn plausible(bytes: &[u8], offset: usize, last: u64, budget: &mut u64) -> bool {
    let mut r = Reader::new(bytes.get(offset..).unwrap_or_default());
    let (Ok(len), Ok(_), Ok(edit), Ok(durable)) = (r.u32(), r.u32(), r.u64(), r.u64()) else { return false };
    let fits = r.rest().len() >= len as usize;
    let follows = edit > last && (last == 0 || edit - last < EDIT_STEP_MAX);
    if !fits || !follows || durable > edit {
        return false;
    }
    *budget = budget.saturating_sub(RECORD_HEADER_LEN as u64 + u64::from(len));
    true
}

#[cfg(test)]
mod tests;
