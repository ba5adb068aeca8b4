//! The manifest: the durable history of a store, and its state now.
//!
//! The store's own records and those of its engines ([`Engine`]) are one history, in one file: what one edit changes of
//! both takes effect together. The store never looks into an engine's records; those of an engine that it was opened without
//! stay as they are ([`State`]).
//!
//! Commits are grouped: every caller appends its edit to a queue under the lock, and one of them, the leader, writes
//! and syncs all that is queued while the lock is free for others to queue more. Then each caller publishes its own
//! state, in the order of edit numbers. An edit is *accepted* when it is queued (later edits build on it), *durable*
//! when its batch is synced, *published* when [`Manifest::state`] shows it. In a process without other threads the
//! caller is always the leader and nothing waits.
//!
//! After a failed write or sync nobody knows what the device holds: the manifest is poisoned and every later commit
//! fails until the store is reopened. **The outcome of an edit that failed this way is unknown**: it may be there after
//! a crash, so its files must be left alone until the store has been reopened.
//!
//! A full volume is survivable. When an append or a sync finds no room, a new manifest file begins from the durable state,
//! and the edits fail with a plain `NoSpace`. Where there is no room for a new file either, one of two facts settles the
//! outcome. The file may end inside the first of the edits, which no reader
//! takes: the edits fail. Or one of two copies holds all edits, and its sync makes them durable: they succeed. In both
//! cases nothing is appended behind the refused bytes: the next commit begins a new file, and is refused until there is
//! room for one. Only a sync that finds no room, in every copy, with no room for a new file, leaves the outcome unknown.
//!
//! Files are never opened for appending, so a recovered manifest begins a new file before its first commit: a record
//! can never follow a torn one. A roll writes the snapshot of the state into a new file, syncs it and its directory,
//! then replaces `CURRENT` by rename; a crash at any point leaves one of the two complete.
//!
//! The history protects itself (see the byte map): every record confirms the records that were durable when it
//! was written, `CURRENT` for the snapshot, and the log's groups for the edits they have seen durable
//! ([`Manifest::require_edit`]). Damage to anything confirmed is corruption. Damage to the very last records, which
//! nothing confirms yet, cannot be told from a torn write and is dropped like one; [`Manifest::confirm`] leaves no
//! such records when a store is closed or idle.

use crate::format::{Feature, StoreFormat};
use crate::names::{self, FileKind};
use crate::numbers::NUMBER_MAX;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, OnceLock, lock, rank, statistic};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::Env;
use std::path::Path;
use std::sync::Arc;
use wal::Domain;

mod apply;
mod check;
mod contradiction;
mod copies;
mod engine;
mod engine_parts;
pub mod format;
mod handle;
mod listed_groups;
mod record;
mod replay;
mod roll;
mod salvage;
mod state;
mod store_dir;
mod writer;

pub use contradiction::refuse;
pub use engine::{Engine, Engines};
pub use engine_parts::{EngineParts, EngineView};
pub use handle::Handle;
pub use listed_groups::ListedGroups;
pub use record::{ENGINE_NAME_LEN_MAX, EngineFile, EngineId, LogGroupMeta, Payload, Record};
pub use replay::{History, dump_manifest, replay, state_of};
use roll::in_format;
pub use salvage::{Seen, Witness, look_through};
pub use state::{Commit, Ground, State, StateOf};
use store_dir::StoreDir;
use writer::{Refused, Writer};

/// A manifest is rolled when it has grown past this, by default.
const ROLL_LEN: u64 = 4 << 20;
/// And when it is this many times as long as its snapshot, so that rolls cost a bounded share of what is written.
const ROLL_RATIO: u64 = 4;
/// With less room than this on the volume, edits are written one by one.
const NEARLY_FULL_BYTES: u64 = 64 << 20;

/// The numbers a new store begins with. All but the first commit's edit are normally 1; tests begin near 2^32.
#[derive(Clone, Copy, Debug)]
pub struct InitialState {
    /// The first sequence.
    pub first_seq: SeqNo,
    /// The first file number.
    pub first_file_number: u64,
    /// The first log tag number.
    pub first_ltn: u64,
    /// The edit number of the first snapshot.
    pub first_edit: u64,
    /// The format.
    pub format: StoreFormat,
}

