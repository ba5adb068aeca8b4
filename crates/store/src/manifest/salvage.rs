//! Evidence in the manifests of a store that recovery refuses, for repair.
//!
//! If `CURRENT` is missing or damaged and the newest manifest is whole, it gives the state. In a
//! damaged manifest every intact record is evidence, wherever it stands. These records do not add
//! up to a state, because the edits between them are missing. But an engine may learn facts from
//! its own records that its files alone do not show.

use super::copies::{self, Currents};
use super::engine::Engines;
use super::format::{HEADER_LEN, Header, RECORD_HEADER_LEN, read_record};
use super::record::{EngineId, Payload, Record};
use super::replay;
use super::state::ManifestState;
use crate::names::{self, FileKind};
use base::codec::Reader;
use base::{Error, Result, Uid};
use io::{Access, Env, PAGE};
use std::collections::BTreeMap;
use std::path::Path;

/// Search budget of a damaged manifest, bytes.
const SEARCH_LEN_MAX: u64 = 1 << 30;
/// Maximum step of the edit number between two found records.
const EDIT_STEP_MAX: u64 = 1 << 32;

/// Evidence from the manifests of a directory.
#[derive(Debug, Default)]
pub struct Witness {
    /// The state, if a manifest is whole.
    pub state: Option<ManifestState>,
    /// Damage of `CURRENT` and of manifests. Empty if recovery would accept the state as well.
    pub damage: Vec<Error>,
    /// Identity of the store.
    pub store: Option<Uid>,
    /// The highest edit number found.
    pub edit: u64,
    /// The engines, other than the key-value engine, that a record names: by id, with their names
    /// if known.
    pub engines: BTreeMap<EngineId, String>,
}

/// A finding in a damaged manifest, for an engine.
#[derive(Clone, Copy, Debug)]
pub enum ManifestFinding<'a> {
    /// A manifest begins. Newer ones come first, so earlier findings take precedence.
    Manifest,
    /// A step of an engine in an intact record. The steps of one manifest come in order.
    Step(EngineId, &'a [u8]),
}

/// Searches `CURRENT` and the manifests of a directory, and passes the intact records of damaged
/// ones to `show`. Nothing is written.
///
/// # Errors
/// `Unsupported` if a newer release wrote them; errors of listing the directory. Damage is no
/// error.
pub fn look_through(
    env: &Env,
    dir: &Path,
    engines: &Engines,
    mut show: impl FnMut(ManifestFinding<'_>),
) -> Result<Witness> {
    let mut witness = Witness::default();
    match replay::find(env, dir, engines) {
        Ok(found) => {
            witness.take_state(found.history.state);
            return Ok(witness);
        }
        Err(e) if e.kind() == base::ErrorKind::Unsupported => return Err(e),
        Err(e) => witness.damage.push(e),
    }
    let mut numbers: Vec<u64> = Vec::new();
    for entry in env.fs.list(dir)? {
        numbers
            .extend(names::parse(&entry.name).filter(|kind| kind.is_manifest()).and_then(FileKind::number));
    }
    numbers.sort_unstable();
    numbers.dedup();
    let current = Currents::read(env, dir)?.current;
    for number in numbers.iter().rev().copied() {
        let path = io::fs::join(dir, &names::manifest(number));
        let bytes = read_what_can_be_read(env, &path);
        let copy = read_what_can_be_read(env, &io::fs::join(dir, &names::manifest_copy(number)));
        let named = current.as_ref().filter(|current| current.manifest == number);
        let bytes = if copy.is_empty() { bytes } else { copies::merged_bytes(&bytes, &copy, named) };
        let own = current.as_ref().filter(|current| current.manifest == number);
        // Without `CURRENT` the newest manifest counts: a new one holds the durable state of the
        // one before it gets its name.
        if current.is_none() && numbers.last() == Some(&number) {
            let whole =
                replay::replay(&bytes, engines).and_then(|history| history.state.verify().map(|()| history));
            match whole {
                Ok(history) if history.header.number == number => {
                    history.state.check_volumes(dir)?;
                    witness.take_state(history.state);
                    return Ok(witness);
                }
                Ok(_) => {}
                Err(e) => witness.damage.push(e.at_file(&path)),
            }
        }
        show(ManifestFinding::Manifest);
        witness.take_records(&path, &bytes, own.map(|current| current.uid), &mut show);
    }
    Ok(witness)
}

/// Returns the bytes of a file, with zeros for unreadable pages.
fn read_what_can_be_read(env: &Env, path: &Path) -> Vec<u8> {
    let Ok(file) = env.fs.open(path, Access::Buffered) else { return Vec::new() };
    let len = env.fs.scan_extent_tail(path).or_else(|_| file.len()).unwrap_or(0);
    let len = if len > replay::MANIFEST_LEN_MAX { len.min(replay::len_max(&*file)) } else { len };
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

impl Witness {
    fn take_state(&mut self, state: ManifestState) {
        (self.edit, self.store) = (state.edit_number, Some(state.uid));
        let others = state.engines.iter().filter(|engine| engine.id != EngineId::NATIVE);
        self.engines = others.map(|engine| (engine.id, engine.name.to_owned())).collect();
        self.state = Some(state);
    }

    /// Passes every intact record of a manifest to `show`.
    fn take_records(
        &mut self,
        path: &Path,
        bytes: &[u8],
        uid: Option<Uid>,
        show: &mut impl FnMut(ManifestFinding<'_>),
    ) {
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
        let (mut offset, mut budget, mut last) = (HEADER_LEN, SEARCH_LEN_MAX, 0);
        while offset < bytes.len() && budget > 0 {
            match plausible(bytes, offset, last, &mut budget).then(|| read_record(uid, bytes, offset)) {
                Some(Ok(record)) => {
                    last = record.edit;
                    if let Ok(edit) = Payload::decode(record.payload) {
                        self.edit = self.edit.max(record.edit);
                        self.take_edit(&edit, show);
                    }
                    offset += record.len();
                }
                _ => offset += 1,
            }
        }
    }

    fn take_edit(&mut self, edit: &Payload<'_>, show: &mut impl FnMut(ManifestFinding<'_>)) {
        for record in &edit.records {
            match record {
                Record::AddEngine { engine, name, .. } => {
                    let known = self.engines.entry(*engine).or_default();
                    if known.is_empty() {
                        known.clone_from(name);
                    }
                }
                Record::AddEngineFile { engine, .. } | Record::EngineFloor { engine, .. }
                    if *engine != EngineId::NATIVE =>
                {
                    self.engines.entry(*engine).or_default();
                }
                _ => {}
            }
        }
        for (id, step) in edit.all_steps() {
            if id != EngineId::NATIVE {
                self.engines.entry(id).or_default();
            }
            show(ManifestFinding::Step(id, step));
        }
    }
}

/// Returns true if a record can begin at `offset`, by its numbers alone, so that its checksum is
/// worth computing.
fn plausible(bytes: &[u8], offset: usize, last: u64, budget: &mut u64) -> bool {
    let mut r = Reader::new(bytes.get(offset..).unwrap_or_default());
    let (Ok(len), Ok(_), Ok(edit), Ok(durable)) = (r.u32(), r.u32(), r.u64(), r.u64()) else { return false };
    let fits = r.rest().len() >= len as usize;
    // The pieces of a snapshot have the same number.
    let follows = edit >= last && (last == 0 || edit - last < EDIT_STEP_MAX);
    if !fits || !follows || durable > edit {
        return false;
    }
    *budget = budget.saturating_sub(RECORD_HEADER_LEN as u64 + u64::from(len));
    true
}
