//! One test for each guarantee and each legal loss. `files`: behavior of a healthy file system.
//! `losses`: results of crashes. `faults`: errors and damage. `history`: records, determinism,
//! random runs against an oracle. `device`: block devices.
//! runs against an oracle. `device`: block devices.

mod device;
mod faults;
mod files;
mod history;
mod losses;

use super::*;
use crate::{Access, AlignedBuf, AppendFile, CreateOptions, InPlaceFile, SyncKind};
use base::ErrorKind;
use std::path::Path;

fn p(path: &str) -> &Path {
    Path::new(path)
}

/// Returns a file with these bytes: handed over, not synced.
fn written(sim: &SimEnv, path: &str, bytes: &[u8]) -> Box<dyn AppendFile> {
    let mut file = sim.env().fs.create(p(path), &CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.flush().unwrap();
    file
}

/// Returns a file with these bytes: all durable, including the name.
fn settled(sim: &SimEnv, path: &str, bytes: &[u8]) -> Box<dyn AppendFile> {
    let mut file = written(sim, path, bytes);
    file.sync(SyncKind::Full).unwrap();
    sim.env().fs.sync_dir(p(path).parent().unwrap()).unwrap();
    file
}

/// Returns an in-place file of whole pages with a durable name.
fn in_place(sim: &SimEnv, path: &str, pages: usize) -> Arc<dyn InPlaceFile> {
    let fs = sim.env().fs;
    let file = fs.create_in_place(p(path), (pages * PAGE) as u64, Access::Direct).unwrap();
    fs.sync_dir(p(path).parent().unwrap()).unwrap();
    file
}

fn filled(pages: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(pages * PAGE);
    buf.as_mut_slice().fill(byte);
    buf
}

/// Returns power losses at this moment, under every policy, many seeds each.
fn power_losses(sim: &SimEnv) -> impl Iterator<Item = SimEnv> {
    let each = |policy| (0..60).map(move |seed| (CrashKind::PowerLossWith(policy), seed));
    Policy::ALL.into_iter().flat_map(each).map(|(kind, seed)| sim.crash(kind, seed))
}

/// Returns the contents of a file over all power losses: sorted, without repetition. `None`: no
/// such name.
fn outcomes(sim: &SimEnv, path: &str) -> Vec<Option<Vec<u8>>> {
    let mut seen: Vec<_> = power_losses(sim).map(|after| after.read_file(path).ok()).collect();
    seen.sort();
    seen.dedup();
    seen
}
