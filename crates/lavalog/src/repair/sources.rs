//! The contents of the damaged directory: the manifest, checkpoints, index files, cold files, and
//! the record lane.
//!
//! The identity in the footer identifies a file, not its name. A file with a damaged footer is
//! identified by name, if a manifest, or an intact record of a damaged one, gives its identity.
//! Without a manifest all files count except those that a record removes.

use super::report::RepairReport;
use crate::checkpoint::{Checkpoint, CheckpointHead, SavedLog};
use crate::disk::footer::FileKind as Kind;
use crate::disk::indexed::IndexedFile;
use crate::disk::input::{Input, identity_of};
use crate::manifest::{FileMeta, FileRole, LavaLog, file_name};
use base::codec::Reader;
use base::{Error, ErrorKind, HashMap, Result, Uid};
use io::{Access, DirEntry, Env, ReadFile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::commit::{Lane, read};
use store::manifest::{Engine, EngineId, Engines, ManifestFinding, StateOf, look_through};
use store::names::{self, FileKind};
use store::repair::{GroupSelection, Judged, SalvagedLog, clipped, open_lane};

/// An index file, a cold file, or a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    pub number: u64,
    pub uid: Uid,
    pub file: Arc<dyn ReadFile>,
}

pub(super) struct Sources {
    /// The state of an intact manifest.
    pub state: Option<StateOf<LavaLog>>,
    pub log: SalvagedLog,
    pub checkpoint: Option<(CheckpointHead, Vec<SavedLog>)>,
    pub indexes: Vec<SourceFile>,
    pub cold: Vec<SourceFile>,
    /// Whether a cold file is missing or entirely unreadable.
    pub cold_is_lost: bool,
    /// Whether an index file is missing or entirely unreadable.
    pub index_is_lost: bool,
    /// Names of the other engines of the store.
    pub others: Vec<String>,
    /// The evidence that the manifest has lost its end, if found here.
    pub lost_end: Option<Error>,
}

/// Information about files from damaged manifests.
#[derive(Debug, Default)]
struct Hints {
    added: BTreeMap<u64, FileMeta>,
    removed: BTreeSet<u64>,
    has_keys: bool,
}

impl Hints {
    fn take(&mut self, seen: &ManifestFinding<'_>) {
        match seen {
            ManifestFinding::Step(EngineId::NATIVE, _) => self.has_keys = true,
            ManifestFinding::Step(id, step) if *id == LavaLog::ID => {
                let Ok(step) = LavaLog::decode(step) else { return };
                self.removed.extend(step.remove);
                self.added.extend(step.add.into_iter().map(|meta| (meta.number, meta)));
            }
            _ => {}
        }
    }

    /// Adds the files of a manifest that has lost its end.
    fn take_lost(&mut self, state: Option<StateOf<LavaLog>>) {
        self.added.extend(state.iter().flat_map(|state| state.files.iter()).map(|(n, meta)| (n, *meta)));
    }
}

impl Sources {
    /// Examines all files. With a verdict of the host engine, which leads the repair, follows its
    /// view of the manifest.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote any of them; I/O errors while listing the directory.
    pub fn look(
        env: &Env,
        dir: &Path,
        listing: &[DirEntry],
        judged: Option<&Judged>,
        report: &mut RepairReport,
    ) -> Result<Sources> {
        let mut hints = Hints::default();
        let witness = look_through(env, dir, &Engines::of::<LavaLog>(), |seen| hints.take(&seen))?;
        witness.damage.iter().for_each(|e| report.damage(e));
        let mut state = witness.state.map(|state| StateOf::<LavaLog>::of(Arc::new(state))).transpose()?;
        let names = witness.engines.iter().filter(|(id, _)| **id != LavaLog::ID);
        let mut others: Vec<String> = names.map(|(id, name)| name_of(*id, name)).collect();
        let store = judged.and_then(|judged| judged.store).or(witness.store);
        if judged.is_some_and(|judged| !judged.from_manifest) {
            hints.take_lost(state.take());
        }
        let mut log = lane(env, dir, state.as_ref(), store)?;
        let lost_end = state.as_ref().and_then(|state| lost_end(env, dir, listing, state, &log));
        if let Some(e) = &lost_end {
            report.damage(e);
            hints.take_lost(state.take());
            log = lane(env, dir, None, store)?;
        }
        let is_of_keys = |entry: &DirEntry| {
            let kind = names::parse(&entry.name);
            kind.is_some_and(|kind| kind.data().is_some() || matches!(kind, FileKind::Tail(_)))
        };
        let lists_keys =
            state.as_ref().is_some_and(|state| state.store.engines.iter().any(|e| e.id == EngineId::NATIVE));
        if lists_keys || hints.has_keys || listing.iter().any(is_of_keys) {
            others.push("LavaKV".into());
        }
        report.from_manifest = state.is_some();
        let mut sources = Sources {
            state,
            log,
            checkpoint: None,
            indexes: Vec::new(),
            cold: Vec::new(),
            cold_is_lost: false,
            index_is_lost: false,
            others,
            lost_end,
        };
        sources.take_files(env, dir, listing, &hints, report)?;
        report.files_used += (sources.log.files() + sources.indexes.len() + sources.cold.len()) as u64;
        Ok(sources)
    }

