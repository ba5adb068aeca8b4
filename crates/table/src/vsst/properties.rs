//! Properties of a vSST, encoded as fields (see the module `fields`). With the footer they are
//! enough to rebuild the manifest's record of the file.

use super::record::ALIGNMENT_MAX;
use crate::fields::{FieldWriter, read_fields, small};
use crate::options::TableIdentity;
use base::{Error, Result, SeqNo};

/// Properties of a vSST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VsstProperties {
    /// Origin of the file. Its own BlobId is its number.
    pub identity: TableIdentity,
    /// Number of records.
    pub entries: u64,
    /// Bytes of all records, padding included: the base for garbage ratios.
    pub record_bytes: u64,
    /// Uncompressed bytes of the values.
    pub raw_bytes: u64,
    /// Smallest sequence.
    pub min_seq: SeqNo,
    /// Largest sequence.
    pub max_seq: SeqNo,
    /// Unit of the offsets and lengths of records.
    pub alignment: u32,
    /// Hot or cold class, as numbered by the engine.
    pub class: u8,
    /// BlobIds of other files that resolve to this one, ascending.
    pub took_over: Vec<u64>,
    /// Codecs used in the file: bit `n` for the codec with number `n`.
    pub codecs: u64,
    /// Creation time, in seconds since 1970; 0: not recorded.
    pub created_unix_seconds: u64,
    /// True if the file is a value log file, with records in order of arrival instead of key order.
    pub segment: bool,
    /// Smallest encoded internal key, with kind `Value`.
    pub smallest: Vec<u8>,
    /// Largest encoded internal key, with kind `Value`.
    pub largest: Vec<u8>,
    /// Bytes of the dense partitions and their index in the file.
    pub dense_bytes: u64,
    /// Bytes of index frames and directory in the file.
    pub index_bytes: u64,
}

impl VsstProperties {
    /// Returns the 64-bit numbers with their tags.
    fn numbers(&mut self) -> [(u64, &mut u64); 9] {
        [
            (16, &mut self.entries),
            (24, &mut self.min_seq),
            (25, &mut self.max_seq),
            (28, &mut self.created_unix_seconds),
            (35, &mut self.codecs),
            (40, &mut self.record_bytes),
            (41, &mut self.raw_bytes),
            (46, &mut self.dense_bytes),
            (47, &mut self.index_bytes),
        ]
    }

    /// Encodes the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = FieldWriter::new(&self.identity);
        self.clone().numbers().into_iter().for_each(|(tag, v)| fields.number(tag, *v));
        fields.number(42, u64::from(self.alignment));
        fields.number(43, u64::from(self.class));
        fields.number(45, u64::from(self.segment));
        fields.bytes(29, &self.smallest);
        fields.bytes(30, &self.largest);
        let mut last = 0;
        fields.varints(44, self.took_over.iter().map(|&id| id - std::mem::replace(&mut last, id)));
        fields.finish()
    }

    /// Decodes the block.
    ///
    /// # Errors
    /// `Corruption` if a field is malformed, `Unsupported` for a file that this release does not
    /// read.
    pub fn decode(bytes: &[u8]) -> Result<VsstProperties> {
        let mut p = VsstProperties::default();
        let identity = read_fields(bytes, |tag, field| {
            match tag {
                29 => p.smallest = field.rest().to_vec(),
                30 => p.largest = field.rest().to_vec(),
                42 => p.alignment = small(field.varint()?)?,
                43 => p.class = small(field.varint()?)?,
                44 => {
                    let mut last = p.took_over.last().copied().unwrap_or(0);
                    while !field.is_empty() {
                        let step = field.varint()?;
                        let next = last.checked_add(step);
                        last = next.ok_or_else(|| {
                            Error::corruption("the number of a replaced value file (BlobId) is over 64 bits")
                        })?;
                        p.took_over.push(last);
                    }
                }
                45 => p.segment = field.varint()? != 0,
                _ => {
                    if let Some((_, number)) = p.numbers().into_iter().find(|(t, _)| *t == tag) {
                        *number = field.varint()?;
                    }
                }
            }
            Ok(())
        })?;
        p.identity = identity;
        p.check()?;
        Ok(p)
    }

    fn check(&self) -> Result<()> {
        let alignment = u64::from(self.alignment);
        let sound = self.alignment.is_power_of_two()
            && self.alignment <= ALIGNMENT_MAX
            && self.entries > 0
            && self.record_bytes.is_multiple_of(alignment)
            && self.record_bytes / alignment >= self.entries
            && self.min_seq <= self.max_seq;
        if sound {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "the properties of the value file (vSST) contradict each other: {} records in {} bytes, \
             alignment {alignment} bytes, sequences {} to {}",
            self.entries, self.record_bytes, self.min_seq, self.max_seq
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::codec::{put_bytes, put_varint};
    use base::{ErrorKind, Uid};

    fn sample() -> VsstProperties {
        let mut p = VsstProperties::default();
        let mut n = 1;
        for (tag, number) in p.numbers() {
            n = n * 3 + tag;
            *number = n;
        }
        (p.identity.number, p.identity.job, p.identity.edit) = (8, 9, 10);
        p.identity.uid = Uid::from_words(1, 2);
        p.identity.family = 7;
        p.identity.inputs = vec![300, 5];
        (p.alignment, p.class) = (16, 2);
        p.record_bytes = p.entries * 160;
        p.took_over = vec![5, 6, u64::MAX];
        p.smallest = b"a".to_vec();
        p
    }

    #[test]
    fn round_trips_and_skips_unknown_fields() {
        let p = sample();
        let mut bytes = p.encode();
        assert_eq!(VsstProperties::decode(&bytes).unwrap(), p);
        put_varint(&mut bytes, 99);
        put_bytes(&mut bytes, b"of a later release");
        assert_eq!(VsstProperties::decode(&bytes).unwrap(), p);
    }

    #[test]
    fn contradictions_are_refused() {
        let kind_of = |change: fn(&mut VsstProperties)| {
            let mut p = sample();
            change(&mut p);
            VsstProperties::decode(&p.encode()).unwrap_err().kind()
        };
        let changes: [fn(&mut VsstProperties); 7] = [
            |p| p.alignment = 0,
            |p| p.alignment = 3,
            |p| p.alignment = 128,
            |p| p.entries = 0,
            |p| p.record_bytes += 1,
            |p| p.record_bytes = 16,
            |p| p.min_seq = p.max_seq + 1,
        ];
        for change in changes {
            assert_eq!(kind_of(change), ErrorKind::Corruption);
        }
    }

    #[test]
    fn decoded_blob_ids_always_ascend() {
        let with = |took_over: &[u64]| {
            let mut bytes = sample().encode();
            let mut field = Vec::new();
            took_over.iter().for_each(|&id| put_varint(&mut field, id));
            put_varint(&mut bytes, 44);
            put_bytes(&mut bytes, &field);
            VsstProperties::decode(&bytes)
        };
        assert!(with(&[0]).unwrap().took_over.is_sorted(), "a field given twice");
        assert!(with(&[1]).unwrap_err().is_corruption(), "over 64 bits");
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut rng = io::Rng::new(61);
        let bytes = sample().encode();
        for _ in 0..5000 {
            let mut damaged = bytes.clone();
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.next_u64() as u8;
            damaged.truncate(1 + rng.below(damaged.len() as u64) as usize);
            let _ = VsstProperties::decode(&damaged);
        }
    }
}
