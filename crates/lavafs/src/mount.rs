//! Mounting: from a device to a volume.
//!
//! The superblock is chosen, the journal replayed, and everything that neither a file nor the journal has is free. Then
//! the device is synced: what was read may still be in its cache only, when a process has died and not the machine, and
//! a later loss of power could bring a file back whose blocks have been given to another meanwhile. A sync is not enough
//! where one has failed before: what it did not write is read from the cache as if nothing had happened, and no later
//! sync writes it. So transactions of which nothing says that they were durable (mostly the last one) are written again.
//! Besides them the slots of the superblock are written if they differ: a crash came between the two, or one is damaged.

use crate::bond;
use crate::core::Core;
use crate::devices::{Devices, Ground};
use crate::discard::Discards;
use crate::fs::LavaFs;
use crate::journal::Journal;
use crate::layout::Extent;
use crate::meta::Meta;
use crate::replay::{Replayed, replay};
use crate::space::FreeSpace;
use crate::superblock::{self, Slots, Superblock};
use crate::transaction::Owner;
use crate::volume::{MountOptions, Volume};
use base::{Error, Result};
use io::{AlignedBuf, BlockDevice, Env};
use std::path::Path;
use std::sync::Arc;

/// The blocks that neither a file nor the journal has.
///
/// # Errors
/// `Corruption` if a block has two owners.
pub(crate) fn free_map(meta: &Meta, journal: &[Extent]) -> Result<FreeSpace> {
    let mut free = FreeSpace::all_of(meta.geometry());
    let mut sound = true;
    let of_files = meta.nodes().iter().flat_map(|(_, node)| node.extents.as_slice());
    for &extent in of_files.chain(journal).filter(|e| !e.is_hole()) {
        sound &= free.claim(extent);
        if !sound {
            let why =
                format!("the journal contradicts itself: the blocks {extent} have two owners; run fsck");
            return Err(Error::corruption(why));
        }
    }
    Ok(free)
}

/// What a device holds.
pub(crate) struct Loaded {
    pub superblock: Superblock,
    pub slots_agree: bool,
    pub replayed: Replayed,
    pub free: FreeSpace,
}

/// Reads everything; writes nothing.
fn load(ground: &Ground) -> Result<Loaded> {
    let device = &**ground;
    let located = |e: Error| e.at_file(device.path());
    let (superblock, slots_agree) = Slots::read(device)?.choose().map_err(located)?;
    if ground.second().is_none() {
        bond::check_alone(device, &superblock)?;
    }
    for role in ground.roles() {
        let device = ground.device(role);
        check_len(device.path(), device.len(), superblock.blocks_of(role))?;
    }
    let replayed = replay(device, &superblock, &mut |_| {})?;
    let free = free_map(&replayed.meta, &replayed.journal()).map_err(located)?;
    Ok(Loaded { superblock, slots_agree, replayed, free })
}

/// A device that is shorter than its volume was cut off, or is another one.
pub(crate) fn check_len(path: &Path, device_len: u64, blocks: u64) -> Result<()> {
    let wanted = blocks * crate::layout::BLOCK;
    if device_len >= wanted {
        return Ok(());
    }
    let why = format!("the volume has {wanted} bytes, but the device only {device_len}: it was cut off");
    Err(Error::corruption(why).at_file(path))
}

/// Writes the transactions of which nothing says that they were durable once more, to the same place.
fn write_again(device: &dyn BlockDevice, replayed: &Replayed) -> Result<()> {
    for &(_, offset, len) in &replayed.unconfirmed {
        let mut bytes = AlignedBuf::zeroed(len as usize);
        device.read_at(bytes.as_mut_slice(), offset)?;
        device.write_at(bytes.as_slice(), offset)?;
    }
    Ok(())
}

/// Mounts the volume on a device.
///
/// # Errors
/// `NotFound` if there is none; `Unsupported` if a newer release made it; `Corruption`, naming the place, if it is
/// damaged; `InvalidArgument` if the device is one of two; those of the device.
pub fn mount(env: &Env, device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<LavaFs> {
    mount_on(env, Devices::one(device), options)
}

/// Mounts the volume on a device, or on two.
///
/// # Errors
/// Those of [`mount()`]; `InvalidArgument` for devices that do not belong together, and for one that is an older copy.
pub fn mount_on(env: &Env, devices: Devices, options: MountOptions) -> Result<LavaFs> {
    options.check()?;
    let device = bond::ground(&devices)?;
    let Loaded { mut superblock, slots_agree, replayed, free } = load(&device)?;
    if !options.read_only {
        write_again(&*device, &replayed)?;
        device.sync()?;
        if !slots_agree {
            superblock::heal(&*device, &superblock)?;
        }
        bond::begin_session(env, &device, &mut superblock)?;
    }
    let owner = Owner { uid: superblock.uid, key: superblock.key };
    let journal = Journal::new(owner, &replayed, !options.read_only, env.rng());
    let units = (superblock.unit_blocks, superblock.small_unit_blocks, superblock.journal_blocks);
    let discards =
        (options.discard && !options.read_only).then(|| Discards::new(options.discard_bytes_per_second));
    let core = Core::new(replayed.meta, free, units, discards);
    let fs = LavaFs::new(Volume::new(device, env.clone(), options, superblock, core, journal)?);
    if options.grow && !options.read_only {
        fs.grow_all()?;
    }
    Ok(fs)
}
