//! The manifest: the durable history of a store, and its state now.
//!
//! The store's own records and those of its engines ([`Engine`]) are one history, in one file: the
//! changes of one edit to both take effect together. The store never interprets an engine's
//! records. It keeps the records of an absent engine unchanged ([`ManifestState`]).
//!
//! Commits are grouped. Every caller appends its edit to a queue under the lock. One of them, the
//! leader, writes and syncs all queued edits while the lock is free for others to queue more. Then
//! each caller publishes its own state, in the order of edit numbers. An edit is *accepted* when it
//! is queued (later edits build on it), *durable* when its batch is synced, *published* when
//! [`Manifest::state`] shows it. In a process without other threads the caller is always the leader
//! and nothing waits.
//!
//! After a failed write or sync the contents of the device are unknown: the manifest is poisoned
//! and every later commit fails until the store is reopened. **The outcome of an edit that failed
//! this way is unknown**: it may be there after a crash, so its files must be left alone until the
//! store has been reopened.
//!
//! A full volume is survivable. When an append or a sync finds no space, a new manifest file begins
//! from the durable state, and the edits fail with a plain `NoSpace`. Without space for a new file,
//! one of two facts decides the outcome. If the file ends inside the first of the edits, no reader
//! takes any of them: the edits fail. If one of two copies holds all edits, its sync makes them
//! durable: they succeed. In both cases nothing is appended behind the refused bytes: the next
//! commit begins a new file, and is refused until there is space for one. The outcome is unknown
//! only if a sync finds no space in every copy and there is no space for a new file.
//!
//! Files are never opened for appending, so a recovered manifest begins a new file before its first
//! commit: a record can never follow a torn one. A roll writes the snapshot of the state into a new
//! file, syncs it and its directory, then replaces `CURRENT` by rename. A crash at any point leaves
//! one of the two complete.
//!
//! The history protects itself (see the byte map). Every record confirms the records that were
//! durable when it was written. `CURRENT` confirms the snapshot, and the log's groups confirm the
//! edits they have seen durable ([`Manifest::require_edit`]). Damage to anything confirmed is
//! corruption. Damage to the very last records, which nothing confirms yet, cannot be distinguished
//! from a torn write and is dropped like one. [`Commits::confirm`] leaves no such records when a
//! store is closed or idle.

use crate::format::{Feature, StoreFormat};
use crate::numbers::NUMBER_MAX;
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::Env;
use std::path::Path;
use std::sync::Arc;

mod apply;
mod check;
mod commits;
mod contradiction;
mod copies;
mod engine;
mod engine_parts;
mod file_numbers;
mod files;
pub mod format;
mod handle;
mod listed_groups;
mod record;
mod replay;
mod salvage;
mod sizes;
mod state;
mod store_dir;
mod writer;

pub use commits::Commits;
pub use contradiction::refuse;
pub use engine::{Engine, Engines};
pub use engine_parts::{EngineParts, EngineView};
pub use files::ManifestFiles;
pub use handle::Handle;
pub use listed_groups::ListedGroups;
pub use record::{ENGINE_NAME_LEN_MAX, EngineFile, EngineId, LogGroupMeta, Payload, Record};
pub use replay::{History, dump_manifest, replay, state_of};
pub use salvage::{ManifestFinding, Witness, look_through};
pub use sizes::ManifestSizes;
pub use state::{Commit, ManifestState, StateBuilder, StateOf};

/// Initial numbers of a new store. All but the edit of the first commit are normally 1; tests begin
/// near 2^32.
#[derive(Clone, Copy, Debug)]
pub struct InitialState {
    /// The first sequence.
    pub first_seq: SeqNo,
    /// The first file number.
    pub first_file_number: u64,
    /// The first log group number.
    pub first_ltn: u64,
    /// The edit number of the first snapshot.
    pub first_edit: u64,
    /// The format of the store.
    pub format: StoreFormat,
}

impl Default for InitialState {
    fn default() -> Self {
        let format = StoreFormat::DEFAULT;
        InitialState { first_seq: 1, first_file_number: 1, first_ltn: 1, first_edit: 1, format }
    }
}

