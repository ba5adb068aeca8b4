//! The superblock: what the volume is, and where its journal begins.
//!
//! One block, kept twice. Each change gives it a higher generation and writes both slots, one after the other and each
//! durably; only then may anything that the older one led to be overwritten. So the higher of the intact generations is
//! always right, and either slot alone leads to all that was ever acknowledged.
//!
//! `reached` is the number of a transaction that is durable: a journal that ends before it was damaged.
//!
//! On a volume of two devices both have slots. Those of the speed device are the superblock; those of the capacity device say which volume it
//! belongs to, and lead nowhere. Each says which device holds it, who the other one is, and by the session of the last mount
//! whether both are of the same time (`bond`).
//!
//! The byte map is in `docs/format/lavafs.md`.

use crate::geometry::{DEVICE_BLOCKS_MAX, Geometry, Role};
use crate::layout::{BLOCK, Extent, HEAD_BLOCKS, SLOTS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use base::codec::{Reader, put_u32, put_u64};
use base::{Error, ErrorKind, Result, Uid, checksum};
use io::{AlignedBuf, BlockDevice};

/// The first bytes of a slot.
pub const MAGIC: [u8; 8] = *b"LAVAFS\r\n";
/// The newest version of the format, that of volumes of two devices. This release reads and writes those before, too, and leaves them what
/// they are.
pub const VERSION: u32 = 3;
/// The version of a volume of one device that this release makes.
pub const VERSION_OF_ONE: u32 = 2;
/// The version of all volumes of two devices, and of no other.
pub const VERSION_OF_TWO: u32 = 3;
/// The first version whose journal may hold claims.
pub const VERSION_WITH_CLAIMS: u32 = 2;
/// The first version whose dump may be in more runs than the superblock names; an older volume that needs that becomes one
/// of this version.
pub const VERSION_WITH_CHAINS: u32 = 2;
/// Runs of blocks that the dump of metadata may consist of.
pub const DUMP_EXTENTS_MAX: usize = 64;
/// Devices that the format has room for.
pub const DEVICES_MAX: usize = 2;

/// The image gives discarded blocks back.
const FLAG_SPARSE: u32 = 1;
const CHECKSUM_AT: usize = 12;
/// Behind the longest list of runs.
const BOND_AT: usize = 704;

/// A device of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// Its identity.
    pub uid: Uid,
    /// Its size.
    pub blocks: u64,
}

/// What holds two devices together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bond {
    /// What the device is that holds this slot.
    pub role: Role,
    /// Drawn at the last mount that wrote.
    pub session: Uid,
    /// The one before.
    pub previous: Uid,
    /// How many there have been.
    pub mounts: u64,
}

/// The devices of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTable {
    /// The one, or the speed device and the capacity device.
    pub records: Vec<DeviceRecord>,
    /// Of two.
    pub bond: Option<Bond>,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of the format.
    pub version: u32,
    /// The identity of the volume.
    pub uid: Uid,
    /// Counts changes of the superblock.
    pub generation: u64,
    /// What file stamps and the checksums of the journal are masked with: random, and known to nobody who writes files.
    pub key: Uid,
    /// Blocks in which files grow.
    pub unit_blocks: u32,
    /// Blocks of the first allocation of a file of unknown length.
    pub small_unit_blocks: u32,
    /// Blocks in which the journal grows.
    pub journal_blocks: u32,
    /// The image was made without writing it once: bit 0 of the flags.
    pub sparse: bool,
    /// The transaction that the dump stands for.
    pub checkpoint: u64,
    /// A transaction that is durable.
    pub reached: u64,
    /// Where the dump of metadata is; nowhere in the slots of a capacity device.
    pub dump: Vec<Extent>,
    /// The devices.
    pub devices: DeviceTable,
}

