//! The key-value engine's part of a store at one edit number, and the pure function that leads from one to the next.
//!
//! [`KvState::apply`] copies what an edit touches (the levels it changes, a few runs of the maps) and shares the rest,
//! so it costs about as much as the changed levels are long. It refuses every edit that contradicts the state:
//!
//! * a file number lives in one place only; a removal names something that is there, at the level where it is;
//! * below level 0 the files of a level are disjoint in user keys; at level 0 files that meet in keys do not meet in
//!   sequences (otherwise "newest first" would have no meaning);
//! * the sums of references under names change by what those of the tables do ([`crate::uses`]);
//! * every blob id that a table depends on leads to a vSST, every alias to living ones that list it among the names
//!   they took over (so that a repair without the manifest finds them);
//! * log floors never go back; family ids are never used twice.
//!
//! The order of the records of an edit matters only between records about the same vSST, alias or family; removals of
//! tables take effect first, and cross-references are checked when the whole edit is in.

use crate::edit::{Edit, Record};
use crate::meta::{BlobId, FamilyId, FileMeta, VsstMeta};
use crate::uses::{Net, ReferenceChange};
use crate::version::{Level, Version};
use base::{Error, Result, SeqNo};
use derived::Directory;
use std::sync::Arc;
use store::IdMap;
use store::manifest::Ground;
use store::volumes::Volume;

mod apply;
mod derived;
mod verify;

/// One column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyState {
    /// Its id.
    pub id: FamilyId,
    /// Its name.
    pub name: String,
    /// Its options, in an encoding of the layer above.
    pub options: Vec<u8>,
    /// Its files.
    pub version: Arc<Version>,
}

/// Where a file number is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A table.
    Table {
        /// Its family.
        family: FamilyId,
        /// Its level.
        level: u32,
    },
    /// A vSST.
    Vsst {
        /// Its family.
        family: FamilyId,
    },
}

/// The key-value engine at one edit number. A clone costs a few reference counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvState {
    /// No family of a larger or equal id has ever been in the store.
    pub next_family: FamilyId,
    /// The living families.
    pub families: IdMap<FamilyId, Arc<FamilyState>>,
    /// Where each living file is, and what the tables are.
    index: IdMap<u64, Slot>,
    /// Names and log floors of the families.
    directory: Directory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    place: Place,
    table: Option<Arc<FileMeta>>,
}

impl KvState {
    /// The state after `edit`, with the numbers of its files taken from the store. The state itself does not change.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state (see the module's documentation).
    pub fn apply(&self, edit: &Edit, ground: &mut Ground<'_>) -> Result<KvState> {
        apply::apply(self, edit, ground)
    }

    /// The edit that leads from an empty state to this one: what a new manifest begins with.
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

    /// The same without the lists of names that tables had in manifests of before: what such a history leads to. The sums have what
    /// they said.
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
                    let place = Place::Table { family: id, level };
                    state.index.insert(file.number, Slot { place, table: Some(file.clone()) });
                }
            }
            let family = FamilyState { version: Arc::new(version), ..FamilyState::clone(family) };
            state.families.insert(id, Arc::new(family));
        }
        state
    }

    /// The edit that says of all tables and files of values that they are in the store's directory: as the copy of a store has them, or one that gives its
    /// second disk back.
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

    /// A living family.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn family(&self, id: FamilyId) -> Result<&Arc<FamilyState>> {
        self.families.get(&id).ok_or_else(|| Error::not_found(format!("column family {id} does not exist")))
    }

    /// The living family of this name.
    pub fn family_named(&self, name: &str) -> Option<&Arc<FamilyState>> {
        let candidates = self.directory.candidates(name).iter();
        candidates.filter_map(|id| self.families.get(id)).find(|f| f.name == name)
    }

    /// Where a living file is; `None` if it is not a living table or vSST.
    pub fn place_of(&self, number: u64) -> Option<Place> {
        self.index.get(&number).map(|slot| slot.place)
    }

    /// A living table.
    pub fn table(&self, number: u64) -> Option<&Arc<FileMeta>> {
        self.index.get(&number)?.table.as_ref()
    }

    /// Every living table and vSST with its place, ascending.
    pub fn files(&self) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.index.iter().map(|(number, slot)| (number, slot.place))
    }

    /// The smallest log floor of all families: log records below it are in tables.
    pub fn log_floor(&self) -> SeqNo {
        self.directory.lowest_floor().unwrap_or(0)
    }

    /// Recomputes everything that is derived and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }

    /// A listing for people.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for family in self.families.values() {
            out += &format!("\"{}\": {}", family.name.escape_debug(), family.version.describe());
        }
        out
    }
}

/// So many names are in one record of a snapshot, which may be cut between records.
const CHANGES_MAX: usize = 8192;

/// What the tables of a version reference under each name, but for what the lists of those say that have one.
fn beyond_lists(version: &Version) -> Vec<ReferenceChange> {
    let files = || version.levels.iter().flatten();
    if files().all(|f| f.uses.list().is_some()) {
        return Vec::new();
    }
    let all = version.references.iter().map(|(name, totals)| (name, Net::of_totals(totals)));
    let listed = files().flat_map(|f| f.uses.list().unwrap_or_default());
    let nets: Vec<(BlobId, Net)> = all.chain(listed.map(|d| (d.blob_id, Net::of(d, -1)))).collect();
    Net::by_name(nets).iter().map(|&(blob_id, net)| net.of_name(blob_id)).collect()
}

#[cfg(test)]
pub(crate) mod tests;
