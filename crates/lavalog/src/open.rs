//! Opening: restores the state from the checkpoint, the directories of index and cold files, and
//! replay.
//!
//! 1. The checkpoint, from the first intact copy: names, trims, truncations, metadata.
//! 2. The directories of all index and cold files, with the ends of several files read at once. An
//!    unreadable cold file loses its records; the rows of an unreadable index file are rebuilt by
//!    reading its group.
//! 3. Replay of the groups that are not sealed. Operations that the state already reflects have no
//!    effect.
//! 4. Removal of this engine's files that no edit names: leftovers of unfinished jobs.

pub(crate) mod read_only;

use crate::appliers::Appliers;
use crate::catalog::Catalog;
use crate::checkpoint::{Checkpoint, CheckpointHead, SavedLog};
use crate::collect::{Collector, CollectorParts, needed_from};
use crate::core::{Core, StoreOwner};
use crate::disk::directory::Directory;
use crate::disk::recorded;
use crate::entry::Source;
use crate::files::{RowFile, RowFiles};
use crate::full_volume::FullVolume;
use crate::hold::MoveLock;
use crate::index_rebuild::{IndexRebuilder, RemakerParts};
use crate::jobs::Background;
use crate::log_writer::{LogWriter, place_of};
use crate::logs::Logs;
use crate::manifest::{FileMeta, FileRole, LavaLog, LogEdit, LogManifestState, TENANT, commit};
use crate::ops::Ops;
use crate::options::Options;
use crate::rebuild_queue::{RebuildQueue, ToRemake};
use crate::recent::RecentRecords;
use crate::records::RecordReader;
use crate::seal::{Sealer, SealerParts, parts_of};
use crate::space::Reserve;
use crate::store_handles::{EngineRole, StoreHandles};
use crate::write::{WriteParts, WritePath};
use base::{Error, ErrorKind, Result, SeqNo};
use io::{Access, Env, ReadFile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use store::commit::{Lane, Log, LogFindings, LoggedBatch};
use store::context::Context;
use store::files::StoreFiles;
use store::files::unfinished::{self, Mark};
use store::manifest::{Engine, Engines, Handle, Manifest};
use store::names::{self, FileKind};
use store::open::{Opening, StoreTerms};
use store::secondary_engine::{EmbeddedPrimaryBatch, SecondaryEngineStore};
use store::volumes::Volume;

/// Number of index and cold files open at the same time, with their ends in memory.
const READ_AT_ONCE: usize = 64;

/// The restored state before the log begins.
#[derive(Debug)]
pub(crate) struct Restored {
    manifest: Handle<LavaLog>,
    logs: Logs,
    next_seq: SeqNo,
    /// Index files whose rows cannot be read.
    lost_rows: Vec<FileMeta>,
    damaged: Vec<Source>,
    /// The sealed groups, each with its lowest sequence number; 0 if the index file, which stores
    /// it, was unreadable.
    kept: BTreeMap<u64, SeqNo>,
    /// The groups with embedded batches, each with its highest embedded sequence number.
    embedded: BTreeMap<u64, SeqNo>,
    /// The groups with lost index files and their rows in memory.
    to_remake: ToRemake,
}

/// Opens the engine on its own store; with a `mark`, on the store that a repair builds.
pub(crate) fn open(env: &Env, dir: &Path, options: &Options, mark: Option<&Mark>) -> Result<Arc<Core>> {
    options.check()?;
    let env = &store::fast_tier::with_directory(env.clone(), dir, options.fast_tier.as_deref());
    let options = &options.within(&*env.fs, 1);
    if mark.is_none() {
        check_place(env, dir, options)?;
    }
    let terms = StoreTerms { log: options.first_lane_terms(), records: Some(options.lane_terms()) };
    let (space, engines) = (crate::space::terms(options), Engines::of::<LavaLog>());
    let opening = Opening::begin_within(env, dir, terms, space, &engines, mark)?;
    opening.context().pace().budget.set(options.io_budget);
    let mut restored = Restored::of(opening.context(), opening.manifest())?;
    if !options.create_if_missing && !is_known(&restored.manifest) {
        return Err(Error::not_found(
            "there are no logs in this store: name a store with logs, or append to one first",
        )
        .at_file(dir));
    }
    let replayed = opening.replay(&mut |lane, batch| match lane {
        // An embedded batch belongs to an engine that is not open here, and stays in the log.
        Lane::LOG => restored.replay(batch).map(drop),
        _ => Ok(()),
    })?;
    let state = restored.manifest.state();
    replayed.remove(|kind| is_stranger(&state, kind))?;
    let store = replayed.begin()?;
    let lane = store.lane(Lane::LOG).cloned().expect("the terms above ask for the lane of records");
    let (files, space, first) = (store.files().clone(), store.space().clone(), store.log().clone());
    let ground = SecondaryEngineStore { files, space, lane, first };
    ground.space.gauges.set_serves();
    restored.begin(options, ground, StoreOwner::Own(store))
}

/// Checks the directory before anything is created there. Refuses a directory with other files, and
/// a store without its `CURRENT`.
fn check_place(env: &Env, dir: &Path, options: &Options) -> Result<()> {
    if store::directory::has_store(env, dir)? {
        return Ok(());
    }
    let files = match store::fast_tier::alone(env, dir).fs.list(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        files => files?,
    };
    if let Some(work) = unfinished::of(&files) {
        return Err(unfinished::refusal(dir, work));
    }
    // Leftovers of an unfinished creation of a store.
    let is_of_beginning = |name: &str| {
        let kind = names::parse(name);
        kind.is_some_and(|kind| kind == FileKind::Lock || kind.is_manifest() || kind.is_temporary())
    };
    let (stores, others): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|file| !is_of_beginning(&file.name))
        .partition(|file| names::parse(&file.name).is_some());
    if let Some(file) = stores.first() {
        let why = format!(
            "the file CURRENT, which names the manifest, is missing, although the directory has {} of a store",
            file.name
        );
        return Err(Error::corruption(why).at_file(dir));
    }
    if let Some(file) = others.first() {
        let why =
            format!("the directory has no store, but other files ({}): choose an empty directory", file.name);
        return Err(Error::invalid(why).at_file(dir));
    }
    match options.create_if_missing {
        true => store::fast_tier::check_place(env, dir),
        false => {
            Err(Error::not_found("the directory has no store of logs: name another one, or create the store")
                .at_file(dir))
        }
    }
}

