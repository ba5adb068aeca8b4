//! Sealing: turns log groups into storage. Each group gets an index file; a common checkpoint then
//! makes their replay unnecessary.
//!
//! The groups are closed, and all their operations are applied. The job writes each index file from
//! the recent records in memory, by log and LSN. Then it writes a checkpoint of names, trims,
//! truncations and metadata, in two copies. One manifest edit adds these files, ends the replay of
//! the groups, and drops the previous checkpoint. Operations continue meanwhile. Installing an
//! index file removes the records that died during its writing. A later replay repeats operations
//! that the checkpoint already reflects, without effect.
//!
//! A checkpoint contains all logs, however few of them have records in the group. So if it is long
//! compared with a group, closed groups *wait* for more, until the checkpoint is a small fraction
//! of them ([`CHECKPOINT_PART`]). An open replays the waiting groups, in total no more than one
//! group of the default size. Under a space limit, or when space is short, nothing waits: each
//! group is sealed alone, which takes the least space.
//!
//! Groups are sealed in order. After a crash during sealing, the groups are replayed as if it had
//! not begun; the open removes files that no edit names.

use crate::catalog::Catalog;
use crate::checkpoint::{CheckpointHead, CheckpointWriter};
use crate::collect::Collector;
use crate::disk::directory::Directory;
use crate::entry::{LogId, Source};
use crate::files::RowFiles;
use crate::full_volume::FullVolume;
use crate::hold::MovingRight;
use crate::index::RecordsInFile;
use crate::index_file::{IndexFileWriter, IndexHead};
use crate::log_writer::LogWriter;
use crate::logs::Log;
use crate::manifest::{FileMeta, FileRole, LogEdit, TENANT, commit};
use crate::space::Reserve;
use crate::store_handles::{NewFile, StoreHandles};
use base::sync::{Mutex, lock, rank};
use base::{ErrorKind, Result, SeqNo};
use io::AppendFile;
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup};
use store::context::Counter;
use store::run::{Job, JobClass, Progress};

/// Logs in one step of the job.
const LOGS_IN_STEP: usize = 256;

/// Groups wait until both copies of the checkpoint are at most this fraction of the groups sealed
/// with it.
const CHECKPOINT_PART: u64 = 64;
/// Nothing waits if the checkpoint with its copy is at most this fraction of the maximum group size
/// (64 KiB by default): avoiding it is not worth the risk that a replayed group is damaged.
const CHECKPOINT_SHORT_PART: u64 = 4096;
/// Groups stop waiting at this many bytes or groups: an open replays them, and memory has an entry
/// for each of their records. The bytes are one default group, less the space that the last batch
/// may leave free at its end.
const WAITING_BYTES_MAX: u64 = (256 << 20) - (17 << 20);
const WAITING_GROUPS_MAX: usize = 8;

/// Decides which groups to seal, and when.
pub(crate) struct Sealer {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    rows: Arc<RowFiles>,
    log: Arc<LogWriter>,
    room: Arc<FullVolume>,
    reserve: Arc<Reserve>,
    collector: Arc<Collector>,
    /// Guards the requests to seal and to flush.
    asked: Mutex<Asked, rank::RecordSeals>,
    sealed_groups: Counter,
}

/// Requests to seal and to flush.
#[derive(Debug, Default)]
struct Asked {
    /// Groups up to this number are sealed as soon as they are closed, because a caller asked for
    /// it.
    seal_to: u64,
    /// The group for which the host engine was last asked to flush its memtables.
    relieved: Option<u64>,
}

pub(crate) struct SealerParts {
    pub rows: Arc<RowFiles>,
    pub log: Arc<LogWriter>,
    pub room: Arc<FullVolume>,
    pub reserve: Arc<Reserve>,
    pub collector: Arc<Collector>,
}

impl Sealer {
    pub fn new(store: &Arc<StoreHandles>, catalog: &Arc<Catalog>, parts: SealerParts) -> Sealer {
        let SealerParts { rows, log, room, reserve, collector } = parts;
        let (asked, sealed_groups) = (Mutex::new(Asked::default()), Counter::default());
        let (store, catalog) = (store.clone(), catalog.clone());
        Sealer { store, catalog, rows, log, room, reserve, collector, asked, sealed_groups }
    }

