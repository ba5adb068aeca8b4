//! The files of a manifest: appends edits to the current file, or begins a new one. A roll needs a
//! new file, and so does the first edit of a store or of a process.
//!
//! The new file is durable, with its name, before a rename makes `CURRENT` name it. The old files
//! are removed once that rename is durable. In a format with copies ([`Feature::ManifestCopies`])
//! there are two files and two of `CURRENT`, which are renamed one after the other: see
//! [`super::copies`].

use super::copies::CURRENT_LEN_MAX;
use super::file_numbers::FileNumbers;
use super::format::{self, Current, Header};
use super::sizes::ManifestSizes;
use super::state::ManifestState;
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

/// Below this much free space, edits are written one by one.
const NEARLY_FULL_BYTES: u64 = 64 << 20;

/// The files of a manifest: see the module.
pub struct ManifestFiles {
    env: Env,
    dir: StoreDir,
    store: Uid,
    /// The manifest that `CURRENT` names; after a failed rename, those that it may name. Not always
    /// the file in use for writing: after a full disk there is none.
    named: Mutex<Vec<String>, rank::ManifestNames>,
    numbers: FileNumbers,
    sizes: ManifestSizes,
    /// Reported to when the manifest fails.
    domain: OnceLock<Arc<dyn Domain>>,
}

/// An accepted edit, encoded, and the state it leads to.
pub(super) struct Pending {
    pub state: Arc<ManifestState>,
    pub payload: Vec<u8>,
}

/// The way in which a batch of edits failed.
pub(super) enum Failure {
    /// None of the batch will ever be read back. The store continues from the durable state.
    RolledBack(Option<Writer>, Error),
    /// As `RolledBack`. `CURRENT` may name either of two manifests, and both have the durable
    /// state.
    Renamed(Error),
    /// It is unknown whether the batch will be read back.
    Unknown(Error),
}