    fn take_files(
        &mut self,
        env: &Env,
        dir: &Path,
        listing: &[DirEntry],
        hints: &Hints,
        report: &mut RepairReport,
    ) -> Result<()> {
        let disk = Disk::of(env, dir, listing);
        let mut checkpoints = Vec::new();
        let listed: Vec<FileMeta> = match &self.state {
            Some(state) => state.files.values().copied().collect(),
            None => disk.unlisted(hints),
        };
        for meta in listed {
            match disk.open(&meta) {
                Ok(found) => match meta.role {
                    FileRole::Index { .. } => self.indexes.push(found),
                    FileRole::Cold { .. } => self.cold.push(found),
                    FileRole::Checkpoint => checkpoints.push(found),
                },
                Err(e) => {
                    report.damage(&e);
                    self.cold_is_lost |= matches!(meta.role, FileRole::Cold { .. });
                    self.index_is_lost |= matches!(meta.role, FileRole::Index { .. });
                }
            }
        }
        for (name, number) in &disk.silent {
            // A silent file is the manifest's file of that number, unless that one was found
            // elsewhere: then files were swapped.
            let hinted = hints.added.get(number);
            let is_hinted = hinted.is_some_and(|meta| !disk.known.contains_key(&meta.uid));
            if self.state.is_none() && !is_hinted && !hints.removed.contains(number) {
                let why = "the footer of a file of the log engine (LavaLog) is damaged: without a manifest its role is unknown";
                report.damage(&Error::corruption(why).at_file(dir.join(name)));
                self.cold_is_lost |= name.ends_with(".e1-3");
                self.index_is_lost |= name.ends_with(".e1-1");
            }
        }
        self.take_checkpoint(&checkpoints, report)
    }

    /// Reads the newest intact checkpoint.
    fn take_checkpoint(&mut self, files: &[SourceFile], report: &mut RepairReport) -> Result<()> {
        for found in files {
            let mut saved = Vec::new();
            let read = Checkpoint::open(found.file.clone(), found.number, found.uid).and_then(|checkpoint| {
                checkpoint.each(&mut |log| {
                    saved.push(log);
                    Ok(())
                })?;
                Ok(*checkpoint.head())
            });
            match read {
                Ok(head) => {
                    report.files_used += 1;
                    let newest = self.checkpoint.as_ref().map(|(head, _)| (head.next_seq, head.replay_from));
                    if newest.is_none_or(|newest| newest < (head.next_seq, head.replay_from)) {
                        self.checkpoint = Some((head, saved));
                    }
                }
                Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                Err(e) => report.damage(&e),
            }
        }
        report.from_checkpoint = self.checkpoint.is_some();
        Ok(())
    }
}

fn name_of(id: EngineId, name: &str) -> String {
    if name.is_empty() { id.to_string() } else { name.to_owned() }
}

fn lane(env: &Env, dir: &Path, state: Option<&StateOf<LavaLog>>, store: Option<Uid>) -> Result<SalvagedLog> {
    open_lane(env, dir, (Lane::LOG, GroupSelection::All), state.map(|state| &*state.store), store)
}

