//! The manifest's description of each file, and its encoding.
//!
//! All numbers are varints except uids (16 bytes) and flag bytes; byte strings carry their length.
//! The layout is in `docs/format/manifest.md`. Decoding rejects contents that no release writes: a
//! file number or sequence out of range, keys without a trailer or out of order, an empty sequence
//! range.

use crate::known::TableStats;
use crate::uses::TableReferences;
use base::codec::{Reader, put_bytes, put_varint};
use base::key::{self, TRAILER_LEN};
use base::{Error, MAX_SEQ, Result, SeqNo, Uid, limits};
use std::sync::Arc;
use store::field::{damaged, flags, newer, numbers, put_numbers};
use store::names::FileKind;
use store::numbers::NUMBER_MAX;
use store::volumes::{Volume, pages};

pub use base::Dependency;

/// Id of a column family. Never reused.
pub type FamilyId = u32;
/// Stable logical name of a value file: the number of the vSST that first held its values.
pub type BlobId = u64;

/// Description of a kSST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMeta {
    /// File number.
    pub number: u64,
    /// Identity in the file's footer.
    pub uid: Uid,
    /// Volume of the file.
    pub volume: Volume,
    /// Physical length, in bytes.
    pub len: u64,
    /// Smallest internal key, encoded.
    pub smallest: Vec<u8>,
    /// Largest internal key, encoded. The end of a range tombstone is the user key with the
    /// sentinel trailer (see [`FileMeta::largest_is_exclusive`]).
    pub largest: Vec<u8>,
    /// Smallest sequence.
    pub min_seq: SeqNo,
    /// Largest sequence.
    pub max_seq: SeqNo,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of point tombstones.
    pub tombstones: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Uncompressed bytes of the table and of the values that it references.
    pub raw_bytes: u64,
    /// Estimated bytes that its tombstones hide in deeper levels.
    pub hidden_bytes: u64,
    /// The single sequence of all entries of an ingested file.
    pub global_seq: Option<SeqNo>,
    /// True if the file ever had a second hard link: it is then never changed in place (no hole
    /// punching).
    pub shared: bool,
    /// References of the table.
    pub uses: TableReferences,
    /// Statistics of its entries that the manifest does not hold.
    pub known: TableStats,
    /// Shared by all copies of this description, in memory only. An edit that moves or marks a file
    /// copies its description, and readers of older versions hold the older copy. The file is in
    /// use while any copy exists.
    pub copies: Arc<()>,
}

/// A trailer that sorts before every entry of its user key: a file's largest key with it is
/// exclusive.
const SENTINEL_TRAILER: u64 = u64::MAX;

impl FileMeta {
    /// Returns the kind of the file, which includes its tier.
    pub fn kind(&self) -> FileKind {
        FileKind::of_table(self.number, self.volume == Volume::FAST)
    }

    /// Returns the bytes that the tree would hold for this file if no value were separated and
    /// every tombstone had the size of the entries that it hides.
    pub fn compensated(&self) -> u64 {
        self.raw_bytes.saturating_add(self.hidden_bytes)
    }

    /// Returns the smallest user key.
    pub fn smallest_user_key(&self) -> &[u8] {
        key::user_key(&self.smallest)
    }

    /// Returns the largest user key, which is excluded if [`FileMeta::largest_is_exclusive`].
    pub fn largest_user_key(&self) -> &[u8] {
        key::user_key(&self.largest)
    }

    /// Returns true if the file ends with a range tombstone whose end is the largest user key. Then
    /// the file covers keys below it, not the key itself, and the next file of the level may start
    /// there.
    pub fn largest_is_exclusive(&self) -> bool {
        key::split(&self.largest).1 == SENTINEL_TRAILER
    }

    /// Returns true if every user key of the file is below `user_key`.
    pub fn ends_before(&self, user_key: &[u8]) -> bool {
        let largest = self.largest_user_key();
        largest < user_key || (largest == user_key && self.largest_is_exclusive())
    }

    /// Returns true if every user key of the file is above `user_key`.
    pub fn starts_after(&self, user_key: &[u8]) -> bool {
        self.smallest_user_key() > user_key
    }

    /// Returns true if the file's range of user keys contains `user_key`.
    pub fn covers(&self, user_key: &[u8]) -> bool {
        !self.starts_after(user_key) && !self.ends_before(user_key)
    }

    /// Returns true if the user key ranges of the two files overlap.
    pub fn overlaps(&self, other: &FileMeta) -> bool {
        !self.ends_before(other.smallest_user_key()) && !other.ends_before(self.smallest_user_key())
    }

