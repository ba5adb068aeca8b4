//! The log goes to another disk, all of it in one edit; tables and files of values go back from there in the same.
//!
//! What is copied is what the manifest lists, byte for byte, and the open pages; pages are told by the identity of their group, not by
//! where they are. Before that the log is read to its end as an opening reads it: a manifest that has lost its end would get an edit
//! that takes the place of a lost one, and nobody would miss it from then on.
//!
//! A crash leaves copies that count for nothing on one of the disks. On the capacity disk the next session removes them, or nobody lists them
//! when the log is there. On the speed disk they stand beside an identity that says that a move was under way, and the next move begins by
//! removing them.

use super::{both, lock};
use crate::commit::read::{check_known, check_whole};
use crate::commit::recorded;
use crate::copy::{COPY_LEN, copy_bytes};
use crate::directory;
use crate::files::{remove_all, unfinished};
use crate::manifest::{Engines, Manifest, Record, State};
use crate::names::{self, FileKind};
use crate::volumes::identity::{self, Identity, IdentityFile, check_disk};
use crate::volumes::{SpeedDisk, Volume};
use base::{Error, ErrorKind, Result, Uid};
use io::{Access, AlignedBuf, CreateOptions, Disks, Env, FileLock, FileSystem, PAGE, SyncKind};
use std::path::Path;
use std::sync::Arc;
use wal::{Lane, LogGroup, RecoveryMode};

/// A directory of a file system.
#[derive(Clone, Copy)]
struct Side<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
}

fn sides<'a>(disks: &'a Disks, dir: &'a Path) -> (Side<'a>, Side<'a>) {
    (Side { fs: &*disks.capacity, dir }, Side { fs: &*disks.speed, dir: &disks.speed_dir })
}

