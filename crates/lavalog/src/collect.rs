//! Garbage collection: copies the live records of mostly dead files into a cold file, then deletes
//! the files.
//!
//! [`crate::pick`] chooses the inputs from the ledger. A copy reads only the rows of the inputs and
//! the live records, by log and LSN. One manifest edit adds the new cold files (`outputs`) and
//! drops the inputs. Nothing changes before that edit, so a crash loses nothing. Records that die
//! during the copy are removed when the new files replace the inputs.

mod outputs;

use crate::catalog::Catalog;
use crate::disk::directory::{Directory, LogRows};
use crate::entry::{Entry, LogId, Source};
use crate::files::{RowFile, RowFiles};
use crate::full_volume::FullVolume;
use crate::hold::MovingRight;
use crate::index::RecordsInFile;
use crate::log_writer::LogWriter;
use crate::logs::Moved;
use crate::lsn_set::{LsnSet, Size};
use crate::manifest::{FileMeta, FileRole, LogEdit, commit};
use crate::pick::{ColdClass, FileFacts, Pick};
use crate::rebuild_queue::RebuildQueue;
use crate::records::RecordReader;
use crate::space::Reserve;
use crate::store_handles::StoreHandles;
use crate::to_collect::ToCollect;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use outputs::Outputs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup, ReadAhead};
use store::context::Counter;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;

/// Maximum bytes of records in one step of the job. If groups are short, an eighth of a group, so
/// that jobs of a small store have several steps, too.
const STEP_BYTES: u64 = 4 << 20;
/// Read-ahead for adjacent records.
const AHEAD_BYTES: u64 = 1 << 20;

/// Returns the sequence number from which truncations must be remembered. `kept` has the sealed
/// groups, each with its lowest sequence number. Earlier truncations apply to no record that a
/// replay or the rebuilding of a group's rows could bring back.
pub(crate) fn needed_from(kept: &BTreeMap<u64, SeqNo>, replay_from: SeqNo) -> SeqNo {
    // Groups are in sequence order.
    kept.values().next().map_or(replay_from, |first| replay_from.min(*first))
}

/// Sealed groups and collectable files.
#[derive(Debug, Default)]
struct StorageFiles {
    /// Files that may be collected.
    to_collect: ToCollect,
    /// Files that may not be collected because they are damaged. They are left unchanged.
    damaged: BTreeSet<Source>,
    /// Sealed groups, each with its lowest sequence number; 0 if the index file, which stores it,
    /// was unreadable.
    kept: BTreeMap<u64, SeqNo>,
}

/// Tracks storage files, chooses files to collect, and drops them.
pub(crate) struct Collector {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    records: Arc<RecordReader>,
    rows: Arc<RowFiles>,
    remakes: Arc<RebuildQueue>,
    log: Arc<LogWriter>,
    room: Arc<FullVolume>,
    reserve: Arc<Reserve>,
    /// Guards the sets of sealed groups and collectable files.
    stored: Mutex<StorageFiles, rank::RecordCollection>,
    collected_files: Counter,
    copied_bytes: Counter,
}

pub(crate) struct CollectorParts {
    pub records: Arc<RecordReader>,
    pub rows: Arc<RowFiles>,
    pub remakes: Arc<RebuildQueue>,
    pub log: Arc<LogWriter>,
    pub room: Arc<FullVolume>,
    pub reserve: Arc<Reserve>,
}

impl Collector {
    /// Creates the collector over these components. `damaged` are the files that the open could not
    /// read; `kept` are the sealed groups, each with its lowest sequence number.
    pub fn new(
        store: &Arc<StoreHandles>,
        catalog: &Arc<Catalog>,
        parts: CollectorParts,
        damaged: BTreeSet<Source>,
        kept: BTreeMap<u64, SeqNo>,
    ) -> Collector {
        let CollectorParts { records, rows, remakes, log, room, reserve } = parts;
        Collector {
            store: store.clone(),
            catalog: catalog.clone(),
            records,
            rows,
            remakes,
            log,
            room,
            reserve,
            stored: Mutex::new(StorageFiles { damaged, kept, ..StorageFiles::default() }),
            collected_files: Counter::default(),
            copied_bytes: Counter::default(),
        }
    }

