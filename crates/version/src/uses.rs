//! References of tables to value files, by blob id: sums for each table, and the changes of the
//! sums under each blob id by an edit.
//!
//! A table may use any number of blob ids: under random overwrites each table uses all of them. So
//! a version has no lists of them. It has sums for each table ([`UseSums`]: a few numbers), and
//! sums under each blob id ([`crate::ReferenceTotals`]). Only the table itself lists its blob ids.
//! An edit that adds or removes tables contains the net changes of the sums under blob ids
//! ([`ReferenceChange`]), so applying it reads no file. The job that makes the edit has the
//! dependency lists of those tables, since it wrote the new ones and read the old ones.
//!
//! Older manifests have the list of each table, and the changes by their edits follow from these
//! lists. The lists are kept while such a history is replayed, and dropped at its end
//! ([`crate::KvState::without_lists`]).
//!
//! Invariant: the totals over all blob ids equal those over all tables. Each edit is checked
//! against that.
//!
//! A list is checked against the sums of its table when it is read. If it is unreadable or differs,
//! the table is damaged, is no input of any job, and no edit is made of the list. Its part of the
//! sums stays. So the sums under blob ids never fall below the real references, and nothing that
//! the table may reference is taken for garbage.

use crate::meta::BlobId;
use base::codec::{Reader, put_varint};
use base::{Dependency, Error, HashMap, Result};
use std::fmt;
use std::sync::Arc;
use store::IdMap;
use store::field::number;

/// Sums over the references of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseSums {
    /// Number of blob ids.
    pub names: u64,
    /// Number of references.
    pub references: u64,
    /// Uncompressed bytes of the values.
    pub raw_bytes: u64,
    /// Bytes of their records, padding included.
    pub stored_bytes: u64,
    /// Smallest blob id; 0 if there are none.
    pub first: BlobId,
    /// Largest blob id; 0 if there are none.
    pub last: BlobId,
}

/// References of all tables of a version under one blob id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceTotals {
    /// Number of tables with such references.
    pub tables: u64,
    /// Number of references.
    pub count: u64,
    /// Uncompressed bytes of the values.
    pub raw_bytes: u64,
    /// Bytes of their records, padding included.
    pub stored_bytes: u64,
}

/// References of a table. Two are equal if their sums are; the dependency list does not count.
#[derive(Clone, Debug)]
pub struct TableReferences {
    sums: UseSums,
    /// Dependency list, by ascending blob id. `None`: only the table has it.
    list: Option<Arc<[Dependency]>>,
}

impl Default for TableReferences {
    fn default() -> Self {
        TableReferences { sums: UseSums::default(), list: Some(Arc::default()) }
    }
}

impl PartialEq for TableReferences {
    fn eq(&self, other: &Self) -> bool {
        self.sums == other.sums
    }
}

impl Eq for TableReferences {}

impl UseSums {
    /// Returns the sums of a list, which must ascend by blob id.
    pub fn of(list: &[Dependency]) -> UseSums {
        let end = |of: Option<&Dependency>| of.map_or(0, |d| d.blob_id);
        let (first, last) = (end(list.first()), end(list.last()));
        let mut sums = UseSums { names: list.len() as u64, first, last, ..UseSums::default() };
        for d in list {
            sums.references = sums.references.saturating_add(d.count);
            sums.raw_bytes = sums.raw_bytes.saturating_add(d.raw_bytes);
            sums.stored_bytes = sums.stored_bytes.saturating_add(d.stored_bytes);
        }
        sums
    }
}

impl From<Vec<Dependency>> for TableReferences {
    fn from(list: Vec<Dependency>) -> Self {
        TableReferences { sums: UseSums::of(&list), list: Some(list.into()) }
    }
}

impl FromIterator<Dependency> for TableReferences {
    fn from_iter<I: IntoIterator<Item = Dependency>>(list: I) -> Self {
        TableReferences::from(list.into_iter().collect::<Vec<_>>())
    }
}

impl TableReferences {
    /// Returns the sums.
    pub fn sums(&self) -> &UseSums {
        &self.sums
    }