/// Returns the evidence that the manifest has lost its end, if there is any.
fn lost_end(
    env: &Env,
    dir: &Path,
    listing: &[DirEntry],
    state: &StateOf<LavaLog>,
    log: &SalvagedLog,
) -> Option<Error> {
    let lost = |why: String| Some(Error::corruption(why).at_file(dir.join("MANIFEST")));
    let (last, seen) = (state.store.edit_number, log.witness_edit);
    if seen > last {
        return lost(format!(
            "the manifest ends at edit {last}, but the log confirms edit {seen}: the end of the manifest is missing"
        ));
    }
    let newest = read::newest_group(env, dir, listing, state.store.uid).ok()?;
    let (file, ltn) = newest.filter(|(_, ltn)| *ltn >= state.store.next_ltn)?;
    lost(format!("{file} has log group {ltn}, which the manifest lacks: the end of the manifest is missing"))
}

/// Reads the file's own number, the first field of the directory of every kind: see
/// `docs/format/lavalog.md`.
fn own_number(file: Arc<dyn ReadFile>, kind: Kind, uid: Uid) -> Result<u64> {
    let head = match kind {
        Kind::Checkpoint => Input::open(file, kind, uid)?.directory()?,
        Kind::Index | Kind::Cold => IndexedFile::open(file, kind, uid)?.1,
    };
    Reader::new(&head).varint()
}

/// The files of the engine on disk.
struct Disk<'a> {
    env: &'a Env,
    dir: &'a Path,
    /// By identity in the footer: the kind, the number if the name has one, and the path.
    known: HashMap<Uid, (Kind, Option<u64>, PathBuf)>,
    /// Files without a readable identity: name and number.
    silent: Vec<(String, u64)>,
}

impl<'a> Disk<'a> {
    fn of(env: &'a Env, dir: &'a Path, listing: &[DirEntry]) -> Disk<'a> {
        let mut disk = Disk { env, dir, known: HashMap::default(), silent: Vec::new() };
        for entry in listing {
            let number = match names::parse(&entry.name) {
                Some(FileKind::Engine { engine, number, .. }) if engine == LavaLog::ID.0 => Some(number),
                _ => None,
            };
            let path = io::fs::join(dir, &entry.name);
            let identity = env.fs.open(&path, Access::Buffered).and_then(|file| identity_of(&*file));
            match (identity, number) {
                (Ok((kind, uid)), Some(_)) => drop(disk.known.insert(uid, (kind, number, path))),
                // Files were swapped.
                (Ok((kind, uid)), None) => drop(disk.known.entry(uid).or_insert((kind, None, path))),
                (Err(_), Some(number)) => disk.silent.push((entry.name.clone(), number)),
                (Err(_), None) => {}
            }
        }
        disk
    }

    /// Returns the files for a repair without a manifest: all identified ones and those described
    /// by a record, except those that a record removes. Each has the number in its own contents,
    /// since its name may belong to another file.
    fn unlisted(&self, hints: &Hints) -> Vec<FileMeta> {
        let mut metas: BTreeMap<Uid, FileMeta> = hints.added.values().map(|meta| (meta.uid, *meta)).collect();
        for (uid, (kind, by_name, path)) in &self.known {
            metas.entry(*uid).or_insert_with(|| {
                let len = self.env.fs.metadata(path).map_or(0, |found| found.len);
                let role = match kind {
                    // The file itself contains the number of its group.
                    Kind::Index => FileRole::Index { ltn: 0 },
                    Kind::Checkpoint => FileRole::Checkpoint,
                    Kind::Cold => FileRole::Cold { generation: 0 },
                };
                let own =
                    self.env.fs.open(path, Access::Buffered).and_then(|file| own_number(file, *kind, *uid));
                let number = own.ok().or(*by_name).unwrap_or_default();
                FileMeta { number, uid: *uid, len, role }
            });
        }
        let mut metas: Vec<FileMeta> = metas.into_values().collect();
        metas.retain(|meta| !hints.removed.contains(&meta.number));
        metas.sort_by_key(|meta| meta.number);
        metas
    }

    fn open(&self, meta: &FileMeta) -> Result<SourceFile> {
        let name = file_name(meta.number, meta.role.kind());
        let path = match self.known.get(&meta.uid) {
            Some((_, _, path)) => path.clone(),
            None => io::fs::join(self.dir, &name),
        };
        let missing = |e: Error| match e.kind() {
            ErrorKind::NotFound => {
                Error::corruption("a file of the log engine (LavaLog) that the manifest lists is missing")
                    .at_file(&path)
            }
            _ => e,
        };
        let file = self.env.fs.open(&path, Access::Buffered).map_err(missing)?;
        Ok(SourceFile { number: meta.number, uid: meta.uid, file: clipped(file, meta.len) })
    }
}