    /// Returns the number of files collected since the store was opened.
    pub fn collected_files(&self) -> u64 {
        self.collected_files.get()
    }

    /// Returns the bytes of records copied since the store was opened.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// Adds a sealed group with its lowest sequence number, after the index refers to its file.
    pub fn keep(&self, ltn: u64, first_seq: SeqNo) {
        lock(&self.stored).kept.insert(ltn, first_seq);
    }

    /// Returns true if a group is sealed and the index refers to its file.
    pub fn is_kept(&self, ltn: u64) -> bool {
        lock(&self.stored).kept.contains_key(&ltn)
    }

    /// Returns the sequence number from which truncations must be remembered, if a checkpoint has
    /// everything before `replay_from`.
    pub fn needed_from(&self, replay_from: SeqNo) -> SeqNo {
        needed_from(&lock(&self.stored).kept, replay_from)
    }

    /// Returns true if a source may not be collected because it is damaged.
    pub fn is_damaged(&self, source: Source) -> bool {
        lock(&self.stored).damaged.contains(&source)
    }

    /// Clears the damage of a source after its rows were rebuilt.
    pub fn mended(&self, source: Source) {
        lock(&self.stored).damaged.remove(&source);
    }

    /// Removes a source from the collectable files, because it is gone or its rows are in no file.
    pub fn let_go(&self, source: Source) {
        lock(&self.stored).to_collect.remove(source);
    }

    /// Returns the most worthwhile collection. Repeated calls only examine changed files.
    pub fn to_collect(&self) -> Option<Pick> {
        let to_collect = &mut lock(&self.stored).to_collect;
        to_collect.update(&self.catalog);
        let mut percents = self.reserve.garbage_percents();
        percents.find_map(|percent| to_collect.pick(&self.reserve.pick_options(percent)))
    }

    /// Adds a file to the collectable ones. `group_len` is the size of the group that the file
    /// indexes.
    pub fn may_collect(&self, file: &FileMeta, group_len: u64) {
        let mut stored = lock(&self.stored);
        let cannot = |source: &Source| stored.damaged.contains(source) || self.remakes.is_in_memory(*source);
        let Some(source) = file.source().filter(|source| !cannot(source)) else { return };
        let (bytes, age, generation) = match file.role {
            FileRole::Index { ltn } => (group_len + file.len, ltn, 0),
            FileRole::Cold { generation } => (file.len, file.number, generation),
            FileRole::Checkpoint => return,
        };
        let usage = self.catalog.view().ledger().usage(source);
        let facts = FileFacts { source, bytes, written: usage.written, live: usage.live, age, generation };
        stored.to_collect.add(facts);
    }

    /// Adds all existing files to the collectable ones. Called once, at open.
    pub fn may_collect_all(&self) {
        let retained = |group: &LaneGroup| group.state == GroupState::Retained;
        let groups = self.store.lane.reader().groups().into_iter().filter(retained);
        let groups: HashMap<u64, u64> = groups.map(|group| (group.ltn, group.len)).collect();
        for file in self.store.manifest.state().files.values() {
            match file.role {
                FileRole::Index { ltn } => {
                    groups.get(&ltn).iter().for_each(|len| self.may_collect(file, **len));
                }
                _ => self.may_collect(file, 0),
            }
        }
    }

    /// Excludes damaged files from collection and leaves them unchanged.
    fn set_damaged(&self, sources: &[Source]) {
        let mut stored = lock(&self.stored);
        stored.damaged.extend(sources);
        sources.iter().for_each(|source| stored.to_collect.remove(*source));
    }

