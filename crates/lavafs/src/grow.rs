//! Growth of a volume after its device has become longer.
//!
//! 1. The last block of the new size is written durably. This proves that the block exists. It also
//!    prevents a power loss from undoing the new length, as it may for an image that was extended a
//!    moment ago.
//! 2. The superblock gets the new size: both slots, one after the other, each durably. A crash
//!    before the first write leaves the old size. After it, the slot with the higher generation is
//!    valid, and a mount rewrites the other one. No other structure on the device holds the size.
//! 3. Only now the new blocks become free. Every reference to them is written after both slots, so
//!    either slot alone covers them.
//!
//! The devices of a two-device volume grow independently. The superblock, on the speed device,
//! holds the size of both. The slots of the capacity device hold the sizes as of the last mount,
//! and nothing reads these sizes.
//!
//! File operations and the journal continue meanwhile. A volume never shrinks: blocks beyond the
//! new end could belong to files.

use crate::geometry::{DEVICE_BLOCKS_MAX, Role};
use crate::layout::{BLOCK, VOLUME_BLOCKS_MAX};
use crate::mount::check_len;
use crate::superblock::{self, DeviceRecord, Superblock};
use crate::volume::Volume;
use base::sync::lock;
use base::{Error, Result};
use io::{AlignedBuf, BlockDevice};

/// Grows the volume on one device, to `len` bytes or to the whole device; see the module
/// documentation. Returns the new size on that device, in bytes.
pub(crate) fn grow(volume: &Volume, role: Role, len: Option<u64>) -> Result<u64> {
    let device = volume.device.device(role);
    volume.check_writable(device.path())?;
    let mut superblock = lock(&volume.superblock);
    let (has, is_two) = (superblock.blocks_of(role), superblock.geometry().is_two());
    if role == Role::Capacity && !is_two {
        let why = "the volume has one device and no capacity device: grow its only device";
        return Err(Error::invalid(why).at_file(device.path()));
    }
    let most = if is_two { DEVICE_BLOCKS_MAX } else { VOLUME_BLOCKS_MAX };
    let blocks = wanted(device, (has, most), len)?;
    if blocks == has {
        return Ok(blocks * BLOCK);
    }
    let next = grown(&superblock, role, blocks);
    let last = AlignedBuf::zeroed(BLOCK as usize);
    let at = (blocks - 1) * BLOCK;
    volume.durability.poisoned_by(device.write_durable(last.as_slice(), at))?;
    volume.durability.poisoned_by(superblock::write(&*volume.device, &next))?;
    *superblock = next;
    lock(&volume.core).grow(role, blocks);
    Ok(blocks * BLOCK)
}

/// Returns the superblock with `blocks` blocks on a device.
fn grown(superblock: &Superblock, role: Role, blocks: u64) -> Superblock {
    let mut next = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    if let Some(record) = next.devices.records.get_mut(role as usize) {
        *record = DeviceRecord { blocks, ..*record };
    }
    next
}

/// Returns the new number of blocks of a volume that has `has` blocks and may have at most `most`.
fn wanted(device: &dyn BlockDevice, (has, most): (u64, u64), len: Option<u64>) -> Result<u64> {
    let there = device.measure()?;
    check_len(device.path(), there, has)?;
    let has_len = has * BLOCK;
    let wanted = len.unwrap_or((there / BLOCK).min(most) * BLOCK);
    if !wanted.is_multiple_of(BLOCK) || wanted < has_len {
        let why = format!(
            "the new size of {wanted} bytes is below the present {has_len} bytes, or no multiple of {BLOCK} bytes: a volume cannot shrink"
        );
        return Err(Error::invalid(why).at_file(device.path()));
    }
    if wanted > there || wanted / BLOCK > most {
        let why = format!(
            "a volume of {wanted} bytes does not fit on a device of {there} bytes, or is over the limit of {} bytes: choose a smaller size",
            most * BLOCK
        );
        return Err(Error::invalid(why).at_file(device.path()));
    }
    Ok(wanted / BLOCK)
}

#[cfg(test)]
mod tests;