impl Default for InitialState {
    fn default() -> Self {
        let format = StoreFormat::DEFAULT;
        InitialState { first_seq: 1, first_file_number: 1, first_ltn: 1, first_edit: 1, format }
    }
}

impl InitialState {
    /// The state of a new store.
    pub fn state(&self, uid: Uid, engines: &Engines) -> State {
        let mut state = State::empty(uid, self.first_edit, engines);
        state.last_seq = self.first_seq.saturating_sub(1);
        state.next_file_number = self.first_file_number;
        state.next_ltn = self.first_ltn;
        state.format = self.format;
        state
    }
}

/// What recovery found, for reports.
#[derive(Clone, Debug, Default)]
pub struct ManifestReport {
    /// The manifest that was read; empty for a new store.
    pub name: String,
    /// Edits after its snapshot.
    pub edits: u64,
    /// Bytes of what was read: header, snapshot and edits.
    pub bytes: u64,
    /// Bytes at its end that a crash had torn.
    pub torn_bytes: u64,
    /// What was damaged or missing of `CURRENT` and the manifest, and intact in a copy: nothing is lost by it.
    pub damaged: Vec<Error>,
}

/// The durable history of a store, and its state now. Shared between threads.
pub struct Manifest {
    env: Env,
    dir: StoreDir,
    store: Uid,
    read_only: bool,
    report: ManifestReport,
    /// Accepted edits and who writes them: everything in [`Inner`]. Not held while the leader writes.
    inner: Mutex<Inner, rank::Manifest>,
    /// Signalled whenever a leader resigns or a state is published.
    turn: Condvar,
    /// The state that everybody sees. Changed under `inner`, in the order of edits.
    published: Mutex<Arc<State>, rank::ManifestPublished>,
    /// Changed by the leader, under `inner`.
    durable_edit: AtomicU64,
    /// Only grows; no lock.
    next_file_number: AtomicU64,
    /// Fails with the manifest.
    domain: OnceLock<Arc<dyn Domain>>,
    /// Length of the present file and of its snapshot (0 while there is no file to append to), the length at which it is
    /// rolled, and what was written since the manifest was opened.
    sizes: Sizes,
}

/// What is told of the file's size, bytes.
struct Sizes {
    file: statistic::AtomicU64,
    snapshot: statistic::AtomicU64,
    piece: statistic::AtomicU64,
    roll: statistic::AtomicU64,
    written: statistic::AtomicU64,
}

struct Inner {
    /// The state with every accepted edit.
    tip: Arc<State>,
    /// Accepted edits that no leader has taken yet.
    queue: Vec<Pending>,
    /// True while a leader writes.
    leading: bool,
    /// The open file; `None` before the first write and while a leader has it.
    writer: Option<Writer>,
    /// The state at the last durable edit.
    durable: Arc<State>,
    /// The number of the last published edit.
    published: u64,
    /// The history up to this edit is confirmed by something later.
    confirmed: u64,
    /// For each time the tip went back to what was durable: the edit it went back to, and why.
    roll_backs: Vec<(u64, Error)>,
    poison: Option<Error>,
    /// The manifest that `CURRENT` names, or, after a failed replacement of it, those that it may name. Not always the one
    /// that is written: after a full disk none is.
    named: Vec<String>,
}

/// An accepted edit, encoded, and the state it leads to.
struct Pending {
    state: Arc<State>,
    payload: Vec<u8>,
}

impl Inner {
    /// Goes back to the durable state.
    fn roll_back(&mut self, durable: Arc<State>, e: Error) {
        self.queue.clear();
        self.roll_backs.push((durable.edit_number, e));
        self.tip = durable;
    }
}

/// How a batch of edits failed.
enum Failure {
    /// None of it will ever be read back: the store goes on from what was durable.
    RolledBack(Option<Writer>, Error),
    /// The same. `CURRENT` may name either of two manifests, and both have the durable state.
    Renamed(Error),
    /// Nobody knows what will be read back.
    Unknown(Error),
}

/// `NoSpace` tells the caller that nothing happened and that it may try again. Where nobody knows what happened (a sync
/// that found no space) it must not.
fn beyond_waiting(e: Error) -> Error {
    if e.kind() == ErrorKind::NoSpace { e.with_kind(ErrorKind::Io) } else { e }
}

