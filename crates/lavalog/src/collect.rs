//! Collection: what is alive of files that are mostly garbage goes into a cold file, and they go.
//!
//! What is taken is decided by [`crate::pick`], from what the ledger says. Of a copy only the rows of the inputs are read, and the
//! records that are alive, by log and LSN. One edit names the cold files that were written (`outputs`) and drops the inputs; before that
//! nothing has changed, so that a crash on the way loses nothing. What dies while it is copied is taken out when the new files take the
//! places of the inputs.

mod outputs;

use crate::catalog::Catalog;
use crate::disk::directory::{Directory, LogRows};
use crate::entry::{Entry, LogId, Source};
use crate::files::{RowFile, RowFiles};
use crate::foundation::Foundation;
use crate::hold::MovingRight;
use crate::index::Part;
use crate::log_writer::LogWriter;
use crate::logs::Moved;
use crate::lsn_set::{LsnSet, Size};
use crate::manifest::{FileMeta, Role, Step, commit};
use crate::pick::{Company, FileFacts, Pick};
use crate::records::Records;
use crate::room::Room;
use crate::space::Reserve;
use crate::to_collect::ToCollect;
use crate::to_remake::Remakes;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use outputs::Outputs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup, ReadAhead};
use store::context::Counter;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;

/// Bytes of records in one step of the job, at most; where groups are short, an eighth of one, so that a small store's jobs have several
/// steps as well.
const STEP_BYTES: u64 = 4 << 20;
/// Bytes that are read at once where records that are copied lie one behind another.
const AHEAD_BYTES: u64 = 1 << 20;

/// Truncations from this sequence on are remembered; `kept`: the groups that are storage, each with the lowest sequence in it. Those before it
/// apply to nothing that could be replayed, nor be in a group whose rows are lost and made again. There, all comes up that ever was in it.
pub(crate) fn needed_from(kept: &BTreeMap<u64, SeqNo>, replay_from: SeqNo) -> SeqNo {
    // They are in their order.
    kept.values().next().map_or(replay_from, |first| replay_from.min(*first))
}

/// What is storage, and what of it may be collected.
#[derive(Debug, Default)]
struct Stored {
    /// What could be collected.
    to_collect: ToCollect,
    /// What could not be, because something of it is damaged. It stays as it is.
    damaged: BTreeSet<Source>,
    /// The groups that are storage, each with the lowest sequence in it; 0, if its index file could not be read, which knows it.
    kept: BTreeMap<u64, SeqNo>,
}

/// Knows what is storage, finds what to collect, and drops it.
pub(crate) struct Collector {
    store: Arc<Foundation>,
    catalog: Arc<Catalog>,
    records: Arc<Records>,
    rows: Arc<RowFiles>,
    remakes: Arc<Remakes>,
    log: Arc<LogWriter>,
    room: Arc<Room>,
    reserve: Arc<Reserve>,
    /// Guards what is storage, and what of it may be collected.
    stored: Mutex<Stored, rank::RecordCollection>,
    /// Files that were collected.
    collected_files: Counter,
    /// Bytes of records that were copied for it.
    copied_bytes: Counter,
}

/// The parts that a collector works with.
pub(crate) struct CollectorParts {
    pub records: Arc<Records>,
    pub rows: Arc<RowFiles>,
    pub remakes: Arc<Remakes>,
    pub log: Arc<LogWriter>,
    pub room: Arc<Room>,
    pub reserve: Arc<Reserve>,
}

