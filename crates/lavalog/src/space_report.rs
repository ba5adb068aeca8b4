//! The space ledger of a store of logs: every byte of its directory has an owner.
//!
//! The sum is taken over a listing of the directory, each file attributed by what the manifest says of it, so that nothing can drift; what is
//! alive in a file is asked of the index. Bytes are those that the file system has allocated. It is taken while operations go on: each
//! part is then true of some moment, and the sum is that of the listing all the same.

use crate::catalog::Catalog;
use crate::entry::Source;
use crate::foundation::Foundation;
use crate::manifest::{LavaLog, Role};
use base::Result;
use io::DirEntry;
use std::sync::Arc;
use store::commit::Lane;
use store::manifest::{Engine, StateOf};
use store::names::{self, FileKind};
use store::speed::SpeedSpace;

/// Who owns the bytes on disk. The [`parts`](Space::parts) sum to `total_bytes`, which is what the file system reports for the files of
/// the store (allocated, not logical, bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Each part of the sum.
    pub owners: Owners,
    /// All of them.
    pub total_bytes: u64,
    /// Of groups that are storage, and cold files: bytes of the files of either.
    pub stored: Stored,
    /// Bytes still free on the volume.
    pub available_bytes: u64,
    /// The second disk, if the log has one.
    pub speed: Option<SpeedSpace>,
    /// What the files may occupy together: the limit, or what the volume has for them if that is less; 0: there is no limit.
    pub limit_bytes: u64,
    /// Bytes below the limit that appends may not take, so that collection, trims and deletes can go on.
    pub reserve_bytes: u64,
    /// What is alive of each log, by their names.
    pub logs: Vec<LogSpace>,
}

/// The parts of the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Records that are alive, without what is stored with them.
    pub live_bytes: u64,
    /// What else is in groups that are storage, and in cold files: trimmed records, heads and padding, rows of cold files.
    pub garbage_bytes: u64,
    /// What else is in groups that are not storage yet: the same, and room that is not written to.
    pub open_bytes: u64,
    /// Index files.
    pub index_bytes: u64,
    /// Checkpoints.
    pub checkpoint_bytes: u64,
    /// Files of jobs under way, and such that are about to be removed.
    pub job_bytes: u64,
    /// Files of groups that wait to be used again.
    pub free_bytes: u64,
    /// The first lane of the log, its ballast, and open pages of all lanes.
    pub wal_bytes: u64,
    /// Manifests and the pointer to the current one.
    pub manifest_bytes: u64,
    /// Files of other engines on the same store.
    pub engines_bytes: u64,
    /// Files the store does not know.
    pub other_bytes: u64,
}

/// Files that hold records and are not written to any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Groups.
    pub groups: u64,
    /// Bytes of their files.
    pub group_bytes: u64,
    /// Cold files.
    pub cold_files: u64,
    /// Their bytes.
    pub cold_bytes: u64,
}

/// What is alive of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// Its name.
    pub name: Arc<str>,
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub live_bytes: u64,
}

impl Space {
    /// Name and value of each part of the sum.
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

/// Takes the ledger: one directory listing, attributed by the manifest's state.
pub(crate) fn take(store: &Foundation, catalog: &Catalog) -> Result<Space> {
    let mut out = Space::default();
    let listing = store.context().env.fs.list(&store.context().dir)?;
    let state = store.manifest.state();
    listing.iter().for_each(|entry| attribute(catalog, &state, entry, &mut out));
    let budget = &store.space;
    out.available_bytes = store.context().env.fs.space(&store.context().dir)?.available;
    out.speed = SpeedSpace::of(&store.context().env, &store.context().dir)?;
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
            Some(Role::Index { .. }) => &mut owners.index_bytes,
            Some(Role::Checkpoint) => &mut owners.checkpoint_bytes,
            Some(Role::Cold { .. }) => {
                alive = is_alive(Source::Cold(number));
                (stored.cold_files, stored.cold_bytes) = (stored.cold_files + 1, stored.cold_bytes + bytes);
                &mut owners.garbage_bytes
            }
        },
        Some(
            FileKind::Engine { .. }
            | FileKind::Ksst(_)
            | FileKind::SpeedKsst(_)
            | FileKind::Vsst(_)
            | FileKind::SpeedVsst(_)
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
            | FileKind::Speed,
        ) => &mut owners.manifest_bytes,
        Some(FileKind::Lock | FileKind::SpeedLock) | None => &mut owners.other_bytes,
    };
    *owner += bytes - alive;
    owners.live_bytes += alive;
    out.total_bytes += bytes;
}