impl Manifest {
    /// Creates the manifest of a new store in `dir` (made if missing), durably; the name of `dir` itself is the
    /// caller's to make durable, in its parent.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory holds a store, `Corruption` if it holds files of one without `CURRENT`.
    pub fn create(env: &Env, dir: &Path, seed: InitialState, engines: &Engines) -> Result<Manifest> {
        Self::create_with(env, dir, seed.state(env.new_uid(), engines))
    }

    /// Creates a manifest whose history begins with `state`: for checkpoints and repair. The files of the state are
    /// the caller's to bring, before this is called.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory holds a `CURRENT`; `InvalidArgument` if the state contradicts itself.
    pub fn create_with(env: &Env, dir: &Path, state: State) -> Result<Manifest> {
        state.verify().map_err(|e| e.with_kind(ErrorKind::InvalidArgument))?;
        env.fs.create_dir_all(dir)?;
        let largest_number = replay::check_vacant(env, dir, &state)?;
        let manifest = Self::new(env, dir, state, false, ManifestReport::default());
        manifest.bump_file_number(largest_number);
        manifest.roll()?;
        Ok(manifest)
    }

    /// Recovers the manifest of a store, with these engines; what it holds of others stays as it is. Nothing is written, with `read_only` or without: the first commit, or an
    /// explicit [`Manifest::roll`], begins a new file.
    ///
    /// # Errors
    /// `NotFound` if there is no store in the directory, `Corruption` if anything that is confirmed is damaged or
    /// missing, `Unsupported` if a newer release wrote it.
    pub fn recover(env: &Env, dir: &Path, read_only: bool, engines: &Engines) -> Result<Manifest> {
        let found = replay::find_with_disk(env, dir, read_only, engines, 0)?;
        Ok(Self::of_found(env, dir, found, read_only))
    }

    fn of_found(env: &Env, dir: &Path, found: replay::Found, read_only: bool) -> Manifest {
        let replay::Found { history, name, largest_number, damaged } = found;
        let report = ManifestReport {
            name,
            edits: history.edits,
            bytes: history.bytes,
            torn_bytes: history.torn_bytes,
            damaged,
        };
        let manifest = Self::new(env, dir, history.state.at_end(), read_only, report);
        lock(&manifest.inner).confirmed = history.confirmed;
        manifest.bump_file_number(largest_number);
        manifest
    }

    /// For somebody who only reads: the state before the first damage of the manifest, and what is damaged. Files that the
    /// state lists may be gone by now.
    ///
    /// # Errors
    /// `NotFound` if there is no store in the directory, `Corruption` if no snapshot is whole, or a manifest is not the one
    /// that `CURRENT` names; `Unsupported` if a newer release wrote it.
    pub fn recover_up_to_damage(env: &Env, dir: &Path, engines: &Engines) -> Result<(Manifest, Vec<Error>)> {
        let (found, mut damage) = replay::find_up_to_damage(env, dir, engines)?;
        match found.history.state.check_disk(env, dir, true) {
            Err(e) if e.is_corruption() => damage.push(e),
            checked => checked?,
        }
        Ok((Self::of_found(env, dir, found, true), damage))
    }

    fn new(env: &Env, dir: &Path, state: State, read_only: bool, report: ManifestReport) -> Manifest {
        let (number, next_file_number) = (state.edit_number, state.next_file_number);
        let state = Arc::new(state);
        let inner = Inner {
            tip: state.clone(),
            queue: Vec::new(),
            leading: false,
            writer: None,
            durable: state.clone(),
            published: number,
            confirmed: 0,
            roll_backs: Vec::new(),
            poison: None,
            named: named(&report.name, state.format),
        };
        Manifest {
            env: env.clone(),
            dir: StoreDir::new(dir.to_owned()),
            store: state.uid,
            read_only,
            report,
            inner: Mutex::new(inner),
            turn: Condvar::new(),
            published: Mutex::new(state),
            durable_edit: AtomicU64::new(number),
            next_file_number: AtomicU64::new(next_file_number),
            domain: OnceLock::new(),
            sizes: Sizes {
                file: statistic::AtomicU64::new(0),
                snapshot: statistic::AtomicU64::new(0),
                piece: statistic::AtomicU64::new(format::PAYLOAD_LEN_MAX as u64),
                roll: statistic::AtomicU64::new(ROLL_LEN),
                written: statistic::AtomicU64::new(0),
            },
        }
    }

