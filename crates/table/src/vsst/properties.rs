//! What a vSST says about itself: fields as in the properties of a kSST (tag, length, bytes; ascending; a reader skips
//! tags it does not know). With the footer they are enough to rebuild the manifest's record of the file.

use super::record::ALIGNMENT_MAX;
use crate::options::TableIdentity;
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result, SeqNo, Uid};

/// What a vSST says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VsstProperties {
    /// Who wrote it. Its own BlobId is its number.
    pub identity: TableIdentity,
    /// Records.
    pub entries: u64,
    /// Bytes of all records, padding included: what garbage is measured against.
    pub record_bytes: u64,
    /// Bytes of the values, uncompressed.
    pub raw_bytes: u64,
    /// The smallest sequence.
    pub min_seq: SeqNo,
    /// The largest.
    pub max_seq: SeqNo,
    /// Records begin at, and take, multiples of this.
    pub alignment: u32,
    /// Hot or cold, as the engine numbers it.
    pub class: u8,
    /// BlobIds of other files that lead to this one, ascending.
    pub took_over: Vec<u64>,
    /// The codecs that occur in the file: bit `n` for the codec with number `n`.
    pub codecs: u64,
    /// When it was written, seconds since 1970; 0: not recorded.
    pub created_unix_seconds: u64,
    /// True if the records are in order of arrival, not of their keys.
    pub segment: bool,
    /// The smallest encoded internal key, with kind `Value`.
    pub smallest: Vec<u8>,
    /// The largest.
    pub largest: Vec<u8>,
    /// Bytes of the dense partitions and their index in the file.
    pub dense_bytes: u64,
    /// Bytes of index frames and directory in the file.
    pub index_bytes: u64,
}

impl VsstProperties {
    /// The 64-bit numbers with their tags. Where a kSST has the same property, it has the same tag there.
    fn numbers(&mut self) -> [(u64, &mut u64); 12] {
        [
            (1, &mut self.identity.number),
            (5, &mut self.identity.job),
            (7, &mut self.identity.edit),
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

    /// The encoded block.
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = self.clone();
        let numbers = copy.numbers().map(|(tag, v)| (tag, *v));
        let small = [
            (3, u64::from(self.identity.family)),
            (4, u64::from(self.identity.level)),
            (42, u64::from(self.alignment)),
            (43, u64::from(self.class)),
            (45, u64::from(self.segment)),
        ];
        let mut fields: Vec<(u64, Vec<u8>)> = Vec::new();
        for (tag, v) in numbers.into_iter().chain(small).filter(|(_, v)| *v != 0) {
            fields.push((tag, varints([v])));
        }
        fields.push((2, self.identity.uid.0.to_vec()));
        fields.push((6, varints(self.identity.inputs.iter().copied())));
        fields.push((29, self.smallest.clone()));
        fields.push((30, self.largest.clone()));
        let mut last = 0;
        let steps = self.took_over.iter().map(|&id| id - std::mem::replace(&mut last, id));
        fields.push((44, varints(steps)));
        fields.sort();
        let mut out = Vec::new();
        for (tag, bytes) in fields {
            put_varint(&mut out, tag);
            put_bytes(&mut out, &bytes);
        }
        out
    }

    /// Decodes the block.
    ///
    /// # Errors
    /// `Corruption` if a field is malformed, `Unsupported` for a file that this release does not read.
    pub fn decode(bytes: &[u8]) -> Result<VsstProperties> {
        let mut p = VsstProperties::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let tag = reader.varint()?;
            let mut field = Reader::new(reader.bytes()?);
            match tag {
                2 => p.identity.uid = Uid(field.array()?),
                3 => p.identity.family = small(field.varint()?)?,
                4 => p.identity.level = small(field.varint()?)?,
                6 => {
                    while !field.is_empty() {
                        p.identity.inputs.push(field.varint()?);
                    }
                }
                29 => p.smallest = field.rest().to_vec(),
                30 => p.largest = field.rest().to_vec(),
                42 => p.alignment = small(field.varint()?)?,
                43 => p.class = small(field.varint()?)?,
                44 => {
                    let mut last = p.took_over.last().copied().unwrap_or(0);
                    while !field.is_empty() {
                        let step = field.varint()?;
                        let next = last.checked_add(step);
                        last = next.ok_or_else(|| Error::corruption("BlobIds that do not ascend"))?;
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
        }
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
        if sound { Ok(()) } else { Err(Error::corruption("properties that contradict themselves")) }
    }
}

fn varints(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.into_iter().for_each(|v| put_varint(&mut out, v));
    out
}

fn small<T: TryFrom<u64>>(v: u64) -> Result<T> {
    T::try_from(v).map_err(|_| Error::corruption(format!("{v} where a smaller number was expected")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    fn sample() -> VsstProperties {
        let mut p = VsstProperties::default();
        let mut n = 1;
        for (tag, number) in p.numbers() {
            n = n * 3 + tag;
            *number = n;
        }
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
    fn blob_ids_ascend_whatever_the_bytes_say() {
        let with = |took_over: &[u64]| {
            let mut bytes = sample().encode();
            put_varint(&mut bytes, 44);
            put_bytes(&mut bytes, &varints(took_over.iter().copied()));
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
