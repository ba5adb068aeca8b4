//! Checks that the manifest knows every group and edit that the log's pages name.
//!
//! A group gets pages only once the edit that lists it is durable. Each page records the last edit
//! that was durable when the page was begun. So a page of an unknown group, or with a later edit,
//! proves that the manifest has lost its end.
//!
//! The first page of a new group file is zero before its name survives a crash. Where a file system
//! gives blocks with old contents, that page could otherwise belong to a copy of this store, and a
//! sound store would be refused.

use crate::manifest::ManifestState;
use crate::names::{self, FileKind};
use base::{Error, ErrorKind, HashMap, Result, Uid};
use io::{Access, AlignedBuf, DirEntry, Env, FileRead, InPlaceFile, ReadFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{Lane, RecoveryReport, Staging};

/// Maximum number of open files, with their first pages in memory.
const READ_AT_ONCE: usize = 64;

/// Fails if a log file or a staging file holds a page of a group that the manifest does not know.
/// Otherwise a manifest without its end would look whole if its listed files have been recycled
/// since, or if all pages of the lost group are in the staging file. `manifest`: the name of its
/// file.
///
/// # Errors
/// `Corruption`; errors of reading.
pub fn check_known(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    state: &ManifestState,
    manifest: &str,
) -> Result<()> {
    must_know(dir, newest_group(env, dir, listing, state.uid)?, state, manifest)
}

/// As [`check_known`], for an exclusive open. Returns the staging file of the first lane, which the
/// replay of that lane needs too.
///
/// # Errors
/// As [`check_known`].
pub fn check_known_to_write(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    state: &ManifestState,
    manifest: &str,
) -> Result<Staging> {
    let staging = Staging::of_lane(env, dir, Lane::FIRST, state.uid)?;
    check_known_beside(staging, env, dir, listing, (state, manifest))
}

/// As [`check_known`], for a reader that continues an earlier reading. Returns the staging file
/// without the pages that the earlier reading has checked.
///
/// # Errors
/// As [`check_known`].
pub fn check_known_to_read_on(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    (state, manifest): (&ManifestState, &str),
    last: &RecoveryReport,
) -> Result<Staging> {
    let begins = last.point.map_or(0, |point| point.lpn());
    let staging = Staging::to_read_on(env, dir, state.uid, begins)?;
    check_known_beside(staging, env, dir, listing, (state, manifest))
}

/// As [`check_known`], with the staging file of the first lane already read. Returns that file.
fn check_known_beside(
    staging: Staging,
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    (state, manifest): (&ManifestState, &str),
) -> Result<Staging> {
    let newest = newest_group_of(env, dir, listing, state.uid, |lane| match lane {
        Lane::FIRST => Ok(staging.newest_group()),
        lane => wal::newest_staged_group(env, dir, lane, state.uid),
    })?;
    must_know(dir, newest, state, manifest)?;
    Ok(staging)
}

/// Fails if the manifest does not know the newest group.
fn must_know(dir: &Path, newest: Option<(String, u64)>, state: &ManifestState, manifest: &str) -> Result<()> {
    let Some((file, ltn)) = newest.filter(|(_, ltn)| *ltn >= state.next_ltn) else {
        return Ok(());
    };
    let why = format!(
        "{file} holds log group {ltn}, which {manifest} does not know: {manifest} has lost its \
         end"
    );
    Err(Error::corruption(why)
        .with_remedy(base::error::REMEDY_OF_A_LOST_END)
        .at_file(io::fs::join(dir, manifest)))
}

/// Returns the newest log group, in any lane, and a file that holds a page of it. It reads the
/// first pages of log files and all pages of the staging files.
///
/// # Errors
/// Errors of reading.
pub fn newest_group(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    store: Uid,
) -> Result<Option<(String, u64)>> {
    newest_group_of(env, dir, listing, store, |lane| wal::newest_staged_group(env, dir, lane, store))
}

/// As [`newest_group`]; `staged` returns the newest group of a lane's staging file.
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

/// Reads the first pages of files, with as many reads in flight as the system allows, because
/// retained groups may be very many. `None`: the page is unreadable. Either the power failed during
/// its write, or the reader of the log reports it later.
fn first_pages(env: &Env, dir: &Path, files: &[&DirEntry]) -> Result<Vec<Option<Vec<u8>>>> {
    let open = |entry: &&DirEntry| env.fs.open(&io::fs::join(dir, &entry.name), io::Access::Buffered);
    let files: Vec<Arc<dyn ReadFile>> = files.iter().map(open).collect::<Result<_>>()?;
    let mut pages = vec![vec![0; io::PAGE]; files.len()];
    let reads = files.iter().zip(&mut pages).map(|(file, buf)| FileRead { file, offset: 0, buf });
    if io::read_files(&mut reads.collect::<Vec<_>>()).is_ok() {
        return Ok(pages.into_iter().map(Some).collect());
    }
    // The error of a batch of reads does not tell which file failed.
    let alone = |(file, mut page): (&Arc<dyn ReadFile>, Vec<u8>)| match file.read_at(&mut page, 0) {
        Err(e) if io::is_unreadable(&e) => Ok(None),
        read => read.map(|()| Some(page)),
    };
    files.iter().zip(pages).map(alone).collect()
}

/// Fails if a group that the manifest lists for replay is missing or has another length. A retained
/// group may be missing or short: readers of its records get the error.
///
/// # Errors
/// `Corruption`.
pub fn check_whole(dir: &Path, listing: &[DirEntry], state: &ManifestState) -> Result<()> {
    let lens: HashMap<&str, u64> = listing.iter().map(|entry| (&*entry.name, entry.len)).collect();
    for group in Lane::ALL.into_iter().flat_map(|lane| state.log_groups.chain(lane)) {
        let name = names::log(group.file);
        let problem = match lens.get(&*name) {
            // Bytes beyond the recorded length are no part of the log.
            Some(&len) if len >= group.len => continue,
            Some(len) => {
                format!("the file of group {} of the log has {len} bytes instead of {}", group.ltn, group.len)
            }
            None => format!(
                "the manifest lists this file of group {} of the log, but it is missing, or the manifest \
                 has lost its end",
                group.ltn
            ),
        };
        return Err(Error::corruption(problem).at_file(io::fs::join(dir, &name)));
    }
    Ok(())
}

/// Opens the file of a log group for a reader that stops at damage. A missing file becomes a group
/// without pages, so that the log does not begin behind it.
///
/// # Errors
/// Errors of opening it.
pub fn open_group(env: &Env, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
    match io::open_in_place_read_only(&*env.fs, path, access) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Arc::new(MissingGroup(path.to_owned()))),
        opened => opened,
    }
}

/// Stand-in for a missing file of a log group.
#[derive(Debug)]
struct MissingGroup(PathBuf);

impl MissingGroup {
    fn fails<T>(&self) -> Result<T> {
        Err(Error::not_found(
            "the file of a log group is missing: restore it from a backup, or run `lava repair`",
        )
        .at_file(&self.0))
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