    /// Returns the number of groups sealed since the store was opened.
    pub fn sealed_groups(&self) -> u64 {
        self.sealed_groups.get()
    }

    /// Returns true if closed groups are to be sealed now.
    pub fn has_to_seal(&self) -> bool {
        let groups = self.sealable();
        let filled: u64 = groups.iter().map(|group| group.filled).sum();
        let is_enough = filled
            >= WAITING_BYTES_MAX.min(CHECKPOINT_PART.saturating_mul(self.checkpoint_bytes()))
            || groups.len() >= WAITING_GROUPS_MAX;
        let Some(first) = groups.first() else { return false };
        is_enough || self.seals_alone() || first.ltn <= lock(&self.asked).seal_to
    }

    /// Returns the size of the current checkpoint with its copy.
    fn checkpoint_bytes(&self) -> u64 {
        self.store.manifest.state().checkpoints().map(|file| file.len).sum()
    }

    /// Returns true if groups do not wait for others: the checkpoint is short, or space is or may
    /// be short. Under a space limit the reserve must also hold index files and a checkpoint, so
    /// few of them at a time are best.
    fn seals_alone(&self) -> bool {
        let is_refused =
            self.store.context().health.out_of_space() || self.store.lane.spares().reserved_is_short();
        let is_short = self.checkpoint_bytes() <= self.store.options.longest_group() / CHECKPOINT_SHORT_PART;
        is_short || is_refused || self.store.space.has_own_limit() || self.store.space.is_short()
    }