    /// Returns the smallest and the largest sequence of its entries as readers see them.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        self.global_seq.map_or((self.min_seq, self.max_seq), |g| (g, g))
    }

    /// Checks the invariants of every file description.
    ///
    /// # Errors
    /// `InvalidArgument` with the file number and the fault.
    pub fn validate(&self) -> Result<()> {
        let number = self.number;
        let fault = |why: &str| Err(Error::invalid(format!("key table (kSST) {number}: {why}")));
        if number == 0 || number > NUMBER_MAX {
            return fault(&format!("its file number is not 1 to {NUMBER_MAX}"));
        }
        if !key_is_sound(&self.smallest) || !key_is_sound(&self.largest) {
            return fault(&keys_fault(&self.smallest, &self.largest));
        }
        if key::compare(&self.smallest, &self.largest).is_gt() {
            return fault(&format!(
                "its smallest key is above its largest: \"{}\" and \"{}\"",
                key::user_key(&self.smallest).escape_ascii(),
                key::user_key(&self.largest).escape_ascii()
            ));
        }
        // Two such files could have the same place in a level.
        if self.ends_before(self.smallest_user_key()) {
            return fault("it covers no key: its largest key ends where its smallest begins");
        }
        if self.min_seq > self.max_seq || self.max_seq > MAX_SEQ || self.global_seq > Some(MAX_SEQ) {
            return fault(&format!(
                "its sequences {} to {} descend, or are over 56 bits",
                self.min_seq, self.max_seq
            ));
        }
        self.uses.fault().map_or(Ok(()), fault)
    }

    /// Encodes the description with its dependency list, if it has one, else with the sums.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        out.extend_from_slice(&self.uid.0);
        out.push(self.volume.0);
        put_varint(out, self.len);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        for n in [self.min_seq, self.max_seq, self.entries, self.tombstones, self.range_tombstones] {
            put_varint(out, n);
        }
        put_varint(out, self.raw_bytes);
        put_varint(out, self.hidden_bytes);
        out.push(u8::from(self.shared) | u8::from(self.global_seq.is_some()) << 1);
        if let Some(seq) = self.global_seq {
            put_varint(out, seq);
        }
        match self.uses.list() {
            Some(list) => TableReferences::encode_list(list, out),
            None => self.uses.encode_sums(out),
        }
    }

    /// Decodes a description. `has_list`: its references are a list, not sums.
    pub(crate) fn decode(r: &mut Reader<'_>, has_list: bool) -> Result<Self> {
        let mut meta = FileMeta {
            number: r.varint()?,
            uid: Uid(r.array()?),
            volume: Volume(r.u8()?),
            len: r.varint()?,
            smallest: r.bytes()?.to_vec(),
            largest: r.bytes()?.to_vec(),
            min_seq: r.varint()?,
            max_seq: r.varint()?,
            entries: r.varint()?,
            tombstones: r.varint()?,
            range_tombstones: r.varint()?,
            raw_bytes: r.varint()?,
            hidden_bytes: r.varint()?,
            ..FileMeta::default()
        };
        let flags = flags(r, 0b11)?;
        meta.shared = flags & 1 != 0;
        if flags & 2 != 0 {
            meta.global_seq = Some(r.varint()?);
        }
        meta.uses =
            if has_list { TableReferences::decode_list(r)? } else { TableReferences::decode_sums(r)? };
        meta.validate().map_err(damaged)?;
        Ok(meta)
    }
}

/// Expected overwrite frequency of the values of a vSST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VsstClass {
    /// Not classified.
    #[default]
    Mixed = 0,
    /// Keys of which compaction recently dropped versions.
    Hot = 1,
    /// All others.
    Cold = 2,
}

/// Description of a vSST, or of the segment of one large value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VsstMeta {
    /// File number, and its own blob id.
    pub number: u64,
    /// Identity in the file's footer.
    pub uid: Uid,
    /// Volume of the file.
    pub volume: Volume,
    /// Physical length, in bytes.
    pub len: u64,
    /// Bytes of all its records, padding included: the base for its garbage.
    pub record_bytes: u64,
    /// Uncompressed bytes of its values.
    pub raw_bytes: u64,
    /// Number of records.
    pub entries: u64,
    /// Smallest internal key, encoded.
    pub smallest: Vec<u8>,
    /// Largest internal key, encoded.
    pub largest: Vec<u8>,
    /// Smallest sequence.
    pub min_seq: SeqNo,
    /// Largest sequence.
    pub max_seq: SeqNo,
    /// The single sequence of all records of an ingested file.
    pub global_seq: Option<SeqNo>,
    /// Class of its values.
    pub class: VsstClass,
    /// True if the file ever had a second hard link: no holes are punched into it.
    pub shared: bool,
    /// True if it is a segment: the file of one large value.
    pub segment: bool,
    /// Blob ids that it took over from the files it replaced, ascending; without its own.
    pub blob_ids: Vec<BlobId>,
    /// Shared by all copies of this description, in memory only (see [`FileMeta::copies`]).
    pub copies: Arc<()>,
}