impl InitialState {
    /// Returns the state of a new store.
    pub fn state(&self, uid: Uid, engines: &Engines) -> ManifestState {
        let mut state = ManifestState::empty(uid, self.first_edit, engines);
        state.last_seq = self.first_seq.saturating_sub(1);
        state.next_file_number = self.first_file_number;
        state.next_ltn = self.first_ltn;
        state.format = self.format;
        state
    }
}

/// Findings of recovery, for reports.
#[derive(Clone, Debug, Default)]
pub struct ManifestReport {
    /// Name of the manifest that was read; empty for a new store.
    pub name: String,
    /// Number of edits after its snapshot.
    pub edits: u64,
    /// Bytes read: header, snapshot and edits.
    pub bytes: u64,
    /// Bytes at its end that a crash tore.
    pub torn_bytes: u64,
    /// Parts of `CURRENT` and the manifest that were damaged or missing, but intact in a copy.
    /// Nothing is lost.
    pub damaged: Vec<Error>,
}

/// The durable history of a store, and its state now. Shared between threads.
pub struct Manifest {
    store: Uid,
    read_only: bool,
    report: ManifestReport,
    files: Arc<ManifestFiles>,
    commits: Commits,
    /// The number of the last durable edit, which each log page records.
    durable_edit: Arc<AtomicU64>,
}

impl Manifest {
    /// Creates the manifest of a new store in `dir` (made if missing), durably. The caller makes
    /// the name of `dir` itself durable, in its parent.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory holds a store, `Corruption` if it holds files of one
    /// without `CURRENT`.
    pub fn create(env: &Env, dir: &Path, seed: InitialState, engines: &Engines) -> Result<Manifest> {
        Self::create_with(env, dir, seed.state(env.new_uid(), engines))
    }

    /// Creates a manifest whose history begins with `state`: for checkpoints and repair. The caller
    /// must bring the files of the state first.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory holds a `CURRENT`; `InvalidArgument` if the state
    /// contradicts itself.
    pub fn create_with(env: &Env, dir: &Path, state: ManifestState) -> Result<Manifest> {
        state.verify().map_err(|e| e.with_kind(ErrorKind::InvalidArgument))?;
        env.fs.create_dir_all(dir)?;
        let largest_number = replay::check_vacant(env, dir, &state)?;
        let manifest = Self::new(env, dir, (state, 0), false, ManifestReport::default());
        manifest.bump_file_number(largest_number);
        manifest.commits.roll()?;
        Ok(manifest)
    }

    /// Recovers the manifest of a store, opened with these engines. The records of other engines
    /// are kept unchanged. Nothing is written, with `read_only` or without: the first commit, or an
    /// explicit [`Commits::roll`], begins a new file.
    ///
    /// # Errors
    /// `NotFound` if there is no store in the directory. `Corruption` if anything that is confirmed
    /// is damaged or missing. `Unsupported` if a newer release wrote it.
    pub fn recover(env: &Env, dir: &Path, read_only: bool, engines: &Engines) -> Result<Manifest> {
        let found = replay::find_with_disk(env, dir, read_only, engines, 0)?;
        Ok(Self::of_found(env, dir, found, read_only))
    }

    fn of_found(env: &Env, dir: &Path, found: replay::RecoveredManifest, read_only: bool) -> Manifest {
        let replay::RecoveredManifest { history, name, largest_number, damaged } = found;
        let report = ManifestReport {
            name,
            edits: history.edits,
            bytes: history.bytes,
            torn_bytes: history.torn_bytes,
            damaged,
        };
        let manifest = Self::new(env, dir, (history.state.at_end(), history.confirmed), read_only, report);
        manifest.bump_file_number(largest_number);
        manifest
    }

    /// Recovers the state before the first damage, for a reader, and returns the damage. Files that
    /// the state lists may be gone by now.
    ///
    /// # Errors
    /// `NotFound` if there is no store in the directory. `Corruption` if no snapshot is whole, or a
    /// manifest is not the one that `CURRENT` names. `Unsupported` if a newer release wrote it.
    pub fn recover_up_to_damage(env: &Env, dir: &Path, engines: &Engines) -> Result<(Manifest, Vec<Error>)> {
        let (found, mut damage) = replay::find_up_to_damage(env, dir, engines)?;
        match found.history.state.check_disk(env, dir, true) {
            Err(e) if e.is_corruption() => damage.push(e),
            checked => checked?,
        }
        Ok((Self::of_found(env, dir, found, true), damage))
    }

