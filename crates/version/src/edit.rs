//! Edits: the changes from one state of the key-value engine to the next, and their encoding.
//!
//! An edit may contain records of the store itself ([`Record::Store`]), which take effect with it.
//!
//! An [`Edit`] is a list of [`Record`]s that take effect together or not at all. Encoded, each
//! record is its tag (varint), the length of its body (varint) and the body. An unknown tag, or a
//! body with extra bytes, was written by a newer release. The edit is then rejected as
//! `Unsupported`, because skipping a recorded change cannot be right. The numbers of the tags never
//! change meaning.

use crate::changes::ReferenceChanges;
use crate::manifest::Kv;
use crate::meta::{BlobId, Dependency, FamilyId, FileMeta, VsstMeta};
use crate::uses::{TableReferences, reference_changes};
use crate::version::{AliasTarget, Version};
use base::codec::{Reader, put_bytes, put_varint};
use base::key;
use base::limits::{FAMILY_NAME_LEN_MAX, KEY_LEN_MAX};
use base::{Error, Result, SeqNo};
use std::fmt;
use std::sync::Arc;
use store::field::{newer, number, numbers, put_numbers, sequence, small};
use store::manifest::{Commit, Record as StoreRecord};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A table joins a level. In an edit that also removes the same number, the file moves. A
    /// description without a dependency list has a separate tag, which releases that do not know it
    /// reject.
    AddFile {
        /// Family of the table.
        family: FamilyId,
        /// Level of the table.
        level: u32,
        /// The table.
        meta: FileMeta,
    },
    /// A table leaves its level. Takes effect before the additions of the same edit, wherever it is
    /// in the edit.
    RemoveFile {
        /// Family of the table.
        family: FamilyId,
        /// Present level of the table.
        level: u32,
        /// Number of the table.
        number: u64,
    },
    /// Every record of the family with a sequence below `seq` is in tables. Never decreases.
    LogFloor {
        /// The family.
        family: FamilyId,
        /// First sequence that may still be in the log only.
        seq: SeqNo,
    },
    /// A column family is created.
    CreateFamily {
        /// Id of the family: larger than every id before it.
        id: FamilyId,
        /// Name of the family: no other live family has it.
        name: String,
        /// Options of the family, in an encoding of the layer above.
        options: Vec<u8>,
    },
    /// The options of a family change.
    UpdateFamily {
        /// The family.
        id: FamilyId,
        /// The new options.
        options: Vec<u8>,
    },
    /// A family and all its files leave the store.
    DropFamily {
        /// The family.
        id: FamilyId,
    },
    /// A vSST joins a family.
    AddVsst {
        /// Family of the file.
        family: FamilyId,
        /// The file.
        meta: VsstMeta,
    },
    /// A vSST leaves. No table may depend on a blob id that resolves to it, and its aliases must be
    /// dropped with it.
    RemoveVsst {
        /// Family of the file.
        family: FamilyId,
        /// Number of the file.
        number: u64,
    },
    /// Garbage collection: the outputs (ascending, disjoint key ranges; none if no record was live)
    /// replace the inputs under every blob id that resolves to them.
    ReplaceVsst {
        /// Family of the files.
        family: FamilyId,
        /// The files that leave.
        inputs: Vec<u64>,
        /// The files that take over.
        outputs: Vec<VsstMeta>,
    },
    /// A blob id is mapped to these files.
    SetAlias {
        /// The family.
        family: FamilyId,
        /// The blob id.
        blob_id: BlobId,
        /// Targets: at least one, the first with an empty key, the others in key order.
        targets: Vec<AliasTarget>,
    },
    /// A blob id whose own file is gone is removed: no table may depend on it.
    DropAlias {
        /// The family.
        family: FamilyId,
        /// The blob id.
        blob_id: BlobId,
    },
    /// Changes of the sums under each blob id by the tables that the edit adds and removes,
    /// ascending. With this record, dependency lists of the removed tables do not count.
    References {
        /// The family.
        family: FamilyId,
        /// Changes by blob id.
        changes: ReferenceChanges,
    },
    /// A lower bound of the next family id.
    NextFamily(FamilyId),
    /// A table or vSST is about to get a second hard link.
    ShareFile {
        /// Number of the file.
        number: u64,
    },
    /// A change of the store's own state, in the same edit.
    Store(StoreRecord),
}

