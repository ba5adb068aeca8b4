//! Creation of a volume.

use crate::compaction::{Encoded, dump_parts, encode_dump};
use crate::device_pairing;
use crate::devices::{Devices, VolumeDevices};
use crate::geometry::{DEVICE_BLOCKS_MAX, Geometry, Role};
use crate::layout::{self, BLOCK, Extent, HEAD_BLOCKS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use crate::meta::Meta;
use crate::op::Op;
use crate::superblock::{
    self, DevicePairing, DeviceRecord, DeviceTable, Superblock, VERSION_OF_ONE, VERSION_OF_TWO,
};
use crate::transaction::Owner;
use base::{Error, ErrorKind, Result, Uid};
use io::{AlignedBuf, BlockDevice, Env};

/// Chooses the allocation sizes of a new LavaFS volume, and whether to overwrite a device in use;
/// the defaults suit a store.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Size by which files grow, in bytes; a multiple of the block size. Default: 1 MiB.
    pub unit_len: u64,
    /// First allocation of a file of unknown length, in bytes. Default: 64 KiB.
    pub small_unit_len: u64,
    /// Size by which the journal grows, in bytes. Default: 1 MiB.
    pub journal_len: u64,
    /// True if the image is sparse: discards return blocks to the host file system. Default: false.
    pub sparse: bool,
    /// If true, overwrites any existing data, for good. Default: false, a device with known data is
    /// refused with `AlreadyExists`.
    pub force: bool,
}

#[cfg(test)]
impl FormatOptions {
    /// Returns the options for volumes of a few hundred blocks.
    pub(crate) fn small() -> FormatOptions {
        let (unit_len, small_unit_len, journal_len) = (8 * BLOCK, 2 * BLOCK, 4 * BLOCK);
        FormatOptions { unit_len, small_unit_len, journal_len, ..FormatOptions::default() }
    }
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            unit_len: 1 << 20,
            small_unit_len: 64 << 10,
            journal_len: 1 << 20,
            sparse: false,
            force: false,
        }
    }
}