    fn new(
        env: &Env,
        dir: &Path,
        (state, confirmed): (ManifestState, u64),
        read_only: bool,
        report: ManifestReport,
    ) -> Manifest {
        let files = Arc::new(ManifestFiles::new(env, dir, &state, &report.name));
        let store = state.uid;
        let commits = Commits::new(files.clone(), read_only, Arc::new(state), confirmed);
        let durable_edit = commits.durable_edit().clone();
        Manifest { store, read_only, report, files, commits, durable_edit }
    }

    /// Returns the published state of the store.
    pub fn state(&self) -> Arc<ManifestState> {
        self.commits.state()
    }

    /// Returns the identity of the store.
    pub fn store(&self) -> Uid {
        self.store
    }

    /// Returns true if the manifest was recovered for reading, so that no commit succeeds.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the findings of recovery.
    pub fn report(&self) -> &ManifestReport {
        &self.report
    }

    /// Returns the number of the last durable edit, which the log's pages record (see
    /// [`Manifest::require_edit`]).
    pub fn durable_edit(&self) -> u64 {
        self.durable_edit.load(Ordering::Acquire)
    }

    /// Checks that the history reaches an edit that another file proves to be durable. The caller
    /// checks every such edit after recovery, before anything is written.
    ///
    /// # Errors
    /// `Corruption` if the history ends before.
    pub fn require_edit(&self, edit_number: u64) -> Result<()> {
        let last = self.durable_edit();
        if edit_number <= last {
            return Ok(());
        }
        let why = format!(
            "the manifest ends at edit {last}, but edit {edit_number} was durable: its end is damaged or missing"
        );
        Err(Error::corruption(why).at_file(self.files.dir().join(&self.report.name)))
    }

    /// Allocates a file number that no file has had.
    pub fn allocate_file_number(&self) -> u64 {
        self.files.numbers().allocate()
    }

    /// Raises the allocator above `used`, a number seen in a directory of the store. (Recovery does
    /// this itself for the directory of the manifest.)
    pub fn bump_file_number(&self, used: u64) {
        self.files.numbers().raise(used.saturating_add(1).min(NUMBER_MAX));
    }

    /// Commits an edit of the store's own records and publishes the state after it: for the log.
    /// See [`Handle::commit_with`] for engines.
    ///
    /// # Errors
    /// As [`Handle::commit_with`].
    pub fn commit_store(
        &self,
        build: impl FnOnce(&ManifestState) -> Result<Vec<Record>>,
        publish: impl FnOnce(&Arc<ManifestState>),
    ) -> Result<Arc<ManifestState>> {
        let change = |tip: &Arc<ManifestState>| {
            let (next, payload) = tip.changed(&build(tip)?)?;
            Ok((Arc::new(next), payload))
        };
        self.commits.commit(change, publish)
    }

    /// Returns the format of the store.
    pub fn format(&self) -> StoreFormat {
        self.commits.format()
    }

    /// Returns true if a roll is due: the file is much longer than its snapshot, or this process
    /// did not begin it.
    pub fn should_roll(&self) -> bool {
        !self.read_only && self.files.sizes().should_roll(self.copies())
    }

    /// Returns the number of files that hold the manifest.
    fn copies(&self) -> u64 {
        1 + u64::from(self.format().allows(Feature::ManifestCopies))
    }

    /// Returns the bytes by which the manifest's files may still grow: to the length of the next
    /// roll, and the new file beside the old one.
    pub fn growth_bytes(&self) -> u64 {
        self.files.sizes().growth(self.copies())
    }

    /// Returns the names of the manifest files in use. A checkpoint leaves them out, and a clean-up
    /// keeps them.
    pub fn live_manifest_files(&self) -> Vec<String> {
        self.files.live(self.format())
    }

    /// Returns the manifest's files.
    pub fn files(&self) -> &ManifestFiles {
        &self.files
    }

    /// Returns the commit queue.
    pub fn commits(&self) -> &Commits {
        &self.commits
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Manifest({}, edit {})", self.files.dir().display(), self.durable_edit())
    }
}
