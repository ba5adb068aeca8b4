//! Sessions on the fast tier of a store: see [`crate::speed`].

use super::StoreFiles;
use crate::manifest::Record;
use crate::names::{self, FileKind};
use crate::volumes::FastTier;
use crate::volumes::identity::{Identity, IdentityFile, check_disk};
use base::{ErrorKind, Result, Uid};
use io::{FileSystem, Tiers};
use std::path::Path;

/// Begins a session if the store has a fast tier. The log and the manifest have been found
/// consistent.
///
/// # Errors
/// `NoSpace`: nothing happened, and it may be tried again. Manifest and file system errors.
pub(super) fn begin(files: &StoreFiles, session: Uid) -> Result<()> {
    let (context, manifest) = (files.context(), files.manifest());
    let state = manifest.state();
    let Some((disks, known)) = context.env.fs.disks(&context.dir).zip(state.speed.as_ref()) else {
        return Ok(());
    };
    if known.session == session {
        return Ok(());
    }
    let slots = check_disk(&disks, state.uid, known)?;
    let file = IdentityFile::open(&disks)?;
    let good = slots.matching(known).unwrap_or_default();
    let (store, disk, epoch) = (state.uid, known.disk, known.epoch + 1);
    let next = Identity { store, disk, epoch, session, previous: known.session, moving: false };
    file.write(good + 1, &next)?;
    let place = disks.speed_dir.display().to_string();
    let record = Record::FastTier { disk: Some(FastTier { disk, epoch, session, place }) };
    manifest.commit_store(|_| Ok(vec![record]), |_| {})?;
    let last = Identity { previous: Uid::default(), ..next };
    file.write(good, &last)?;
    file.write(good + 1, &last)?;
    sweep(&disks, &context.dir)
}

/// Removes leftover log files from the capacity tier after an interrupted move.
fn sweep(disks: &Tiers, dir: &Path) -> Result<()> {
    remove_all(&*disks.capacity, dir, FileKind::is_of_log)
}

/// Removes the files of a directory whose kind satisfies `is_one`.
///
/// # Errors
/// File system errors.
pub fn remove_all(fs: &dyn FileSystem, dir: &Path, is_one: impl Fn(FileKind) -> bool) -> Result<()> {
    for entry in fs.list(dir)? {
        if names::parse(&entry.name).is_some_and(&is_one) {
            match fs.remove(&io::fs::join(dir, &entry.name)) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}
