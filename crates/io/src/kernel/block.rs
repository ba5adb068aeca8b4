//! The block of a file: the unit of direct transfers and of atomic writes of the device.

use super::{calls, usage};
use crate::{BLOCK_LEN_MIN, PAGE};
use rustix::fd::OwnedFd;
use std::path::PathBuf;

/// Returns the block of an open file; `None`: the kernel does not report it, or its value is
/// implausible.
pub(super) fn of(fd: &OwnedFd) -> Option<usize> {
    let told = calls::statx_direct(fd).ok()?;
    if told.stx_mask & calls::STATX_DIOALIGN == 0 {
        return None;
    }
    let (major, minor) = (told.stx_dev_major, told.stx_dev_minor);
    // A partition has no queue of its own.
    let physical = ["", "/.."].iter().find_map(|whole| {
        let source = format!("/sys/dev/block/{major}:{minor}{whole}/queue/physical_block_size");
        usage::read_text(&PathBuf::from(source)).ok()
    })?;
    longer(told.stx_dio_offset_align, &physical)
}

/// Returns the longer of the units of the file system and of the device.
fn longer(file_system: u32, device: &str) -> Option<usize> {
    let block = device.trim().parse::<usize>().ok()?.max(file_system as usize);
    (file_system > 0 && block.is_power_of_two() && (BLOCK_LEN_MIN..=PAGE).contains(&block)).then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::Temp;
    use crate::{Access, AlignedBuf};

    #[test]
    fn files_are_written_in_blocks() {
        let dir = Temp::new();
        let env = crate::Env::kernel_with(crate::kernel::KernelOptions::default());
        for access in [Access::Direct, Access::Buffered] {
            let path = dir.0.join(format!("{access:?}"));
            env.fs.create_in_place(&path, 16 * PAGE as u64, access).unwrap();
            let file = env.fs.open_in_place(&path, access).unwrap();
            let block = file.block_len();
            assert!(block.is_power_of_two() && (BLOCK_LEN_MIN..=PAGE).contains(&block), "{block}");
            assert!(access == Access::Direct || block == PAGE);
            let mut ones = AlignedBuf::zeroed(3 * block);
            ones.as_mut_slice().fill(1);
            file.write_durable(&ones, block as u64).unwrap();
            file.write_at(&ones, 8 * block as u64).unwrap();
            let mut all = vec![9; 16 * PAGE];
            file.read_at(&mut all, 0).unwrap();
            let is_written = |at: usize| [1..4, 8..11].iter().any(|blocks| blocks.contains(&(at / block)));
            assert!(all.iter().enumerate().all(|(at, &byte)| byte == u8::from(is_written(at))));
            let mut part = AlignedBuf::zeroed(2 * block);
            file.read_at(part.as_mut_slice(), 3 * block as u64).unwrap();
            assert_eq!(part.as_slice(), &all[3 * block..5 * block]);
        }
    }

    #[test]
    fn block_length_is_the_longer_plausible_one() {
        assert_eq!(longer(512, "512\n"), Some(512));
        assert_eq!(longer(512, "4096\n"), Some(4096));
        assert_eq!(longer(4096, "512\n"), Some(4096));
        for (file_system, device) in
            [(0, "512"), (512, ""), (512, "-1"), (512, "8192"), (1, "1"), (520, "520")]
        {
            assert_eq!(longer(file_system, device), None, "{file_system} {device:?}");
        }
    }
}