    /// Returns the references under each blob id, ascending. `None`: only the table has the list.
    pub fn list(&self) -> Option<&[Dependency]> {
        self.list.as_deref()
    }

    /// Returns true if it has a nonempty list.
    pub fn has_list(&self) -> bool {
        self.list.as_ref().is_some_and(|list| !list.is_empty())
    }

    /// Returns a copy without the list, unless the list is empty.
    #[must_use]
    pub fn without_list(&self) -> TableReferences {
        let list = self.list.clone().filter(|list| list.is_empty());
        TableReferences { sums: self.sums, list }
    }

    /// Returns false only if no reference is under this blob id. Without a list that is known of
    /// blob ids before the first and after the last.
    pub fn may_have(&self, name: BlobId) -> bool {
        match &self.list {
            Some(list) => list.binary_search_by_key(&name, |d| d.blob_id).is_ok(),
            None => (self.sums.first..=self.sums.last).contains(&name),
        }
    }

    /// Returns a description of its fault, if there is one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let UseSums { names, references, raw_bytes, stored_bytes, first, last } = self.sums;
        let is_empty = [references, raw_bytes, stored_bytes, first, last] == [0; 5];
        let span = last.checked_sub(first).and_then(|span| span.checked_add(1));
        match &self.list {
            Some(list) if !list.is_sorted_by(|a, b| a.blob_id < b.blob_id) => {
                Some("its dependencies on value files are not in ascending order of file numbers")
            }
            None if names == 0 && !is_empty || span.is_none_or(|span| span < names) => {
                Some("its sums of references to value files contradict each other")
            }
            _ => None,
        }
    }

    /// Appends the list as in a table record of an older manifest.
    pub(crate) fn encode_list(list: &[Dependency], out: &mut Vec<u8>) {
        put_varint(out, list.len() as u64);
        let mut previous = 0;
        for d in list {
            put_varint(out, d.blob_id.wrapping_sub(previous));
            put_varint(out, d.count);
            put_varint(out, d.raw_bytes);
            put_varint(out, d.stored_bytes);
            previous = d.blob_id;
        }
    }

    /// Decodes the output of [`TableReferences::encode_list`].
    pub(crate) fn decode_list(r: &mut Reader<'_>) -> Result<TableReferences> {
        // Every dependency takes at least four bytes, so the count is checked before it sizes an
        // allocation.
        let count = r.length(r.rest().len() / 4)?;
        let mut list = Vec::with_capacity(count);
        let mut blob_id = 0u64;
        for _ in 0..count {
            blob_id = blob_id.wrapping_add(r.varint()?);
            list.push(Dependency {
                blob_id,
                count: r.varint()?,
                raw_bytes: r.varint()?,
                stored_bytes: r.varint()?,
            });
        }
        Ok(list.into())
    }

    /// Appends the sums.
    pub(crate) fn encode_sums(&self, out: &mut Vec<u8>) {
        let UseSums { names, references, raw_bytes, stored_bytes, first, last } = self.sums;
        for n in [names, references, raw_bytes, stored_bytes, first, last.saturating_sub(first)] {
            put_varint(out, n);
        }
    }

    /// Decodes the output of [`TableReferences::encode_sums`].
    pub(crate) fn decode_sums(r: &mut Reader<'_>) -> Result<TableReferences> {
        let (names, references, raw_bytes) = (r.varint()?, r.varint()?, r.varint()?);
        let (stored_bytes, first, span) = (r.varint()?, r.varint()?, r.varint()?);
        let last = first.saturating_add(span);
        Ok(TableReferences {
            sums: UseSums { names, references, raw_bytes, stored_bytes, first, last },
            list: None,
        })
    }
}

/// Change of the sums under a blob id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceChange {
    /// The blob id.
    pub blob_id: BlobId,
    /// Change of the number of tables that use it.
    pub tables: i64,
    /// Change of the number of references.
    pub count: i64,
    /// Change of the uncompressed bytes of the values.
    pub raw_bytes: i64,
    /// Change of the bytes of their records.
    pub stored_bytes: i64,
}