    /// The published state of the store.
    pub fn state(&self) -> Arc<State> {
        lock(&self.published).clone()
    }

    /// The identity of the store.
    pub fn store(&self) -> Uid {
        self.store
    }

    /// True if it was recovered for reading: no commit succeeds.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What recovery found.
    pub fn report(&self) -> &ManifestReport {
        &self.report
    }

    /// The number of the last durable edit, for the log's groups to remember (see [`Manifest::require_edit`]).
    pub fn durable_edit(&self) -> u64 {
        self.durable_edit.load(Ordering::Acquire)
    }

    /// To be called after recovery, before anything is written, with every edit number that an outside witness saw
    /// durable.
    ///
    /// # Errors
    /// `Corruption` if the history ends before.
    pub fn require_edit(&self, edit_number: u64) -> Result<()> {
        let last = self.durable_edit();
        if edit_number <= last {
            return Ok(());
        }
        let why = format!(
            "the manifest ends at edit {last}, but edit {edit_number} was durable: its end is damaged or missing; \
             restore a backup, or run `lava repair`"
        );
        Err(Error::corruption(why).at_file(self.dir.path.join(&self.report.name)))
    }

    /// A file number that no file has had.
    pub fn allocate_file_number(&self) -> u64 {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        assert!(number <= NUMBER_MAX, "file numbers are used up");
        number
    }

    /// Numbers up to `used` were seen in a directory of the store: only larger ones are allocated from now on.
    /// (Recovery does this itself for the directory of the manifest.)
    pub fn bump_file_number(&self, used: u64) {
        self.next_file_number.fetch_max(used.saturating_add(1).min(NUMBER_MAX), Ordering::Relaxed);
    }

    /// Makes one edit of the store's own durable and publishes the state after it: for the log. See
    /// [`Handle::commit_with`], which is that for an engine.
    ///
    /// # Errors
    /// As there.
    pub fn commit_store(
        &self,
        build: impl FnOnce(&State) -> Result<Vec<Record>>,
        publish: impl FnOnce(&Arc<State>),
    ) -> Result<Arc<State>> {
        let change = |tip: &Arc<State>| {
            let (next, payload) = tip.changed(&build(tip)?)?;
            Ok((Arc::new(next), payload))
        };
        self.commit_bytes(change, publish)
    }

