//! Group commit of manifest edits: accepted edits, their leader, and the durable and the published
//! state.
//!
//! See [`super`] for the order of these three.

use super::files::{Failure, ManifestFiles, Pending};
use super::format;
use super::state::ManifestState;
use super::writer::Writer;
use crate::format::StoreFormat;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The commit queue of a manifest: see the module.
pub struct Commits {
    files: Arc<ManifestFiles>,
    read_only: bool,
    /// Accepted edits and their leader: everything in [`Inner`]. Not held while the leader writes.
    inner: Mutex<Inner, rank::Manifest>,
    /// Signalled whenever a leader resigns or a state is published.
    turn: Condvar,
    /// The published state. Changed under `inner`, in the order of edits.
    published: Mutex<Arc<ManifestState>, rank::ManifestPublished>,
    /// The number of the last durable edit. Changed by the leader, under `inner`.
    durable_edit: Arc<AtomicU64>,
}

struct Inner {
    /// The state with every accepted edit.
    tip: Arc<ManifestState>,
    /// Accepted edits that no leader has taken yet.
    queue: Vec<Pending>,
    /// True while a leader writes.
    leading: bool,
    /// The open file; `None` before the first write and while a leader writes to it.
    writer: Option<Writer>,
    /// The state at the last durable edit.
    durable: Arc<ManifestState>,
    /// The number of the last published edit.
    published: u64,
    /// The last edit that a later record or `CURRENT` confirms.
    confirmed: u64,
    /// One entry for each time that the tip went back to the durable state: the durable edit, and
    /// the reason.
    roll_backs: Vec<(u64, Error)>,
    poison: Option<Error>,
}

impl Inner {
    fn roll_back(&mut self, durable: Arc<ManifestState>, e: Error) {
        self.queue.clear();
        self.roll_backs.push((durable.edit_number, e));
        self.tip = durable;
    }
}

/// Replaces `NoSpace`, which would allow the caller to try again, by an I/O error. After a sync
/// that found no space the outcome is unknown, so the caller must not.
fn beyond_waiting(e: Error) -> Error {
    if e.kind() == ErrorKind::NoSpace { e.with_kind(ErrorKind::Io) } else { e }
}

impl Commits {
    /// Creates the queue of a history that ends with `state` and is confirmed up to edit
    /// `confirmed`.
    pub(super) fn new(
        files: Arc<ManifestFiles>,
        read_only: bool,
        state: Arc<ManifestState>,
        confirmed: u64,
    ) -> Commits {
        let number = state.edit_number;
        let inner = Inner {
            tip: state.clone(),
            queue: Vec::new(),
            leading: false,
            writer: None,
            durable: state.clone(),
            published: number,
            confirmed,
            roll_backs: Vec::new(),
            poison: None,
        };
        Commits {
            files,
            read_only,
            inner: Mutex::new(inner),
            turn: Condvar::new(),
            published: Mutex::new(state),
            durable_edit: Arc::new(AtomicU64::new(number)),
        }
    }

    /// Returns the published state of the store.
    pub(super) fn state(&self) -> Arc<ManifestState> {
        lock(&self.published).clone()
    }

    /// Returns the format of the store.
    pub(super) fn format(&self) -> StoreFormat {
        lock(&self.published).format
    }

    /// Returns the shared number of the last durable edit.
    pub(super) fn durable_edit(&self) -> &Arc<AtomicU64> {
        &self.durable_edit
    }

    /// Makes one edit durable. `change` gets the state with every accepted edit, and returns the
    /// next state and the bytes of the edit. `publish` runs once [`super::Manifest::state`] shows
    /// the new state.
    pub(super) fn commit(
        &self,
        change: impl FnOnce(&Arc<ManifestState>) -> Result<(Arc<ManifestState>, Vec<u8>)>,
        publish: impl FnOnce(&Arc<ManifestState>),
    ) -> Result<Arc<ManifestState>> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let mut inner = lock(&self.inner);
        self.check_writable(&inner)?;
        let (state, payload) = change(&inner.tip)?;
        check_len(&payload)?;
        // Edit numbers from elsewhere (repair, ingestion) must not be allocated again later.
        self.files.numbers().raise(state.next_file_number);
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