    /// Drops files: frees groups and removes index and cold files. The same edit adds the files in
    /// `add`. The index changes while the inputs are still readable, so every look-up finds the old
    /// or the new position.
    fn replace(
        &self,
        inputs: &[Source],
        add: Vec<FileMeta>,
        moved: Vec<Moved>,
        grant: Option<&Grant>,
    ) -> Result<()> {
        let state = self.store.manifest.state();
        let rows: Vec<FileMeta> = inputs.iter().filter_map(|source| state.rows_of(*source)).collect();
        let groups: Vec<u64> = inputs
            .iter()
            .filter_map(|source| match source {
                Source::Group(ltn) => Some(*ltn),
                Source::Cold(_) => None,
            })
            .collect();
        let remove = rows.iter().map(|file| file.number).collect();
        let step = LogEdit { floor: None, remove, add: add.clone() };
        // The trims and truncations that made records dead must become durable before the records
        // are removed.
        self.log.sync()?;
        self.store.lane.stored().free(&groups, |records| {
            self.store.manifest.commit(commit(step, records))?;
            add.iter().for_each(|meta| self.rows.add(meta));
            self.catalog.relocate(inputs, moved);
            Ok(())
        })?;
        inputs.iter().for_each(|input| self.let_go(*input));
        groups.iter().for_each(|ltn| _ = lock(&self.stored).kept.remove(ltn));
        add.iter().for_each(|file| self.may_collect(file, 0));
        grant.iter().for_each(|grant| grant.installed());
        self.reserve.files_changed()?;
        self.removed(&rows)?;
        self.room.job_found_room()
    }

    /// Removes the index and cold files of the collected inputs.
    fn removed(&self, rows: &[FileMeta]) -> Result<()> {
        self.collected_files.add(rows.len() as u64);
        rows.iter().try_for_each(|file| {
            file.source().into_iter().for_each(|source| self.rows.forget(source));
            self.store.files.remove(&file.name())
        })
    }

    pub fn free_dead(&self, dead: &[Source]) -> Result<()> {
        self.replace(dead, Vec::new(), Vec::new(), None)
    }
}

/// An input with its index or cold file and its directory.
struct CollectionInput {
    source: Source,
    file: RowFile,
    directory: Directory,
}

/// The job that collects files.
pub(crate) struct Collection {
    collector: Arc<Collector>,
    pick: Pick,
    copy: Option<Copy>,
    _right: MovingRight,
}

struct Copy {
    inputs: Vec<CollectionInput>,
    /// Logs with records in the inputs, and the number of them already copied.
    logs: Vec<LogId>,
    at: usize,
    outputs: Outputs,
    copied_bytes: u64,
    grant: Option<Grant>,
}

impl Collection {
    pub fn new(collector: &Arc<Collector>, pick: Pick, right: MovingRight) -> Collection {
        Collection { collector: collector.clone(), pick, copy: None, _right: right }
    }

    fn begin_copy(&mut self) -> Result<()> {
        let Pick::Copy { inputs, generation, copy_bytes, .. } = &self.pick else { return Ok(()) };
        let collector = &self.collector;
        let grant = collector.store.space.grants.grant(*copy_bytes);
        let state = collector.store.manifest.state();
        let mut opened = Vec::new();
        let mut logs = BTreeSet::new();
        for source in inputs {
            let meta = state.rows_of(*source);
            let gone = || Error::not_found(format!("{source} has no index and cannot be collected"));
            let (file, directory) = RowFile::open(collector.store.context(), &meta.ok_or_else(gone)?)?;
            logs.extend(directory.logs.iter().map(|rows| rows.log));
            opened.push(CollectionInput { source: *source, file, directory });
        }
        let (outputs, logs) = (Outputs::new(*generation), logs.into_iter().collect());
        self.copy = Some(Copy { inputs: opened, logs, at: 0, outputs, copied_bytes: 0, grant });
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(Copy { inputs, logs, mut outputs, copied_bytes, grant, .. }) = self.copy.take() else {
            return Ok(());
        };
        let collector = &self.collector;
        let finished = outputs.finish_all().and_then(|()| collector.store.files.sync_dir());
        let sources: Vec<Source> = inputs.iter().map(|input| input.source).collect();
        let replaced = finished.and_then(|()| outputs.parts()).and_then(|parts| {
            collector.replace(&sources, outputs.metas(), moved(&inputs, &logs, parts), grant.as_ref())
        });
        match &replaced {
            Ok(()) => collector.copied_bytes.add(copied_bytes),
            Err(_) => outputs.remove(&collector.store),
        }
        replaced
    }
}

