//! Rest work in the space report: whether a store without writes frees deleted data, or the reason
//! if not.

use crate::plan::rest::{Rest, Suspension};
use crate::work::jobs::Jobs;
use base::sync::lock;
use std::sync::Arc;

/// Tells whether an idle store frees its deleted data by itself, or what keeps it from doing so:
/// see [`crate::Options::rest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestState {
    /// The store was written recently, or is open for reading only. Some seconds without a write
    /// lead to another state.
    #[default]
    Awake,
    /// The store is freeing deleted data, or has freed it.
    AtRest,
    /// Rest work is switched off by [`crate::Options::rest`]: use `compact_range` instead.
    SwitchedOff,
    /// Rest work waits until all snapshots are dropped that are older than the last write:
    /// [`crate::Space::holders`] lists them.
    SnapshotOpen,
    /// Rest work waits for the end of a checkpoint, or of a [`crate::GcPause`].
    BackupRunning,
}

impl RestState {
    /// Returns a stable name for tables and metrics, such as `at_rest`; to decide in code match on
    /// the variant.
    pub fn name(self) -> &'static str {
        match self {
            RestState::Awake => "awake",
            RestState::AtRest => "at_rest",
            RestState::SwitchedOff => "off",
            RestState::SnapshotOpen => "snapshot",
            RestState::BackupRunning => "backup",
        }
    }
}

/// Tells whether an idle store has freed its deleted data, and the cost of that since the open;
/// [`crate::Space::rest`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestReport {
    /// Current rest state, with the reason if the work is suspended.
    pub state: RestState,
    /// Bytes of keys and values written since the open.
    pub written_bytes: u64,
    /// Bytes of tables that rest work has rewritten since the open.
    pub rewritten_bytes: u64,
    /// At rest, deleted data stays in tables, because freeing it would rewrite more bytes than were
    /// written since the previous rest. Later writes or `compact_range` free it.
    pub leaves_deleted_data: bool,
}

impl RestReport {
    pub(super) fn of(jobs: &Jobs) -> RestReport {
        let state = match jobs.rest() {
            _ if jobs.files.manifest.is_read_only() => RestState::Awake,
            Rest::Awake => RestState::Awake,
            Rest::On => RestState::AtRest,
            Rest::Suspended(Suspension::Option) => RestState::SwitchedOff,
            Rest::Suspended(Suspension::Snapshot) => RestState::SnapshotOpen,
            Rest::Suspended(Suspension::Backup) => RestState::BackupRunning,
        };
        let stats = &jobs.context.stats;
        let (written_bytes, rewritten_bytes) =
            (stats.user_bytes_written.get(), stats.rest_bytes_written.get());
        let leaves_deleted_data = state == RestState::AtRest && leaves_deleted_data(jobs);
        RestReport { state, written_bytes, rewritten_bytes, leaves_deleted_data }
    }

    /// Returns the rewritten bytes per written byte, to judge the cost of [`crate::Options::rest`];
    /// `None`: nothing was written since the open.
    pub fn rewritten_per_written(&self) -> Option<f64> {
        (self.written_bytes > 0).then(|| self.rewritten_bytes as f64 / self.written_bytes as f64)
    }
}

fn leaves_deleted_data(jobs: &Jobs) -> bool {
    let noted = lock(&jobs.in_progress).learned.unaffordable.clone();
    noted.iter().any(|(id, version)| {
        let family = jobs.tree.families.get(*id);
        family.is_some_and(|family| {
            family.look(|seen| std::ptr::eq(version.as_ptr(), Arc::as_ptr(&seen.version)))
        })
    })
}