/// Reads the checkpoint from its first intact copy. Returns `None` if the store has none yet.
fn read_checkpoint(
    context: &Context,
    state: &LogManifestState,
) -> Result<Option<(CheckpointHead, Vec<SavedLog>)>> {
    let read_as = |file: &Arc<dyn ReadFile>, meta: &FileMeta| -> Result<(CheckpointHead, Vec<SavedLog>)> {
        let file = recorded::up_to(file.clone(), meta.len);
        let checkpoint = Checkpoint::open(file, meta.number, meta.uid)?;
        let mut saved = Vec::new();
        checkpoint.each(&mut |log| {
            saved.push(log);
            Ok(())
        })?;
        Ok((*checkpoint.head(), saved))
    };
    // The copies may be swapped: each file contains its own number.
    let read = |meta: &FileMeta| {
        let file = context.open(Volume::DIRECTORY, &meta.name(), Access::Buffered)?;
        let others = state.checkpoints().filter(|other| other.number != meta.number);
        let exchanged = || others.map(|other| read_as(&file, &other)).find_map(Result::ok);
        read_as(&file, meta).or_else(|e| exchanged().ok_or(e))
    };
    let mut lost: Option<(String, Error)> = None;
    for meta in state.checkpoints() {
        match read(&meta) {
            Err(e) if e.is_corruption() || e.kind() == ErrorKind::NotFound => {
                let names =
                    lost.map_or_else(|| meta.name(), |(names, _)| format!("{names}, {}", meta.name()));
                lost = Some((names, e));
            }
            read => return read.map(Some),
        }
    }
    let Some((names, e)) = lost else { return Ok(None) };
    let why = format!(
        "all copies of the checkpoint of the logs are damaged or missing ({names}), so no log can be opened"
    );
    Err(Error::corruption(why).at_file(&context.dir).caused_by(e))
}

/// Restores the checkpoint and the directories of index and cold files.
fn restore(context: &Context, manifest: Handle<LavaLog>) -> Result<Restored> {
    let state = manifest.state();
    let (kept, embedded) = (BTreeMap::new(), BTreeMap::new());
    let (lost_rows, damaged) = (Vec::new(), Vec::new());
    let to_remake = ToRemake::default();
    let mut restored =
        Restored { manifest, logs: Logs::new(), next_seq: 1, lost_rows, damaged, kept, embedded, to_remake };
    let mut replay_from = 0;
    if let Some((head, saved)) = read_checkpoint(context, &state)? {
        restored.logs.reach_id(head.next_log);
        restored.next_seq = head.next_seq;
        replay_from = head.replay_from;
        saved.into_iter().try_for_each(|saved| restored.logs.restore(saved))?;
    }
    let metas: Vec<FileMeta> = state.files.values().filter(|meta| meta.source().is_some()).copied().collect();
    for some in metas.chunks(READ_AT_ONCE) {
        for (meta, opened) in some.iter().zip(RowFile::with_directories(context, some)) {
            restored.take_rows(meta, opened)?;
        }
    }
    // By now it is known which truncations have removed records that are still in a file.
    let needed_from = needed_from(&restored.kept, replay_from);
    restored.logs.forget_truncations(needed_from, 0, usize::MAX);
    Ok(restored)
}

