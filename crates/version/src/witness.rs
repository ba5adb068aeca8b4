//! Evidence about the key-value engine from manifests that recovery rejects: for repair.
//!
//! Every intact record is evidence: it names families, log floors and added or removed tables. The
//! records do not add up to a state, since the edits between them are missing. But they settle
//! questions that the files alone cannot: whether a table was removed or is live, and the name of a
//! family.

use crate::edit::{Edit, Record};
use crate::manifest::{Kv, State};
use crate::meta::{FamilyId, FileMeta};
use base::{Error, Result, SeqNo, Uid};
use io::Env;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::manifest as history;
use store::manifest::{EngineId, Engines, ManifestFinding};

/// Evidence from the manifests of a directory.
#[derive(Debug, Default)]
pub struct ManifestWitness {
    /// The state, if a manifest has all of it.
    pub state: Option<State>,
    /// Faults of the files: `CURRENT`, or a manifest. Empty if recovery would accept the state as
    /// well.
    pub damage: Vec<Error>,
    /// Uid of the store.
    pub store: Option<Uid>,
    /// Highest edit number seen.
    pub edit: u64,
    /// Other engines with data in the store, with their names where those are known.
    pub other_engines: BTreeMap<EngineId, String>,
    /// The families, dropped ones included.
    pub families: BTreeMap<FamilyId, FamilyWitness>,
    /// The tables, each with its latest evidence.
    pub tables: BTreeMap<u64, TableWitness>,
}

/// Evidence about a family.
#[derive(Clone, Debug, Default)]
pub struct FamilyWitness {
    /// Name of the family, if a record with it is intact.
    pub name: Option<String>,
    /// Options of the family.
    pub options: Option<Vec<u8>>,
    /// Every record of it with a lower sequence is in tables.
    pub log_floor: SeqNo,
    /// True if the family was dropped.
    pub is_dropped: bool,
}

/// Evidence about a table.
#[derive(Clone, Debug)]
pub enum TableWitness {
    /// It was added, and no intact record removes it.
    Added(FamilyId, Box<FileMeta>),
    /// It was removed.
    Removed,
}

/// Reads `CURRENT` and the manifests of a directory. Writes nothing.
///
/// # Errors
/// `Unsupported` if a newer release wrote them; the errors of listing the directory. Damage is no
/// error.
pub fn look_through(env: &Env, dir: &Path) -> Result<ManifestWitness> {
    let (mut all, mut newest) = (ManifestWitness::default(), ManifestWitness::default());
    let found = history::look_through(env, dir, &Engines::of::<Kv>(), |seen| match seen {
        ManifestFinding::Manifest => all.merge(std::mem::take(&mut newest)),
        ManifestFinding::Step(EngineId::NATIVE, step) => newest.take_step(step),
        ManifestFinding::Step(..) => {}
    })?;
    all.merge(newest);
    let state = found.state.map(|state| State::of(Arc::new(state))).transpose()?;
    let (damage, store, edit, other_engines) = (found.damage, found.store, found.edit, found.engines);
    Ok(ManifestWitness { state, damage, store, edit, other_engines, ..all })
}

impl ManifestWitness {
    fn take_step(&mut self, step: &[u8]) {
        let Ok(edit) = Edit::decode(step) else { return };
        // Removals of an edit take effect before its additions: a table may move.
        let is_removal = |record: &Record| matches!(record, Record::RemoveFile { .. });
        let (removals, others): (Vec<_>, Vec<_>) = edit.0.into_iter().partition(is_removal);
        removals.into_iter().chain(others).for_each(|record| self.note(record));
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

    /// Merges the evidence of an older manifest.
    fn merge(&mut self, older: ManifestWitness) {
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

#[cfg(test)]
mod tests;
