//! Growing: a device that has become longer is taken in.
//!
//! 1. The last block that the volume is to have is written durably. So it is there, and a loss of power does not take the device's new
//!    length back, as it may that of an image that somebody has just made longer.
//! 2. The superblock gets the new size: both slots, one after the other, each durable. A crash before the first leaves a volume of the old
//!    size; afterwards the slot of the higher generation counts, and a mount writes the other. Nothing else on the device knows the size.
//! 3. Only now the new blocks are free. Whatever leads to one of them comes later than both slots, so that either one alone knows it.
//!
//! Files and the journal go on meanwhile. A volume never becomes smaller: nobody knows where the files of one are that was cut off.

use crate::layout::{BLOCK, VOLUME_BLOCKS_MAX};
use crate::mount::check_len;
use crate::superblock::{self, DeviceRecord, Superblock};
use crate::volume::Volume;
use base::sync::lock;
use base::{Error, Result};
use io::{AlignedBuf, BlockDevice};

/// See the module. `None`: all that the device has. How many bytes the volume has afterwards.
pub(crate) fn grow(volume: &Volume, len: Option<u64>) -> Result<u64> {
    let device = &*volume.device;
    volume.check_writable(device.path())?;
    let mut superblock = lock(&volume.superblock);
    let blocks = wanted(device, superblock.blocks(), len)?;
    if blocks == superblock.blocks() {
        return Ok(blocks * BLOCK);
    }
    let next = grown(&superblock, blocks);
    let last = AlignedBuf::zeroed(BLOCK as usize);
    let at = (blocks - 1) * BLOCK;
    volume.poisoned_by(match base::canary::is("lavafs-grows-before-the-length-is-durable") {
        true => device.write_at(last.as_slice(), at),
        false => device.write_durable(last.as_slice(), at),
    })?;
    volume.poisoned_by(superblock::write(device, &next))?;
    *superblock = next;
    lock(&volume.core).grow(blocks);
    Ok(blocks * BLOCK)
}

/// The same volume with so many blocks.
fn grown(superblock: &Superblock, blocks: u64) -> Superblock {
    let mut next = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    if let Some(first) = next.devices.first_mut() {
        *first = DeviceRecord { blocks, ..*first };
    }
    next
}

/// How many blocks a volume of `has` is to have.
fn wanted(device: &dyn BlockDevice, has: u64, len: Option<u64>) -> Result<u64> {
    let there = device.measure()?;
    check_len(device.path(), there, has)?;
    let has_len = has * BLOCK;
    let wanted = len.unwrap_or((there / BLOCK).min(VOLUME_BLOCKS_MAX) * BLOCK);
    if !wanted.is_multiple_of(BLOCK) || wanted < has_len {
        let why = format!(
            "a volume of {has_len} bytes gets whole blocks of {BLOCK} bytes, and never fewer, not {wanted} bytes"
        );
        return Err(Error::invalid(why).at_file(device.path()));
    }
    if wanted > there || wanted / BLOCK > VOLUME_BLOCKS_MAX {
        let why = format!("a volume of {wanted} bytes does not fit on a device of {there} bytes");
        return Err(Error::invalid(why).at_file(device.path()));
    }
    Ok(wanted / BLOCK)
}

#[cfg(test)]
mod tests;
