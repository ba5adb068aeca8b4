//! What recovery reads of a log, and what must fit the manifest.
//!
//! A group gets pages only once the edit that lists it is durable, and a page says which edit was durable when it was
//! begun. So a page of a group that the manifest has never heard of, or of a later edit, says that the manifest has lost its end.

use crate::manifest::State;
use crate::names::{self, FileKind};
use base::{Error, ErrorKind, HashMap, Result, Uid};
use io::{Access, AlignedBuf, DirEntry, Env, FileRead, InPlaceFile, ReadFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{Lane, RecoveryReport, Staging};

/// So many files are open, and their first pages in memory, at the same time.
const READ_AT_ONCE: usize = 64;

/// Neither a log file nor the staging file may hold a page of a group that the manifest has never heard of. Otherwise a
/// manifest that lost its end would look like one that is whole, where the files it lists have been recycled since, or where
/// all that the lost group holds is in the staging file. `manifest`: the name of its file.
///
/// # Errors
/// `Corruption`; those of reading.
pub fn check_known(env: &Env, dir: &Path, listing: &[DirEntry], state: &State, manifest: &str) -> Result<()> {
    must_know(dir, newest_group(env, dir, listing, state.uid)?, state, manifest)
}

/// As [`check_known`], for an open that has the store for itself. Returns the staging file of the first lane, which the replay of
/// that lane needs as well.
///
/// # Errors
/// As there.
pub fn check_known_to_write(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    state: &State,
    manifest: &str,
) -> Result<Staging> {
    let staging = Staging::of_lane(env, dir, Lane::FIRST, state.uid)?;
    check_known_beside(staging, env, dir, listing, (state, manifest))
}

/// As [`check_known`], for a reader that goes on from an earlier reading. Returns the staging file without the pages before: the earlier
/// reading has checked these.
///
/// # Errors
/// As there.
pub fn check_known_to_read_on(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    (state, manifest): (&State, &str),
    last: &RecoveryReport,
) -> Result<Staging> {
    let begins = last.point.map_or(0, |point| point.lpn());
    let staging = Staging::to_read_on(env, dir, state.uid, begins)?;
    check_known_beside(staging, env, dir, listing, (state, manifest))
}

/// As [`check_known`], where the staging file of the first lane is read already. Returns it.
fn check_known_beside(
    staging: Staging,
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    (state, manifest): (&State, &str),
) -> Result<Staging> {
    let newest = newest_group_of(env, dir, listing, state.uid, |lane| match lane {
        Lane::FIRST => Ok(staging.newest_group()),
        lane => wal::newest_staged_group(env, dir, lane, state.uid),
    })?;
    must_know(dir, newest, state, manifest)?;
    Ok(staging)
}

/// Fails if the newest group is one that the manifest does not know.
fn must_know(dir: &Path, newest: Option<(String, u64)>, state: &State, manifest: &str) -> Result<()> {
    let Some((file, ltn)) = newest.filter(|(_, ltn)| *ltn >= state.next_ltn) else {
        return Ok(());
    };
    let why = format!(
        "{file} holds log group {ltn}, which {manifest} does not know: {manifest} has lost its end; open the store \
         read-only for what is left, run `lava repair`, or restore a checkpoint or backup"
    );
    Err(Error::corruption(why).at_file(io::fs::join(dir, manifest)))
}

/// The newest group of the log, in any lane, of which any file of a store's directory has a page, by the first pages of log
/// files and all pages of the staging files; and which file that is.
///
/// # Errors
/// Those of reading.
pub fn newest_group(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    store: Uid,
) -> Result<Option<(String, u64)>> {
    newest_group_of(env, dir, listing, store, |lane| wal::newest_staged_group(env, dir, lane, store))
}

/// [`newest_group`], where `staged` knows the newest group of the staging file of a lane.
fn newest_group_of(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    store: Uid,
    staged: impl Fn(Lane) -> Result<Option<u64>>,
) -> Result<Option<(String, u64)>> {
    let mut newest: Option<(String, u64)> = None;
    for lane in Lane::ALL {
        let staged = staged(lane)?.map(|ltn| (lane.staging_name().to_owned(), ltn));
        newest = newest.into_iter().chain(staged).max_by_key(|(_, ltn)| *ltn);
    }
    let is_log = |e: &&DirEntry| matches!(names::parse(&e.name), Some(FileKind::Log(_)));
    let logs: Vec<&DirEntry> = listing.iter().filter(is_log).filter(|e| e.len >= io::PAGE as u64).collect();
    for some in logs.chunks(READ_AT_ONCE) {
        for (entry, page) in some.iter().zip(first_pages(env, dir, some)?) {
            if let Some(ltn) = page.and_then(|page| wal::group_of(&page, store))
                && newest.as_ref().is_none_or(|(_, newest)| *newest < ltn)
            {
                newest = Some((entry.name.clone(), ltn));
            }
        }
    }
    Ok(newest)
}

/// The first pages of some files, with as many reads in flight as the system takes: groups that are storage are among them, which may
/// be very many. `None`: it cannot be read. The power failed on it, or it is missed when the log is read.
fn first_pages(env: &Env, dir: &Path, files: &[&DirEntry]) -> Result<Vec<Option<Vec<u8>>>> {
    let open = |entry: &&DirEntry| env.fs.open(&io::fs::join(dir, &entry.name), io::Access::Buffered);
    let files: Vec<Arc<dyn ReadFile>> = files.iter().map(open).collect::<Result<_>>()?;
    let mut pages = vec![vec![0; io::PAGE]; files.len()];
    let reads = files.iter().zip(&mut pages).map(|(file, buf)| FileRead { file, offset: 0, buf });
    if io::read_files(&mut reads.collect::<Vec<_>>()).is_ok() {
        return Ok(pages.into_iter().map(Some).collect());
    }
    // Nobody says which it was.
    let alone = |(file, mut page): (&Arc<dyn ReadFile>, Vec<u8>)| match file.read_at(&mut page, 0) {
        Err(e) if io::is_unreadable(&e) => Ok(None),
        read => read.map(|()| Some(page)),
    };
    files.iter().zip(pages).map(alone).collect()
}

/// Every group that the manifest lists for replay must be there with the length that it had. One that is kept as storage may be
/// missing, or be too short: that is an error of its records, whoever reads them.
///
/// # Errors
/// `Corruption`.
pub fn check_whole(dir: &Path, listing: &[DirEntry], state: &State) -> Result<()> {
    let lens: HashMap<&str, u64> = listing.iter().map(|entry| (&*entry.name, entry.len)).collect();
    for group in Lane::ALL.into_iter().flat_map(|lane| state.log_groups.chain(lane)) {
        let name = names::log(group.file);
        let problem = match lens.get(&*name) {
            // Bytes behind the end are no part of the log.
            Some(&len) if len >= group.len => continue,
            Some(len) => format!("the file has {len} bytes instead of {}", group.len),
            None => {
                "the manifest lists this file but it is missing, or the manifest has lost its end".to_owned()
            }
        };
        let advice = "restore it from a checkpoint or backup, or save the rest with `lava repair`";
        return Err(Error::corruption(format!("{problem}; {advice}")).at_file(io::fs::join(dir, &name)));
    }
    Ok(())
}

/// Opens the file of a log group for somebody who reads what is before the damage: one that is missing is a group without pages, so that the
/// log does not begin behind it.
///
/// # Errors
/// Those of opening it.
pub fn open_group(env: &Env, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
    match io::open_in_place_read_only(&*env.fs, path, access) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Arc::new(MissingGroup(path.to_owned()))),
        opened => opened,
    }
}

/// The file of a log group that is not there.
#[derive(Debug)]
struct MissingGroup(PathBuf);

impl MissingGroup {
    fn fails<T>(&self) -> Result<T> {
        Err(Error::not_found("the file of a log group is missing").at_file(&self.0))
    }
}

impl InPlaceFile for MissingGroup {
    fn len(&self) -> u64 {
        0
    }
    fn write_at(&self, _: &AlignedBuf, _: u64) -> Result<()> {
        self.fails()
    }
    fn write_durable(&self, _: &AlignedBuf, _: u64) -> Result<()> {
        self.fails()
    }
    fn sync_data(&self) -> Result<()> {
        self.fails()
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        self.fails()
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests;
