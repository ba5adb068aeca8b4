//! Damage to the files of a store, on any file system.
//!
//! On LavaFS the bytes of a file are damaged at their place on the device. Lengths and names are in
//! the journal, so exchanges, truncations and removals go through a mount of the volume.

use super::{DEVICE, SECOND, devices, has_second, mounted_by_hand};
use crate::check::{Check, Doing};
use crate::machine::DIR;
use io::{Access, CreateOptions, FileSystem, SyncKind};
use lavastore::lavafs::{LavaFs, dump_journal_on, geometry, layout};
use lavastore::testing::SimEnv;
use std::path::Path;

const PATCH: usize = 4096;

/// Returns the files with their lengths.
pub(crate) fn files(sim: &SimEnv) -> Check<Vec<(String, u64)>> {
    if !super::is_lavafs() {
        return Ok(sim.files().iter().map(|(path, len)| (path.display().to_string(), *len)).collect());
    }
    let listed = mounted_by_hand(sim, true)?.list(Path::new(DIR)).doing(|| "list".into())?;
    Ok(listed.into_iter().map(|entry| (format!("{DIR}/{}", entry.name), entry.len)).collect())
}

/// Start of the capacity device in the volume's address space.
const SECOND_AT: u64 = geometry::SECOND as u64 * layout::BLOCK;

/// Returns the device of a byte of the volume, and its offset there.
fn place(at: u64) -> (&'static str, u64) {
    at.checked_sub(SECOND_AT).map_or((DEVICE, at), |at| (SECOND, at))
}

/// Returns the metadata blocks of the volume: the superblocks and the journal.
pub(crate) fn metadata_offsets(sim: &SimEnv) -> Check<Vec<u64>> {
    let devices = devices(sim).doing(|| "open the devices".into())?;
    let slots = layout::SLOTS.iter().map(|slot| u64::from(*slot) * layout::BLOCK);
    let mut offsets: Vec<u64> = slots.clone().collect();
    if has_second(sim).doing(|| "look for the second device".into())? {
        offsets.extend(slots.map(|at| SECOND_AT + at));
    }
    dump_journal_on(&devices, &mut |line| {
        let offset = line.strip_prefix("offset ").and_then(|l| l.split(':').next()?.parse::<u64>().ok());
        offsets.extend(offset);
    })
    .doing(|| "dump the journal".into())?;
    Ok(offsets)
}

/// Returns the runs of a file's bytes on the volume: offset and length of each.
fn runs(volume: &LavaFs, path: &str, offset: u64, len: u64) -> Check<Vec<(u64, u64)>> {
    let extents = volume.extents(Path::new(path)).doing(|| format!("extents of {path}"))?;
    let (mut found, mut begin) = (Vec::new(), 0);
    for extent in extents {
        let (from, to) = (offset.max(begin), (offset + len).min(begin + extent.len()));
        if from < to && !extent.is_hole() {
            found.push((extent.offset() + from - begin, to - from));
        }
        begin += extent.len();
    }
    Ok(found)
}

/// Flips a bit of a file. Returns false for a hole, whose bits are on no device.
pub(crate) fn flip_bit(sim: &SimEnv, path: &str, at: u64, bit: u32) -> Check<bool> {
    if !super::is_lavafs() {
        sim.flip_bit(path, at, bit).doing(|| "flip".into())?;
        return Ok(true);
    }
    let runs = runs(&mounted_by_hand(sim, true)?, path, at, 1)?;
    let Some((at, _)) = runs.first() else { return Ok(false) };
    flip_device(sim, *at, bit)?;
    Ok(true)
}

/// Flips a bit of the volume.
pub(crate) fn flip_device(sim: &SimEnv, at: u64, bit: u32) -> Check {
    let (device, at) = place(at);
    sim.flip_bit(device, at, bit).doing(|| "flip".into())
}

