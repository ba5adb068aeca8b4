//! What the manifest knows of each file, and how that is encoded.
//!
//! All numbers are varints except uids (16 bytes) and flag bytes; byte strings carry their length. The layout is in
//! `docs/format/manifest.md`. Decoding refuses what could not have been written: a file number or sequence out of
//! range, keys without a trailer or out of order, an empty sequence range.

use crate::known::Known;
use crate::uses::Uses;
use base::codec::{Reader, put_bytes, put_varint};
use base::key::{self, TRAILER_LEN};
use base::{Error, MAX_SEQ, Result, SeqNo, Uid, limits};
use std::sync::Arc;
use store::field::{damaged, flags, newer, numbers, put_numbers};
use store::names::FileKind;
use store::numbers::NUMBER_MAX;
use store::volumes::{Volume, pages};

pub use base::Dependency;

/// The number of a column family. Never reused.
pub type FamilyId = u32;
/// The stable logical name of a file of separated values: the number of the vSST that first held them.
pub type BlobId = u64;

/// A kSST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMeta {
    /// File number.
    pub number: u64,
    /// The identity in the file's footer.
    pub uid: Uid,
    /// Which volume holds it.
    pub volume: Volume,
    /// Physical length, bytes.
    pub len: u64,
    /// Smallest internal key, encoded.
    pub smallest: Vec<u8>,
    /// Largest internal key, encoded. The end of a range tombstone is the user key with the sentinel trailer (see
    /// [`FileMeta::largest_is_exclusive`]).
    pub largest: Vec<u8>,
    /// Smallest sequence.
    pub min_seq: SeqNo,
    /// Largest sequence.
    pub max_seq: SeqNo,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Its own uncompressed bytes and those of the values it references.
    pub raw_bytes: u64,
    /// Estimated bytes that its tombstones hide in deeper levels.
    pub hidden_bytes: u64,
    /// The one sequence of all entries of an ingested file.
    pub global_seq: Option<SeqNo>,
    /// True if the file ever had a second hard link: it is then never changed in place (no hole punching).
    pub shared: bool,
    /// What it references.
    pub uses: Uses,
    /// Facts about its entries that the manifest does not hold.
    pub known: Known,
    /// Shared by all copies of this description, in memory only. An edit that moves or marks a file copies its
    /// description, and readers of older versions hold the older copy: the file is in use while there is any.
    pub copies: Arc<()>,
}

/// The trailer word that sorts before every entry of its user key: as the largest key of a file it is exclusive.
const SENTINEL_TRAILER: u64 = u64::MAX;

impl FileMeta {
    /// Which file it is: its name says on which disk.
    pub fn kind(&self) -> FileKind {
        FileKind::of_table(self.number, self.volume == Volume::SPEED)
    }

    /// What the tree would hold for this file if no value were separated and every tombstone had its room.
    pub fn compensated(&self) -> u64 {
        self.raw_bytes.saturating_add(self.hidden_bytes)
    }

    /// The smallest user key.
    pub fn smallest_user_key(&self) -> &[u8] {
        key::user_key(&self.smallest)
    }

    /// The largest user key; not itself covered if [`FileMeta::largest_is_exclusive`].
    pub fn largest_user_key(&self) -> &[u8] {
        key::user_key(&self.largest)
    }

    /// True if the file ends with a range tombstone whose end is the largest user key: the file covers keys below it,
    /// not the key itself, and the next file of the level may start there.
    pub fn largest_is_exclusive(&self) -> bool {
        key::split(&self.largest).1 == SENTINEL_TRAILER
    }

    /// True if every user key of the file is below `user_key`.
    pub fn ends_before(&self, user_key: &[u8]) -> bool {
        let largest = self.largest_user_key();
        largest < user_key || (largest == user_key && self.largest_is_exclusive())
    }

    /// True if every user key of the file is above `user_key`.
    pub fn starts_after(&self, user_key: &[u8]) -> bool {
        self.smallest_user_key() > user_key
    }

    /// True if the file's range of user keys contains `user_key`.
    pub fn covers(&self, user_key: &[u8]) -> bool {
        !self.starts_after(user_key) && !self.ends_before(user_key)
    }

    /// True if the two files' ranges of user keys meet.
    pub fn overlaps(&self, other: &FileMeta) -> bool {
        !self.ends_before(other.smallest_user_key()) && !other.ends_before(self.smallest_user_key())
    }

