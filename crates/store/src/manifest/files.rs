//! The files of a manifest: edits appended to the present ones, and new ones in their place, for rolls and for the first of a store or of a process.
//!
//! The file is durable, with its name, before `CURRENT` names it by a rename; the files before it go when that is durable. In a format with
//! copies ([`Feature::ManifestCopies`]) there are two files, and two of `CURRENT`, which are renamed one after the other: see
//! [`super::copies`].

use super::copies::CURRENT_LEN_MAX;
use super::file_numbers::FileNumbers;
use super::format::{self, Current, Header};
use super::sizes::ManifestSizes;
use super::state::State;
use super::store_dir::StoreDir;
use super::writer::{self, Refused, Writer};
use crate::format::{Feature, StoreFormat};
use crate::names::{self, FileKind};
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, ErrorKind, Result, Uid};
use io::{CreateOptions, Env, SyncKind};
use std::path::Path;
use std::sync::Arc;
use wal::Domain;

/// With less room than this on the volume, edits are written one by one.
const NEARLY_FULL_BYTES: u64 = 64 << 20;

/// See the module.
pub struct ManifestFiles {
    env: Env,
    dir: StoreDir,
    store: Uid,
    /// The manifest that `CURRENT` names, or, after a failed replacement of it, those that it may name. Not always the one
    /// that is written: after a full disk none is.
    named: Mutex<Vec<String>, rank::ManifestNames>,
    numbers: FileNumbers,
    sizes: ManifestSizes,
    /// Fails with the manifest.
    domain: OnceLock<Arc<dyn Domain>>,
}

/// An accepted edit, encoded, and the state it leads to.
pub(super) struct Pending {
    pub state: Arc<State>,
    pub payload: Vec<u8>,
}

/// How a batch of edits failed.
pub(super) enum Failure {
    /// None of it will ever be read back: the store goes on from what was durable.
    RolledBack(Option<Writer>, Error),
    /// The same. `CURRENT` may name either of two manifests, and both have the durable state.
    Renamed(Error),
    /// Nobody knows what will be read back.
    Unknown(Error),
}

impl ManifestFiles {
    /// Those of the store in `dir` with this state, whose manifest was found as `name`.
    pub(super) fn new(env: &Env, dir: &Path, state: &State, name: &str) -> ManifestFiles {
        ManifestFiles {
            env: env.clone(),
            dir: StoreDir::new(dir.to_owned()),
            store: state.uid,
            named: Mutex::new(named(name, state.format)),
            numbers: FileNumbers::from(state.next_file_number),
            sizes: ManifestSizes::default(),
            domain: OnceLock::new(),
        }
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir.path
    }

    /// Fails if a sync of the directory did.
    pub(super) fn check_dir(&self) -> Result<()> {
        self.dir.check()
    }

    /// The numbers of files.
    pub(super) fn numbers(&self) -> &FileNumbers {
        &self.numbers
    }

    /// How long they are.
    pub fn sizes(&self) -> &ManifestSizes {
        &self.sizes
    }

    /// Writes a new manifest file with the snapshot of `state` and makes `CURRENT` name it. A failure is `RolledBack`
    /// as long as `CURRENT` is certainly the old one, and `Renamed` where there was no room or no descriptor to make its name durable.
    pub(super) fn begin_file(&self, state: &State) -> Result<Writer, Failure> {
        let number = self.numbers.allocate();
        let payload = state.snapshot();
        let pieces = format::pieces(&payload, self.sizes.piece_len_max());
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
        let before = {
            // In one step: a reader of the names misses none that `CURRENT` may have.
            let mut named = lock(&self.named);
            let before = named.clone();
            named.splice(0..0, names.iter().cloned());
            before
        };
        match self.rename_in_dir(names::CURRENT_TEMP, names::CURRENT) {
            Err(e) if e.kind() == ErrorKind::NoSpace && !self.names_manifest(&current) => {
                *lock(&self.named) = before;
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
        *lock(&self.named) = names;
        self.sizes.begun(writer.len(), writer.copies());
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

    /// The names of those in use, and of `CURRENT`, in a store of this format.
    pub(super) fn live(&self, format: StoreFormat) -> Vec<String> {
        let copy = format.allows(Feature::ManifestCopies).then_some(names::CURRENT_COPY);
        let mut names: Vec<String> = [names::CURRENT].into_iter().chain(copy).map(str::to_owned).collect();
        names.extend(lock(&self.named).iter().cloned());
        names
    }

    /// True if the disk may fill up while a batch of edits is written.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.env.fs.space(&self.dir.path).is_ok_and(|space| space.available < NEARLY_FULL_BYTES)
    }

    /// Appends edits and makes them durable, in the file of `writer` or in a new one.
    pub(super) fn write_batch(
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
        self.sizes.appended(writer.len(), writer.copies());
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
            if !e.is_refusal() {
                self.fail(e);
            }
        })
    }

    /// Fails the domain.
    pub(super) fn fail(&self, error: &Error) {
        if let Some(domain) = self.domain.get() {
            domain.fail(error);
        }
    }

    /// The manifest is of this domain from now on: a failure of it ends the acknowledgements of the logs. Once.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        let _ = self.domain.set(domain);
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