/// Returns the changes of the sums under blob ids by added and removed tables with these dependency
/// lists, ascending. Unchanged blob ids are omitted.
pub fn reference_changes<'l>(
    added: impl IntoIterator<Item = &'l [Dependency]>,
    removed: impl IntoIterator<Item = &'l [Dependency]>,
) -> Vec<ReferenceChange> {
    let mut sums = ReferenceSums::default();
    added.into_iter().for_each(|list| sums.count(list, 1));
    removed.into_iter().for_each(|list| sums.count(list, -1));
    let nets = sums.sums.into_iter().filter(|(_, net)| *net != SumChange::default());
    let mut changes: Vec<ReferenceChange> = nets.map(|(name, net)| net.of_name(name)).collect();
    changes.sort_unstable_by_key(|change| change.blob_id);
    changes
}

/// A change of sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SumChange {
    tables: i64,
    count: i128,
    raw_bytes: i128,
    stored_bytes: i128,
}

impl SumChange {
    pub(crate) fn of(d: &Dependency, sign: i64) -> SumChange {
        let signed = |n: u64| i128::from(n) * i128::from(sign);
        let (count, raw_bytes, stored_bytes) = (signed(d.count), signed(d.raw_bytes), signed(d.stored_bytes));
        SumChange { tables: sign, count, raw_bytes, stored_bytes }
    }

    /// Returns the sum over all blob ids of a table.
    pub(crate) fn of_table(sums: &UseSums, sign: i64) -> SumChange {
        let signed = |n: u64| i128::from(n) * i128::from(sign);
        SumChange {
            tables: i64::try_from(sums.names).unwrap_or(i64::MAX).saturating_mul(sign),
            count: signed(sums.references),
            raw_bytes: signed(sums.raw_bytes),
            stored_bytes: signed(sums.stored_bytes),
        }
    }

    /// Returns the sum over all tables under one blob id.
    pub(crate) fn of_totals(totals: &ReferenceTotals) -> SumChange {
        SumChange {
            tables: i64::try_from(totals.tables).unwrap_or(i64::MAX),
            count: totals.count.into(),
            raw_bytes: totals.raw_bytes.into(),
            stored_bytes: totals.stored_bytes.into(),
        }
    }

    pub(crate) fn plus(self, other: &SumChange) -> SumChange {
        SumChange {
            tables: self.tables.saturating_add(other.tables),
            count: self.count + other.count,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
        }
    }

    pub(crate) fn minus(self, other: &SumChange) -> SumChange {
        SumChange {
            tables: self.tables.saturating_sub(other.tables),
            count: self.count - other.count,
            raw_bytes: self.raw_bytes - other.raw_bytes,
            stored_bytes: self.stored_bytes - other.stored_bytes,
        }
    }

    /// Returns true if no part exceeds that of `all`.
    pub(crate) fn is_within(&self, all: &SumChange) -> bool {
        let (tables, count) = (self.tables <= all.tables, self.count <= all.count);
        tables && count && self.raw_bytes <= all.raw_bytes && self.stored_bytes <= all.stored_bytes
    }

    /// Sums up the nets of each blob id, ascending, without zero ones. A compaction restores most
    /// of the references that it removes, and unchanged sums need not be looked up.
    pub(crate) fn by_name(mut nets: Vec<(BlobId, SumChange)>) -> Vec<(BlobId, SumChange)> {
        // The input consists of ascending lists, which the sort merges.
        nets.sort_by_key(|(name, _)| *name);
        let sum = |same: &[(BlobId, SumChange)]| {
            let net = same.iter().fold(SumChange::default(), |sum, (_, net)| sum.plus(net));
            same.first().map(|(name, _)| (*name, net)).filter(|_| net != SumChange::default())
        };
        nets.chunk_by(|a, b| a.0 == b.0).filter_map(sum).collect()
    }

    /// Converts to the form in an edit.
    pub(crate) fn of_name(&self, blob_id: BlobId) -> ReferenceChange {
        let narrow = |n: i128| i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX });
        ReferenceChange {
            blob_id,
            tables: self.tables,
            count: narrow(self.count),
            raw_bytes: narrow(self.raw_bytes),
            stored_bytes: narrow(self.stored_bytes),
        }
    }

    /// Returns the sums after the change. `None`: a sum is out of range.
    pub(crate) fn applied(&self, before: &ReferenceTotals) -> Option<ReferenceTotals> {
        let sum = |before: u64, net: i128| u64::try_from(i128::from(before) + net).ok();
        Some(ReferenceTotals {
            tables: sum(before.tables, self.tables.into())?,
            count: sum(before.count, self.count)?,
            raw_bytes: sum(before.raw_bytes, self.raw_bytes)?,
            stored_bytes: sum(before.stored_bytes, self.stored_bytes)?,
        })
    }
}