    /// The sequences that its entries have for readers, smallest and largest.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        self.global_seq.map_or((self.min_seq, self.max_seq), |g| (g, g))
    }

    /// Checks what must hold of every file, whoever describes it.
    ///
    /// # Errors
    /// `InvalidArgument` that names the file number and the fault.
    pub fn validate(&self) -> Result<()> {
        let number = self.number;
        let fault = |why: &str| Err(Error::invalid(format!("table {number}: {why}")));
        if number == 0 || number > NUMBER_MAX {
            return fault("its file number is out of range");
        }
        if !key_is_sound(&self.smallest) || !key_is_sound(&self.largest) {
            return fault("a boundary key is too long or has no trailer");
        }
        if key::compare(&self.smallest, &self.largest).is_gt() {
            return fault("its smallest key is above its largest");
        }
        // Two such files could lie at one place of a level.
        if self.ends_before(self.smallest_user_key()) {
            return fault("it covers no key");
        }
        if self.min_seq > self.max_seq || self.max_seq > MAX_SEQ || self.global_seq > Some(MAX_SEQ) {
            return fault("its sequences are out of range");
        }
        self.uses.fault().map_or(Ok(()), fault)
    }

    /// With the list of what it references, if that is here, else with the sums.
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
            Some(list) => Uses::encode_list(list, out),
            None => self.uses.encode_sums(out),
        }
    }

    /// `has_list`: what it references is a list, not sums.
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
        meta.uses = if has_list { Uses::decode_list(r)? } else { Uses::decode_sums(r)? };
        meta.validate().map_err(damaged)?;
        Ok(meta)
    }
}

/// How often the values of a vSST are expected to be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VsstClass {
    /// Not classified.
    #[default]
    Mixed = 0,
    /// Keys that compaction dropped lately.
    Hot = 1,
    /// All others.
    Cold = 2,
}

/// A vSST, or the segment of one large value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VsstMeta {
    /// File number, and its own blob id.
    pub number: u64,
    /// The identity in the file's footer.
    pub uid: Uid,
    /// Which volume holds it.
    pub volume: Volume,
    /// Physical length, bytes.
    pub len: u64,
    /// Bytes of all its records, padding included: what its garbage is measured against.
    pub record_bytes: u64,
    /// Bytes of its values, uncompressed.
    pub raw_bytes: u64,
    /// Records.
    pub entries: u64,
    /// Smallest internal key, encoded.
    pub smallest: Vec<u8>,
    /// Largest internal key, encoded.
    pub largest: Vec<u8>,
    /// Smallest sequence.
    pub min_seq: SeqNo,
    /// Largest sequence.
    pub max_seq: SeqNo,
    /// The one sequence of all records of an ingested file.
    pub global_seq: Option<SeqNo>,
    /// Hot or cold.
    pub class: VsstClass,
    /// True if the file ever had a second hard link: no holes are punched into it.
    pub shared: bool,
    /// True if it is a segment: the file of one large value.
    pub segment: bool,
    /// Blob ids it took over from the files it replaced, ascending; without its own.
    pub blob_ids: Vec<BlobId>,
    /// Shared by all copies of this description, in memory only (see [`FileMeta::copies`]).
    pub copies: Arc<()>,
}

/// How often the values in a vSST are overwritten, as far as is known.
///
/// It follows from the class and from whether the file took over names, so a record needs no field for it: a hot file that took over names was written by a
/// collection of hot ones. Releases that know of no warm files read such a file as hot, and collect it with those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Written by a flush that took their keys for hot.
    Hot,
    /// They survived the collection of files that were hot.
    Warm,
    /// All others.
    Cold,
}

impl VsstMeta {
    /// How often what it holds is overwritten.
    pub fn heat(&self) -> Heat {
        match self.class {
            VsstClass::Hot if self.blob_ids.is_empty() => Heat::Hot,
            VsstClass::Hot => Heat::Warm,
            VsstClass::Mixed | VsstClass::Cold => Heat::Cold,
        }
    }

    /// What its file occupies.
    pub fn occupied_bytes(&self) -> u64 {
        pages(self.len)
    }

    /// True if the speed disk has it.
    pub fn is_on_speed_disk(&self) -> bool {
        self.volume == Volume::SPEED
    }

    /// Which file it is: its name says on which disk. Segments are in the directory: one that is said to be elsewhere is refused.
    pub fn kind(&self) -> FileKind {
        FileKind::of_values(self.number, self.is_on_speed_disk() && !self.segment)
    }

    /// Checks what must hold of every vSST, whoever describes it.
    ///
    /// # Errors
    /// `InvalidArgument` that names the file number and the fault.
    pub fn validate(&self) -> Result<()> {
        let number = self.number;
        let fault = |why: &str| Err(Error::invalid(format!("vSST {number}: {why}")));
        if number == 0 || number > NUMBER_MAX {
            return fault("its file number is out of range");
        }
        if !key_is_sound(&self.smallest) || !key_is_sound(&self.largest) {
            return fault("a boundary key is too long or has no trailer");
        }
        if key::compare(&self.smallest, &self.largest).is_gt() {
            return fault("its smallest key is above its largest");
        }
        if self.min_seq > self.max_seq || self.max_seq > MAX_SEQ || self.global_seq > Some(MAX_SEQ) {
            return fault("its sequences are out of range");
        }
        if !self.blob_ids.is_sorted_by(|a, b| a < b) || self.blob_ids.contains(&number) {
            return fault("the blob ids it took over are not ascending, or name the file itself");
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
            n => return Err(newer(format!("vSST class {n}"))),
        };
        meta.blob_ids = numbers(r)?;
        meta.validate().map_err(damaged)?;
        Ok(meta)
    }
}

/// True if `encoded` can be a boundary key: a user key of legal length and a trailer.
fn key_is_sound(encoded: &[u8]) -> bool {
    (TRAILER_LEN..=TRAILER_LEN + limits::KEY_LEN_MAX).contains(&encoded.len())
}