    /// Makes one edit durable: `change` makes the next state of the one with every edit accepted before, and its bytes.
    /// `publish` runs when [`Manifest::state`] shows it.
    fn commit_bytes(
        &self,
        change: impl FnOnce(&Arc<State>) -> Result<(Arc<State>, Vec<u8>)>,
        publish: impl FnOnce(&Arc<State>),
    ) -> Result<Arc<State>> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let mut inner = lock(&self.inner);
        self.check_writable(&inner)?;
        let (state, payload) = change(&inner.tip)?;
        check_len(&payload)?;
        // Edits whose numbers come from elsewhere (repair, ingestion) must not meet allocated ones later.
        self.next_file_number.fetch_max(state.next_file_number, Ordering::Relaxed);
        inner.tip = state.clone();
        inner.queue.push(Pending { state: state.clone(), payload });
        let (number, epoch) = (state.edit_number, inner.roll_backs.len());
        loop {
            if let Some((durable, e)) = inner.roll_backs.get(epoch)
                && number > *durable
            {
                return Err(e.clone());
            }
            if number > inner.durable.edit_number {
                if let Some(e) = &inner.poison {
                    return Err(e.clone());
                }
                if !inner.leading {
                    inner = self.lead(inner);
                    continue;
                }
            } else if inner.published + 1 == number {
                inner.published = number;
                let state = in_format(&state, inner.durable.format);
                *lock(&self.published) = state.clone();
                self.turn.notify_all();
                publish(&state);
                return Ok(state);
            }
            inner = self.wait(inner);
        }
    }

    /// Leaves no edit that nothing confirms, so that from now on damage to any byte of the history, and the loss of
    /// its end, are noticed: `CURRENT` names the last durable edit. For close.
    ///
    /// # Errors
    /// Those of the file system; the store is then as sound as before.
    pub fn confirm(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let turn = rank::turn::<rank::ManifestTurn>();
        let mut inner = self.when_quiet()?;
        let edit = inner.durable.edit_number;
        if inner.confirmed >= edit {
            return Ok(());
        }
        let Some(writer) = &inner.writer else {
            drop((inner, turn));
            return self.roll();
        };
        let current = format::Current { manifest: writer.number, uid: writer.uid, edit };
        let format = inner.durable.format;
        inner.leading = true;
        drop(inner);
        let outcome = self.write_current(&current, format).and_then(|()| self.swap_current(format));
        let mut inner = lock(&self.inner);
        inner.leading = false;
        self.turn.notify_all();
        if outcome.is_ok() {
            inner.confirmed = edit;
        }
        outcome
    }

    /// Waits until nobody writes and nothing waits to be written.
    fn when_quiet(&self) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = lock(&self.inner);
        loop {
            self.check_writable(&inner)?;
            if inner.leading {
                inner = self.wait(inner);
            } else if !inner.queue.is_empty() {
                inner = self.lead(inner);
            } else {
                return Ok(inner);
            }
        }
    }

    /// True if a roll would pay: the file is much longer than its snapshot, or was not begun by this process.
    pub fn should_roll(&self) -> bool {
        let len = self.sizes.file.load(Ordering::Relaxed);
        let snapshot = self.sizes.snapshot.load(Ordering::Relaxed);
        !self.read_only && (len == 0 || len > self.longest(snapshot))
    }

    /// How many files hold the manifest.
    fn copies(&self) -> u64 {
        1 + u64::from(self.format().allows(Feature::ManifestCopies))
    }

    /// The length at which a manifest with this snapshot is rolled. Two files are to occupy no more than one.
    fn longest(&self, snapshot: u64) -> u64 {
        let roll = self.sizes.roll.load(Ordering::Relaxed) / self.copies();
        roll.max(snapshot.saturating_mul(ROLL_RATIO))
    }

    /// Bytes by which the manifest's files may still grow: to the length at which the present one is rolled, and the new one
    /// beside it.
    pub fn growth_bytes(&self) -> u64 {
        let (len, snapshot) =
            (self.sizes.file.load(Ordering::Relaxed), self.sizes.snapshot.load(Ordering::Relaxed));
        let growth = self.longest(snapshot).saturating_sub(len).saturating_add(snapshot);
        growth.saturating_mul(self.copies())
    }

    /// Changes how long a manifest grows before [`Manifest::should_roll`] says so.
    pub fn set_roll_len(&self, bytes: u64) {
        self.sizes.roll.store(bytes, Ordering::Relaxed);
    }

    /// Changes how long the pieces of a snapshot are at most: a snapshot is in pieces where it does not fit into one record, and older
    /// releases refuse it then. For tests.
    pub fn set_piece_len(&self, bytes: u64) {
        self.sizes.piece.store(bytes, Ordering::Relaxed);
    }

    fn piece_len_max(&self) -> usize {
        self.sizes.piece.load(Ordering::Relaxed).clamp(1, format::PAYLOAD_LEN_MAX as u64) as usize
    }

    /// The manifest is of this domain from now on: a failure of it ends the acknowledgements of the logs. Once.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        let _ = self.domain.set(domain);
    }

    /// Nobody knows what will be read back.
    fn fail(&self, inner: &mut Inner, error: Error) {
        if let Some(domain) = self.domain.get() {
            domain.fail(&error);
        }
        inner.poison = Some(error);
    }

    /// True if a commit failed that may be durable all the same: what it names must stay.
    pub fn outcome_unknown(&self) -> bool {
        lock(&self.inner).poison.is_some()
    }

    /// Bytes of edits and snapshots written since it was opened.
    pub fn bytes_written(&self) -> u64 {
        self.sizes.written.load(Ordering::Relaxed)
    }

    /// The names of the manifest's own files that are in use: a checkpoint leaves them out, a cleaner leaves them be.
    pub fn live_manifest_files(&self) -> Vec<String> {
        let copy = self.format().allows(Feature::ManifestCopies).then_some(names::CURRENT_COPY);
        let mut names: Vec<String> = [names::CURRENT].into_iter().chain(copy).map(str::to_owned).collect();
        names.extend(lock(&self.inner).named.iter().cloned());
        names
    }

    fn check_writable(&self, inner: &Inner) -> Result<()> {
        if self.read_only {
            return Err(
                Error::new(ErrorKind::ReadOnly, "the store was opened read-only").at_file(&self.dir.path)
            );
        }
        self.dir.check()?;
        match &inner.poison {
            Some(e) => {
                let why = "an earlier write of the manifest failed: reopen the store";
                Err(e.clone().with_kind(ErrorKind::Poisoned).context(why))
            }
            None => Ok(()),
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        assert!(!self.env.is_simulated(), "in simulation nothing else could end this wait");
        base::sync::wait(&self.turn, inner)
    }

    /// Writes and syncs all that is queued, with the lock free meanwhile.
    fn lead<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        assert!(!inner.leading && !inner.queue.is_empty(), "one leader at a time, with something to write");
        inner.leading = true;
        let mut batch = std::mem::take(&mut inner.queue);
        if batch.len() > 1 && self.is_nearly_full() {
            // Of several edits the first may get whole into the file before the disk is full; of one, none can.
            inner.queue = batch.split_off(1);
        }
        let writer = inner.writer.take();
        let durable = inner.durable.clone();
        drop(inner);
        let outcome = self.write_batch(writer, &durable, &batch);
        let mut inner = lock(&self.inner);
        inner.leading = false;
        match outcome {
            Ok(writer) => {
                inner.writer = Some(writer).filter(|writer| writer.is_whole);
                let alone = batch.len() == 1 && batch.iter().all(|p| p.payload.is_empty());
                if let Some(last) = batch.into_iter().last() {
                    // An empty edit needs nobody to confirm it: its loss would lose nothing.
                    inner.confirmed = if alone { last.state.edit_number } else { durable.edit_number };
                    self.durable_edit.store(last.state.edit_number, Ordering::Release);
                    inner.durable = last.state;
                }
            }
            Err(Failure::RolledBack(writer, e)) => {
                inner.writer = writer.filter(|writer| writer.is_whole);
                inner.roll_back(durable, e);
            }
            Err(Failure::Renamed(e)) => inner.roll_back(durable, e),
            Err(Failure::Unknown(e)) => {
                inner.queue.clear();
                self.fail(&mut inner, beyond_waiting(e));
            }
        }
        self.turn.notify_all();
        inner
    }

    /// True if the disk may fill up while a batch of edits is written.
    fn is_nearly_full(&self) -> bool {
        self.env.fs.space(&self.dir.path).is_ok_and(|space| space.available < NEARLY_FULL_BYTES)
    }

    fn write_batch(
        &self,
        writer: Option<Writer>,
        durable: &State,
        batch: &[Pending],
    ) -> Result<Writer, Failure> {
        let mut writer = match writer {
            Some(writer) => writer,
            None => self.begin_file(durable)?,
        };
        // Of several edits the first may get whole into a file that has no room for the last, and a record into one of two files.
        if batch.len() > 1 || (writer.copies() > 1 && self.is_nearly_full()) {
            let lens = batch.iter().map(|p| format::RECORD_HEADER_LEN + p.payload.len());
            match writer.reserve(lens.sum::<usize>() as u64) {
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    return Err(Failure::RolledBack(Some(writer), e));
                }
                reserved => reserved.map_err(Failure::Unknown)?,
            }
        }
        let edits = batch.iter().map(|p| (p.state.edit_number, &*p.payload));
        let appended = writer.append(&self.env, &self.dir.path, durable.edit_number, edits);
        if let Err(refused) = appended.map_err(Failure::Unknown)? {
            return self.settle(writer, refused, durable);
        }
        match writer.sync() {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                return Err(match self.begin_file(durable) {
                    Ok(new) => Failure::RolledBack(Some(new), e),
                    Err(_) => Failure::Unknown(e),
                });
            }
            synced => synced.map_err(Failure::Unknown)?,
        }
        let before = self.sizes.file.swap(writer.len(), Ordering::Relaxed);
        let written = writer.len().saturating_sub(before) * writer.copies();
        self.sizes.written.fetch_add(written, Ordering::Relaxed);
        Ok(writer)
    }

    /// Settles the outcome of a batch of edits that met a full volume.
    ///
    /// Part of the batch may be in the files and be read back one day. A new file rules that out. Without room for one, a batch
    /// that is torn in all files counts as gone. If a file has all of it, a sync of that file makes it durable.
    fn settle(&self, mut writer: Writer, refused: Refused, durable: &State) -> Result<Writer, Failure> {
        match self.begin_file(durable) {
            Ok(new) => Err(Failure::RolledBack(Some(new), refused.error)),
            Err(Failure::RolledBack(..) | Failure::Renamed(_)) if refused.is_gone() => {
                Err(Failure::RolledBack(None, refused.error))
            }
            Err(Failure::RolledBack(..)) => match writer.sync_whole(&refused) {
                Ok(true) => Ok(writer),
                Ok(false) => Err(Failure::Unknown(refused.error)),
                Err(e) => Err(Failure::Unknown(e)),
            },
            Err(Failure::Renamed(_) | Failure::Unknown(_)) => Err(Failure::Unknown(refused.error)),
        }
    }

    /// Makes the names in the store's directory durable: for every file, before an edit or a record of the log names it.
    ///
    /// # Errors
    /// Those of the file system. Without room or a descriptor nothing happened. After any other failure nobody knows which names are
    /// durable, and a later sync would not tell: all later calls, commits and rolls fail with `Poisoned` until the store has been reopened.
    pub fn sync_dir(&self) -> Result<()> {
        self.dir.sync(&*self.env.fs).inspect_err(|e| {
            if !e.is_refusal()
                && let Some(domain) = self.domain.get()
            {
                domain.fail(e);
            }
        })
    }
}

