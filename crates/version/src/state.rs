//! The key-value engine's part of a store at one edit number, and the pure function from one state
//! to the next.
//!
//! [`KvState::apply`] copies the parts that an edit touches (the levels it changes, a few runs of
//! the maps) and shares the rest. So its cost is proportional to the length of the changed levels.
//! It rejects every edit that contradicts the state:
//!
//! * a file number exists in one place only; a removal names an existing file, at its level;
//! * below level 0 the files of a level have disjoint user key ranges; at level 0 files that
//!   overlap in keys do not overlap in sequences (otherwise "newest first" would have no meaning);
//! * the sums of references under blob ids change by the same amounts as those of the tables
//!   ([`crate::uses`]);
//! * every blob id that a table depends on resolves to a vSST. Every alias resolves to live vSSTs
//!   that list it as taken over, so that a repair without the manifest finds them;
//! * log floors never decrease; family ids are never used twice.
//!
//! The order of the records of an edit matters only between records about the same vSST, alias or
//! family. Removals of tables take effect first, and cross-references are checked after the whole
//! edit.

use crate::edit::{Edit, Record};
use crate::meta::{BlobId, FamilyId, FileMeta, VsstMeta};
use crate::uses::{ReferenceChange, SumChange};
use crate::version::{Level, Version};
use base::{Error, Result, SeqNo};
use derived::Directory;
use std::fmt;
use std::sync::Arc;
use store::IdMap;
use store::manifest::StateBuilder;
use store::volumes::Volume;

mod apply;
mod derived;
mod verify;

/// One column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyState {
    /// Id of the family.
    pub id: FamilyId,
    /// Name of the family.
    pub name: String,
    /// Options of the family, in an encoding of the layer above.
    pub options: Vec<u8>,
    /// Files of the family.
    pub version: Arc<Version>,
}

/// Use of a file number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// A table.
    Table {
        /// Family of the table.
        family: FamilyId,
        /// Level of the table.
        level: u32,
    },
    /// A vSST.
    Vsst {
        /// Family of the vSST.
        family: FamilyId,
    },
}

impl fmt::Display for FileOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileOwner::Table { family, level } => {
                write!(f, "a key table at level {level} of column family {family}")
            }
            FileOwner::Vsst { family } => write!(f, "a value file (vSST) of column family {family}"),
        }
    }
}

/// The key-value engine at one edit number. A clone costs a few reference counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvState {
    /// Lower bound of ids of new families: no family with this or a larger id ever existed.
    pub next_family: FamilyId,
    /// The live families.
    pub families: IdMap<FamilyId, Arc<FamilyState>>,
    /// Place of each live file, with the descriptions of tables.
    index: IdMap<u64, Slot>,
    /// Names and log floors of the families.
    directory: Directory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    place: FileOwner,
    table: Option<Arc<FileMeta>>,
}

impl KvState {
    /// Returns the state after `edit`; the numbers of its files are taken from the store. The state
    /// itself does not change.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state (see the module's documentation).
    pub fn apply(&self, edit: &Edit, ground: &mut StateBuilder<'_>) -> Result<KvState> {
        apply::apply(self, edit, ground)
    }

    /// Returns the edit that leads from an empty state to this one: the first records of a new
    /// manifest.
    pub fn snapshot(&self) -> Edit {
        let mut records = Vec::new();
        for family in self.families.values() {
            let (id, version) = (family.id, &family.version);
            records.push(Record::CreateFamily {
                id,
                name: family.name.clone(),
                options: family.options.clone(),
            });
            records.push(Record::LogFloor { family: id, seq: version.log_floor });
            let vssts = version.vssts.values();
            records.extend(vssts.map(|v| Record::AddVsst { family: id, meta: v.as_ref().clone() }));
            records.extend(version.aliases.iter().map(|(blob_id, targets)| Record::SetAlias {
                family: id,
                blob_id,
                targets: targets.to_vec(),
            }));
            for (level, files) in version.levels.iter().enumerate() {
                let add = |f: &Arc<FileMeta>| Record::AddFile {
                    family: id,
                    level: level as u32,
                    meta: f.as_ref().clone(),
                };
                records.extend(files.iter().map(add));
            }
            let changes = beyond_lists(version);
            let pieces = changes.chunks(CHANGES_MAX);
            records.extend(
                pieces.map(|piece| Record::References { family: id, changes: piece.to_vec().into() }),
            );
        }
        records.push(Record::NextFamily(self.next_family));
        Edit(records)
    }