/// Refuses a place for a speed disk in which there is something. What a move of this store left that was cut off is nothing.
///
/// # Errors
/// `InvalidArgument`; those of reading.
pub(super) fn check_vacant(disks: &Disks, store: Option<Uid>) -> Result<()> {
    let files = match disks.speed.list(&disks.speed_dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    let at = |why: String| Err(Error::invalid(why).at_file(&disks.speed_dir));
    match identity::of_place(disks)? {
        Some(Identity { store: found, moving: true, .. }) if Some(found) == store => return Ok(()),
        Some(found) if Some(found.store) == store => {
            return at(format!(
                "this was the speed disk of this store up to session {}, and its manifest does not say so: the store's directory is an \
                 older copy, or the disk was given back and is to be emptied",
                found.epoch
            ));
        }
        Some(found) => {
            return at(format!(
                "this is the speed disk of another store, {:?}: choose an empty directory",
                found.store
            ));
        }
        None => {}
    }
    let own = |name: &str| matches!(names::parse(name), Some(FileKind::Speed | FileKind::SpeedLock));
    match files.iter().find(|file| !own(&file.name)) {
        Some(file) => {
            at(format!("a speed disk begins as an empty directory, and this one holds {}", file.name))
        }
        None => Ok(()),
    }
}

/// The log of a store moves to its new speed disk. Returns the lock of that.
pub(super) fn join(env: &Env, dir: &Path, disks: &Disks, manifest: &Manifest) -> Result<Box<dyn FileLock>> {
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
    // A copy is never found without the file that says whose it is.
    speed.fs.sync_dir(speed.dir)?;
    copy_log(&state, capacity, speed)?;
    speed.fs.sync_dir(speed.dir)?;
    let place = speed.dir.display().to_string();
    let record = Record::SpeedDisk { disk: Some(SpeedDisk { disk, epoch: 1, session, place }) };
    manifest.commit_store(|_| Ok(vec![record]), |_| {})?;
    remove_all(capacity.fs, capacity.dir, FileKind::is_of_log)?;
    Ok(held)
}

/// Commits a record of the store's, in one edit with what an engine has to say with it.
pub type CommitWith<'a> = dyn Fn(&Arc<Manifest>, Record) -> Result<()> + 'a;

/// As [`give_back_with`], by somebody who knows of no engine: none has to be here that has only its log there.
///
/// # Errors
/// As there, and `Unsupported` if there are tables or values on the disk.
pub fn give_back(env: &Env, dir: &Path) -> Result<()> {
    let commit =
        |manifest: &Arc<Manifest>, record| manifest.commit_store(|_| Ok(vec![record]), |_| {}).map(drop);
    give_back_with(env, dir, &Engines::default(), &commit)
}

/// A store gives its speed disk back: log, tables and values are in its directory from then on. The store is closed. `commit` makes one edit of the
/// record that says so of the log and of what says so of tables and values, which are copied by then. A store without a speed disk has none to
/// give back: what a cut-off call left there is removed.
///
/// # Errors
/// `InvalidArgument` if `env` has no second disk for the directory; `NotFound` if there is no store; `Locked`; those of
/// [`crate::volumes::identity::check`]; `Corruption` if the log is damaged; `NoSpace` if there is no room in the directory; those of reading.
/// Nothing has changed then.
pub fn give_back_with(env: &Env, dir: &Path, engines: &Engines, commit: &CommitWith<'_>) -> Result<()> {
    let Some(disks) = env.fs.disks(dir) else {
        return Err(Error::invalid("a speed disk to give back is to be named").at_file(dir));
    };
    if !directory::has_store(env, dir)? {
        return Err(Error::not_found("there is no store here").at_file(dir));
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
    // Files are made and removed beside the store's own names only: what is copied counts for nothing before the edit.
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
    commit(&manifest, Record::SpeedDisk { disk: None })?;
    manifest.commits().confirm()?;
    clear(speed)
}

/// Refuses a disk with tables or values on it of an engine that is not here: nobody could say that they move.
fn check_data_known(speed: Side<'_>, state: &State) -> Result<()> {
    let is_unknown = |kind: &FileKind| kind.is_data_of_speed_disk() && state.engines.is_of_away(*kind);
    let listing = speed.fs.list(speed.dir)?;
    match listing.iter().filter_map(|entry| names::parse(&entry.name)).find(is_unknown) {
        None => Ok(()),
        Some(kind) => Err(Error::new(
            ErrorKind::Unsupported,
            "files of LavaKV are on the speed disk, and the store was opened without LavaKV: give the disk back with it",
        )
        .at_file(io::fs::join(speed.dir, &kind.to_string()))),
    }
}

/// Copies the tables and files of values that the manifest has there, durably, under the names that they have in the directory.
fn copy_data(state: &State, from: Side<'_>, to: Side<'_>) -> Result<()> {
    let files = state.engines.files_on(Volume::SPEED).into_iter().filter(|kind| kind.is_data_of_speed_disk());
    files.into_iter().try_for_each(|kind| {
        let source = from.fs.open(&io::fs::join(from.dir, &kind.to_string()), Access::Buffered)?;
        let path = io::fs::join(to.dir, &kind.in_directory().to_string());
        match to.fs.remove(&path) {
            // Left by a move that was cut off.
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

/// What the manifest says is durable from here on, not only there to be seen: the process that wrote the last edit of it may have died before
/// that was synced. Where the log is follows from it, and so does what is removed.
fn settle(manifest: &Manifest) -> Result<()> {
    if manifest.report().name.is_empty() {
        return Ok(());
    }
    manifest.commits().roll()
}

/// Nothing on the disk is the store's any more. What says so goes last.
fn clear(speed: Side<'_>) -> Result<()> {
    remove_all(speed.fs, speed.dir, FileKind::is_kept_on_speed_disk)?;
    speed.fs.sync_dir(speed.dir)?;
    remove_all(speed.fs, speed.dir, |kind| kind == FileKind::Speed)?;
    speed.fs.sync_dir(speed.dir)
}

/// Reads the log as an opening does: it must be whole, and bear the manifest out.
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

/// Copies the files of all groups, durably, and the open pages.
fn copy_log(state: &State, from: Side<'_>, to: Side<'_>) -> Result<()> {
    for group in state.log_groups.values() {
        let name = names::log(group.file);
        match copy_group(&name, group.len, from, to) {
            // One that is kept as storage may be missing: its records are lost, others are not.
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
        // Where the power failed on a page it may be unreadable; then it is torn, or missed by who reads the log.
        io::read_around(piece.as_mut_slice(), offset, PAGE, |buf, offset| source.read_at(buf, offset))?;
        target.write_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    target.sync_data()
}

/// The open pages of a lane survive the process, and so does their copy.
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