/// Overwrites bytes of a file.
pub(crate) fn overwrite(sim: &SimEnv, path: &str, offset: u64, bytes: &[u8]) -> Check {
    if !super::is_lavafs() {
        return sim.overwrite(path, offset, bytes).doing(|| "overwrite".into());
    }
    let runs = runs(&mounted_by_hand(sim, true)?, path, offset, bytes.len() as u64)?;
    let mut rest = bytes;
    for (at, len) in runs {
        let (now, later) = rest.split_at(len as usize);
        let (device, at) = place(at);
        sim.overwrite(device, at, now).doing(|| "overwrite".into())?;
        rest = later;
    }
    Ok(())
}

/// Copies bytes of one file into another, or to another offset of the same one.
pub(crate) fn copy_block(sim: &SimEnv, from: (&str, u64), to: (&str, u64), len: usize) -> Check {
    if !super::is_lavafs() {
        return sim.copy_block(from, to, len).doing(|| "copy".into());
    }
    let bytes = read(&mounted_by_hand(sim, true)?, from.0, from.1, len)?;
    overwrite(sim, to.0, to.1, &bytes)
}

/// Restores bytes of a file as of `older`; on LavaFS, at the same place of the device.
pub(crate) fn restore_block(sim: &SimEnv, older: &SimEnv, path: &str, offset: u64, len: usize) -> Check {
    if !super::is_lavafs() {
        return sim.restore_block(older, path, offset, len).doing(|| "restore".into());
    }
    for (at, len) in runs(&mounted_by_hand(sim, true)?, path, offset, len as u64)? {
        let mut bytes = vec![0; len as usize];
        let (device, at) = place(at);
        let before = older.device(device, 0).doing(|| "open the older device".into())?;
        before.read_at(&mut bytes, at).doing(|| "read the older device".into())?;
        sim.overwrite(device, at, &bytes).doing(|| "restore".into())?;
    }
    Ok(())
}

fn read(volume: &LavaFs, path: &str, offset: u64, len: usize) -> Check<Vec<u8>> {
    let mut bytes = vec![0; len];
    let file = volume.open(Path::new(path), Access::Direct).doing(|| format!("open {path}"))?;
    file.read_at(&mut bytes, offset).doing(|| format!("read {path}"))?;
    Ok(bytes)
}

/// Exchanges the contents of two files.
pub(crate) fn swap_files(sim: &SimEnv, a: &str, b: &str) -> Check {
    if !super::is_lavafs() || a == b {
        return sim.swap_files(a, b).doing(|| "swap".into());
    }
    let volume = mounted_by_hand(sim, false)?;
    let aside = format!("{DIR}/aside");
    for (from, to) in [(a, aside.as_str()), (b, a), (&aside, b)] {
        volume.rename(Path::new(from), Path::new(to)).doing(|| "swap".into())?;
    }
    volume.unmount().doing(|| "swap".into())
}

/// Truncates a file.
pub(crate) fn cut(sim: &SimEnv, path: &str, len: u64) -> Check {
    if !super::is_lavafs() {
        return sim.set_file_len(path, len).doing(|| "cut".into());
    }
    let volume = mounted_by_hand(sim, false)?;
    let bytes = read(&volume, path, 0, len as usize)?;
    let replace = || {
        volume.remove(Path::new(path))?;
        let mut file = volume.create(Path::new(path), &CreateOptions::default())?;
        bytes.chunks(PATCH).try_for_each(|piece| file.append(piece))?;
        file.sync(SyncKind::Full)?;
        drop(file);
        volume.unmount()
    };
    replace().doing(|| "cut".into())
}

/// Removes a file.
pub(crate) fn erase(sim: &SimEnv, path: &str) -> Check {
    if !super::is_lavafs() {
        return sim.erase(path).doing(|| "erase".into());
    }
    let volume = mounted_by_hand(sim, false)?;
    volume.remove(Path::new(path)).and_then(|()| volume.unmount()).doing(|| "erase".into())
}
