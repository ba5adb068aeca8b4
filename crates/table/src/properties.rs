//! Properties of a table, encoded as fields (see the module `fields`).
//!
//! Together with the footer the properties are enough to rebuild the manifest's record of the file,
//! and its dependencies on vSSTs, without a manifest.

use crate::fields::{FieldWriter, read_fields};
use crate::options::TableIdentity;
use base::codec::Reader;
use base::{Compression, Dependency, Result, SeqNo};

/// Versions in a table that only snapshots read: newer versions or tombstones hide them from all
/// other readers.
///
/// ```
/// use lavastore_table::Retained;
/// let retained = Retained { first: 10, last: 30, ..Retained::default() };
/// assert!(retained.is_read_at(&[5, 20]));
/// assert!(!retained.is_read_at(&[5, 40]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Sequence of the oldest snapshot that reads them.
    pub first: SeqNo,
    /// Sequence of the newest snapshot that reads them.
    pub last: SeqNo,
    /// Bytes of their keys and inline values.
    pub table_bytes: u64,
    /// Bytes of the records that they reference.
    pub record_bytes: u64,
}

impl Retained {
    /// Returns true if one of these snapshots, in ascending order, reads the versions.
    pub fn is_read_at(&self, snapshots: &[SeqNo]) -> bool {
        let from = snapshots.partition_point(|&seq| seq < self.first);
        snapshots.get(from).is_some_and(|&seq| seq <= self.last)
    }
}

/// Properties of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Origin of the table.
    pub identity: TableIdentity,
    /// Number of entries of both streams, without range tombstones.
    pub entries: u64,
    /// Number of point and single-delete tombstones among them.
    pub tombstones: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Number of references to separated values among the entries.
    pub references: u64,
    /// Number of merge operands among the entries.
    pub merge_operands: u64,
    /// Bytes of the internal keys of all entries.
    pub raw_key_bytes: u64,
    /// Bytes of the inline values.
    pub raw_value_bytes: u64,
    /// Bytes of the referenced values.
    pub referenced_raw_bytes: u64,
    /// Smallest sequence of an entry or range tombstone.
    pub min_seq: SeqNo,
    /// Largest sequence of an entry or range tombstone.
    pub max_seq: SeqNo,
    /// Earliest expiry time of an entry, in seconds since 1970; 0: none expires.
    pub min_expiry: u64,
    /// Latest expiry time of an entry; 0: none expires.
    pub max_expiry: u64,
    /// Referenced records for each BlobId, ascending. Empty in an open table: see
    /// [`crate::Ksst::dependencies`].
    pub dependencies: Vec<Dependency>,
    /// Creation time of the table, in seconds since 1970; 0: not recorded.
    pub created_unix_seconds: u64,
    /// Smallest encoded internal key, range tombstones included.
    pub smallest: Vec<u8>,
    /// Largest encoded internal key, range tombstones included.
    pub largest: Vec<u8>,
    /// Bytes of the inline blocks in the file.
    pub inline_block_bytes: u64,
    /// Bytes of the reference blocks in the file.
    pub reference_block_bytes: u64,
    /// Bytes of the index partitions in the file.
    pub index_bytes: u64,
    /// Bytes of the filter partitions in the file.
    pub filter_bytes: u64,
    /// Codecs used in the file: bit `n` for the codec with number `n`.
    pub codecs: u64,
    /// Versions that the writer kept for snapshots.
    pub retained: Vec<Retained>,
    /// [`crate::KeyPrefix::code`] of the prefixes in the filters; 0: they hold whole keys only.
    pub prefix_code: u64,
}

