//! The key-value engine's part of the manifest of a store.
//!
//! The key-value engine is older than the engine interface. So its records have their own tags,
//! only its records name its files, and a new store with it is byte-identical to one from before
//! that interface.

use crate::edit::{Edit, Record};
use crate::state::{FileOwner, KvState};
use base::{Result, SeqNo};
use store::manifest as history;
use store::manifest::{Engine, EngineId, Engines, StateBuilder, StateOf};
use store::names::FileKind;
use store::volumes::Volume;

/// The key-value engine.
#[derive(Debug)]
pub enum Kv {}

/// The manifest of a store, as a handle of the key-value engine.
pub type Manifest = history::Handle<Kv>;

/// A store at one edit number, as the key-value engine sees it.
pub type State = StateOf<Kv>;

impl Engine for Kv {
    const ID: EngineId = EngineId::NATIVE;
    const NAME: &'static str = "lavakv";
    const FORMAT: u32 = 1;
    type State = KvState;
    type Edit = Edit;

    fn empty() -> KvState {
        KvState::default()
    }

    fn encode(edit: &Edit) -> Vec<u8> {
        edit.encode()
    }

    fn decode(bytes: &[u8]) -> Result<Edit> {
        Edit::decode(bytes)
    }

    fn apply(state: &KvState, edit: &Edit, ground: &mut StateBuilder<'_>) -> Result<KvState> {
        state.apply(edit, ground)
    }

    fn snapshot(state: &KvState) -> Edit {
        state.snapshot()
    }

    fn at_end(state: &KvState) -> KvState {
        state.without_lists()
    }

    fn verify(state: &KvState, _store: &history::ManifestState) -> Result<()> {
        state.verify()
    }

    fn floor(state: &KvState) -> SeqNo {
        state.log_floor()
    }

    fn describe(state: &KvState) -> String {
        state.describe()
    }

    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        Ok(Edit::decode(bytes)?.0.iter().map(Record::to_string).collect())
    }

    fn files(state: &KvState) -> Vec<(FileKind, Volume)> {
        let of = |(number, place): (u64, FileOwner)| match place {
            FileOwner::Table { .. } => state
                .table(number)
                .map_or((FileKind::Ksst(number), Volume::DIRECTORY), |t| (t.kind(), t.volume)),
            FileOwner::Vsst { family } => {
                let vssts = state.families.get(&family).map(|f| &f.version.vssts);
                let meta = vssts.and_then(|vssts| vssts.get(&number));
                meta.map_or((FileKind::Vsst(number), Volume::DIRECTORY), |v| (v.kind(), v.volume))
            }
        };
        state.files().map(of).collect()
    }

    fn holds(state: &KvState, number: u64) -> bool {
        state.place_of(number).is_some()
    }
}

/// Lists a manifest for people. See [`history::dump_manifest`].
pub fn dump_manifest(bytes: &[u8]) -> Vec<String> {
    history::dump_manifest(bytes, &Engines::of::<Kv>())
}

#[cfg(test)]
mod tests;