impl Collector {
    /// Of these logs, with these parts. `damaged`: what an open could not read; `kept`: the groups that are storage, each with the lowest
    /// sequence in it.
    pub fn new(
        store: &Arc<Foundation>,
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
            stored: Mutex::new(Stored { damaged, kept, ..Stored::default() }),
            collected_files: Counter::default(),
            copied_bytes: Counter::default(),
        }
    }

    /// Files that were collected since the store was opened.
    pub fn collected_files(&self) -> u64 {
        self.collected_files.get()
    }

    /// Bytes of records that were copied for it.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// A group is storage, with this lowest sequence in it, and the index leads to its file.
    pub fn keep(&self, ltn: u64, first_seq: SeqNo) {
        lock(&self.stored).kept.insert(ltn, first_seq);
    }

    /// True if a group is storage, and the index leads to its file.
    pub fn is_kept(&self, ltn: u64) -> bool {
        lock(&self.stored).kept.contains_key(&ltn)
    }

    /// Truncations from this sequence on are remembered, where all before `replay_from` is in a checkpoint.
    pub fn needed_from(&self, replay_from: SeqNo) -> SeqNo {
        needed_from(&lock(&self.stored).kept, replay_from)
    }

    /// True if a source stays as it is, because something of it is damaged.
    pub fn is_damaged(&self, source: Source) -> bool {
        lock(&self.stored).damaged.contains(&source)
    }

    /// The rows of a source were made again.
    pub fn mended(&self, source: Source) {
        lock(&self.stored).damaged.remove(&source);
    }

    /// A source cannot be collected for now: its rows are in no file.
    pub fn let_go(&self, source: Source) {
        lock(&self.stored).to_collect.remove(source);
    }

    /// What is most worth collecting. Asked again and again, it looks at what has changed.
    pub fn to_collect(&self) -> Option<Pick> {
        let to_collect = &mut lock(&self.stored).to_collect;
        to_collect.update(&self.catalog);
        let mut percents = self.reserve.garbage_percents();
        percents.find_map(|percent| to_collect.pick(&self.reserve.pick_options(percent)))
    }

    /// A file may be collected from now on; `group_len`: the bytes of the group that it is the index of.
    pub fn may_collect(&self, file: &FileMeta, group_len: u64) {
        let mut stored = lock(&self.stored);
        let cannot = |source: &Source| stored.damaged.contains(source) || self.remakes.is_in_memory(*source);
        let Some(source) = file.source().filter(|source| !cannot(source)) else { return };
        let (bytes, age, generation) = match file.role {
            Role::Index { ltn } => (group_len + file.len, ltn, 0),
            Role::Cold { generation } => (file.len, file.number, generation),
            Role::Checkpoint => return,
        };
        let usage = self.catalog.view().ledger().usage(source);
        let facts = FileFacts { source, bytes, written: usage.written, live: usage.live, age, generation };
        stored.to_collect.add(facts);
    }

    /// All files that there are may be collected: once, at open.
    pub fn may_collect_all(&self) {
        let retained = |group: &LaneGroup| group.state == GroupState::Retained;
        let groups = self.store.lane.reader().groups().into_iter().filter(retained);
        let groups: HashMap<u64, u64> = groups.map(|group| (group.ltn, group.len)).collect();
        for file in self.store.manifest.state().files.values() {
            match file.role {
                Role::Index { ltn } => {
                    groups.get(&ltn).iter().for_each(|len| self.may_collect(file, **len));
                }
                _ => self.may_collect(file, 0),
            }
        }
    }

    /// What is damaged is not collected: it stays as it is.
    fn set_damaged(&self, sources: &[Source]) {
        let mut stored = lock(&self.stored);
        stored.damaged.extend(sources);
        sources.iter().for_each(|source| stored.to_collect.remove(*source));
    }

    /// Drops files: groups are freed, files of rows removed. `add` comes in the same edit. What the index leads to changes while the
    /// inputs can still be read: who looks for a record finds it in the one or the other.
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
        let step = Step { floor: None, remove, add: add.clone() };
        // The trims and truncations by which records are dead must not be lost where the records are.
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

    /// Removes the files of rows of what was collected.
    fn removed(&self, rows: &[FileMeta]) -> Result<()> {
        self.collected_files.add(rows.len() as u64);
        rows.iter().try_for_each(|file| {
            file.source().into_iter().for_each(|source| self.rows.forget(source));
            self.store.files.remove(&file.name())
        })
    }

    /// Drops files of which nothing is alive.
    pub fn free_dead(&self, dead: &[Source]) -> Result<()> {
        self.replace(dead, Vec::new(), Vec::new(), None)
    }
}

/// An input: who has its rows, and what of which log.
struct Input {
    source: Source,
    file: RowFile,
    directory: Directory,
}

/// See the module.
pub(crate) struct Collection {
    collector: Arc<Collector>,
    pick: Pick,
    copy: Option<Copy>,
    _right: MovingRight,
}

struct Copy {
    inputs: Vec<Input>,
    /// The logs that the inputs have something of, and how many of them are copied.
    logs: Vec<LogId>,
    at: usize,
    outputs: Outputs,
    copied_bytes: u64,
    grant: Option<Grant>,
}

impl Collection {
    /// Begins, with the right to move groups.
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
            let gone = || Error::not_found(format!("{source:?} has no rows to collect it by"));
            let (file, directory) = RowFile::open(collector.store.context(), &meta.ok_or_else(gone)?)?;
            logs.extend(directory.logs.iter().map(|rows| rows.log));
            opened.push(Input { source: *source, file, directory });
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
    /// Copies what is alive of some logs. True if there are more.
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
        let company =
            Company::of(self.outputs.generation(), live, is_trimmed, collector.store.options.longest_group());
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

/// What becomes of the logs that inputs have something of; `parts`: what the outputs have of them.
fn moved(inputs: &[Input], logs: &[LogId], parts: Vec<(LogId, Part)>) -> Vec<Moved> {
    let mut parts: HashMap<LogId, Part> = parts.into_iter().collect();
    let from = |log: LogId| {
        let of_log =
            inputs.iter().filter_map(move |input| Some((input.source, input.directory.log(log)?.low()?)));
        of_log.collect()
    };
    logs.iter().map(|&log| Moved { log, from: from(log), to: parts.remove(&log) }).collect()
}

/// The LSNs of a log that are alive in a source, which has those rows of it.
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
            // What is damaged stays as it is; everything else goes on.
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