    /// Closes the active group and requests the sealing of all closed groups without waiting for
    /// more.
    ///
    /// # Errors
    /// Errors of writing the log.
    pub fn seal_active(&self) -> Result<()> {
        let active = self.store.lane.reader().to_retain().last().map(|group| group.ltn);
        let sealed = match self.store.lane.upkeep().seal_active() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.store.lane.spares().reserved_is_short() => {
                // There may be space by now; the reserved space has precedence.
                self.room.admit(false).and_then(|()| self.store.lane.upkeep().seal_active())
            }
            sealed => sealed,
        };
        lock(&self.asked).seal_to = active.unwrap_or_default();
        sealed.map(drop)
    }

    /// Returns the closed groups of this engine that may be sealed, oldest first. They have no
    /// index file and no embedded batch that the host engine still needs.
    fn sealable(&self) -> Vec<LaneGroup> {
        let held = self.log.held_from();
        let mut groups = self.closed();
        groups.retain(|group| held.is_none_or(|ltn| group.ltn < ltn));
        groups
    }

    /// Returns the number of groups that may be sealed.
    pub fn waiting_groups(&self) -> usize {
        self.sealable().len()
    }

    /// Returns the oldest closed group if it waits for a flush of the host engine's memtables, and
    /// that flush was not yet requested.
    pub fn to_relieve(&self) -> Option<u64> {
        let held = self.log.held_from().filter(|_| !self.store.is_owner())?;
        let group = self.closed().into_iter().next().filter(|group| group.ltn >= held)?;
        (lock(&self.asked).relieved != Some(group.ltn)).then_some(group.ltn)
    }

    /// Notes that the host engine was asked to flush its memtables for this group.
    pub fn relieved(&self, ltn: u64) {
        lock(&self.asked).relieved = Some(ltn);
    }

    /// Returns the closed groups with records of this engine and without an index file, oldest
    /// first.
    fn closed(&self) -> Vec<LaneGroup> {
        let mut groups = self.store.lane.reader().to_retain();
        groups.retain(|group| {
            let is_ours = group.seqs.as_ref().is_some_and(|seqs| seqs.of(TENANT).is_some());
            is_ours && matches!(group.state, GroupState::Closed | GroupState::Passed)
        });
        groups
    }

    /// Returns the oldest group above `above` that may be sealed, after the log has released it.
    /// Its operations are then applied and durable.
    fn passed(&self, above: u64) -> Result<Option<LaneGroup>> {
        let oldest = || {
            let held = self.log.held_from();
            match self.store.lane.stored().first_passed(above, |group| group.seqs.of(TENANT).is_some()) {
                Some(group) => Some(group).filter(|group| held.is_none_or(|ltn| group.ltn < ltn)),
                // Groups that the log has not released come after all released ones.
                None => self.sealable().into_iter().find(|group| group.ltn > above),
            }
        };
        for must_be in [false, true] {
            let group = oldest();
            if group.as_ref().is_none_or(|group| group.state == GroupState::Passed) {
                return Ok(group);
            }
            if must_be {
                // A durable page of the following group must exist before this group may be
                // released.
                self.store.lane.upkeep().persist_watermark()?;
            }
            self.pass_closed()?;
        }
        Ok(oldest().filter(|group| group.state == GroupState::Passed))
    }

    /// Asks the log to release all closed groups that this engine may seal.
    fn pass_closed(&self) -> Result<()> {
        let groups = self.store.lane.reader().to_retain();
        // All operations of a closed group were applied under the order lock, and their embedded
        // batches noted.
        self.log.wait_applied();
        let held = self.log.held_from();
        let closed = groups.iter().filter(|group| group.state == GroupState::Closed);
        let closed = closed.filter(|group| held.is_none_or(|ltn| group.ltn < ltn));
        let last = closed.filter_map(|group| group.seqs.as_ref()?.last(TENANT)).max();
        if let Some(last) = last {
            self.store.lane.floors().tell(TENANT, last + 1);
        }
        self.store.lane.upkeep().release(|| ())
    }

    /// Installs a named index file in place of the group's recent records.
    fn become_storage(&self, indexed: IndexedGroup) {
        let IndexedGroup { group, seqs, logs, parts, file } = indexed;
        self.rows.add(&file.meta);
        self.catalog.install(group.ltn, &logs, parts);
        self.collector.keep(group.ltn, seqs.0);
        self.collector.may_collect(&file.meta, group.len);
    }

    /// Writes a checkpoint with which replay starts at a sequence number.
    fn checkpoint(&self, replay_from: SeqNo) -> Result<NewFile> {
        let (mut file, append) = self.store.new_file(FileRole::Checkpoint)?;
        match self.write_checkpoint(&file, append, replay_from) {
            Ok(len) => {
                file.meta.len = len;
                Ok(file)
            }
            Err(e) => {
                self.store.remove_unnamed(&[file]);
                Err(e)
            }
        }
    }

    fn write_checkpoint(
        &self,
        file: &NewFile,
        append: Box<dyn AppendFile>,
        replay_from: SeqNo,
    ) -> Result<u64> {
        let (next_seq, next_log) = self.log.next();
        // Replay creates later logs again from their operations.
        let mut ids: Vec<LogId> = Vec::new();
        self.catalog.each_log(|log| ids.extend(Some(log.id()).filter(|id| *id < next_log)));
        ids.sort_unstable();
        let head = CheckpointHead { number: file.meta.number, replay_from, next_seq, next_log };
        let mut writer = CheckpointWriter::new(append, &file.path, file.meta.uid, head);
        for id in ids {
            let saved = self.catalog.view().get(id).map(Log::save);
            saved.iter().try_for_each(|saved| writer.add(saved))?;
        }
        writer.finish()
    }
}

/// Returns the parts of a file for the in-memory index, one per log.
pub(crate) fn parts_of(source: Source, directory: &Directory) -> Result<Vec<(LogId, RecordsInFile)>> {
    directory.logs.iter().map(|rows| Ok((rows.log, RecordsInFile::of(source, rows)?))).collect()
}

/// The job that seals groups.
pub(crate) struct Seal {
    sealer: Arc<Sealer>,
    /// Maximum number of groups in one run of the job.
    most: usize,
    writing: Option<Writing>,
    /// Groups with written index files that the manifest does not name yet.
    indexed: Vec<IndexedGroup>,
    _right: MovingRight,
}

/// A group with a written index file.
struct IndexedGroup {
    group: LaneGroup,
    seqs: (SeqNo, SeqNo),
    logs: Vec<LogId>,
    parts: Vec<(LogId, RecordsInFile)>,
    file: NewFile,
}