/// Changes that take effect together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit(pub Vec<Record>);

mod tag {
    pub const ADD_FILE: u64 = 1;
    pub const REMOVE_FILE: u64 = 2;
    pub const LOG_FLOOR: u64 = 3;
    pub const CREATE_FAMILY: u64 = 4;
    pub const UPDATE_FAMILY: u64 = 5;
    pub const DROP_FAMILY: u64 = 6;
    pub const ADD_VSST: u64 = 7;
    pub const REMOVE_VSST: u64 = 8;
    pub const REPLACE_VSST: u64 = 9;
    pub const SET_ALIAS: u64 = 10;
    pub const DROP_ALIAS: u64 = 11;
    pub const NEXT_FAMILY: u64 = 19;
    pub const SHARE_FILE: u64 = 20;
    pub const ADD_FILE_WITH_SUMS: u64 = 33;
    pub const REFERENCES: u64 = 34;
}

impl From<Edit> for Commit<Kv> {
    /// Separates the records of the store.
    fn from(edit: Edit) -> Self {
        let mut commit: Commit<Kv> =
            Commit { store: Vec::new(), own: Edit(Vec::with_capacity(edit.0.len())) };
        for record in edit.0 {
            match record {
                Record::Store(record) => commit.store.push(record),
                record => commit.own.0.push(record),
            }
        }
        commit
    }
}

impl From<&Edit> for Commit<Kv> {
    fn from(edit: &Edit) -> Self {
        edit.clone().into()
    }
}

impl Edit {
    /// Encodes every record in turn.
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut body) = (Vec::new(), Vec::new());
        for record in &self.0 {
            if let Record::Store(record) = record {
                record.encode_into(&mut out);
                continue;
            }
            body.clear();
            let tag = record.encode_body(&mut body);
            put_varint(&mut out, tag);
            put_bytes(&mut out, &body);
        }
        out
    }

    /// Decodes the output of [`Edit::encode`].
    ///
    /// # Errors
    /// `Unsupported` for records of a newer release, `Corruption` for all other faults.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let mut records = Vec::new();
        while !r.is_empty() {
            let (tag, body) = (r.varint()?, r.bytes()?);
            if let Some(record) = StoreRecord::decode(tag, body)? {
                records.push(Record::Store(record));
                continue;
            }
            let mut body = Reader::new(body);
            records.push(Record::decode_body(tag, &mut body)?);
            if !body.is_empty() {
                return Err(newer(format!("a manifest record of kind {tag} with additional fields")));
            }
        }
        Ok(Edit(records))
    }

    /// Sets the footing of this edit for a family: `tried`, the same edit, led from `before` to
    /// `after`. The sums under blob ids that were computed then need not be computed again,
    /// whatever state this edit is applied to. See [`crate::changes`].
    pub fn rest_on(&mut self, tried: &Edit, id: FamilyId, before: &Arc<Version>, after: &Arc<Version>) {
        let Some(others) = tried.alone_changes_sums(id) else { return };
        for record in &mut self.0 {
            if let Record::References { family, changes } = record
                && *family == id
                && others.is_of(changes)
            {
                changes.rest_on(before, after);
            }
        }
    }

    /// Returns the changes of a family's sums, if nothing else in the edit changes them.
    fn alone_changes_sums(&self, id: FamilyId) -> Option<&ReferenceChanges> {
        let mut all = self.0.iter().filter_map(|record| match record {
            Record::References { family, changes } if *family == id => Some(changes),
            _ => None,
        });
        let (alone, another) = (all.next(), all.next());
        let has_list = |record: &Record| matches!(record, Record::AddFile { family, meta, .. } if *family == id && meta.uses.has_list());
        alone.filter(|_| another.is_none() && !self.0.iter().any(has_list))
    }
}

