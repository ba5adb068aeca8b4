//! Mount of a volume.
//!
//! A mount selects the valid superblock slot and replays the journal. All blocks without a file or
//! journal owner are free.
//!
//! Then the mount syncs the device. After a process crash, the replayed data may exist only in the
//! device cache. A later power loss could then revert the journal and bring back a file whose
//! blocks meanwhile belong to another file.
//!
//! After an earlier failed sync, another sync does not suffice: the unwritten data is still
//! readable from the cache, and no later sync writes it. Therefore the mount rewrites every
//! transaction without evidence of durability, usually only the last one. It also rewrites
//! superblock slots that differ, after a crash between their writes or after damage.

use crate::core::{Core, FSCK};
use crate::device_pairing;
use crate::devices::{Devices, VolumeDevices};
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

/// Returns the blocks that belong neither to a file nor to the journal.
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
            let why = format!(
                "the journal of the volume gives the blocks {extent} (first block, count) to two files, or to a file and itself"
            );
            return Err(Error::corruption(why));
        }
    }
    Ok(free)
}

/// Contents of a volume.
pub(crate) struct Loaded {
    pub superblock: Superblock,
    pub slots_agree: bool,
    pub replayed: Replayed,
    pub free: FreeSpace,
}

/// Reads the volume without writing.
fn load(ground: &VolumeDevices) -> Result<Loaded> {
    read(ground).map_err(|e| if e.is_corruption() { e.with_remedy(FSCK) } else { e })
}

fn read(ground: &VolumeDevices) -> Result<Loaded> {
    let device = &**ground;
    let located = |e: Error| e.at_file(device.path());
    let (superblock, slots_agree) = Slots::read(device)?.choose().map_err(located)?;
    if ground.second().is_none() {
        device_pairing::check_alone(device, &superblock)?;
    }
    for role in ground.roles() {
        let device = ground.device(role);
        check_len(device.path(), device.len(), superblock.blocks_of(role))?;
    }
    let replayed = replay(device, &superblock, &mut |_| {})?;
    let free = free_map(&replayed.meta, &replayed.journal()).map_err(located)?;
    Ok(Loaded { superblock, slots_agree, replayed, free })
}

/// Rejects a device that is shorter than its volume: it was truncated, or is another device.
pub(crate) fn check_len(path: &Path, device_len: u64, blocks: u64) -> Result<()> {
    let wanted = blocks * crate::layout::BLOCK;
    if device_len >= wanted {
        return Ok(());
    }
    let why = format!(
        "the volume has {wanted} bytes, but its device has only {device_len} bytes: the device was cut off"
    );
    Err(Error::corruption(why)
        .with_remedy("nothing was changed: restore the device from a copy, or name the whole device")
        .at_file(path))
}

/// Rewrites the transactions without evidence of durability in place.
fn write_again(device: &dyn BlockDevice, replayed: &Replayed) -> Result<()> {
    for &(_, offset, len) in &replayed.unconfirmed {
        let mut bytes = AlignedBuf::zeroed(len as usize);
        device.read_at(bytes.as_mut_slice(), offset)?;
        device.write_at(bytes.as_slice(), offset)?;
    }
    Ok(())
}

/// Mounts the volume on one device, to open a store on it:
/// [`LavaFs::into_env`](crate::LavaFs::into_env) makes the environment. The cost is a read of the
/// metadata, which stays in memory.
///
/// # Errors
/// * `NotFound`: there is no volume. Check the device, or create one with
///   [`format()`](fn@crate::format).
/// * `Unsupported`: a newer release made it. Use that release.
/// * `Corruption`, with the place of the damage. Use [`fsck()`](fn@crate::fsck).
/// * `InvalidArgument`: the device is one of two. Use [`mount_on`].
/// * The errors of the device.
pub fn mount(env: &Env, device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<LavaFs> {
    mount_on(env, Devices::one(device), options)
}

/// Mounts the volume on one or two devices, in any order; [`mount()`] is for one.
///
/// # Errors
/// The errors of [`mount()`]; `InvalidArgument` for devices that do not belong together, or for an
/// outdated copy of a device.
pub fn mount_on(env: &Env, devices: Devices, options: MountOptions) -> Result<LavaFs> {
    options.check()?;
    let device = device_pairing::ground(&devices)?;
    let Loaded { mut superblock, slots_agree, replayed, free } = load(&device)?;
    if !options.read_only {
        write_again(&*device, &replayed)?;
        device.sync()?;
        if !slots_agree {
            superblock::heal(&*device, &superblock)?;
        }
        device_pairing::begin_session(env, &device, &mut superblock)?;
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