impl Properties {
    /// Returns the raw bytes including the referenced values: the compensated size without the
    /// entries hidden by tombstones.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_key_bytes.saturating_add(self.raw_value_bytes).saturating_add(self.referenced_raw_bytes)
    }

    /// Returns true if the file uses the codec.
    pub fn uses(&self, codec: Compression) -> bool {
        self.codecs >> codec as u8 & 1 == 1
    }

    /// Returns the numbers with their tags.
    fn numbers(&mut self) -> [(u64, &mut u64); 18] {
        [
            (16, &mut self.entries),
            (17, &mut self.tombstones),
            (18, &mut self.range_tombstones),
            (19, &mut self.references),
            (20, &mut self.merge_operands),
            (21, &mut self.raw_key_bytes),
            (22, &mut self.raw_value_bytes),
            (23, &mut self.referenced_raw_bytes),
            (24, &mut self.min_seq),
            (25, &mut self.max_seq),
            (26, &mut self.min_expiry),
            (27, &mut self.max_expiry),
            (28, &mut self.created_unix_seconds),
            (31, &mut self.inline_block_bytes),
            (32, &mut self.reference_block_bytes),
            (33, &mut self.index_bytes),
            (34, &mut self.filter_bytes),
            (35, &mut self.codecs),
        ]
    }

    /// Encodes the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = FieldWriter::new(&self.identity);
        self.clone().numbers().into_iter().for_each(|(tag, v)| fields.number(tag, *v));
        fields.bytes(29, &self.smallest);
        fields.bytes(30, &self.largest);
        let mut last = 0;
        let dependencies = self.dependencies.iter().flat_map(|d| {
            let step = d.blob_id - std::mem::replace(&mut last, d.blob_id);
            [step, d.count, d.raw_bytes, d.stored_bytes]
        });
        fields.varints(36, dependencies);
        if !self.retained.is_empty() {
            let retained =
                self.retained.iter().flat_map(|r| [r.first, r.last, r.table_bytes, r.record_bytes]);
            fields.varints(37, retained);
        }
        if self.prefix_code != 0 {
            fields.number(38, self.prefix_code);
        }
        fields.finish()
    }

    /// Decodes the block.
    ///
    /// # Errors
    /// `Corruption` if a field is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Properties> {
        Self::read(bytes, true)
    }

    /// As [`Properties::decode`], without the dependencies, so that the result is short.
    pub(crate) fn decode_head(bytes: &[u8]) -> Result<Properties> {
        Self::read(bytes, false)
    }

    fn read(bytes: &[u8], with_dependencies: bool) -> Result<Properties> {
        let mut p = Properties::default();
        let identity = read_fields(bytes, |tag, field| {
            match tag {
                29 => p.smallest = field.rest().to_vec(),
                30 => p.largest = field.rest().to_vec(),
                36 if !with_dependencies => {}
                36 => p.dependencies = decode_dependencies(field)?,
                37 => p.retained = decode_retained(field)?,
                38 => p.prefix_code = field.varint()?,
                _ => {
                    if let Some((_, number)) = p.numbers().into_iter().find(|(t, _)| *t == tag) {
                        *number = field.varint()?;
                    }
                }
            }
            Ok(())
        })?;
        Ok(Properties { identity, ..p })
    }
}

fn decode_dependencies(field: &mut Reader<'_>) -> Result<Vec<Dependency>> {
    let mut all = Vec::new();
    let mut last = 0u64;
    while !field.is_empty() {
        last = last.wrapping_add(field.varint()?);
        all.push(Dependency {
            blob_id: last,
            count: field.varint()?,
            raw_bytes: field.varint()?,
            stored_bytes: field.varint()?,
        });
    }
    Ok(all)
}

fn decode_retained(field: &mut Reader<'_>) -> Result<Vec<Retained>> {
    let mut all = Vec::new();
    while !field.is_empty() {
        all.push(Retained {
            first: field.varint()?,
            last: field.varint()?,
            table_bytes: field.varint()?,
            record_bytes: field.varint()?,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Uid;
    use base::codec::{put_bytes, put_varint};

    fn sample() -> Properties {
        let mut p = Properties::default();
        let mut n = 1;
        for (tag, number) in p.numbers() {
            n = n * 3 + tag;
            *number = n;
        }
        (p.identity.number, p.identity.job, p.identity.edit) = (8, 9, 10);
        p.identity.uid = Uid::from_words(1, 2);
        p.identity.family = 7;
        p.identity.inputs = vec![300, 5];
        p.identity.store.family_name = "f".into();
        p.identity.store.family_options = vec![0, 7];
        p.identity.store.log_floor = 12;
        p.identity.store.gone = vec![1, 2, 900];
        p.smallest = b"a".to_vec();
        p.retained = vec![
            Retained { first: 1, last: 2, table_bytes: 3, record_bytes: 4 },
            Retained { first: 5, last: u64::MAX, table_bytes: 0, record_bytes: 6 },
        ];
        p.dependencies = vec![
            Dependency { blob_id: 5, count: 1, raw_bytes: 2, stored_bytes: 3 },
            Dependency { blob_id: u64::MAX, count: 4, raw_bytes: 5, stored_bytes: 6 },
        ];
        p
    }

    #[test]
    fn round_trips_and_skips_unknown_fields() {
        let p = sample();
        let mut bytes = p.encode();
        assert_eq!(Properties::decode(&bytes).unwrap(), p);
        put_varint(&mut bytes, 99);
        put_bytes(&mut bytes, b"of a later release");
        assert_eq!(Properties::decode(&bytes).unwrap(), p);
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut rng = io::Rng::new(51);
        let bytes = sample().encode();
        for _ in 0..5000 {
            let mut damaged = bytes.clone();
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.next_u64() as u8;
            damaged.truncate(1 + rng.below(damaged.len() as u64) as usize);
            if let Err(e) = Properties::decode(&damaged) {
                assert!(e.is_corruption());
            }
        }
    }
}