/// The names of the files of a manifest that was found under this name.
fn named(name: &str, format: StoreFormat) -> Vec<String> {
    let copy = match names::parse(name) {
        Some(FileKind::Manifest(number)) if format.allows(Feature::ManifestCopies) => {
            Some(names::manifest_copy(number))
        }
        _ => None,
    };
    [name.to_owned()].into_iter().chain(copy).collect()
}

fn check_len(payload: &[u8]) -> Result<()> {
    if payload.len() <= format::PAYLOAD_LEN_MAX {
        return Ok(());
    }
    let why = format!("a manifest edit of {} bytes: split it", payload.len());
    Err(Error::new(ErrorKind::TooLarge, why))
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Manifest({}, edit {})", self.dir.path.display(), self.durable_edit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An accepted edit behind one that is rolled back rests on it, and goes with it.
    #[test]
    fn edits_behind_one_that_is_rolled_back_go_with_it() {
        let sim = io::sim::SimEnv::new(1);
        let dir = Path::new("/store");
        let manifest =
            Manifest::create(&sim.env(), dir, InitialState::default(), &Engines::default()).unwrap();
        let mut inner = lock(&manifest.inner);
        for _ in 0..2 {
            let edit_number = inner.tip.edit_number + 1;
            inner.tip = Arc::new(State { edit_number, ..State::clone(&inner.tip) });
            let pending = Pending { state: inner.tip.clone(), payload: vec![7; 9000] };
            inner.queue.push(pending);
        }
        // Nearly full: the first edit is written alone, and finds no room.
        sim.set_capacity(Some(sim.used()));
        let inner = manifest.lead(inner);
        assert_eq!((inner.roll_backs.len(), inner.poison.is_some()), (1, false));
        assert!(inner.queue.is_empty(), "the second rests on the first");
        assert_eq!(inner.tip.edit_number, inner.durable.edit_number);
    }

    /// No reader would take it, and the store could not be opened any more. (Nobody touches the memory.)
    #[test]
    fn an_edit_that_no_reader_would_take_is_not_written() {
        check_len(&vec![0; format::PAYLOAD_LEN_MAX]).unwrap();
        let e = check_len(&vec![0; format::PAYLOAD_LEN_MAX + 1]).unwrap_err();
        assert_eq!(
            (e.kind(), e.message()),
            (ErrorKind::TooLarge, "a manifest edit of 1073741825 bytes: split it")
        );
    }
}