/// Signatures of other users of a device: name, offset, bytes.
const SIGNATURES: [(&str, usize, &[u8]); 12] = [
    ("ext2, ext3 or ext4", 1080, b"\x53\xef"),
    ("XFS", 0, b"XFSB"),
    ("btrfs", 65_600, b"_BHRfS_M"),
    ("a swap area", 4086, b"SWAPSPACE2"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LVM", 512, b"LABELONE"),
    ("F2FS", 1024, b"\x10\x20\xf5\xf2"),
    ("NTFS", 3, b"NTFS    "),
    ("ISO 9660", 32_769, b"CD001"),
    ("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("a partition table", 510, b"\x55\xaa"),
];

/// Returns a description of the data at the head of a device, to ask before it is overwritten;
/// `None` if none is known. It only reads.
///
/// # Errors
/// The errors of the device.
pub fn occupant(device: &dyn BlockDevice) -> Result<Option<String>> {
    let len = device.len().min(u64::from(HEAD_BLOCKS) * BLOCK) as usize;
    let mut head = vec![0; len];
    device.read_at(&mut head, 0)?;
    let slots = superblock::Slots::read(device)?;
    if slots.found.iter().any(|slot| !matches!(slot, Err(e) if e.kind() == ErrorKind::NotFound)) {
        return Ok(Some("a LavaFS".to_owned()));
    }
    let known = SIGNATURES.iter().find(|(_, at, bytes)| head.get(*at..at + bytes.len()) == Some(bytes));
    if let Some((name, ..)) = known {
        return Ok(Some((*name).to_owned()));
    }
    Ok(head.iter().any(|&b| b != 0).then(|| "data of an unknown kind".to_owned()))
}

fn blocks(len: u64, what: &str, least: u32) -> Result<u32> {
    let blocks = u32::try_from(len / BLOCK).ok().filter(|&b| b >= least && len.is_multiple_of(BLOCK));
    blocks.ok_or_else(|| {
        Error::invalid(format!(
            "{what} must be a multiple of {BLOCK} bytes, at least {}, not {len} bytes",
            u64::from(least) * BLOCK
        ))
    })
}

/// Creates an empty volume on one device, before its first mount; [`format_on`] is for two devices.
/// All data of the device is lost.
///
/// # Errors
/// * `AlreadyExists`: the device holds data. Choose another one, or set [`FormatOptions::force`].
/// * `InvalidArgument`: a size is invalid; the message names it.
/// * The errors of the device.
pub fn format(env: &Env, device: &dyn BlockDevice, options: &FormatOptions) -> Result<()> {
    let units = Units::of(options)?;
    let blocks = (device.len() / BLOCK).min(VOLUME_BLOCKS_MAX);
    units.check_room(device, blocks, true)?;
    vacate(device, options.force)?;
    let superblock = units.superblock(env, options, |env| DeviceTable {
        records: vec![DeviceRecord { uid: env.new_uid(), blocks }],
        bond: None,
    });
    write_journal(env, device, superblock, &Meta::new(blocks), &[], 0)
}

/// Creates an empty volume on one or two devices: a fast one for the journal and small writes, a
/// large one for other files.
///
/// # Errors
/// The errors of [`format()`].
pub fn format_on(env: &Env, devices: &Devices, options: &FormatOptions) -> Result<()> {
    let Some(second) = &devices.second else { return format(env, &*devices.first, options) };
    let units = Units::of(options)?;
    let blocks = |device: &dyn BlockDevice| (device.len() / BLOCK).min(DEVICE_BLOCKS_MAX);
    let (speed, capacity) = (blocks(&*devices.first), blocks(&**second));
    units.check_room(&*devices.first, speed, true)?;
    units.check_room(&**second, capacity, false)?;
    for device in [&**second, &*devices.first] {
        check_vacant(device, options.force)?;
    }
    for device in [&*devices.first, &**second] {
        vacate(device, true)?;
    }
    let superblock = units.superblock(env, options, |env| DeviceTable {
        records: [speed, capacity].map(|blocks| DeviceRecord { uid: env.new_uid(), blocks }).to_vec(),
        bond: Some(DevicePairing {
            role: Role::Fast,
            session: env.new_uid(),
            previous: Uid::default(),
            mounts: 1,
        }),
    });
    // The superblock that refers to the volume is written last.
    superblock::write(&**second, &device_pairing::of_capacity(&superblock, 1))?;
    let ground = VolumeDevices::two(devices.first.clone(), second.clone());
    write_journal(env, &*ground, superblock, &Meta::new(Geometry::two(speed, capacity)), &[], 0)
}

/// Rejects a device that holds data.
fn check_vacant(device: &dyn BlockDevice, force: bool) -> Result<()> {
    if !force && let Some(name) = occupant(device)? {
        let why = format!(
            "the device has {name}; nothing was changed: name another device, or force the format to overwrite it"
        );
        return Err(Error::new(ErrorKind::AlreadyExists, why).at_file(device.path()));
    }
    Ok(())
}

/// Erases the old head first: a crash in the middle leaves no volume, rather than parts of two.
fn vacate(device: &dyn BlockDevice, force: bool) -> Result<()> {
    check_vacant(device, force)?;
    device.write_durable(AlignedBuf::zeroed((u64::from(HEAD_BLOCKS) * BLOCK) as usize).as_slice(), 0)
}

/// Allocation units, in blocks.
struct Units {
    files: u32,
    small: u32,
    journal: u32,
}

impl Units {
    fn of(options: &FormatOptions) -> Result<Units> {
        Ok(Units {
            files: blocks(options.unit_len, "the allocation unit of files", 1)?,
            small: blocks(options.small_unit_len, "the allocation unit of small files", 1)?,
            journal: blocks(options.journal_len, "the allocation unit of the journal", 4)?,
        })
    }

    /// Rejects a device with too few blocks.
    fn check_room(&self, device: &dyn BlockDevice, blocks: u64, has_journal: bool) -> Result<()> {
        let journal = if has_journal { 8 * u64::from(self.journal) } else { 0 };
        let least = VOLUME_BLOCKS_MIN.max(u64::from(HEAD_BLOCKS) + journal).max(4 * u64::from(self.files));
        let (small, files) = (u64::from(self.small) * BLOCK, u64::from(self.files) * BLOCK);
        let why = if blocks < least {
            let (len, least) = (blocks * BLOCK, least * BLOCK);
            format!(
                "a volume of {len} bytes is too small: with these allocation units it needs {least} bytes"
            )
        } else if small > files {
            format!(
                "the allocation unit of small files, {small} bytes, is above that of files, {files} bytes"
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid(why).at_file(device.path()))
    }

    /// Returns the first superblock, which refers to no dump yet.
    fn superblock(
        &self,
        env: &Env,
        options: &FormatOptions,
        devices: impl FnOnce(&Env) -> DeviceTable,
    ) -> Superblock {
        let (uid, key) = (env.new_uid(), env.new_uid());
        let devices = devices(env);
        Superblock {
            version: if devices.bond.is_some() { VERSION_OF_TWO } else { VERSION_OF_ONE },
            uid,
            generation: 1,
            key,
            unit_blocks: self.files,
            small_unit_blocks: self.small,
            journal_blocks: self.journal,
            sparse: options.sparse,
            checkpoint: 0,
            reached: 0,
            dump: Vec::new(),
            devices,
        }
    }
}

/// Writes the dump of `meta` as the dump of transaction `sequence`, an empty journal after it, and
/// the superblock that refers to the dump. Uses neither blocks of files nor blocks of the current
/// journal, which stays unchanged.
pub(crate) fn write_journal(
    env: &Env,
    device: &dyn BlockDevice,
    superblock: Superblock,
    meta: &Meta,
    in_use: &[Extent],
    sequence: u64,
) -> Result<()> {
    let owner = Owner { uid: superblock.uid, key: superblock.key };
    let mut free = crate::mount::free_map(meta, in_use)?;
    let parts = dump_parts(meta, || {});
    let dump_blocks = parts.iter().map(|p| crate::transaction::blocks_of(p.len())).sum::<u64>() + 1;
    let mut take = |blocks: u64| {
        let taken = free.allocate_any(blocks);
        taken.ok_or_else(|| {
            crate::core::no_space(format!(
                "the journal and the copy (dump) of the metadata need {blocks} free blocks of {BLOCK} \
                 bytes, more than the device has; use a larger device"
            ))
        })
    };
    let mut room: Vec<Extent> = take(2 * dump_blocks).or_else(|_| take(dump_blocks))?;
    if room.len() > superblock::DUMP_EXTENTS_MAX {
        room.extend(take(2 * parts.len() as u64 + 2)?);
    }
    let runs = take(u64::from(superblock.journal_blocks))?;
    let jump = Op::Jump { sequence: sequence + 1, chain: env.entropy.next_u64(), extents: runs };
    let numbers = (sequence, env.entropy.next_u64());
    let Encoded { image, extents, named, .. } = encode_dump(owner, numbers, parts, &jump, &room)?;
    for (now, offset) in layout::cut(&layout::pieces(&extents, 0, image.len() as u64), image.as_slice()) {
        device.write_at(now, offset.expect("a dump has no holes"))?;
    }
    device.sync()?;
    let next = Superblock { reached: sequence, ..superblock.leading_to(sequence, &named, &extents) };
    superblock::write(device, &next)
}