/// Returns true if the store already has logs.
fn is_known(manifest: &Handle<LavaLog>) -> bool {
    manifest.state().store.engines.iter().any(|engine| engine.id == LavaLog::ID)
}

impl Restored {
    /// Loads the directory of an index or cold file, or notes why it is unreadable.
    fn take_rows(&mut self, meta: &FileMeta, opened: Result<(RowFile, Directory)>) -> Result<()> {
        let Some(source) = meta.source() else { return Ok(()) };
        if let FileRole::Index { ltn } = meta.role {
            self.kept.insert(ltn, 0);
        }
        let parts = |(file, directory): (RowFile, Directory)| Ok((file, parts_of(source, &directory)?));
        match opened.and_then(parts) {
            Ok((file, parts)) => {
                if let RowFile::Index(file) = file {
                    self.kept.insert(file.head().ltn, file.head().seqs.0);
                }
                for (log, part) in parts {
                    self.logs.load(log, part);
                }
            }
            Err(e) if e.is_corruption() || e.kind() == ErrorKind::NotFound => match source {
                Source::Group(_) => self.lost_rows.push(*meta),
                Source::Cold(_) => self.damaged.push(source),
            },
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Restores the state before replay.
    pub fn of(context: &Context, manifest: &Arc<Manifest>) -> Result<Restored> {
        restore(context, Handle::<LavaLog>::of(manifest)?)
    }

    /// Replays a batch of the record lane. Returns its embedded batch, if any.
    pub fn replay<'b>(&mut self, batch: &LoggedBatch<'b>) -> Result<Option<&'b [u8]>> {
        if batch.tenant != TENANT {
            return Ok(None);
        }
        apply_batch(&mut self.logs, batch)?;
        self.next_seq = self.next_seq.max(batch.last_seq + 1);
        let embedded = EmbeddedPrimaryBatch::read(batch.bytes)?;
        if let Some(embedded) = embedded {
            let last = self.embedded.entry(batch.place.ltn).or_default();
            *last = embedded.last_seq.max(*last);
        }
        Ok(embedded.map(|embedded| embedded.bytes))
    }

    /// Rebuilds the rows of a lost index file in memory by reading the group, until a job writes a
    /// new index file.
    fn remake_rows(&mut self, lane: &Log, meta: &FileMeta) -> Result<()> {
        let FileRole::Index { ltn } = meta.role else { return Ok(()) };
        let mut scan = match lane.reader().scan(ltn) {
            // The group is lost as well.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Corruption) => {
                self.damaged.push(Source::Group(ltn));
                return Ok(());
            }
            scan => scan?,
        };
        let (logs, mut found, mut failed) = (&mut self.logs, LogFindings::default(), None);
        let mut seqs: Option<(SeqNo, SeqNo)> = None;
        let mut apply = |batch: &LoggedBatch<'_>| {
            if batch.tenant != TENANT {
                return;
            }
            let first = seqs.map_or(batch.first_seq, |(first, _)| first);
            seqs = Some((first, batch.last_seq));
            let applied = apply_batch(logs, batch);
            failed = failed.take().or(applied.err());
        };
        while scan.step(&mut found, &mut apply) {}
        // Intact batches were applied; the damaged ones are lost.
        if failed.is_some() || !found.errors.is_empty() {
            self.damaged.push(Source::Group(ltn));
        } else if let Some(seqs) = seqs {
            self.to_remake.in_memory(ltn, meta.number, seqs);
        }
        Ok(())
    }

    /// Marks the logs as incomplete if files are unreadable: missing records then count as lost,
    /// not absent.
    fn set_lost(&mut self, context: &Context) {
        self.damaged.sort_unstable();
        let state = self.manifest.state();
        let names: Vec<String> =
            self.damaged.iter().filter_map(|source| Some(state.rows_of(*source)?.name())).collect();
        let Some(first) = names.first() else {
            return;
        };
        let why = format!(
            "the records of {} cannot be read, and the index that lists them is lost as well; other records stay readable",
            names.join(", ")
        );
        self.logs.set_lost(Error::corruption(why).at_file(context.path(first)));
    }

    /// Completes the open after the log has begun.
    pub fn begin(
        mut self,
        options: &Options,
        ground: SecondaryEngineStore,
        roof: StoreOwner,
    ) -> Result<Arc<Core>> {
        let SecondaryEngineStore { files, space, lane, first } = ground;
        if !is_known(&self.manifest) {
            // The manifest must list the engine before the log has records of it.
            self.manifest.commit(commit(LogEdit { floor: Some(1), ..LogEdit::default() }, Vec::new()))?;
        }
        if matches!(roof, StoreOwner::Host(..)) {
            remove_strangers(&files, &self.manifest)?;
        }
        std::mem::take(&mut self.lost_rows).iter().try_for_each(|meta| self.remake_rows(&lane, meta))?;
        while self.logs.cut_some() {}
        self.set_lost(files.context());
        let Restored { manifest, logs, next_seq, lost_rows: _, damaged, kept, embedded, to_remake } = self;
        let next_seq = next_seq.max(manifest.state().floor).max(1);
        let (first, tenure) = match &roof {
            StoreOwner::Own(_) => (Some(first), EngineRole::Owner),
            StoreOwner::Host(_) => (Some(first), EngineRole::Secondary),
            StoreOwner::Reader(_) => (None, EngineRole::Reader),
        };
        let options = options.clone();
        let store = Arc::new(StoreHandles { files, space, manifest, lane, first, options, tenure });
        let parts = InitialState {
            logs,
            next_seq,
            embedded,
            damaged: damaged.into_iter().collect(),
            kept,
            to_remake,
        };
        let core = Arc::new(parts.assemble(store, roof));
        if core.reader().is_none() {
            Background(core.clone()).bound_waiting()?;
        }
        Ok(core)
    }
}

