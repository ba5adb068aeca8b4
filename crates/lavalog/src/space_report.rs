//! Space report of a store of logs: assigns every byte of the directory to an owner.
//!
//! The report is computed from a directory listing, with each file assigned by the manifest, so
//! that no counter can drift. The index supplies the live bytes of a file. Bytes are those
//! allocated by the file system. Operations continue meanwhile: the parts may belong to different
//! moments, but their sum is that of the listing.

use crate::catalog::Catalog;
use crate::entry::Source;
use crate::manifest::{FileRole, LavaLog};
use crate::store_handles::StoreHandles;
use base::Result;
use io::DirEntry;
use std::sync::Arc;
use store::commit::Lane;
use store::fast_tier::FastTierSpace;
use store::manifest::{Engine, StateOf};
use store::names::{self, FileKind};

/// Tells the owner of each byte on disk, to find the log that needs a trim; `LogStore::space`
/// returns it.
///
/// The [`parts`](Space::parts) sum to `total_bytes`, the bytes that the file system has allocated
/// for the files of the store. Writers continue meanwhile: the parts may belong to different
/// moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes by owner.
    pub owners: Owners,
    /// Sum of all owners.
    pub total_bytes: u64,
    /// Number and bytes of sealed groups and cold files.
    pub stored: Stored,
    /// Free bytes of the volume, for any user of it.
    pub available_bytes: u64,
    /// Space of the fast tier, if the log has one.
    pub speed: Option<FastTierSpace>,
    /// Maximum bytes of all files: the space limit, or the capacity of the volume for them if
    /// lower; 0: no limit.
    pub limit_bytes: u64,
    /// Bytes below the limit that appends may not use, reserved for garbage collection, trims and
    /// deletes. 0 without a limit.
    pub reserve_bytes: u64,
    /// Live data of each log, in name order. A log that is never trimmed grows here.
    pub logs: Vec<LogSpace>,
}

/// Divides the space of a store of logs by owner, in allocated bytes. Garbage much above
/// [`crate::Options::garbage_percent`] means that collection is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Live records, without metadata.
    pub live_bytes: u64,
    /// Rest of the sealed groups and cold files: dead records, headers, padding, and rows of cold
    /// files.
    pub garbage_bytes: u64,
    /// Rest of the unsealed groups: dead records, headers, padding, and unwritten space.
    pub open_bytes: u64,
    /// Index files, which lead from LSNs to records.
    pub index_bytes: u64,
    /// Checkpoints of the state of the logs, which shorten an open. They are no backups.
    pub checkpoint_bytes: u64,
    /// Files of running jobs, and files about to be removed.
    pub job_bytes: u64,
    /// Files of spare groups, which the next records will use.
    pub free_bytes: u64,
    /// The first lane of the log with its reserved space, and the open pages of all lanes.
    pub wal_bytes: u64,
    /// Manifest files and the pointer to the current one.
    pub manifest_bytes: u64,
    /// Files of other engines of the store.
    pub engines_bytes: u64,
    /// Unknown files, which the store neither reads nor removes.
    pub other_bytes: u64,
}

/// Counts the files that hold records and are not written any more: sealed log files, and cold
/// files with the records that outlived theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Number of sealed groups.
    pub groups: u64,
    /// Bytes of the sealed groups' files.
    pub group_bytes: u64,
    /// Number of cold files.
    pub cold_files: u64,
    /// Bytes of the cold files.
    pub cold_bytes: u64,
}

/// Shows the live data of one log, to find the one that needs a trim. Its garbage is not counted:
/// files are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// Name of the log.
    pub name: Arc<str>,
    /// Number of live records: neither trimmed nor truncated.
    pub records: u64,
    /// Bytes of the live records, without headers and metadata.
    pub live_bytes: u64,
}

