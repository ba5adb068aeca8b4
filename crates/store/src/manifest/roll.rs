//! A new manifest file in the place of the one before: rolls, and the first of a store or of a process.
//!
//! The file is durable, with its name, before `CURRENT` names it by a rename; the files before it go when that is durable. In a format with
//! copies ([`Feature::ManifestCopies`]) there are two files, and two of `CURRENT`, which are renamed one after the other: see
//! [`super::copies`].

use super::copies::CURRENT_LEN_MAX;
use super::format::{self, Current, Header};
use super::writer::{self, Writer};
use super::{Failure, Inner, Manifest, State, beyond_waiting};
use crate::format::{Feature, StoreFormat};
use crate::names;
use base::sync::atomic::Ordering;
use base::sync::{MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result};
use io::{CreateOptions, SyncKind};
use std::sync::Arc;

impl Manifest {
    /// Begins a new manifest file with a snapshot of the state, and removes the old ones. Commits wait meanwhile.
    ///
    /// # Errors
    /// If the new file could not be written, the old one goes on being used; if it is unknown which of them a reopen
    /// would find, the manifest is poisoned.
    pub fn roll(&self) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        let state = inner.durable.clone();
        self.roll_to(inner, state)
    }

    /// The format of the store.
    pub fn format(&self) -> StoreFormat {
        lock(&self.published).format
    }

    /// Raises the format of the store, by a new manifest file: a crash leaves the store in the one format or in the other.
    /// Releases that do not know the format refuse the store from then on. Does nothing if the store has the format already.
    ///
    /// # Errors
    /// `InvalidArgument` if the store has a newer format; otherwise as [`Manifest::roll`].
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        match inner.durable.format {
            known if known == format => Ok(()),
            known if known > format => {
                let why = format!("the store has format {known} already, and formats are only raised");
                Err(Error::invalid(why).at_file(&self.dir.path))
            }
            _ => {
                let state = in_format(&inner.durable, format);
                self.roll_to(inner, state)
            }
        }
    }

    /// Begins a new manifest file with `state`: what is durable, in its format or in a newer one.
    fn roll_to(&self, mut inner: MutexGuard<'_, Inner>, state: Arc<State>) -> Result<()> {
        inner.leading = true;
        let old = inner.writer.take();
        drop(inner);
        let outcome = self.begin_file(&state);
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
            // Not behind an upgrade: a crash may leave the store in either format.
            Err(Failure::Renamed(e)) if inner.durable.format == state.format => Err(e),
            Err(Failure::Renamed(e) | Failure::Unknown(e)) => {
                let e = beyond_waiting(e);
                self.fail(&mut inner, e.clone());
                Err(e)
            }
        }
    }

    /// Edits that were accepted while the file was written lead to states in the old format. Who waits to publish one raises it
    /// then.
    fn publish_format(&self, inner: &mut Inner, format: StoreFormat) {
        let raise = |state: &mut Arc<State>| *state = in_format(state, format);
        raise(&mut inner.tip);
        raise(&mut inner.durable);
        inner.queue.iter_mut().for_each(|pending| raise(&mut pending.state));
        raise(&mut lock(&self.published));
    }

    /// Writes a new manifest file with the snapshot of `state` and makes `CURRENT` name it. A failure is `RolledBack`
    /// as long as `CURRENT` is certainly the old one, and `Renamed` where there was no room or no descriptor to make its name durable.
    pub(super) fn begin_file(&self, state: &State) -> Result<Writer, Failure> {
        let number = self.allocate_file_number();
        let payload = state.snapshot();
        let pieces = format::pieces(&payload, self.piece_len_max());
        let header = Header {
            store: self.store,
            manifest: self.env.new_uid(),
            number,
            pieces: pieces.len() as u32,
            format: state.format,
        };
        let current = Current { manifest: number, uid: header.manifest, edit: state.edit_number };
        let (env, dir) = (&self.env, &self.dir.path);
        let prepared = Writer::create(env, dir, &header, (state.edit_number, &pieces)).and_then(|writer| {
            // All names must be durable before the first rename: CURRENT leads to the manifests, and what is to become its copy tells a
            // crash between the two renames from a lost copy.
            self.write_current(&current, state.format)?;
            self.sync_dir()?;
            Ok(writer)
        });
        let names = writer::file_names(&header);
        let rolled_back = |e| {
            // The next roll removes the rest.
            names.iter().for_each(|name| drop(env.fs.remove(&dir.join(name))));
            Failure::RolledBack(None, e)
        };
        let mut writer = prepared.map_err(rolled_back)?;
        let before = std::mem::replace(&mut lock(&self.inner).named, names.clone());
        lock(&self.inner).named.extend(before.iter().cloned());
        match self.rename_in_dir(names::CURRENT_TEMP, names::CURRENT) {
            Err(e) if e.kind() == ErrorKind::NoSpace && !self.names_manifest(&current) => {
                lock(&self.inner).named = before;
                return Err(rolled_back(e));
            }
            // The file system has the name, and no room to record it yet.
            Err(e) if e.kind() == ErrorKind::NoSpace => return Err(Failure::Renamed(e)),
            renamed => renamed.map_err(Failure::Unknown)?,
        }
        let refused = |e: Error| match e.is_refusal() {
            true => Failure::Renamed(e),
            false => Failure::Unknown(e),
        };
        writer.is_whole = self.swap_copy(state.format).map_err(refused)?;
        self.sync_dir().map_err(refused)?;
        lock(&self.inner).named = names;
        self.sizes.file.store(writer.len(), Ordering::Relaxed);
        self.sizes.written.fetch_add(writer.len() * writer.copies(), Ordering::Relaxed);
        self.sizes.snapshot.store(writer.len(), Ordering::Relaxed);
        self.remove_manifests_except(number);
        Ok(writer)
    }

    /// Writes what is to become `CURRENT`, and its copy.
    pub(super) fn write_current(&self, current: &Current, format: StoreFormat) -> Result<()> {
        let copy = format.allows(Feature::ManifestCopies).then_some(names::CURRENT_COPY_TEMP);
        [names::CURRENT_TEMP].into_iter().chain(copy).try_for_each(|name| {
            let temp = &self.dir.path.join(name);
            match self.env.fs.remove(temp) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut file = self.env.fs.create(temp, &CreateOptions::default())?;
            file.append(current.encode().as_bytes())?;
            file.sync(SyncKind::Full)
        })
    }

    /// Puts the new `CURRENT` in place of the old one, and its copy.
    pub(super) fn swap_current(&self, format: StoreFormat) -> Result<()> {
        self.rename_in_dir(names::CURRENT_TEMP, names::CURRENT)?;
        self.swap_copy(format)?;
        self.sync_dir()
    }

    fn rename_in_dir(&self, from: &str, to: &str) -> Result<()> {
        self.env.fs.rename(&self.dir.path.join(from), &self.dir.path.join(to))
    }

    /// Puts the new copy of `CURRENT` in place of the old one, if the format has one. Where there is no room for that the old copy goes,
    /// as it may name another manifest, and false is returned: the store is as after a crash between the two renames.
    fn swap_copy(&self, format: StoreFormat) -> Result<bool> {
        if !format.allows(Feature::ManifestCopies) {
            return Ok(true);
        }
        let copy = &self.dir.path.join(names::CURRENT_COPY);
        if !self.env.fs.exists(copy)? {
            // A release that knows of no copy must refuse the store before there is one that it would leave behind.
            self.sync_dir()?;
        }
        match self.rename_in_dir(names::CURRENT_COPY_TEMP, names::CURRENT_COPY) {
            Err(e) if e.kind() == ErrorKind::NoSpace => match self.env.fs.remove(copy) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
                _ => Ok(false),
            },
            renamed => renamed.map(|()| true),
        }
    }

    /// True unless `CURRENT` certainly names another manifest.
    fn names_manifest(&self, current: &Current) -> bool {
        match self.env.fs.read_all(&self.dir.path.join(names::CURRENT), CURRENT_LEN_MAX) {
            Err(e) => e.kind() != ErrorKind::NotFound,
            Ok(bytes) => Current::decode(&bytes).map_or(true, |named| named.uid == current.uid),
        }
    }

    /// Old manifests are only a waste of space: what cannot be removed now is removed by the next roll.
    fn remove_manifests_except(&self, live: u64) {
        for entry in self.env.fs.list(&self.dir.path).unwrap_or_default() {
            let is_old = |kind: names::FileKind| kind.is_manifest() && kind.number() != Some(live);
            if names::parse(&entry.name).is_some_and(is_old) {
                let _ = self.env.fs.remove(&self.dir.path.join(&entry.name));
            }
        }
    }
}

/// A state in a format that is perhaps another one.
pub(super) fn in_format(state: &Arc<State>, format: StoreFormat) -> Arc<State> {
    match state.format == format {
        true => state.clone(),
        false => Arc::new(state.in_format(format)),
    }
}
