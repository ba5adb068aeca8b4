//! Edits: the changes from one state of the store to the next, and their encoding.
//!
//! An [`Edit`] is a list of [`Record`]s that take effect together or not at all. Encoded, each record is its tag
//! (varint), the length of its body (varint) and the body. A tag this release does not know, or a body with bytes left
//! over, was written by a newer release: the edit is refused as `Unsupported`, because skipping a change that somebody
//! thought worth recording cannot be right. The numbers of the tags never change meaning.

use crate::meta::{self, BlobId, FamilyId, FileMeta, LogGroupMeta, VsstMeta, newer};
use crate::version::AliasTarget;
use base::codec::{Reader, put_bytes, put_varint};
use base::key;
use base::limits::{FAMILY_NAME_LEN_MAX, KEY_LEN_MAX};
use base::{Error, MAX_SEQ, Result, SeqNo};
use std::fmt;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A table joins a level. In an edit that also removes the same number, the file moves.
    AddFile {
        /// Its family.
        family: FamilyId,
        /// Its level.
        level: u32,
        /// The table.
        meta: FileMeta,
    },
    /// A table leaves its level. Takes effect before the additions of the same edit, wherever it stands in it.
    RemoveFile {
        /// Its family.
        family: FamilyId,
        /// The level it is in.
        level: u32,
        /// The table.
        number: u64,
    },
    /// Every record of the family with a sequence below `seq` is in tables. Never goes back.
    LogFloor {
        /// The family.
        family: FamilyId,
        /// The first sequence that may still be in the log only.
        seq: SeqNo,
    },
    /// A column family comes into being.
    CreateFamily {
        /// Its id: larger than every id before it.
        id: FamilyId,
        /// Its name: no other living family has it.
        name: String,
        /// Its options, in an encoding of the layer above.
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
        /// Its family.
        family: FamilyId,
        /// The file.
        meta: VsstMeta,
    },
    /// A vSST leaves: no table may depend on a name that leads to it, and its aliases must go with it.
    RemoveVsst {
        /// Its family.
        family: FamilyId,
        /// The file.
        number: u64,
    },
    /// Garbage collection: the outputs (ascending, disjoint key ranges; none if nothing was alive) take the place of
    /// the inputs under every name that leads to them.
    ReplaceVsst {
        /// Their family.
        family: FamilyId,
        /// The files that leave.
        inputs: Vec<u64>,
        /// The files that take over.
        outputs: Vec<VsstMeta>,
    },
    /// A blob id leads to these files from now on.
    SetAlias {
        /// The family.
        family: FamilyId,
        /// The name.
        blob_id: BlobId,
        /// Where it leads: at least one target, the first with an empty key, the others in key order.
        targets: Vec<AliasTarget>,
    },
    /// A blob id whose own file is gone leads nowhere: no table may depend on it.
    DropAlias {
        /// The family.
        family: FamilyId,
        /// The name.
        blob_id: BlobId,
    },
    /// A log group exists and may hold records.
    AddLogGroup {
        /// The group.
        group: LogGroupMeta,
    },
    /// Recovery ended a group at a page: nothing from there on counts.
    SealLogGroup {
        /// The group.
        ltn: u64,
        /// The first page that does not count.
        end_lpn: u64,
    },
    /// Recovery found the whole group to lie after the torn tail.
    DiscardLogGroup {
        /// The group.
        ltn: u64,
    },
    /// A log group is removed or recycled under a new tag. Takes effect before the additions of the same edit.
    RemoveLogGroup {
        /// The group.
        ltn: u64,
    },
    /// The next file number is at least this.
    NextFileNumber(u64),
    /// The last sequence in use is at least this.
    LastSeq(SeqNo),
    /// The next log tag number is at least this.
    NextLtn(u64),
    /// The next family id is at least this.
    NextFamily(FamilyId),
    /// A table or vSST is about to get a second hard link.
    ShareFile {
        /// The file.
        number: u64,
    },
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
    pub const ADD_LOG_GROUP: u64 = 12;
    pub const SEAL_LOG_GROUP: u64 = 13;
    pub const DISCARD_LOG_GROUP: u64 = 14;
    pub const REMOVE_LOG_GROUP: u64 = 15;
    pub const NEXT_FILE_NUMBER: u64 = 16;
    pub const LAST_SEQ: u64 = 17;
    pub const NEXT_LTN: u64 = 18;
    pub const NEXT_FAMILY: u64 = 19;
    pub const SHARE_FILE: u64 = 20;
}