/// A group whose index file is being written from the recent records in memory.
pub(crate) struct Writing {
    sealer: Arc<Sealer>,
    group: LaneGroup,
    seqs: (SeqNo, SeqNo),
    /// Logs with records in the group, and the number of them already written.
    logs: Vec<LogId>,
    at: usize,
    index: Option<IndexFileWriter>,
    files: Vec<NewFile>,
}

impl Writing {
    /// Creates the index file. `seqs` are the first and the last sequence number in the group.
    pub fn begin(sealer: &Arc<Sealer>, group: LaneGroup, seqs: (SeqNo, SeqNo)) -> Result<Writing> {
        let logs = sealer.catalog.logs_in(group.ltn);
        let (file, append) = sealer.store.new_file(FileRole::Index { ltn: group.ltn })?;
        let state = sealer.store.manifest.state();
        let uid = state.store.log_groups.get(&group.ltn).and_then(|listed| listed.uid).unwrap_or_default();
        let head =
            IndexHead { number: file.meta.number, ltn: group.ltn, group: uid, filled: group.filled, seqs };
        let index = IndexFileWriter::new(append, &file.path, file.meta.uid, head);
        Ok(Writing {
            sealer: sealer.clone(),
            group,
            seqs,
            logs,
            at: 0,
            index: Some(index),
            files: vec![file],
        })
    }

    pub fn is_written(&self) -> bool {
        self.at == self.logs.len()
    }

    /// Writes the rows of the next logs.
    pub fn write_some(&mut self) -> Result<()> {
        let end = (self.at + LOGS_IN_STEP).min(self.logs.len());
        let Some(index) = &mut self.index else { return Ok(()) };
        for log in &self.logs[self.at..end] {
            let rows: Vec<_> = {
                let logs = self.sealer.catalog.view();
                let Some(log) = logs.get(*log) else { continue };
                log.live().index().recent_in(log.id(), self.group.ltn).collect()
            };
            rows.iter().try_for_each(|row| index.add(row))?;
        }
        self.at = end;
        Ok(())
    }

    /// Finishes the index file. Returns its parts, one per log.
    fn finish_index(&mut self) -> Result<Option<Vec<(LogId, RecordsInFile)>>> {
        let Some(index) = self.index.take() else { return Ok(None) };
        let finished = index.finish()?;
        self.files.iter_mut().for_each(|file| file.meta.len = finished.len);
        parts_of(Source::Group(self.group.ltn), &finished.directory).map(Some)
    }

    pub fn abandon(&mut self) {
        self.index = None;
        self.sealer.store.remove_unnamed(&self.files);
    }

    /// Replaces the lost index file of a sealed group by this one. Returns the new file.
    pub fn replace(&mut self, old: &FileMeta) -> Result<Vec<FileMeta>> {
        let sealer = self.sealer.clone();
        let Some(parts) = self.finish_index()? else { return Ok(Vec::new()) };
        sealer.store.files.sync_dir()?;
        // Rows may be missing because of operations that are not durable yet.
        sealer.log.sync()?;
        let add: Vec<FileMeta> = self.files.iter().map(|file| file.meta).collect();
        let files = std::mem::take(&mut self.files);
        let step = LogEdit { floor: None, remove: vec![old.number], add: add.clone() };
        let named = sealer.store.manifest.commit(commit(step, Vec::new()));
        named.inspect_err(|_| sealer.store.remove_unnamed(&files))?;
        add.iter().for_each(|meta| sealer.rows.add(meta));
        sealer.catalog.install(self.group.ltn, &self.logs, parts);
        sealer.collector.keep(self.group.ltn, self.seqs.0);
        Ok(add)
    }

    /// Finishes the index file of a group that is not sealed yet.
    fn end(&mut self) -> Result<Option<IndexedGroup>> {
        let Some(parts) = self.finish_index()? else { return Ok(None) };
        let (group, seqs, logs) = (self.group.clone(), self.seqs, std::mem::take(&mut self.logs));
        Ok(self.files.pop().map(|file| IndexedGroup { group, seqs, logs, parts, file }))
    }
}