/// Initial state of the engine's components.
struct InitialState {
    logs: Logs,
    next_seq: SeqNo,
    embedded: BTreeMap<u64, SeqNo>,
    damaged: BTreeSet<Source>,
    kept: BTreeMap<u64, SeqNo>,
    to_remake: ToRemake,
}

impl InitialState {
    /// Builds the components, lowest first.
    fn assemble(self, store: Arc<StoreHandles>, roof: StoreOwner) -> Core {
        let options = &store.options;
        let open_max = options.open_files_max / 2;
        let rows = Arc::new(RowFiles::new(store.context(), &store.manifest.state(), open_max));
        let recent = Arc::new(RecentRecords::new(options.recent_bytes));
        let catalog = Arc::new(Catalog::new(self.logs));
        let remakes = Arc::new(RebuildQueue::new(self.to_remake));
        let moves = Arc::new(MoveLock::new(store.context()));
        let (room, reserve) = (Arc::new(FullVolume::new(&store)), Arc::new(Reserve::new(&store, &catalog)));
        let records = Arc::new(RecordReader::new(&store, &catalog, &rows, &recent, &remakes));
        let log = Arc::new(LogWriter::new(&store, &catalog, &recent, self.next_seq, self.embedded));
        let parts = CollectorParts {
            records: records.clone(),
            rows: rows.clone(),
            remakes: remakes.clone(),
            log: log.clone(),
            room: room.clone(),
            reserve: reserve.clone(),
        };
        let collector = Arc::new(Collector::new(&store, &catalog, parts, self.damaged, self.kept));
        collector.may_collect_all();
        reserve.refresh();
        let parts = SealerParts {
            rows: rows.clone(),
            log: log.clone(),
            room: room.clone(),
            reserve: reserve.clone(),
            collector: collector.clone(),
        };
        let sealer = Arc::new(Sealer::new(&store, &catalog, parts));
        let parts = RemakerParts {
            rows,
            remakes,
            room: room.clone(),
            reserve: reserve.clone(),
            collector: collector.clone(),
            sealer: sealer.clone(),
        };
        let remaker = Arc::new(IndexRebuilder::new(&store, &catalog, parts));
        let parts = WriteParts {
            records: records.clone(),
            log: log.clone(),
            room: room.clone(),
            reserve,
            moves: moves.clone(),
            collector: collector.clone(),
            sealer: sealer.clone(),
        };
        let writes = WritePath::new(&store, &catalog, parts);
        let appliers = Appliers::default();
        Core { store, roof, catalog, records, log, writes, moves, room, collector, sealer, remaker, appliers }
    }
}

/// Returns true for a file of this engine that no edit names.
fn is_stranger(state: &LogManifestState, kind: FileKind) -> bool {
    matches!(kind, FileKind::Engine { engine, number, .. }
        if engine == LavaLog::ID.0 && !state.files.contains_key(&number))
}

fn apply_batch(logs: &mut Logs, batch: &LoggedBatch<'_>) -> Result<()> {
    for op in Ops::of(batch.bytes)? {
        let op = op?;
        let seq = batch.first_seq + op.index as u64;
        logs.apply(seq, &op.op, place_of(batch.place.at(op.offset)))?;
    }
    Ok(())
}

/// Removes this engine's unnamed files in a store that another engine opened.
fn remove_strangers(files: &StoreFiles, manifest: &Handle<LavaLog>) -> Result<()> {
    let (context, state) = (files.context(), manifest.state());
    for entry in context.env.fs.list(&context.dir)? {
        if names::parse(&entry.name).is_some_and(|kind| is_stranger(&state, kind)) {
            files.remove(&entry.name)?;
        }
    }
    Ok(())
}