    /// Confirms all edits: `CURRENT` names the last durable edit. From now on damage to any byte of
    /// the history, and the loss of its end, are noticed. For close.
    ///
    /// # Errors
    /// File system errors; the store is then as sound as before.
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
        let outcome =
            self.files.write_current(&current, format).and_then(|()| self.files.swap_current(format));
        let mut inner = lock(&self.inner);
        inner.leading = false;
        self.turn.notify_all();
        if outcome.is_ok() {
            inner.confirmed = edit;
        }
        outcome
    }

    /// Waits until there is no leader and the queue is empty.
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

    /// Begins a new manifest file with a snapshot of the state, and removes the old ones. Commits
    /// wait meanwhile.
    ///
    /// # Errors
    /// If the new file cannot be written, the old one stays in use. If it is unknown which of them
    /// a reopen would find, the manifest is poisoned.
    pub fn roll(&self) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        let state = inner.durable.clone();
        self.roll_to(inner, state)
    }

    /// Raises the format of the store with a new manifest file; a crash leaves the store in one
    /// format or the other. Releases that do not know the format refuse the store from then on.
    /// Does nothing if the store has the format already.
    ///
    /// # Errors
    /// `InvalidArgument` if the store has a newer format; otherwise as [`Commits::roll`].
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        match inner.durable.format {
            known if known == format => Ok(()),
            known if known > format => {
                let why = format!(
                    "the store has format {known}, which cannot be lowered to {format}: a format can only \
                     be raised"
                );
                Err(Error::invalid(why).at_file(self.files.dir()))
            }
            _ => {
                let state = in_format(&inner.durable, format);
                self.roll_to(inner, state)
            }
        }
    }

    /// Begins a new manifest file with `state`: the durable state, in its format or in a newer one.
    fn roll_to(&self, mut inner: MutexGuard<'_, Inner>, state: Arc<ManifestState>) -> Result<()> {
        inner.leading = true;
        let old = inner.writer.take();
        drop(inner);
        let outcome = self.files.begin_file(&state);
        let mut inner = lock(&self.inner);
        inner.leading = false;
        self.turn.notify_all();
        match outcome {
            Ok(writer) => {
                inner.writer = Some(writer).filter(|writer| writer.is_whole);
                inner.confirmed = state.edit_number;
                if inner.durable.format != state.format {
                    self.publish_format(&mut inner, state.format);
                }
                Ok(())
            }
            Err(Failure::RolledBack(_, e)) => {
                inner.writer = old;
                Err(e)
            }
            // Not after an upgrade: a crash may leave the store in either format.
            Err(Failure::Renamed(e)) if inner.durable.format == state.format => Err(e),
            Err(Failure::Renamed(e) | Failure::Unknown(e)) => {
                let e = beyond_waiting(e);
                self.fail(&mut inner, e.clone());
                Err(e)
            }
        }
    }

    /// Raises the format of all states. Edits accepted while the file was written lead to states in
    /// the old format; their callers raise it when they publish.
    fn publish_format(&self, inner: &mut Inner, format: StoreFormat) {
        let raise = |state: &mut Arc<ManifestState>| *state = in_format(state, format);
        raise(&mut inner.tip);
        raise(&mut inner.durable);
        inner.queue.iter_mut().for_each(|pending| raise(&mut pending.state));
        raise(&mut lock(&self.published));
    }

    /// Poisons the manifest: the contents of its files are unknown.
    fn fail(&self, inner: &mut Inner, error: Error) {
        self.files.fail(&error);
        inner.poison = Some(error);
    }

    /// Returns true if a failed commit may still be durable, so that the files it names must stay.
    pub fn outcome_unknown(&self) -> bool {
        lock(&self.inner).poison.is_some()
    }

    fn check_writable(&self, inner: &Inner) -> Result<()> {
        if self.read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the store was opened read-only: open it for writing",
            )
            .at_file(self.files.dir()));
        }
        self.files.check_dir()?;
        match &inner.poison {
            Some(e) => {
                let why = "an earlier write of the manifest failed";
                Err(e.clone().with_kind(ErrorKind::Poisoned).context(why))
            }
            None => Ok(()),
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        assert!(!self.files.env().is_simulated(), "in simulation nothing else could end this wait");
        base::sync::wait(&self.turn, inner)
    }

    /// Writes and syncs all queued edits, with the lock free meanwhile.
    fn lead<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        assert!(!inner.leading && !inner.queue.is_empty(), "one leader at a time, with something to write");
        inner.leading = true;
        let mut batch = std::mem::take(&mut inner.queue);
        if batch.len() > 1 && self.files.is_nearly_full() {
            // Of several edits the first may get into the file whole before the disk is full; of a
            // single edit, no whole one can.
            inner.queue = batch.split_off(1);
        }
        let writer = inner.writer.take();
        let durable = inner.durable.clone();
        drop(inner);
        let outcome = self.files.write_batch(writer, &durable, &batch);
        let mut inner = lock(&self.inner);
        inner.leading = false;
        match outcome {
            Ok(writer) => {
                inner.writer = Some(writer).filter(|writer| writer.is_whole);
                let alone = batch.len() == 1 && batch.iter().all(|p| p.payload.is_empty());
                if let Some(last) = batch.into_iter().last() {
                    // An empty edit needs no confirmation: its loss would lose nothing.
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

    /// Runs `look` while no edit is written, so that a roll in progress does not look like damage.
    pub(super) fn while_nobody_writes<T>(&self, look: impl Fn() -> T) -> T {
        let _turn = rank::turn::<rank::ManifestTurn>();
        // A read-only or poisoned manifest has no writer.
        let Ok(mut inner) = self.when_quiet() else { return look() };
        inner.leading = true;
        drop(inner);
        let seen = look();
        lock(&self.inner).leading = false;
        self.turn.notify_all();
        seen
    }
}

/// Returns a state in a format, which may be its own.
fn in_format(state: &Arc<ManifestState>, format: StoreFormat) -> Arc<ManifestState> {
    match state.format == format {
        true => state.clone(),
        false => Arc::new(state.in_format(format)),
    }
}

fn check_len(payload: &[u8]) -> Result<()> {
    if payload.len() <= format::PAYLOAD_LEN_MAX {
        return Ok(());
    }
    let why = format!(
        "a manifest edit of {} bytes exceeds the limit of {} bytes: change fewer files at once",
        payload.len(),
        format::PAYLOAD_LEN_MAX
    );
    Err(Error::new(ErrorKind::TooLarge, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Engines, InitialState, Manifest};
    use std::path::Path;

    /// An accepted edit builds on the edits before it, so it is rolled back with them.
    #[test]
    fn later_edits_are_rolled_back_with_an_earlier_one() {
        let sim = io::sim::SimEnv::new(1);
        let dir = Path::new("/store");
        let manifest =
            Manifest::create(&sim.env(), dir, InitialState::default(), &Engines::default()).unwrap();
        let commits = manifest.commits();
        let mut inner = lock(&commits.inner);
        for _ in 0..2 {
            let edit_number = inner.tip.edit_number + 1;
            inner.tip = Arc::new(ManifestState { edit_number, ..ManifestState::clone(&inner.tip) });
            let pending = Pending { state: inner.tip.clone(), payload: vec![7; 9000] };
            inner.queue.push(pending);
        }
        // Nearly full: the first edit is written alone, and finds no room.
        sim.set_capacity(Some(sim.used()));
        let inner = commits.lead(inner);
        assert_eq!((inner.roll_backs.len(), inner.poison.is_some()), (1, false));
        assert!(inner.queue.is_empty(), "the second rests on the first");
        assert_eq!(inner.tip.edit_number, inner.durable.edit_number);
    }

    /// A reader would refuse a longer edit, and the store would not open any more. (The test does
    /// not touch the memory.)
    #[test]
    fn an_edit_that_readers_would_refuse_is_not_written() {
        check_len(&vec![0; format::PAYLOAD_LEN_MAX]).unwrap();
        let e = check_len(&vec![0; format::PAYLOAD_LEN_MAX + 1]).unwrap_err();
        assert_eq!(
            (e.kind(), e.message()),
            (
                ErrorKind::TooLarge,
                "a manifest edit of 1073741825 bytes exceeds the limit of 1073741824 bytes: change fewer \
                 files at once"
            )
        );
    }
}