    /// Returns the state without the dependency lists of tables in older manifests, for the end of
    /// their replay. The sums include the lists.
    #[must_use]
    pub fn without_lists(&self) -> KvState {
        let has_list = |f: &Arc<FileMeta>| f.uses.has_list();
        let mut state = self.clone();
        for (id, family) in self.families.iter() {
            let mut version = Version::clone(&family.version);
            for (level, files) in (0..).zip(&mut version.levels) {
                if !files.iter().any(has_list) {
                    continue;
                }
                let bare = |f: &Arc<FileMeta>| match has_list(f) {
                    true => Arc::new(FileMeta { uses: f.uses.without_list(), ..FileMeta::clone(f) }),
                    false => f.clone(),
                };
                *files = Level::from(files.iter().map(bare).collect::<Vec<_>>());
                for file in files.iter() {
                    let place = FileOwner::Table { family: id, level };
                    state.index.insert(file.number, Slot { place, table: Some(file.clone()) });
                }
            }
            let family = FamilyState { version: Arc::new(version), ..FamilyState::clone(family) };
            state.families.insert(id, Arc::new(family));
        }
        state
    }

    /// Returns the edit that moves all tables and value files to the store's directory: for a copy
    /// of a store, or a store that removes its fast tier.
    pub fn to_directory(&self) -> Edit {
        let mut records = Vec::new();
        for of in self.families.values() {
            let family = of.id;
            for (level, files) in (0..).zip(of.version.levels.iter()) {
                for file in files.iter().filter(|file| file.volume != Volume::DIRECTORY) {
                    let meta = FileMeta { volume: Volume::DIRECTORY, ..FileMeta::clone(file) };
                    records.push(Record::RemoveFile { family, level, number: meta.number });
                    records.push(Record::AddFile { family, level, meta });
                }
            }
            let vssts = of.version.vssts.values();
            for file in vssts.filter(|file| file.volume != Volume::DIRECTORY) {
                let meta = VsstMeta { volume: Volume::DIRECTORY, ..VsstMeta::clone(file) };
                records.push(Record::RemoveVsst { family, number: meta.number });
                records.push(Record::AddVsst { family, meta });
            }
        }
        Edit(records)
    }

    /// Returns a live family.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn family(&self, id: FamilyId) -> Result<&Arc<FamilyState>> {
        self.families.get(&id).ok_or_else(|| {
            Error::not_found(format!(
                "column family {id} does not exist, or was dropped: open it again by its name"
            ))
        })
    }

    /// Returns the live family with this name.
    pub fn family_named(&self, name: &str) -> Option<&Arc<FamilyState>> {
        let candidates = self.directory.candidates(name).iter();
        candidates.filter_map(|id| self.families.get(id)).find(|f| f.name == name)
    }

    /// Returns the place of a live file; `None` if it is not a live table or vSST.
    pub fn place_of(&self, number: u64) -> Option<FileOwner> {
        self.index.get(&number).map(|slot| slot.place)
    }

    /// Returns a live table.
    pub fn table(&self, number: u64) -> Option<&Arc<FileMeta>> {
        self.index.get(&number)?.table.as_ref()
    }

    /// Returns every live table and vSST with its place, ascending.
    pub fn files(&self) -> impl Iterator<Item = (u64, FileOwner)> + '_ {
        self.index.iter().map(|(number, slot)| (number, slot.place))
    }

    /// Returns the smallest log floor of all families: log records below it are in tables.
    pub fn log_floor(&self) -> SeqNo {
        self.directory.lowest_floor().unwrap_or(0)
    }

    /// Recomputes all derived data and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }

    /// Returns a human-readable listing.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for family in self.families.values() {
            out += &format!("\"{}\": {}", family.name.escape_debug(), family.version.describe());
        }
        out
    }
}

/// Maximum number of blob ids in one record of a snapshot, which may be cut between records.
const CHANGES_MAX: usize = 8192;

/// Returns the references of a version's tables under each blob id, without those in dependency
/// lists.
fn beyond_lists(version: &Version) -> Vec<ReferenceChange> {
    let files = || version.levels.iter().flatten();
    if files().all(|f| f.uses.list().is_some()) {
        return Vec::new();
    }
    let all = version.references.iter().map(|(name, totals)| (name, SumChange::of_totals(totals)));
    let listed = files().flat_map(|f| f.uses.list().unwrap_or_default());
    let nets: Vec<(BlobId, SumChange)> =
        all.chain(listed.map(|d| (d.blob_id, SumChange::of(d, -1)))).collect();
    SumChange::by_name(nets).iter().map(|&(blob_id, net)| net.of_name(blob_id)).collect()
}

#[cfg(test)]
pub(crate) mod tests;
