//! Superblock: the identity of the volume and the start of its journal.
//!
//! The superblock is one block, stored twice. Each change increments the generation and writes both
//! slots, one after the other, each durably. Only then may blocks referenced by the older
//! superblock be overwritten. Therefore the intact slot with the higher generation is always valid.
//! Either slot alone leads to all acknowledged changes.
//!
//! `reached` is the number of a durable transaction: a journal that ends before it is damaged.
//!
//! On a two-device volume, both devices have slots. The slots of the speed device are the
//! superblock. The slots of the capacity device name their volume, and refer to no dump. Each slot
//! names its device and the other device. The session of the last mount shows whether both devices
//! are of the same time (`device_pairing`).
//!
//! `docs/format/lavafs.md` has the byte layout.

use crate::geometry::{DEVICE_BLOCKS_MAX, Geometry, Role};
use crate::layout::{BLOCK, Extent, HEAD_BLOCKS, SLOTS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use base::codec::{Reader, put_u32, put_u64};
use base::{Error, ErrorKind, Result, Uid, checksum};
use io::{AlignedBuf, BlockDevice};

/// Remedy of a volume without a readable superblock.
const NO_SUPERBLOCK: &str = "nothing was changed; `lava fs fsck --repair` cannot restore it without one good copy: restore a copy of the device, or run `lava fs mkfs --force` and restore a backup";

/// First bytes of a slot.
pub const MAGIC: [u8; 8] = *b"LAVAFS\r\n";
/// Newest version of the format, used by volumes of two devices. This release also reads and writes
/// earlier versions, without an upgrade.
pub const VERSION: u32 = 3;
/// Version of the one-device volumes made by this release.
pub const VERSION_OF_ONE: u32 = 2;
/// Version of all two-device volumes, and of no other volume.
pub const VERSION_OF_TWO: u32 = 3;
/// First version whose journal may hold claims.
pub const VERSION_WITH_CLAIMS: u32 = 2;
/// First version whose dump may have more extents than the superblock names. An older volume that
/// needs this becomes a volume of this version.
pub const VERSION_WITH_CHAINS: u32 = 2;
/// Maximum number of dump extents in the superblock.
pub const DUMP_EXTENTS_MAX: usize = 64;
/// Maximum number of devices in the format.
pub const DEVICES_MAX: usize = 2;

/// Flag of a sparse image, where discards return blocks to the host file system.
const FLAG_SPARSE: u32 = 1;
const CHECKSUM_AT: usize = 12;
/// Offset of the bond, after the longest extent list.
const BOND_AT: usize = 704;

/// A device of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// Identity.
    pub uid: Uid,
    /// Size, in blocks.
    pub blocks: u64,
}

/// Pairing of two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePairing {
    /// Role of the device that holds this slot.
    pub role: Role,
    /// Session, drawn at the last writable mount.
    pub session: Uid,
    /// Previous session.
    pub previous: Uid,
    /// Number of writable mounts.
    pub mounts: u64,
}

/// The devices of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTable {
    /// The only device, or the speed device and the capacity device.
    pub records: Vec<DeviceRecord>,
    /// Pairing of two devices.
    pub bond: Option<DevicePairing>,
}

/// Contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Version of the format.
    pub version: u32,
    /// Identity of the volume.
    pub uid: Uid,
    /// Number of superblock changes.
    pub generation: u64,
    /// Random key that masks the file stamps and the journal checksums. File writers do not know
    /// it.
    pub key: Uid,
    /// Allocation unit of files, in blocks.
    pub unit_blocks: u32,
    /// First allocation of a file of unknown length, in blocks.
    pub small_unit_blocks: u32,
    /// Allocation unit of the journal, in blocks.
    pub journal_blocks: u32,
    /// True if the image was created sparse, without writing all its blocks; bit 0 of the flags.
    pub sparse: bool,
    /// Transaction up to which the dump includes all changes.
    pub checkpoint: u64,
    /// Number of a durable transaction.
    pub reached: u64,
    /// Extents of the metadata dump; empty in the slots of a capacity device.
    pub dump: Vec<Extent>,
    /// The devices.
    pub devices: DeviceTable,
}