impl Edit {
    /// The encoding: every record in turn.
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut body) = (Vec::new(), Vec::new());
        for record in &self.0 {
            body.clear();
            let tag = record.encode_body(&mut body);
            put_varint(&mut out, tag);
            put_bytes(&mut out, &body);
        }
        out
    }

    /// Decodes what [`Edit::encode`] wrote.
    ///
    /// # Errors
    /// `Unsupported` for what only a newer release can have written, `Corruption` for everything else that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let mut records = Vec::new();
        while !r.is_empty() {
            let tag = r.varint()?;
            let mut body = Reader::new(r.bytes()?);
            records.push(Record::decode_body(tag, &mut body)?);
            if !body.is_empty() {
                return Err(newer(format!("a manifest record of kind {tag} with additional fields")));
            }
        }
        Ok(Edit(records))
    }
}

impl Record {
    /// Appends the body; returns the tag.
    fn encode_body(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Record::AddFile { family, level, meta } => {
                put_varint(out, u64::from(*family));
                put_varint(out, u64::from(*level));
                meta.encode_into(out);
                tag::ADD_FILE
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
            Record::AddLogGroup { group } => {
                group.encode_into(out);
                tag::ADD_LOG_GROUP
            }
            Record::SealLogGroup { ltn, end_lpn } => put_all(out, tag::SEAL_LOG_GROUP, [*ltn, *end_lpn]),
            Record::DiscardLogGroup { ltn } => put_all(out, tag::DISCARD_LOG_GROUP, [*ltn]),
            Record::RemoveLogGroup { ltn } => put_all(out, tag::REMOVE_LOG_GROUP, [*ltn]),
            Record::NextFileNumber(n) => put_all(out, tag::NEXT_FILE_NUMBER, [*n]),
            Record::LastSeq(n) => put_all(out, tag::LAST_SEQ, [*n]),
            Record::NextLtn(n) => put_all(out, tag::NEXT_LTN, [*n]),
            Record::NextFamily(n) => put_all(out, tag::NEXT_FAMILY, [u64::from(*n)]),
            Record::ShareFile { number } => put_all(out, tag::SHARE_FILE, [*number]),
            values => values.encode_values_body(out),
        }
    }