impl Superblock {
    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.geometry().blocks()
    }

    /// Blocks of one of its devices.
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

    /// The same volume with a dump as of transaction `sequence` in the runs `extents`, of which the superblock names `named`.
    /// A volume that needs more runs than are named is one of a version that knows that.
    pub(crate) fn leading_to(&self, sequence: u64, named: &[Extent], extents: &[Extent]) -> Superblock {
        let least = if named.len() < extents.len() { VERSION_WITH_CHAINS } else { 0 };
        Superblock {
            version: self.version.max(least),
            checkpoint: sequence,
            dump: named.to_vec(),
            ..self.clone()
        }
    }

    /// The bytes of slot 0 or 1.
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

    /// Reads the bytes of a slot.
    ///
    /// # Errors
    /// `NotFound` if there is no superblock, `Unsupported` if a newer release wrote it, `Corruption`.
    pub fn decode(bytes: &[u8], slot: usize) -> Result<Superblock> {
        let mut r = Reader::new(bytes);
        if r.array::<8>()? != MAGIC {
            return Err(Error::not_found("there is no LavaFS on it"));
        }
        let version = r.u32()?;
        let stored = r.u32()?;
        let uid = Uid(r.array()?);
        let mut payload = bytes.to_vec();
        if let Some(field) = payload.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
            field.fill(0);
        }
        if bytes.len() != BLOCK as usize {
            return Err(Error::corruption(format!("a superblock of {} bytes", bytes.len())));
        }
        checksum::verify(&payload, uid, slot_offset(slot), stored)?;
        if version == 0 || version > VERSION {
            let why = format!(
                "the volume has format {version}, this release reads those up to {VERSION}: use a newer one"
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
            let why = format!("the volume has blocks of {block} bytes, this release reads {BLOCK}");
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
            return Err(Error::corruption(format!("a volume of {device_count} devices")));
        }
        if (device_count == 2) != (version >= VERSION_OF_TWO) {
            let why = format!("a volume of format {version} with {device_count} devices");
            return Err(Error::corruption(why));
        }
        records.truncate(device_count);
        let (checkpoint, reached) = (r.u64()?, r.u64()?);
        let extent_count = r.u32()? as usize;
        if extent_count > DUMP_EXTENTS_MAX {
            return Err(Error::corruption(format!("a dump of {extent_count} runs of blocks")));
        }
        let mut dump = Vec::new();
        for _ in 0..extent_count {
            dump.push(Extent::new(r.u32()?, r.u32()?));
        }
        let sparse = flags & FLAG_SPARSE != 0;
        let bond = if device_count == 2 { Some(Bond::decode(bytes)?) } else { None };
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
                return Err(Error::corruption(format!("a volume of {blocks} blocks")));
            }
        }
        let blocks = geometry.blocks();
        let units = [self.unit_blocks, self.small_unit_blocks, self.journal_blocks];
        if units.iter().any(|&u| u == 0 || u64::from(u) > blocks) || self.small_unit_blocks > self.unit_blocks
        {
            return Err(Error::corruption("units of allocation that do not fit the volume"));
        }
        let leads = self.devices.bond.is_none_or(|bond| bond.role == Role::Speed);
        if self.dump.is_empty() == leads || self.generation == 0 || self.reached >= u64::MAX / 2 {
            return Err(Error::corruption("a superblock that no release writes"));
        }
        self.dump.iter().try_for_each(|&e| geometry.check(e))
    }
}

impl Bond {
    fn encode(&self, out: &mut Vec<u8>) {
        out.resize(BOND_AT, 0);
        put_u32(out, self.role as u32);
        out.extend_from_slice(&self.session.0);
        out.extend_from_slice(&self.previous.0);
        put_u64(out, self.mounts);
    }

    /// From the bytes of a slot.
    fn decode(bytes: &[u8]) -> Result<Bond> {
        let mut r = Reader::new(bytes.get(BOND_AT..).unwrap_or_default());
        let role = match r.u32()? {
            0 => Role::Speed,
            1 => Role::Capacity,
            n => return Err(Error::corruption(format!("a device of the unknown role {n}"))),
        };
        Ok(Bond { role, session: Uid(r.array()?), previous: Uid(r.array()?), mounts: r.u64()? })
    }
}

fn slot_offset(slot: usize) -> u64 {
    u64::from(SLOTS[slot]) * BLOCK
}

/// The slots of a device as they were found.
#[derive(Debug)]
pub struct Slots {
    /// What each holds, or why it cannot be read.
    pub found: [Result<Superblock>; 2],
}

impl Slots {
    /// Reads both.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(device: &dyn BlockDevice) -> Result<Slots> {
        let none = || Err(Error::not_found("the device is too small for a LavaFS").at_file(device.path()));
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

    /// Refuses a device on which neither slot has ever been one.
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

    /// The one that counts, and whether the other says the same.
    ///
    /// # Errors
    /// If neither can be read: the more telling of the two reasons.
    pub fn choose(self) -> Result<(Superblock, bool)> {
        match self.found {
            [Ok(a), Ok(b)] if a.uid != b.uid => Err(Error::corruption(
                "the two slots of the superblock belong to different volumes; run fsck to choose one",
            )),
            [Ok(a), Ok(b)] => {
                let same = a == b;
                Ok((if a.generation >= b.generation { a } else { b }, same))
            }
            [Ok(one), Err(other)] | [Err(other), Ok(one)] => match other.kind() {
                // The slot that is not understood may be the newer one.
                ErrorKind::Unsupported => Err(other),
                _ => Ok((one, false)),
            },
            [Err(a), Err(b)] => Err(if a.kind() == ErrorKind::NotFound { b } else { a }),
        }
    }
}

/// Writes both slots, one after the other, each durably.
///
/// # Errors
/// Those of the device. The second slot is as it was if the first could not be written.
pub fn write(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    (0..SLOTS.len()).try_for_each(|slot| write_slot(device, superblock, slot))
}

/// Makes the slots say the same again: first the one that does not say what counts is written, then the other, which a
/// write that failed may have left in the cache of the device only.
///
/// # Errors
/// Those of the device.
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