impl fmt::Display for SumChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SumChange { tables, count, raw_bytes, stored_bytes } = self;
        write!(f, "{count} references to {raw_bytes} bytes ({stored_bytes} in files) in {tables} tables")
    }
}

impl From<&ReferenceChange> for SumChange {
    fn from(change: &ReferenceChange) -> Self {
        SumChange {
            tables: change.tables,
            count: change.count.into(),
            raw_bytes: change.raw_bytes.into(),
            stored_bytes: change.stored_bytes.into(),
        }
    }
}

/// Sums under blob ids, computed from the dependency lists of tables, for comparison with the
/// stored sums.
#[derive(Debug, Default)]
pub struct ReferenceSums {
    sums: HashMap<BlobId, SumChange>,
}

impl ReferenceSums {
    /// Adds another table with this list.
    pub fn add(&mut self, list: &[Dependency]) {
        self.count(list, 1);
    }

    fn count(&mut self, list: &[Dependency], sign: i64) {
        for d in list {
            let sum = self.sums.entry(d.blob_id).or_default();
            *sum = sum.plus(&SumChange::of(d, sign));
        }
    }

    /// Returns the smallest blob id under which `kept` differs. `is_whole`: no table is missing;
    /// otherwise `kept` may have more.
    pub fn difference(&self, kept: &IdMap<BlobId, ReferenceTotals>, is_whole: bool) -> Option<BlobId> {
        let stated = |name: &BlobId| kept.get(name).map(SumChange::of_totals).unwrap_or_default();
        let differs = |(name, found): &(&BlobId, &SumChange)| match is_whole {
            true => **found != stated(name),
            false => !found.is_within(&stated(name)),
        };
        let found = self.sums.iter().filter(differs).map(|(name, _)| *name).min();
        let of_none = |name: &BlobId| is_whole && !self.sums.contains_key(name);
        found.into_iter().chain(kept.keys().find(of_none)).min()
    }
}

fn put_signed(out: &mut Vec<u8>, n: i64) {
    put_varint(out, ((n << 1) ^ (n >> 63)) as u64);
}

fn signed(r: &mut Reader<'_>) -> Result<i64> {
    let n = r.varint()?;
    Ok(((n >> 1) as i64) ^ -((n & 1) as i64))
}

pub(crate) fn encode_changes(changes: &[ReferenceChange], out: &mut Vec<u8>) {
    put_varint(out, changes.len() as u64);
    let mut previous = 0;
    for change in changes {
        put_varint(out, change.blob_id.wrapping_sub(previous));
        for n in [change.tables, change.count, change.raw_bytes, change.stored_bytes] {
            put_signed(out, n);
        }
        previous = change.blob_id;
    }
}

pub(crate) fn decode_changes(r: &mut Reader<'_>) -> Result<Vec<ReferenceChange>> {
    // Each change takes at least five bytes.
    let count = r.length(r.rest().len() / 5)?;
    let mut changes: Vec<ReferenceChange> = Vec::with_capacity(count);
    for _ in 0..count {
        let step = number(r)?;
        let previous = changes.last().map(|last| last.blob_id);
        let blob_id = previous.unwrap_or(0).saturating_add(step);
        if previous.is_some_and(|previous| previous >= blob_id) {
            return Err(Error::corruption(format!(
                "the sums of references in the manifest are not in ascending order of value files: \
                 {blob_id} follows {}",
                previous.unwrap_or(0)
            )));
        }
        let (tables, count) = (signed(r)?, signed(r)?);
        let (raw_bytes, stored_bytes) = (signed(r)?, signed(r)?);
        changes.push(ReferenceChange { blob_id, tables, count, raw_bytes, stored_bytes });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
