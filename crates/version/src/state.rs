//! The whole store at one edit number, and the pure function that leads from one such state to the next.
//!
//! [`State::apply`] copies what an edit touches (the levels it changes, a few runs of the maps) and shares the rest,
//! so it costs about as much as the changed levels are long. It refuses every edit that contradicts the state:
//!
//! * a file number lives in one place only; a removal names something that is there, at the level where it is;
//! * below level 0 the files of a level are disjoint in user keys; at level 0 files that meet in keys do not meet in
//!   sequences (otherwise "newest first" would have no meaning);
//! * every blob id that a table depends on leads to a vSST, every alias to living ones that list it among the names
//!   they took over (so that a repair without the manifest finds them);
//! * log floors never go back; family ids and log tags are never used twice.
//!
//! The order of the records of an edit matters only between records about the same vSST, alias or family; removals of
//! tables and log groups take effect first, and cross-references are checked when the whole edit is in.

use crate::edit::{Edit, Record};
use crate::meta::{FamilyId, FileMeta, LogGroupMeta};
use crate::version::Version;
use base::{Error, Result, SeqNo, Uid};
use std::sync::Arc;
use store::IdMap;

mod apply;
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
    /// The file of a log group.
    Log {
        /// The group.
        ltn: u64,
    },
}

/// The store at one edit number. A clone costs a few reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The identity of the store.
    pub store: Uid,
    /// The number of the last edit in it.
    pub edit_number: u64,
    /// No file of a larger or equal number has ever been in the store.
    pub next_file_number: u64,
    /// The largest sequence known to be in use in tables.
    pub last_seq: SeqNo,
    /// No log group of a larger or equal tag has ever been in the store.
    pub next_ltn: u64,
    /// No family of a larger or equal id has ever been in the store.
    pub next_family: FamilyId,
    /// The living families.
    pub families: IdMap<FamilyId, Arc<FamilyState>>,
    /// The living log groups by tag.
    pub log_groups: IdMap<u64, LogGroupMeta>,
    /// Where each living file is, and what the tables are.
    index: IdMap<u64, Slot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    place: Place,
    table: Option<Arc<FileMeta>>,
}

impl State {
    /// A store without anything in it.
    pub fn empty(store: Uid, edit_number: u64) -> Self {
        State {
            store,
            edit_number,
            next_file_number: 1,
            last_seq: 0,
            next_ltn: 1,
            next_family: 0,
            families: IdMap::new(),
            log_groups: IdMap::new(),
            index: IdMap::new(),
        }
    }

    /// The state after `edit`; its edit number is one larger. The state itself does not change.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state (see the module's documentation).
    pub fn apply(&self, edit: &Edit) -> Result<State> {
        apply::apply(self, edit)
    }

    /// The edit that leads from an empty store to this state: what a new manifest begins with.
    pub fn snapshot(&self) -> Edit {
        let mut records = vec![
            Record::NextFileNumber(self.next_file_number),
            Record::LastSeq(self.last_seq),
            Record::NextLtn(self.next_ltn),
        ];
        records.extend(self.log_groups.values().map(|&group| Record::AddLogGroup { group }));
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
        }
        records.push(Record::NextFamily(self.next_family));
        Edit(records)
    }

    /// The state that [`State::snapshot`] described, with the edit number it had.
    ///
    /// # Errors
    /// As [`State::apply`].
    pub fn from_snapshot(store: Uid, edit_number: u64, snapshot: &Edit) -> Result<State> {
        let mut state = State::empty(store, 0).apply(snapshot)?;
        state.edit_number = edit_number;
        Ok(state)
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
        self.families.values().find(|f| f.name == name)
    }

    /// Where a living file is; `None` if the store does not hold a file of this number.
    pub fn place_of(&self, number: u64) -> Option<Place> {
        self.index.get(&number).map(|slot| slot.place)
    }

    /// A living table.
    pub fn table(&self, number: u64) -> Option<&Arc<FileMeta>> {
        self.index.get(&number)?.table.as_ref()
    }

    /// Every living file of the store with its place, ascending.
    pub fn files(&self) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.index.iter().map(|(number, slot)| (number, slot.place))
    }

    /// The smallest log floor of all families: log records below it are in tables.
    pub fn log_floor(&self) -> SeqNo {
        self.families.values().map(|f| f.version.log_floor).min().unwrap_or(0)
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
        let mut out = format!(
            "store {:?}, edit {}, next file {}, last seq {}, next log group {}\n",
            self.store, self.edit_number, self.next_file_number, self.last_seq, self.next_ltn
        );
        for &group in self.log_groups.values() {
            out += &format!("{}\n", Record::AddLogGroup { group });
        }
        for family in self.families.values() {
            out += &format!("\"{}\": {}", family.name.escape_debug(), family.version.describe());
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod tests;
