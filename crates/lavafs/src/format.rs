//! Making a volume.

use crate::compaction::{Encoded, dump_parts, encode_dump};
use crate::layout::{self, BLOCK, Extent, HEAD_BLOCKS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use crate::meta::Meta;
use crate::op::Op;
use crate::superblock::{self, DeviceRecord, Superblock};
use crate::transaction::Owner;
use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, BlockDevice, Env};

/// How a volume is made.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Bytes by which files grow: whole blocks.
    pub unit_len: u64,
    /// Bytes of the first allocation of a file of unknown length.
    pub small_unit_len: u64,
    /// Bytes by which the journal grows.
    pub journal_len: u64,
    /// The image is sparse: discarded blocks are given back.
    pub sparse: bool,
    /// Make it whatever is there.
    pub force: bool,
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

/// Signatures by which other users of a device are told: name, offset, bytes.
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

/// What is at the head of a device, if anything.
///
/// # Errors
/// Those of the device.
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
            "{what} takes whole blocks of {BLOCK} bytes, at least {least}, not {len} bytes"
        ))
    })
}

/// Makes an empty volume on a device.
///
/// # Errors
/// `AlreadyExists` if something is there already; `InvalidArgument` for sizes that do not fit; those of the device.
pub fn format(env: &Env, device: &dyn BlockDevice, options: &FormatOptions) -> Result<()> {
    let volume_blocks = (device.len() / BLOCK).min(VOLUME_BLOCKS_MAX);
    let unit_blocks = blocks(options.unit_len, "the unit of files", 1)?;
    let small_unit_blocks = blocks(options.small_unit_len, "the small unit", 1)?;
    let journal_blocks = blocks(options.journal_len, "the unit of the journal", 4)?;
    let least = VOLUME_BLOCKS_MIN.max(u64::from(HEAD_BLOCKS) + 8 * u64::from(journal_blocks));
    if volume_blocks < least || small_unit_blocks > unit_blocks || u64::from(unit_blocks) > volume_blocks / 4
    {
        let why = format!(
            "a volume of {} bytes is too small for these units; it needs {} bytes at least",
            volume_blocks * BLOCK,
            least.max(4 * u64::from(unit_blocks)) * BLOCK
        );
        return Err(Error::invalid(why).at_file(device.path()));
    }
    if !options.force
        && let Some(name) = occupant(device)?
    {
        let why = format!("the device holds {name}; force it to make a volume all the same");
        return Err(Error::new(ErrorKind::AlreadyExists, why).at_file(device.path()));
    }
    // The old head goes first: a crash in the middle leaves no volume, rather than half of two.
    device.write_durable(AlignedBuf::zeroed((u64::from(HEAD_BLOCKS) * BLOCK) as usize).as_slice(), 0)?;
    let superblock = Superblock {
        version: superblock::VERSION,
        uid: env.new_uid(),
        generation: 1,
        key: env.new_uid(),
        unit_blocks,
        small_unit_blocks,
        journal_blocks,
        sparse: options.sparse,
        checkpoint: 0,
        reached: 0,
        dump: Vec::new(),
        devices: vec![DeviceRecord { uid: env.new_uid(), blocks: volume_blocks }],
    };
    write_journal(env, device, superblock, &Meta::new(volume_blocks), &[], 0)
}

/// Writes the dump of a state as that of transaction `sequence`, an empty journal behind it, and the superblock that
/// leads there. The blocks taken are neither those of files nor of the journal in use, which stays as it is.
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
            crate::core::no_space(format!("there are no {blocks} free blocks for the journal"))
        })
    };
    let mut room: Vec<Extent> = take(dump_blocks)?;
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