impl Record {
    /// Returns the changes of the sums under blob ids by added tables, and by removed tables with
    /// these dependency lists. Takes the lists out of the descriptions of the added tables: the
    /// record replaces them. `None`: no table references anything.
    pub fn references<'l>(
        family: FamilyId,
        added: &mut [FileMeta],
        removed: impl IntoIterator<Item = &'l [Dependency]>,
    ) -> Option<Record> {
        let bare = |f: &mut FileMeta| {
            let bare = f.uses.without_list();
            std::mem::replace(&mut f.uses, bare)
        };
        let added: Vec<TableReferences> = added.iter_mut().map(bare).collect();
        let removed: Vec<&[Dependency]> = removed.into_iter().collect();
        let lists = || added.iter().filter_map(TableReferences::list);
        let is_empty = lists().chain(removed.iter().copied()).all(<[Dependency]>::is_empty);
        if is_empty {
            return None;
        }
        let changes = reference_changes(lists(), removed.iter().copied());
        Some(Record::References { family, changes: ReferenceChanges::ready(changes) })
    }

    /// Appends the body. Returns the tag.
    fn encode_body(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Record::AddFile { family, level, meta } => {
                put_varint(out, u64::from(*family));
                put_varint(out, u64::from(*level));
                meta.encode_into(out);
                if meta.uses.list().is_some() { tag::ADD_FILE } else { tag::ADD_FILE_WITH_SUMS }
            }
            Record::RemoveFile { family, level, number } => {
                put_all(out, tag::REMOVE_FILE, [u64::from(*family), u64::from(*level), *number])
            }
            Record::LogFloor { family, seq } => put_all(out, tag::LOG_FLOOR, [u64::from(*family), *seq]),
            Record::CreateFamily { id, name, options } => {
                put_varint(out, u64::from(*id));
                put_bytes(out, name.as_bytes());
                put_bytes(out, options);
                tag::CREATE_FAMILY
            }
            Record::UpdateFamily { id, options } => {
                put_varint(out, u64::from(*id));
                put_bytes(out, options);
                tag::UPDATE_FAMILY
            }
            Record::DropFamily { id } => put_all(out, tag::DROP_FAMILY, [u64::from(*id)]),
            Record::NextFamily(n) => put_all(out, tag::NEXT_FAMILY, [u64::from(*n)]),
            Record::ShareFile { number } => put_all(out, tag::SHARE_FILE, [*number]),
            Record::Store(_) => unreachable!("encoded by itself"),
            values => values.encode_values_body(out),
        }
    }

    /// Encodes the records about vSSTs and aliases.
    fn encode_values_body(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Record::AddVsst { family, meta } => {
                put_varint(out, u64::from(*family));
                meta.encode_into(out);
                tag::ADD_VSST
            }
            Record::RemoveVsst { family, number } => {
                put_all(out, tag::REMOVE_VSST, [u64::from(*family), *number])
            }
            Record::ReplaceVsst { family, inputs, outputs } => {
                put_varint(out, u64::from(*family));
                put_numbers(out, inputs);
                put_varint(out, outputs.len() as u64);
                outputs.iter().for_each(|meta| meta.encode_into(out));
                tag::REPLACE_VSST
            }
            Record::SetAlias { family, blob_id, targets } => {
                put_all(out, 0, [u64::from(*family), *blob_id, targets.len() as u64]);
                for target in targets {
                    put_bytes(out, &target.first_key);
                    put_varint(out, target.file);
                }
                tag::SET_ALIAS
            }
            Record::DropAlias { family, blob_id } => {
                put_all(out, tag::DROP_ALIAS, [u64::from(*family), *blob_id])
            }
            Record::References { family, changes } => {
                put_varint(out, u64::from(*family));
                changes.encode_into(out);
                tag::REFERENCES
            }
            other => unreachable!("{other:?} is encoded by encode_body"),
        }
    }

    fn decode_body(tag: u64, r: &mut Reader<'_>) -> Result<Self> {
        Ok(match tag {
            tag::ADD_FILE | tag::ADD_FILE_WITH_SUMS => {
                let (family, level) = (small(r)?, small(r)?);
                Record::AddFile { family, level, meta: FileMeta::decode(r, tag == tag::ADD_FILE)? }
            }
            tag::REMOVE_FILE => {
                Record::RemoveFile { family: small(r)?, level: small(r)?, number: number(r)? }
            }
            tag::LOG_FLOOR => Record::LogFloor { family: small(r)?, seq: sequence(r)? },
            tag::CREATE_FAMILY => {
                Record::CreateFamily { id: small(r)?, name: family_name(r)?, options: r.bytes()?.to_vec() }
            }
            tag::UPDATE_FAMILY => Record::UpdateFamily { id: small(r)?, options: r.bytes()?.to_vec() },
            tag::DROP_FAMILY => Record::DropFamily { id: small(r)? },
            tag::ADD_VSST => Record::AddVsst { family: small(r)?, meta: VsstMeta::decode(r)? },
            tag::REMOVE_VSST => Record::RemoveVsst { family: small(r)?, number: number(r)? },
            tag::REPLACE_VSST => {
                let (family, inputs) = (small(r)?, numbers(r)?);
                let count = r.length(r.rest().len())?;
                let outputs = (0..count).map(|_| VsstMeta::decode(r)).collect::<Result<_>>()?;
                Record::ReplaceVsst { family, inputs, outputs }
            }
            tag::SET_ALIAS => {
                let (family, blob_id) = (small(r)?, number(r)?);
                let count = r.length(r.rest().len())?;
                let targets = (0..count).map(|_| alias_target(r)).collect::<Result<_>>()?;
                Record::SetAlias { family, blob_id, targets }
            }
            tag::DROP_ALIAS => Record::DropAlias { family: small(r)?, blob_id: number(r)? },
            tag::REFERENCES => {
                Record::References { family: small(r)?, changes: ReferenceChanges::decode(r)? }
            }
            tag::NEXT_FAMILY => Record::NextFamily(small(r)?),
            tag::SHARE_FILE => Record::ShareFile { number: number(r)? },
            _ => return Err(newer(format!("a manifest record of kind {tag}"))),
        })
    }
}