impl Superblock {
    /// Returns the number of blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.geometry().blocks()
    }

    /// Returns the number of blocks of one device.
    pub fn blocks_of(&self, role: Role) -> u64 {
        self.geometry().blocks_of(role)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        match self.devices.records[..] {
            [] => Geometry::from(0),
            [one] => Geometry::from(one.blocks),
            [speed, capacity, ..] => Geometry::two(speed.blocks, capacity.blocks),
        }
    }

    /// Returns the superblock for a dump as of transaction `sequence` in `extents`, of which it
    /// names `named`. If the dump needs more extents than `named`, the version is at least
    /// [`VERSION_WITH_CHAINS`].
    pub(crate) fn leading_to(&self, sequence: u64, named: &[Extent], extents: &[Extent]) -> Superblock {
        let least = if named.len() < extents.len() { VERSION_WITH_CHAINS } else { 0 };
        Superblock {
            version: self.version.max(least),
            checkpoint: sequence,
            dump: named.to_vec(),
            ..self.clone()
        }
    }

    /// Encodes slot 0 or 1.
    pub fn encode(&self, slot: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK as usize);
        out.extend_from_slice(&MAGIC);
        put_u32(&mut out, self.version);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.uid.0);
        put_u64(&mut out, self.generation);
        out.extend_from_slice(&self.key.0);
        put_u32(&mut out, BLOCK as u32);
        put_u32(&mut out, self.unit_blocks);
        put_u32(&mut out, self.small_unit_blocks);
        put_u32(&mut out, self.journal_blocks);
        put_u32(&mut out, if self.sparse { FLAG_SPARSE } else { 0 });
        put_u32(&mut out, self.devices.records.len() as u32);
        for n in 0..DEVICES_MAX {
            let none = DeviceRecord { uid: Uid::default(), blocks: 0 };
            let device = self.devices.records.get(n).copied().unwrap_or(none);
            out.extend_from_slice(&device.uid.0);
            put_u64(&mut out, device.blocks);
        }
        put_u64(&mut out, self.checkpoint);
        put_u64(&mut out, self.reached);
        put_u32(&mut out, self.dump.len() as u32);
        for extent in &self.dump {
            put_u32(&mut out, extent.start);
            put_u32(&mut out, extent.blocks);
        }
        assert!(self.dump.len() <= DUMP_EXTENTS_MAX && out.len() <= BOND_AT, "a superblock fits its block");
        if let Some(bond) = &self.devices.bond {
            bond.encode(&mut out);
        }
        out.resize(BLOCK as usize, 0);
        let sum = checksum::stored(&out, self.uid, slot_offset(slot));
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes a slot.
    ///
    /// # Errors
    /// `NotFound` if there is no superblock, `Unsupported` if a newer release wrote it,
    /// `Corruption`.
    pub fn decode(bytes: &[u8], slot: usize) -> Result<Superblock> {
        let mut r = Reader::new(bytes);
        if r.array::<8>()? != MAGIC {
            return Err(Error::not_found(
                "the device has no LavaFS: name another device, or format this one (`lava fs mkfs`), which erases it",
            ));
        }
        let version = r.u32()?;
        let stored = r.u32()?;
        let uid = Uid(r.array()?);
        let mut payload = bytes.to_vec();
        if let Some(field) = payload.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
            field.fill(0);
        }
        if bytes.len() != BLOCK as usize {
            return Err(Error::corruption(format!(
                "the superblock has {} bytes instead of {BLOCK}",
                bytes.len()
            )));
        }
        checksum::verify(&payload, uid, slot_offset(slot), stored)?;
        if version == 0 || version > VERSION {
            let why = format!(
                "the volume has format {version}, but this release reads formats up to {VERSION}: use a newer release"
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let found = Self::decode_fields(&mut r, bytes, (version, uid))?;
        found.check()?;
        Ok(found)
    }

    fn decode_fields(r: &mut Reader<'_>, bytes: &[u8], (version, uid): (u32, Uid)) -> Result<Superblock> {
        let generation = r.u64()?;
        let key = Uid(r.array()?);
        let block = r.u32()?;
        if u64::from(block) != BLOCK {
            let why = format!(
                "the volume has blocks of {block} bytes, but this release reads {BLOCK}: use another release"
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let (unit_blocks, small_unit_blocks, journal_blocks) = (r.u32()?, r.u32()?, r.u32()?);
        let flags = r.u32()?;
        let device_count = r.u32()? as usize;
        let mut records = Vec::new();
        for _ in 0..DEVICES_MAX {
            records.push(DeviceRecord { uid: Uid(r.array()?), blocks: r.u64()? });
        }
        if device_count == 0 || device_count > DEVICES_MAX {
            return Err(Error::corruption(format!(
                "the superblock names {device_count} devices instead of 1 to {DEVICES_MAX}"
            )));
        }
        if (device_count == 2) != (version >= VERSION_OF_TWO) {
            let why =
                format!("the superblock has format {version}, which does not fit its {device_count} devices");
            return Err(Error::corruption(why));
        }
        records.truncate(device_count);
        let (checkpoint, reached) = (r.u64()?, r.u64()?);
        let extent_count = r.u32()? as usize;
        if extent_count > DUMP_EXTENTS_MAX {
            return Err(Error::corruption(format!(
                "the superblock has {extent_count} extents of the metadata dump, over the limit of \
                 {DUMP_EXTENTS_MAX}"
            )));
        }
        let mut dump = Vec::new();
        for _ in 0..extent_count {
            dump.push(Extent::new(r.u32()?, r.u32()?));
        }
        let sparse = flags & FLAG_SPARSE != 0;
        let bond = if device_count == 2 { Some(DevicePairing::decode(bytes)?) } else { None };
        let devices = DeviceTable { records, bond };
        Ok(Superblock {
            version,
            uid,
            generation,
            key,
            unit_blocks,
            small_unit_blocks,
            journal_blocks,
            sparse,
            checkpoint,
            reached,
            dump,
            devices,
        })
    }

    fn check(&self) -> Result<()> {
        let geometry = self.geometry();
        let most = if geometry.is_two() { DEVICE_BLOCKS_MAX } else { VOLUME_BLOCKS_MAX };
        for blocks in self.devices.records.iter().map(|device| device.blocks) {
            if !(VOLUME_BLOCKS_MIN..=most).contains(&blocks) {
                return Err(Error::corruption(format!(
                    "the superblock gives a device {blocks} blocks of {BLOCK} bytes, outside the range of \
                     {VOLUME_BLOCKS_MIN} to {most} blocks"
                )));
            }
        }
        let blocks = geometry.blocks();
        let units = [self.unit_blocks, self.small_unit_blocks, self.journal_blocks];
        if units.iter().any(|&u| u == 0 || u64::from(u) > blocks) || self.small_unit_blocks > self.unit_blocks
        {
            return Err(Error::corruption(format!(
                "the allocation units in the superblock ({} blocks for files, {} for small files, {} for the \
                 journal) do not fit a volume of {blocks} blocks",
                self.unit_blocks, self.small_unit_blocks, self.journal_blocks
            )));
        }
        let leads = self.devices.bond.is_none_or(|bond| bond.role == Role::Fast);
        if self.dump.is_empty() == leads || self.generation == 0 || self.reached >= u64::MAX / 2 {
            return Err(Error::corruption(format!(
                "the superblock has impossible fields: {} extents of the metadata dump (0 on a capacity device \
                 only), generation {} (1 or more), last transaction {} (below 2^63)",
                self.dump.len(),
                self.generation,
                self.reached
            )));
        }
        self.dump.iter().try_for_each(|&e| geometry.check(e))
    }
}

impl DevicePairing {
    fn encode(&self, out: &mut Vec<u8>) {
        out.resize(BOND_AT, 0);
        put_u32(out, self.role as u32);
        out.extend_from_slice(&self.session.0);
        out.extend_from_slice(&self.previous.0);
        put_u64(out, self.mounts);
    }

    /// Decodes the bond in a slot.
    fn decode(bytes: &[u8]) -> Result<DevicePairing> {
        let mut r = Reader::new(bytes.get(BOND_AT..).unwrap_or_default());
        let role = match r.u32()? {
            0 => Role::Fast,
            1 => Role::Capacity,
            n => {
                return Err(Error::corruption(format!(
                    "the superblock has the unknown device role {n} (0 is speed, 1 is capacity)"
                )));
            }
        };
        Ok(DevicePairing { role, session: Uid(r.array()?), previous: Uid(r.array()?), mounts: r.u64()? })
    }
}

fn slot_offset(slot: usize) -> u64 {
    u64::from(SLOTS[slot]) * BLOCK
}

/// Slots of a device as read.
#[derive(Debug)]
pub struct Slots {
    /// Contents of each slot, or the error of reading it.
    pub found: [Result<Superblock>; 2],
}

impl Slots {
    /// Reads both slots.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(device: &dyn BlockDevice) -> Result<Slots> {
        let none = || {
            let why = format!(
                "the device of {} bytes is too small for a LavaFS, which needs over {} bytes: use a larger one",
                device.len(),
                u64::from(HEAD_BLOCKS) * BLOCK
            );
            Err(Error::not_found(why).at_file(device.path()))
        };
        let mut found = [none(), none()];
        if device.len() < u64::from(HEAD_BLOCKS) * BLOCK {
            return Ok(Slots { found });
        }
        for (slot, result) in found.iter_mut().enumerate() {
            let mut bytes = vec![0; BLOCK as usize];
            device.read_at(&mut bytes, slot_offset(slot))?;
            *result = Superblock::decode(&bytes, slot).map_err(|e| e.at_file(device.path())).map_err(|e| {
                match e.kind() {
                    ErrorKind::NotFound => e,
                    _ => e.at_offset(slot_offset(slot)),
                }
            });
        }
        Ok(Slots { found })
    }

    /// Rejects a device whose slots both hold no superblock.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn require_one(&self, device: &dyn BlockDevice) -> Result<()> {
        let absent = |e: &Error| e.kind() == ErrorKind::NotFound;
        match &self.found {
            [Err(e), Err(other)] if absent(e) && absent(other) => Err(e.clone().at_file(device.path())),
            _ => Ok(()),
        }
    }

    /// Returns the valid slot, and whether the other slot is equal.
    ///
    /// # Errors
    /// The more informative of the two errors if neither slot is readable; `Corruption` if the
    /// slots belong to different volumes; `Unsupported` if a newer release wrote a slot.
    pub fn choose(self) -> Result<(Superblock, bool)> {
        match self.found {
            [Ok(a), Ok(b)] if a.uid != b.uid => {
                Err(Error::corruption("the two copies of the superblock belong to different volumes")
                    .with_remedy(NO_SUPERBLOCK))
            }
            [Ok(a), Ok(b)] => {
                let same = a == b;
                Ok((if a.generation >= b.generation { a } else { b }, same))
            }
            [Ok(one), Err(other)] | [Err(other), Ok(one)] => match other.kind() {
                // The unsupported slot may be the newer one.
                ErrorKind::Unsupported => Err(other),
                _ => Ok((one, false)),
            },
            [Err(a), Err(b)] => {
                let e = if a.kind() == ErrorKind::NotFound { b } else { a };
                Err(match e.is_corruption() {
                    true => {
                        e.context("the superblock cannot be read from either copy").with_remedy(NO_SUPERBLOCK)
                    }
                    false => e,
                })
            }
        }
    }
}

/// Writes both slots, one after the other, each durably.
///
/// # Errors
/// The errors of the device. The second slot is unchanged if the write of the first one failed.
pub fn write(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    (0..SLOTS.len()).try_for_each(|slot| write_slot(device, superblock, slot))
}

/// Makes both slots equal again. First rewrites slots that differ from `superblock`, then the
/// others, whose contents may exist only in the device cache after a failed write.
///
/// # Errors
/// The errors of the device.
pub fn heal(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let found = Slots::read(device)?.found;
    let says = |slot: &usize| found.get(*slot).is_some_and(|f| f.as_ref().ok() == Some(superblock));
    let (sound, other): (Vec<usize>, Vec<usize>) = (0..SLOTS.len()).partition(says);
    other.into_iter().chain(sound).try_for_each(|slot| write_slot(device, superblock, slot))
}

fn write_slot(device: &dyn BlockDevice, superblock: &Superblock, slot: usize) -> Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    block.as_mut_slice().copy_from_slice(&superblock.encode(slot));
    device.write_durable(block.as_slice(), slot_offset(slot))
}

#[cfg(test)]
mod tests;