    /// The records about vSSTs and aliases.
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
                meta::put_numbers(out, inputs);
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
            other => unreachable!("{other:?} is encoded by encode_body"),
        }
    }

    fn decode_body(tag: u64, r: &mut Reader<'_>) -> Result<Self> {
        Ok(match tag {
            tag::ADD_FILE => {
                Record::AddFile { family: small(r)?, level: small(r)?, meta: FileMeta::decode(r)? }
            }
            tag::REMOVE_FILE => {
                Record::RemoveFile { family: small(r)?, level: small(r)?, number: meta::number(r)? }
            }
            tag::LOG_FLOOR => Record::LogFloor { family: small(r)?, seq: sequence(r)? },
            tag::CREATE_FAMILY => {
                Record::CreateFamily { id: small(r)?, name: family_name(r)?, options: r.bytes()?.to_vec() }
            }
            tag::UPDATE_FAMILY => Record::UpdateFamily { id: small(r)?, options: r.bytes()?.to_vec() },
            tag::DROP_FAMILY => Record::DropFamily { id: small(r)? },
            tag::ADD_VSST => Record::AddVsst { family: small(r)?, meta: VsstMeta::decode(r)? },
            tag::REMOVE_VSST => Record::RemoveVsst { family: small(r)?, number: meta::number(r)? },
            tag::REPLACE_VSST => {
                let (family, inputs) = (small(r)?, meta::numbers(r)?);
                let count = r.length(r.rest().len())?;
                let outputs = (0..count).map(|_| VsstMeta::decode(r)).collect::<Result<_>>()?;
                Record::ReplaceVsst { family, inputs, outputs }
            }
            tag::SET_ALIAS => {
                let (family, blob_id) = (small(r)?, meta::number(r)?);
                let count = r.length(r.rest().len())?;
                let targets = (0..count).map(|_| alias_target(r)).collect::<Result<_>>()?;
                Record::SetAlias { family, blob_id, targets }
            }
            tag::DROP_ALIAS => Record::DropAlias { family: small(r)?, blob_id: meta::number(r)? },
            tag::ADD_LOG_GROUP => Record::AddLogGroup { group: LogGroupMeta::decode(r)? },
            tag::SEAL_LOG_GROUP => Record::SealLogGroup { ltn: meta::number(r)?, end_lpn: meta::number(r)? },
            tag::DISCARD_LOG_GROUP => Record::DiscardLogGroup { ltn: meta::number(r)? },
            tag::REMOVE_LOG_GROUP => Record::RemoveLogGroup { ltn: meta::number(r)? },
            tag::NEXT_FILE_NUMBER => Record::NextFileNumber(meta::number(r)?),
            tag::LAST_SEQ => Record::LastSeq(sequence(r)?),
            tag::NEXT_LTN => Record::NextLtn(meta::number(r)?),
            tag::NEXT_FAMILY => Record::NextFamily(small(r)?),
            tag::SHARE_FILE => Record::ShareFile { number: meta::number(r)? },
            _ => return Err(newer(format!("a manifest record of kind {tag}"))),
        })
    }
}

fn put_all<const N: usize>(out: &mut Vec<u8>, tag: u64, numbers: [u64; N]) -> u64 {
    numbers.into_iter().for_each(|n| put_varint(out, n));
    tag
}

/// A family id or a level.
fn small(r: &mut Reader<'_>) -> Result<u32> {
    let n = r.varint()?;
    u32::try_from(n).map_err(|_| Error::corruption(format!("family or level {n} is out of range")))
}

fn sequence(r: &mut Reader<'_>) -> Result<SeqNo> {
    match r.varint()? {
        n if n <= MAX_SEQ => Ok(n),
        n => Err(Error::corruption(format!("sequence {n} is out of range"))),
    }
}

fn family_name(r: &mut Reader<'_>) -> Result<String> {
    let len = r.length(FAMILY_NAME_LEN_MAX)?;
    let name = std::str::from_utf8(r.take(len)?);
    Ok(name
        .map_err(|e| Error::corruption("the name of a column family is not UTF-8").caused_by(e))?
        .to_owned())
}

fn alias_target(r: &mut Reader<'_>) -> Result<AliasTarget> {
    let len = r.length(KEY_LEN_MAX + key::TRAILER_LEN)?;
    Ok(AliasTarget { first_key: r.take(len)?.to_vec(), file: meta::number(r)? })
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
            Record::AddLogGroup { group: g } => {
                write!(f, "add log group {} file {} {} B location {}", g.ltn, g.file, g.len, g.location)?;
                g.sealed_end.map_or(Ok(()), |end| write!(f, " sealed at page {end}"))?;
                f.write_str(if g.discarded { " discarded" } else { "" })?;
                g.uid.map_or(Ok(()), |uid| write!(f, " uid {uid:?}"))
            }
            Record::SealLogGroup { ltn, end_lpn } => write!(f, "seal log group {ltn} at page {end_lpn}"),
            Record::DiscardLogGroup { ltn } => write!(f, "discard log group {ltn}"),
            Record::RemoveLogGroup { ltn } => write!(f, "remove log group {ltn}"),
            Record::NextFileNumber(n) => write!(f, "next file number {n}"),
            Record::LastSeq(n) => write!(f, "last seq {n}"),
            Record::NextLtn(n) => write!(f, "next log group {n}"),
            Record::NextFamily(n) => write!(f, "next family {n}"),
            Record::ShareFile { number } => write!(f, "share file {number}"),
        }
    }
}

#[cfg(test)]
mod tests;