impl Seal {
    /// Creates a job that seals the oldest closed groups.
    pub fn new(sealer: &Arc<Sealer>, right: MovingRight) -> Seal {
        let most = if sealer.seals_alone() { 1 } else { WAITING_GROUPS_MAX };
        Seal { sealer: sealer.clone(), most, writing: None, indexed: Vec::new(), _right: right }
    }

    /// Begins the next group, unless the job has the maximum number.
    fn begin(&mut self) -> Result<Option<Writing>> {
        let last = self.indexed.last().map_or(0, |indexed| indexed.group.ltn);
        let is_more = self.indexed.len() < self.most;
        let Some(group) = is_more.then(|| self.sealer.passed(last)).transpose()?.flatten() else {
            return Ok(None);
        };
        let seqs = group.seqs.as_ref().and_then(|seqs| seqs.of(TENANT)).unwrap_or_default();
        Writing::begin(&self.sealer, group, seqs).map(Some)
    }

    /// Writes the checkpoint and its copy, then commits all files.
    fn finish(&mut self) -> Result<()> {
        let sealer = self.sealer.clone();
        let Some(floor) = self.indexed.last().map(|last| last.seqs.1 + 1) else { return Ok(()) };
        let mut checkpoints = vec![sealer.checkpoint(floor)?];
        match sealer.checkpoint(floor) {
            // No later step may refuse the manifest edit, so it must have space.
            Ok(copy) if !sealer.reserve.has_room_for_edits() => sealer.store.remove_unnamed(&[copy]),
            Ok(copy) => checkpoints.push(copy),
            // The space is better used to free more. The next checkpoint has a copy again.
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            Err(e) => {
                sealer.store.remove_unnamed(&checkpoints);
                return Err(e);
            }
        }
        let named = self.name(floor, &checkpoints);
        named.inspect_err(|_| sealer.store.remove_unnamed(&checkpoints))?;
        sealer.room.job_found_room()?;
        sealer.reserve.files_changed()
    }

    fn name(&mut self, floor: SeqNo, checkpoints: &[NewFile]) -> Result<()> {
        let sealer = self.sealer.clone();
        sealer.store.files.sync_dir()?;
        // Dead records missing from the index, and the contents of the checkpoint, depend on
        // operations that may not be durable yet.
        sealer.log.sync()?;
        let indexed = &mut self.indexed;
        let index_files = indexed.iter().map(|indexed| &indexed.file);
        let add: Vec<FileMeta> = index_files.chain(checkpoints).map(|file| file.meta).collect();
        let old: Vec<FileMeta> = sealer.store.manifest.state().checkpoints().collect();
        let remove = old.iter().map(|file| file.number).collect();
        let step = LogEdit { floor: Some(floor), remove, add };
        let ltns: Vec<u64> = indexed.iter().map(|indexed| indexed.group.ltn).collect();
        // Once the edit is committed, the index must follow it, whatever happens to files
        // afterwards.
        sealer.store.lane.stored().retain(&ltns, |records| {
            sealer.store.manifest.commit(commit(step, records))?;
            indexed.drain(..).for_each(|indexed| sealer.become_storage(indexed));
            sealer.catalog.forget_truncations(sealer.collector.needed_from(floor));
            Ok(())
        })?;
        sealer.sealed_groups.add(ltns.len() as u64);
        // A lost checkpoint file needs no removal.
        old.iter().try_for_each(|old| match sealer.store.files.remove(&old.name()) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }
}

impl Job for Seal {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        match &mut self.writing {
            None => {
                self.writing = self.begin()?;
                if self.writing.is_none() {
                    return self.finish().map(|()| Progress::Done);
                }
            }
            Some(writing) if !writing.is_written() => writing.write_some()?,
            Some(writing) => {
                let indexed = writing.end()?;
                self.indexed.extend(indexed);
                self.writing = None;
            }
        }
        Ok(Progress::More)
    }

    fn abandon(&mut self) {
        if let Some(mut writing) = self.writing.take() {
            writing.abandon();
        }
        let files: Vec<NewFile> = self.indexed.drain(..).map(|indexed| indexed.file).collect();
        self.sealer.store.remove_unnamed(&files);
    }
}