impl Space {
    /// Returns the name and bytes of each owner, to print or chart them, as [`Space::owners`] has
    /// them by field; they sum to `total_bytes`.
    pub fn parts(&self) -> [(&'static str, u64); 11] {
        let owners = &self.owners;
        [
            ("live", owners.live_bytes),
            ("garbage", owners.garbage_bytes),
            ("open", owners.open_bytes),
            ("index", owners.index_bytes),
            ("checkpoint", owners.checkpoint_bytes),
            ("jobs", owners.job_bytes),
            ("free", owners.free_bytes),
            ("wal", owners.wal_bytes),
            ("manifest", owners.manifest_bytes),
            ("engines", owners.engines_bytes),
            ("other", owners.other_bytes),
        ]
    }
}

/// Computes the report from one directory listing and the manifest.
pub(crate) fn take(store: &StoreHandles, catalog: &Catalog) -> Result<Space> {
    let mut out = Space::default();
    let listing = store.context().env.fs.list(&store.context().dir)?;
    let state = store.manifest.state();
    listing.iter().for_each(|entry| attribute(catalog, &state, entry, &mut out));
    let budget = &store.space;
    out.available_bytes = store.context().env.fs.space(&store.context().dir)?.available;
    out.speed = FastTierSpace::of(&store.context().env, &store.context().dir)?;
    out.limit_bytes = if budget.has_own_limit() { budget.limit_bytes() } else { 0 };
    out.reserve_bytes = if budget.has_own_limit() { budget.reserve_bytes() } else { 0 };
    catalog.each_log(|log| {
        let size = log.live().index().size();
        let (name, records, live_bytes) = (log.name().clone(), size.records, size.bytes);
        out.logs.push(LogSpace { name, records, live_bytes });
    });
    debug_assert_eq!(out.parts().iter().map(|(_, n)| n).sum::<u64>(), out.total_bytes);
    Ok(out)
}

fn attribute(catalog: &Catalog, state: &StateOf<LavaLog>, entry: &DirEntry, out: &mut Space) {
    let bytes = entry.allocated;
    let role = |number| state.files.get(&number).map(|file| file.role);
    let group = |number| {
        let ltn = state.store.log_groups.in_file(number)?;
        Some((ltn, state.store.log_groups.get(&ltn)?))
    };
    let (owners, stored) = (&mut out.owners, &mut out.stored);
    let is_alive = |source| catalog.view().ledger().usage(source).live.bytes.min(bytes);
    let mut alive = 0;
    let owner = match names::parse(&entry.name) {
        Some(FileKind::Log(n)) => match group(n) {
            None => &mut owners.free_bytes,
            Some((_, group)) if group.lane != Lane::LOG => &mut owners.wal_bytes,
            Some((ltn, group)) => {
                alive = is_alive(Source::Group(ltn));
                if group.retained_bytes.is_none() {
                    &mut owners.open_bytes
                } else {
                    (stored.groups, stored.group_bytes) = (stored.groups + 1, stored.group_bytes + bytes);
                    &mut owners.garbage_bytes
                }
            }
        },
        Some(FileKind::Engine { engine, number, .. }) if engine == LavaLog::ID.0 => match role(number) {
            None => &mut owners.job_bytes,
            Some(FileRole::Index { .. }) => &mut owners.index_bytes,
            Some(FileRole::Checkpoint) => &mut owners.checkpoint_bytes,
            Some(FileRole::Cold { .. }) => {
                alive = is_alive(Source::Cold(number));
                (stored.cold_files, stored.cold_bytes) = (stored.cold_files + 1, stored.cold_bytes + bytes);
                &mut owners.garbage_bytes
            }
        },
        Some(
            FileKind::Engine { .. }
            | FileKind::Ksst(_)
            | FileKind::FastKsst(_)
            | FileKind::Vsst(_)
            | FileKind::FastVsst(_)
            | FileKind::Tail(_),
        ) => &mut owners.engines_bytes,
        Some(FileKind::Staging | FileKind::LaneStaging(_) | FileKind::StagingTemp(_)) => {
            &mut owners.wal_bytes
        }
        Some(FileKind::Room(_)) => &mut owners.free_bytes,
        Some(
            FileKind::Manifest(_)
            | FileKind::ManifestCopy(_)
            | FileKind::Current
            | FileKind::CurrentTemp
            | FileKind::CurrentCopy
            | FileKind::CurrentCopyTemp
            | FileKind::Unfinished
            | FileKind::FastTier,
        ) => &mut owners.manifest_bytes,
        Some(FileKind::Lock | FileKind::FastLock) | None => &mut owners.other_bytes,
    };
    *owner += bytes - alive;
    owners.live_bytes += alive;
    out.total_bytes += bytes;
}
