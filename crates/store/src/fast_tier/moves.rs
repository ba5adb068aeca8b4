//! Moves of the log to another disk in one edit; tables and value files move back from the fast
//! tier in the same edit.
//!
//! A move copies the files that the manifest lists, byte for byte, and the staging files. Pages
//! carry the identity of their group, so their location does not matter. Before that the log is
//! read to its end like in an open. A manifest that has lost its end would get an edit in the place
//! of a lost one, and the loss would go unnoticed from then on.
//!
//! A crash leaves void copies on one of the disks. On the capacity tier the next session removes
//! them, or they are orphans if the log is there. On the fast tier an identity that records a move
//! in progress stands beside them, and the next move removes them first.

use super::{both, lock};
use crate::commit::read::{check_known, check_whole};
use crate::commit::recorded;
use crate::copy::{COPY_LEN, copy_bytes};
use crate::directory;
use crate::files::{remove_all, unfinished};
use crate::manifest::{Engines, Manifest, ManifestState, Record};
use crate::names::{self, FileKind};
use crate::volumes::identity::{self, Identity, IdentityFile, check_disk};
use crate::volumes::{FastTier, Volume};
use base::{Error, ErrorKind, Result, Uid};
use io::{Access, AlignedBuf, CreateOptions, Env, FileLock, FileSystem, PAGE, SyncKind, Tiers};
use std::path::Path;
use std::sync::Arc;
use wal::{Lane, LogGroup, RecoveryMode};

/// A directory of a file system.
#[derive(Clone, Copy)]
struct Side<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
}

fn sides<'a>(disks: &'a Tiers, dir: &'a Path) -> (Side<'a>, Side<'a>) {
    (Side { fs: &*disks.capacity, dir }, Side { fs: &*disks.speed, dir: &disks.speed_dir })
}