impl ManifestFiles {
    /// Creates the files of the store in `dir` with this state; its manifest was found as `name`.
    pub(super) fn new(env: &Env, dir: &Path, state: &ManifestState, name: &str) -> ManifestFiles {
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

    /// Fails if a sync of the directory ever failed.
    pub(super) fn check_dir(&self) -> Result<()> {
        self.dir.check()
    }

    /// Returns the allocator of file numbers.
    pub(super) fn numbers(&self) -> &FileNumbers {
        &self.numbers
    }

    /// Returns the lengths of the files.
    pub fn sizes(&self) -> &ManifestSizes {
        &self.sizes
    }

    /// Writes a new manifest file with the snapshot of `state` and makes `CURRENT` name it. A
    /// failure is `RolledBack` as long as `CURRENT` certainly is the old one. It is `Renamed` if
    /// there was no space or no descriptor to make the new name durable.
    pub(super) fn begin_file(&self, state: &ManifestState) -> Result<Writer, Failure> {
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
            // All names must be durable before the first rename: `CURRENT` leads to the manifests,
            // and its future copy distinguishes a crash between the two renames from a lost copy.
            self.write_current(&current, state.format)?;
            self.sync_dir()?;
            Ok(writer)
        });
        let names = writer::file_names(&header);
        let rolled_back = |e| {
            // The next roll removes the remaining files.
            names.iter().for_each(|name| drop(env.fs.remove(&dir.join(name))));
            Failure::RolledBack(None, e)
        };
        let mut writer = prepared.map_err(rolled_back)?;
        let before = {
            // In one step: a reader of the names must not miss one that `CURRENT` may have.
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
            // The file system has applied the rename, but has no space to record it yet.
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

    /// Writes the new `CURRENT` and its copy under temporary names.
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

    /// Renames the new `CURRENT` and its copy over the old ones.
    pub(super) fn swap_current(&self, format: StoreFormat) -> Result<()> {
        self.rename_in_dir(names::CURRENT_TEMP, names::CURRENT)?;
        self.swap_copy(format)?;
        self.sync_dir()
    }

    fn rename_in_dir(&self, from: &str, to: &str) -> Result<()> {
        self.env.fs.rename(&self.dir.path.join(from), &self.dir.path.join(to))
    }

    /// Renames the new copy of `CURRENT` over the old one, if the format has one. Without space for
    /// that it removes the old copy, which may name another manifest, and returns false. The store
    /// is then as after a crash between the two renames.
    fn swap_copy(&self, format: StoreFormat) -> Result<bool> {
        if !format.allows(Feature::ManifestCopies) {
            return Ok(true);
        }
        let copy = &self.dir.path.join(names::CURRENT_COPY);
        if !self.env.fs.exists(copy)? {
            // A release without copies must refuse the store before a copy exists that it would
            // leave stale.
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

    /// Returns true unless `CURRENT` certainly names another manifest.
    fn names_manifest(&self, current: &Current) -> bool {
        match self.env.fs.read_all(&self.dir.path.join(names::CURRENT), CURRENT_LEN_MAX) {
            Err(e) => e.kind() != ErrorKind::NotFound,
            Ok(bytes) => Current::decode(&bytes).map_or(true, |named| named.uid == current.uid),
        }
    }

    /// Removes old manifests. They only waste space, so the next roll removes those that remain.
    fn remove_manifests_except(&self, live: u64) {
        for entry in self.env.fs.list(&self.dir.path).unwrap_or_default() {
            let is_old = |kind: names::FileKind| kind.is_manifest() && kind.number() != Some(live);
            if names::parse(&entry.name).is_some_and(is_old) {
                let _ = self.env.fs.remove(&self.dir.path.join(&entry.name));
            }
        }
    }

    /// Returns the names of the files in use, and of `CURRENT`, in a store of this format.
    pub(super) fn live(&self, format: StoreFormat) -> Vec<String> {
        let copy = format.allows(Feature::ManifestCopies).then_some(names::CURRENT_COPY);
        let mut names: Vec<String> = [names::CURRENT].into_iter().chain(copy).map(str::to_owned).collect();
        names.extend(lock(&self.named).iter().cloned());
        names
    }

    /// Returns true if the disk may fill up during the write of a batch of edits.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.env.fs.space(&self.dir.path).is_ok_and(|space| space.available < NEARLY_FULL_BYTES)
    }

    /// Appends edits and makes them durable, in the file of `writer` or in a new one.
    pub(super) fn write_batch(
        &self,
        writer: Option<Writer>,
        durable: &ManifestState,
        batch: &[Pending],
    ) -> Result<Writer, Failure> {
        let mut writer = match writer {
            Some(writer) => writer,
            None => self.begin_file(durable)?,
        };
        // Without a reservation the first of several edits may get whole into a file that has no
        // space for the last, or a record into only one of two files.
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

    /// Decides the outcome of a batch of edits that met a full volume.
    ///
    /// Part of the batch may be in the files and be read back later. A new file rules that out.
    /// Without space for one, a batch that is torn in all files counts as gone. If a file has all
    /// of it, a sync of that file makes it durable.
    fn settle(
        &self,
        mut writer: Writer,
        refused: Refused,
        durable: &ManifestState,
    ) -> Result<Writer, Failure> {
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

    /// Makes the names in the store directory durable: for every new file, before an edit or a log
    /// record names it.
    ///
    /// # Errors
    /// File system errors. Without space or a descriptor nothing happened. After any other failure
    /// it is unknown which names are durable, and a later sync would not report it. So all later
    /// calls, commits and rolls fail with `Poisoned` until the store has been reopened.
    pub fn sync_dir(&self) -> Result<()> {
        self.dir.sync(&*self.env.fs).inspect_err(|e| {
            if !e.is_refusal() {
                self.fail(e);
            }
        })
    }

    /// Reports a failure to the domain.
    pub(super) fn fail(&self, error: &Error) {
        if let Some(domain) = self.domain.get() {
            domain.fail(error);
        }
    }

    /// Joins the manifest to a domain: a failure of the manifest stops the acknowledgements of the
    /// logs. Once.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        let _ = self.domain.set(domain);
    }
}

/// Returns the file names of a manifest that was found under this name.
fn named(name: &str, format: StoreFormat) -> Vec<String> {
    let copy = match names::parse(name) {
        Some(FileKind::Manifest(number)) if format.allows(Feature::ManifestCopies) => {
            Some(names::manifest_copy(number))
        }
        _ => None,
    };
    [name.to_owned()].into_iter().chain(copy).collect()
}
