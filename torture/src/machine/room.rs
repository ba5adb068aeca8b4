//! Free space of the simulated volume, or of LavaFS on a simulated device.
//!
//! A device cannot shrink. A volume of LavaFS is bounded by a file that takes the rest of it; it
//! stays open because its blocks are preallocated but not filled.

use super::{BALLAST, is_lavafs};
use crate::check::{Check, Doing};
use crate::machine::DIR;
use io::{AppendFile, CreateOptions, FileSystem, SyncKind};
use lavastore::testing::SimEnv;
use std::cell::{Cell, RefCell};
use std::path::Path;

thread_local! {
    /// The open file that fills the volume.
    static HELD: RefCell<Option<Box<dyn AppendFile>>> = const { RefCell::new(None) };
    /// The observed maximum size of the store's files in bytes.
    static PEAK: Cell<u64> = const { Cell::new(0) };
}

/// Resets the state after a case.
pub(super) fn clear() {
    HELD.with(|held| held.borrow_mut().take());
    PEAK.set(0);
}

/// Returns the used bytes of the volume, without the file that fills it.
pub(crate) fn used(sim: &SimEnv) -> Check<u64> {
    if !is_lavafs() {
        return Ok(sim.used());
    }
    let fs = super::env(sim)?.fs;
    let space = fs.space(Path::new("/")).doing(|| "space".into())?;
    let held = fs.metadata(Path::new(BALLAST)).map_or(0, |found| found.allocated);
    Ok(space.total - space.available - held)
}

/// Bounds the volume, or removes the bound.
pub(crate) fn set_capacity(sim: &SimEnv, bytes: Option<u64>) -> Check {
    if !is_lavafs() {
        sim.set_capacity(bytes);
        return Ok(());
    }
    let fs = super::env(sim)?.fs;
    bound(&*fs, bytes).doing(|| "set the capacity".into())
}

fn bound(fs: &dyn FileSystem, bytes: Option<u64>) -> lavastore::Result<()> {
    let path = Path::new(BALLAST);
    if fs.exists(path)? {
        fs.remove(path)?;
    }
    HELD.with(|held| held.borrow_mut().take());
    fs.sync_dir(Path::new("/"))?;
    let Some(bytes) = bytes else { return Ok(()) };
    let space = fs.space(Path::new("/"))?;
    let room = bytes.saturating_sub(space.total - space.available);
    if space.available > room {
        // One byte suffices: preallocated blocks without data are not read.
        let options = CreateOptions { expected_len: space.available - room, ..CreateOptions::default() };
        let mut file = fs.create(path, &options)?;
        file.append(&[0])?;
        file.sync(SyncKind::Full)?;
        HELD.with(|held| *held.borrow_mut() = Some(file));
    }
    Ok(())
}

/// Same as [`set_capacity`], after a crash: LavaFS is then as full as before by itself.
pub(crate) fn set_capacity_after_crash(sim: &SimEnv, bytes: Option<u64>) {
    if !is_lavafs() {
        sim.set_capacity(bytes);
    }
}

/// Starts to watch the size of the store's files.
pub(crate) fn watch(sim: &SimEnv) {
    PEAK.set(0);
    sim.watch(DIR);
}

/// Returns the maximum since then: at any moment, or on LavaFS at any call of this function.
pub(crate) fn peak(sim: &SimEnv) -> Check<u64> {
    if !is_lavafs() {
        return Ok(sim.peak());
    }
    let listed = super::env(sim)?.fs.list(Path::new(DIR)).unwrap_or_default();
    PEAK.set(PEAK.get().max(listed.iter().map(|entry| entry.allocated).sum()));
    Ok(PEAK.get())
}