/// Refuses a non-empty place for a fast tier. Leftovers of an interrupted move of this store count
/// as empty.
///
/// # Errors
/// `InvalidArgument`; file system errors.
pub(super) fn check_vacant(disks: &Tiers, store: Option<Uid>) -> Result<()> {
    let files = match disks.speed.list(&disks.speed_dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    let at = |why: String| Err(Error::invalid(why).at_file(&disks.speed_dir));
    match identity::of_place(disks)? {
        Some(Identity { store: found, moving: true, .. }) if Some(found) == store => return Ok(()),
        Some(found) if Some(found.store) == store => {
            return at(format!(
                "this was the fast tier of this store up to session {}, and the manifest does \
                 not list it: restore the newest directory of the store, or, if the tier was \
                 given back, empty this directory",
                found.epoch
            ));
        }
        Some(found) => {
            return at(format!(
                "this is the fast tier of another store, {:?}: name an empty directory",
                found.store
            ));
        }
        None => {}
    }
    let own = |name: &str| matches!(names::parse(name), Some(FileKind::FastTier | FileKind::FastLock));
    match files.iter().find(|file| !own(&file.name)) {
        Some(file) => {
            at(format!("the directory for a new fast tier holds {}: name an empty directory", file.name))
        }
        None => Ok(()),
    }
}

/// Moves the log of a store to its new fast tier. Returns the lock of the disk.
pub(super) fn join(env: &Env, dir: &Path, disks: &Tiers, manifest: &Manifest) -> Result<Box<dyn FileLock>> {
    let state = manifest.state();
    let (capacity, speed) = sides(disks, dir);
    check_vacant(disks, Some(state.uid))?;
    judge(&Env { fs: disks.capacity.clone(), ..env.clone() }, dir, manifest)?;
    directory::make(&Env { fs: disks.speed.clone(), ..env.clone() }, speed.dir)?;
    let held = lock(env, disks)?;
    check_vacant(disks, Some(state.uid))?;
    settle(manifest)?;
    clear(speed)?;
    let (disk, session) = (env.new_uid(), env.new_uid());
    let identity =
        Identity { store: state.uid, disk, epoch: 1, session, previous: Uid::default(), moving: true };
    IdentityFile::create(disks)?.write_all(&identity)?;
    // A copy must never exist without the file that identifies its owner.
    speed.fs.sync_dir(speed.dir)?;
    copy_log(&state, capacity, speed)?;
    speed.fs.sync_dir(speed.dir)?;
    let place = speed.dir.display().to_string();
    let record = Record::FastTier { disk: Some(FastTier { disk, epoch: 1, session, place }) };
    manifest.commit_store(|_| Ok(vec![record]), |_| {})?;
    remove_all(capacity.fs, capacity.dir, FileKind::is_of_log)?;
    Ok(held)
}

/// Commits a record of the store in one edit with the records of an engine.
pub type CommitWith<'a> = dyn Fn(&Arc<Manifest>, Record) -> Result<()> + 'a;

/// As [`give_back_with`], without engines: only the log is on the disk.
///
/// # Errors
/// As [`give_back_with`], and `Unsupported` if there are tables or values on the disk.
pub fn detach_fast_tier(env: &Env, dir: &Path) -> Result<()> {
    let commit =
        |manifest: &Arc<Manifest>, record| manifest.commit_store(|_| Ok(vec![record]), |_| {}).map(drop);
    give_back_with(env, dir, &Engines::default(), &commit)
}

/// Moves log, tables and values of a closed store from the fast tier to its directory. Tables and
/// values are copied first. `commit` makes one edit of the given record, which moves the log, and
/// the engine's records, which move its tables and values. For a store without a fast tier, it
/// removes the leftovers of an interrupted call there.
///
/// # Errors
/// `InvalidArgument` if `env` has no fast tier for the directory. `NotFound` if there is no store.
/// `Locked`. Errors of [`crate::volumes::identity::check`]. `Corruption` if the log is damaged.
/// `NoSpace` if there is no space in the directory. File system errors. Nothing has changed then.
pub fn give_back_with(env: &Env, dir: &Path, engines: &Engines, commit: &CommitWith<'_>) -> Result<()> {
    let Some(disks) = env.fs.disks(dir) else {
        return Err(Error::invalid("no fast tier is given: name the one to give back").at_file(dir));
    };
    if !directory::has_store(env, dir)? {
        return Err(Error::not_found("there is no store in this directory: name the directory of the store")
            .at_file(dir));
    }
    unfinished::refuse_beside_current(&*env.fs, dir)?;
    let store_lock = directory::lock(env, dir)?;
    let manifest = Arc::new(Manifest::recover(env, dir, false, engines)?);
    let state = manifest.state();
    let (capacity, speed) = sides(&disks, dir);
    let Some(known) = &state.speed else {
        check_vacant(&disks, Some(state.uid))?;
        let _held = lock(env, &disks)?;
        judge(&Env { fs: disks.capacity.clone(), ..env.clone() }, dir, &manifest)?;
        settle(&manifest)?;
        return clear(speed);
    };
    let _held = both(store_lock, Some(lock(env, &disks)?));
    let slots = check_disk(&disks, state.uid, known)?;
    judge(env, dir, &manifest)?;
    check_data_known(speed, &state)?;
    settle(&manifest)?;
    // Only files beside the store's own names change: the copies are void before the edit.
    copy_data(&state, speed, capacity)?;
    let good = slots.matching(known).unwrap_or_default();
    let identity = Identity {
        store: state.uid,
        disk: known.disk,
        epoch: known.epoch,
        session: known.session,
        previous: Uid::default(),
        moving: true,
    };
    let file = IdentityFile::open(&disks)?;
    file.write(good + 1, &identity)?;
    file.write(good, &identity)?;
    remove_all(capacity.fs, capacity.dir, FileKind::is_of_log)?;
    copy_log(&state, speed, capacity)?;
    manifest.files().sync_dir()?;
    commit(&manifest, Record::FastTier { disk: None })?;
    manifest.commits().confirm()?;
    clear(speed)
}

/// Refuses a disk with tables or values of an absent engine, whose records could not be moved.
fn check_data_known(speed: Side<'_>, state: &ManifestState) -> Result<()> {
    let is_unknown = |kind: &FileKind| kind.is_data_on_fast_tier() && state.engines.is_of_away(*kind);
    let listing = speed.fs.list(speed.dir)?;
    match listing.iter().filter_map(|entry| names::parse(&entry.name)).find(is_unknown) {
        None => Ok(()),
        Some(kind) => Err(Error::new(
            ErrorKind::Unsupported,
            "the fast tier holds files of LavaKV, and the store was opened without LavaKV: give \
             the tier back with LavaKV",
        )
        .at_file(io::fs::join(speed.dir, &kind.to_string()))),
    }
}

/// Copies the listed tables and value files of the fast tier, durably, under their names in the
/// directory.
fn copy_data(state: &ManifestState, from: Side<'_>, to: Side<'_>) -> Result<()> {
    let files = state.engines.files_on(Volume::FAST).into_iter().filter(|kind| kind.is_data_on_fast_tier());
    files.into_iter().try_for_each(|kind| {
        let source = from.fs.open(&io::fs::join(from.dir, &kind.to_string()), Access::Buffered)?;
        let path = io::fs::join(to.dir, &kind.in_directory().to_string());
        match to.fs.remove(&path) {
            // Left by an interrupted move.
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let len = source.len()?;
        let options = CreateOptions { expected_len: len, ..CreateOptions::default() };
        let mut target = to.fs.create(&path, &options)?;
        let copied = copy_bytes(&*source, &mut *target, len, None);
        let copied = copied.and_then(|()| target.sync(SyncKind::Full));
        copied.inspect_err(|_| drop(to.fs.remove(&path)))
    })
}

/// Makes the recovered manifest durable. The process that wrote its last edit may have died before
/// the sync. The location of the log depends on that edit, and so do the removals.
fn settle(manifest: &Manifest) -> Result<()> {
    if manifest.report().name.is_empty() {
        return Ok(());
    }
    manifest.commits().roll()
}

/// Removes all files of the store from the disk, its identity last.
fn clear(speed: Side<'_>) -> Result<()> {
    remove_all(speed.fs, speed.dir, FileKind::is_kept_on_speed_disk)?;
    speed.fs.sync_dir(speed.dir)?;
    remove_all(speed.fs, speed.dir, |kind| kind == FileKind::FastTier)?;
    speed.fs.sync_dir(speed.dir)
}

/// Reads the log like in an open: it must be whole, and consistent with the manifest.
fn judge(env: &Env, dir: &Path, manifest: &Manifest) -> Result<()> {
    let (state, listing) = (manifest.state(), env.fs.list(dir)?);
    check_whole(dir, &listing, &state)?;
    check_known(env, dir, &listing, &state, &manifest.report().name)?;
    for lane in Lane::ALL {
        let open = |meta: &crate::manifest::LogGroupMeta| {
            let path = io::fs::join(dir, &names::log(meta.file));
            let file =
                recorded::up_to(io::open_in_place_read_only(&*env.fs, &path, Access::Direct)?, meta.len);
            let (ltn, uid, sealed_end) = (meta.ltn, meta.uid, meta.sealed_end);
            Ok(LogGroup { ltn, uid, file, sealed_end, begin: meta.begin })
        };
        let groups = state.log_groups.chain(lane).filter(|meta| !meta.discarded).map(open);
        let groups: Vec<LogGroup> = groups.collect::<Result<_>>()?;
        let (of, mode) = ((state.uid, lane), RecoveryMode::ReadOnly);
        let report = wal::recover_lane(env, dir, of, &groups, mode, &mut |_| Ok(()))?;
        manifest.require_edit(report.witness_edit)?;
    }
    Ok(())
}

/// Copies the files of all groups, durably, and the staging files.
fn copy_log(state: &ManifestState, from: Side<'_>, to: Side<'_>) -> Result<()> {
    for group in state.log_groups.values() {
        let name = names::log(group.file);
        match copy_group(&name, group.len, from, to) {
            // A retained group may be missing: its records are lost, others are not.
            Err(e) if e.kind() == ErrorKind::NotFound && group.retained_bytes.is_some() => {}
            copied => copied?,
        }
    }
    Lane::ALL.into_iter().try_for_each(|lane| copy_open_pages(lane.staging_name(), from, to))
}

fn copy_group(name: &str, len: u64, from: Side<'_>, to: Side<'_>) -> Result<()> {
    let source = from.fs.open(&io::fs::join(from.dir, name), Access::Direct)?;
    let len = source.len()?.min(len) / PAGE as u64 * PAGE as u64;
    let target = to.fs.create_in_place_unzeroed(&io::fs::join(to.dir, name), len, Access::Direct)?;
    let mut offset = 0;
    while offset < len {
        let mut piece = AlignedBuf::zeroed(COPY_LEN.min((len - offset) as usize));
        // A page may be unreadable after a power failure: it is then torn, or the reader of the log
        // reports it.
        io::read_around(piece.as_mut_slice(), offset, PAGE, |buf, offset| source.read_at(buf, offset))?;
        target.write_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    target.sync_data()
}

/// Copies the staging file of a lane. Like the original, the copy survives the process.
fn copy_open_pages(name: &str, from: Side<'_>, to: Side<'_>) -> Result<()> {
    let source = match from.fs.open(&io::fs::join(from.dir, name), Access::Buffered) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let len = source.len()? as usize / PAGE * PAGE;
    if len == 0 {
        return Ok(());
    }
    let target = to.fs.create_scratch(&io::fs::join(to.dir, name), len)?;
    let mut offset = 0;
    while offset < len {
        let mut piece = vec![0; COPY_LEN.min(len - offset)];
        match io::read_around(&mut piece, offset as u64, PAGE, |buf, offset| source.read_at(buf, offset)) {
            Err(e) if io::is_unreadable(&e) => piece.fill(0),
            read => read?,
        }
        target.write(offset, &piece)?;
        offset += piece.len();
    }
    Ok(())
}
