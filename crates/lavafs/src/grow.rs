//! Growing: a device that has become longer is taken in.
//!
//! 1. The last block that the volume is to have is written durably. So it is there, and a loss of power does not take the device's new
//!    length back, as it may that of an image that somebody has just made longer.
//! 2. The superblock gets the new size: both slots, one after the other, each durable. A crash before the first leaves a volume of the old
//!    size; afterwards the slot of the higher generation counts, and a mount writes the other. Nothing else on the device knows the size.
//! 3. Only now the new blocks are free. Whatever leads to one of them comes later than both slots, so that either one alone knows it.
//!
//! Of a volume of two devices each grows by itself. The superblock, on the speed device, has the size of both; what the slots of the capacity
//! device say of sizes is that of the last mount, and nobody asks.
//!
//! Files and the journal go on meanwhile. A volume never becomes smaller: nobody knows where the files of one are that was cut off.

use crate::geometry::{DEVICE_BLOCKS_MAX, Role};
use crate::layout::{BLOCK, VOLUME_BLOCKS_MAX};
use crate::mount::check_len;
use crate::superblock::{self, DeviceRecord, Superblock};
use crate::volume::Volume;
use base::sync::lock;
use base::{Error, Result};
use io::{AlignedBuf, BlockDevice};

/// See the module. `None`: all that the device has. How many bytes of it the volume has afterwards.
pub(crate) fn grow(volume: &Volume, role: Role, len: Option<u64>) -> Result<u64> {
    let device = volume.device.device(role);
    volume.check_writable(device.path())?;
    let mut superblock = lock(&volume.superblock);
    let (has, is_two) = (superblock.blocks_of(role), superblock.geometry().is_two());
    if role == Role::Capacity && !is_two {
        let why = "the volume has one device, which is none for capacity alone";
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

/// The same volume with so many blocks on a device.
fn grown(superblock: &Superblock, role: Role, blocks: u64) -> Superblock {
    let mut next = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    if let Some(record) = next.devices.records.get_mut(role as usize) {
        *record = DeviceRecord { blocks, ..*record };
    }
    next
}

/// How many blocks a volume of `has` is to have, and of `most` at most.
fn wanted(device: &dyn BlockDevice, (has, most): (u64, u64), len: Option<u64>) -> Result<u64> {
    let there = device.measure()?;
    check_len(device.path(), there, has)?;
    let has_len = has * BLOCK;
    let wanted = len.unwrap_or((there / BLOCK).min(most) * BLOCK);
    if !wanted.is_multiple_of(BLOCK) || wanted < has_len {
        let why = format!(
            "a volume of {has_len} bytes gets whole blocks of {BLOCK} bytes, and never fewer, not {wanted} bytes"
        );
        return Err(Error::invalid(why).at_file(device.path()));
    }
    if wanted > there || wanted / BLOCK > most {
        let why = format!("a volume of {wanted} bytes does not fit on a device of {there} bytes");
        return Err(Error::invalid(why).at_file(device.path()));
    }
    Ok(wanted / BLOCK)
}

#[cfg(test)]
mod tests;