impl Copy {
    /// Copies the live records of the next logs. Returns true if more logs remain.
    fn step(&mut self, collector: &Collector) -> Result<bool> {
        let begun = self.copied_bytes;
        self.grant.iter().for_each(|grant| grant.wrote(|| self.outputs.created()));
        let most = STEP_BYTES.min(collector.store.options.longest_group() / 8);
        while let Some(&log) = self.logs.get(self.at) {
            if self.copied_bytes - begun > most {
                return Ok(true);
            }
            self.copy_log(collector, log)?;
            self.at += 1;
        }
        Ok(false)
    }

    fn copy_log(&mut self, collector: &Collector, log: LogId) -> Result<()> {
        let (mut rows, mut live): (Vec<(Source, Entry)>, _) = (Vec::new(), Size::default());
        for input in &self.inputs {
            let Some(of_log) = input.directory.log(log) else { continue };
            let alive = alive(&collector.catalog, input.source, of_log);
            live += alive.size();
            input.file.each_of(of_log, &mut |row| {
                if alive.contains(row.lsn) {
                    rows.push((input.source, *row));
                }
                Ok(())
            })?;
        }
        rows.sort_unstable_by_key(|(_, row)| row.lsn);
        let is_trimmed = collector.catalog.view().get(log).is_none_or(|log| log.live().trimmed_below() > 0);
        let company = ColdClass::of(
            self.outputs.generation(),
            live,
            is_trimmed,
            collector.store.options.longest_group(),
        );
        let (mut bytes, mut ahead) = (Vec::new(), ReadAhead::new(AHEAD_BYTES));
        for (source, row) in rows {
            bytes.clear();
            collector.records.bytes_ahead(source, &row, &mut ahead, &mut bytes)?;
            self.outputs.add(&collector.store, company, &row, &bytes)?;
            self.copied_bytes += bytes.len() as u64;
        }
        self.outputs.end_log(company)
    }
}

/// Returns the change of each log by this collection. `parts` are the logs' parts of the outputs.
fn moved(inputs: &[CollectionInput], logs: &[LogId], parts: Vec<(LogId, RecordsInFile)>) -> Vec<Moved> {
    let mut parts: HashMap<LogId, RecordsInFile> = parts.into_iter().collect();
    let from = |log: LogId| {
        let of_log =
            inputs.iter().filter_map(move |input| Some((input.source, input.directory.log(log)?.low()?)));
        of_log.collect()
    };
    logs.iter().map(|&log| Moved { log, from: from(log), to: parts.remove(&log) }).collect()
}

/// Returns the live LSNs of a log in a source with the given rows.
pub(crate) fn alive(catalog: &Catalog, source: Source, rows: &LogRows) -> LsnSet {
    let logs = catalog.view();
    let part =
        logs.get(rows.log).zip(rows.low()).and_then(|(log, low)| log.live().index().part_of(source, low));
    part.map(|part| part.set().clone()).unwrap_or_default()
}

impl Job for Collection {
    fn class(&self) -> JobClass {
        JobClass::Gc
    }

    fn step(&mut self) -> Result<Progress> {
        let stepped = self.advance();
        let is_lost = |e: &Error| e.is_corruption() || e.kind() == ErrorKind::NotFound;
        if stepped.as_ref().is_err_and(is_lost) {
            // Leave damaged inputs unchanged and continue with other work.
            let (Pick::Free(inputs) | Pick::Copy { inputs, .. }) = &self.pick;
            self.collector.set_damaged(inputs);
            self.collector.remakes.check(&self.collector.rows, inputs);
            self.abandon();
            return Ok(Progress::Done);
        }
        stepped
    }

    fn abandon(&mut self) {
        if let Some(Copy { outputs, .. }) = self.copy.take() {
            outputs.remove(&self.collector.store);
        }
    }
}

impl Collection {
    fn advance(&mut self) -> Result<Progress> {
        if let Pick::Free(dead) = &self.pick {
            self.collector.free_dead(dead)?;
            return Ok(Progress::Done);
        }
        match &mut self.copy {
            None => self.begin_copy()?,
            Some(copy) => {
                if !copy.step(&self.collector)? {
                    self.finish()?;
                    return Ok(Progress::Done);
                }
            }
        }
        Ok(Progress::More)
    }
}

#[cfg(test)]
mod tests;