/// Overwrite frequency of the values in a vSST, as far as it is known.
///
/// It follows from the class and from whether the file took over blob ids, so a record needs no
/// field for it. A hot file that took over blob ids was written by a collection of hot ones.
/// Releases without warm files read such a file as hot, and collect it with hot ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Written by a flush that classified their keys as hot.
    Hot,
    /// Survivors of a collection of hot files.
    Warm,
    /// All others.
    Cold,
}

impl VsstMeta {
    /// Returns the overwrite frequency of its values.
    pub fn heat(&self) -> Heat {
        match self.class {
            VsstClass::Hot if self.blob_ids.is_empty() => Heat::Hot,
            VsstClass::Hot => Heat::Warm,
            VsstClass::Mixed | VsstClass::Cold => Heat::Cold,
        }
    }

    /// Returns the bytes that the file occupies on disk.
    pub fn occupied_bytes(&self) -> u64 {
        pages(self.len)
    }

    /// Returns true if the file is on the fast tier.
    pub fn is_on_speed_disk(&self) -> bool {
        self.volume == Volume::FAST
    }

    /// Returns the kind of the file, which includes its tier. Segments are always in the directory:
    /// a description with another place is rejected.
    pub fn kind(&self) -> FileKind {
        FileKind::of_values(self.number, self.is_on_speed_disk() && !self.segment)
    }

    /// Checks the invariants of every vSST description.
    ///
    /// # Errors
    /// `InvalidArgument` with the file number and the fault.
    pub fn validate(&self) -> Result<()> {
        let number = self.number;
        let fault = |why: &str| Err(Error::invalid(format!("value file (vSST) {number}: {why}")));
        if number == 0 || number > NUMBER_MAX {
            return fault(&format!("its file number is not 1 to {NUMBER_MAX}"));
        }
        if !key_is_sound(&self.smallest) || !key_is_sound(&self.largest) {
            return fault(&keys_fault(&self.smallest, &self.largest));
        }
        if key::compare(&self.smallest, &self.largest).is_gt() {
            return fault(&format!(
                "its smallest key is above its largest: \"{}\" and \"{}\"",
                key::user_key(&self.smallest).escape_ascii(),
                key::user_key(&self.largest).escape_ascii()
            ));
        }
        if self.min_seq > self.max_seq || self.max_seq > MAX_SEQ || self.global_seq > Some(MAX_SEQ) {
            return fault(&format!(
                "its sequences {} to {} descend, or are over 56 bits",
                self.min_seq, self.max_seq
            ));
        }
        if !self.blob_ids.is_sorted_by(|a, b| a < b) || self.blob_ids.contains(&number) {
            return fault(
                "the numbers of the value files that it replaces are not ascending, or contain its own",
            );
        }
        Ok(())
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        out.extend_from_slice(&self.uid.0);
        out.push(self.volume.0);
        for n in [self.len, self.record_bytes, self.raw_bytes, self.entries] {
            put_varint(out, n);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.min_seq);
        put_varint(out, self.max_seq);
        let flags = [self.shared, self.global_seq.is_some(), self.segment];
        out.push(flags.iter().enumerate().fold(0, |bits, (i, &set)| bits | u8::from(set) << i));
        if let Some(seq) = self.global_seq {
            put_varint(out, seq);
        }
        out.push(self.class as u8);
        put_numbers(out, &self.blob_ids);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut meta = VsstMeta {
            number: r.varint()?,
            uid: Uid(r.array()?),
            volume: Volume(r.u8()?),
            len: r.varint()?,
            record_bytes: r.varint()?,
            raw_bytes: r.varint()?,
            entries: r.varint()?,
            smallest: r.bytes()?.to_vec(),
            largest: r.bytes()?.to_vec(),
            min_seq: r.varint()?,
            max_seq: r.varint()?,
            ..VsstMeta::default()
        };
        let flags = flags(r, 0b111)?;
        meta.shared = flags & 1 != 0;
        if flags & 2 != 0 {
            meta.global_seq = Some(r.varint()?);
        }
        meta.segment = flags & 4 != 0;
        meta.class = match r.u8()? {
            0 => VsstClass::Mixed,
            1 => VsstClass::Hot,
            2 => VsstClass::Cold,
            n => return Err(newer(format!("class {n} of a value file (vSST) in the manifest"))),
        };
        meta.blob_ids = numbers(r)?;
        meta.validate().map_err(damaged)?;
        Ok(meta)
    }
}

fn keys_fault(smallest: &[u8], largest: &[u8]) -> String {
    format!(
        "its smallest key has {} bytes and its largest key {}, not {TRAILER_LEN} to {}",
        smallest.len(),
        largest.len(),
        TRAILER_LEN + limits::KEY_LEN_MAX
    )
}

/// Returns true if `encoded` can be a boundary key: a user key of valid length and a trailer.
fn key_is_sound(encoded: &[u8]) -> bool {
    (TRAILER_LEN..=TRAILER_LEN + limits::KEY_LEN_MAX).contains(&encoded.len())
}