fn put_all<const N: usize>(out: &mut Vec<u8>, tag: u64, numbers: [u64; N]) -> u64 {
    numbers.into_iter().for_each(|n| put_varint(out, n));
    tag
}

fn family_name(r: &mut Reader<'_>) -> Result<String> {
    let len = r.length(FAMILY_NAME_LEN_MAX)?;
    let name = std::str::from_utf8(r.take(len)?);
    Ok(name
        .map_err(|e| {
            Error::corruption("the name of a column family in the manifest is not UTF-8").caused_by(e)
        })?
        .to_owned())
}

fn alias_target(r: &mut Reader<'_>) -> Result<AliasTarget> {
    let len = r.length(KEY_LEN_MAX + key::TRAILER_LEN)?;
    Ok(AliasTarget { first_key: r.take(len)?.to_vec(), file: number(r)? })
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::AddFile { family, level, meta } => write!(f, "add family {family} level {level} {meta}"),
            Record::RemoveFile { family, level, number } => {
                write!(f, "remove family {family} level {level} table {number}")
            }
            Record::LogFloor { family, seq } => write!(f, "log floor family {family} seq {seq}"),
            Record::CreateFamily { id, name, options } => {
                write!(f, "create family {id} \"{}\" options {} B", name.escape_debug(), options.len())
            }
            Record::UpdateFamily { id, options } => {
                write!(f, "update family {id} options {} B", options.len())
            }
            Record::DropFamily { id } => write!(f, "drop family {id}"),
            Record::AddVsst { family, meta } => write!(f, "add family {family} {meta}"),
            Record::RemoveVsst { family, number } => write!(f, "remove family {family} vSST {number}"),
            Record::ReplaceVsst { family, inputs, outputs } => {
                write!(f, "replace family {family} vSSTs {inputs:?} by")?;
                outputs.iter().try_for_each(|meta| write!(f, " [{meta}]"))
            }
            Record::SetAlias { family, blob_id, targets } => {
                let files: Vec<u64> = targets.iter().map(|t| t.file).collect();
                write!(f, "alias family {family} blob {blob_id} -> {files:?}")
            }
            Record::DropAlias { family, blob_id } => write!(f, "drop alias family {family} blob {blob_id}"),
            Record::References { family, changes } => {
                write!(f, "references family {family}")?;
                changes.iter().try_for_each(|c| {
                    write!(
                        f,
                        " blob {}: {:+} in {:+} tables, {:+} B",
                        c.blob_id, c.count, c.tables, c.stored_bytes
                    )
                })
            }
            Record::NextFamily(n) => write!(f, "next family {n}"),
            Record::ShareFile { number } => write!(f, "share file {number}"),
            Record::Store(record) => record.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
