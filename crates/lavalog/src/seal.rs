//! Groups of the log become storage: each gets its index file, and all together a checkpoint that they are not needed for any more.
//!
//! A group is closed, and all that is in it is applied. Its index file is written from the recent records of memory, by log and
//! LSN, then, in two copies, a checkpoint with names, trims, truncations and metadata, and one edit names both, takes the group out of what
//! is replayed, and lets go of the checkpoint before. Operations go on meanwhile: what dies is taken out when the file is installed,
//! and what the checkpoint has of operations behind the group is replayed once more and changes nothing.
//!
//! A checkpoint has all logs, however little of them is in the group. So where it is long beside a group, groups that are closed *wait* for
//! others, until it is a small part of them all ([`CHECKPOINT_PART`]); an open replays what waits, which is no more than one group of
//! the default length. Under a space limit, and where room is short, nothing waits, and each group is sealed alone: that takes the least.
//!
//! Groups are taken in their order. After a crash on the way the groups are replayed as if nothing had been begun; files that no edit
//! names are removed at open.

use crate::catalog::Catalog;
use crate::checkpoint::{CheckpointHead, CheckpointWriter};
use crate::collect::Collector;
use crate::disk::directory::Directory;
use crate::entry::{LogId, Source};
use crate::files::RowFiles;
use crate::foundation::{Foundation, NewFile};
use crate::hold::MovingRight;
use crate::index::Part;
use crate::index_file::{IndexFileWriter, IndexHead};
use crate::log_writer::LogWriter;
use crate::logs::Log;
use crate::manifest::{FileMeta, Role, Step, TENANT, commit};
use crate::room::Room;
use crate::space::Reserve;
use base::sync::{Mutex, lock, rank};
use base::{ErrorKind, Result, SeqNo};
use io::AppendFile;
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup};
use store::context::Counter;
use store::run::{Job, JobClass, Progress};

/// Logs in one step of the job.
const LOGS_IN_STEP: usize = 256;

/// Groups wait until both copies of the checkpoint are at most this part of what is sealed with it.
const CHECKPOINT_PART: u64 = 64;
/// Nothing waits for a checkpoint that is no longer, with its copy, than this part of the longest group (64 KiB by default): what is
/// replayed at open is worth less when it is damaged.
const CHECKPOINT_SHORT_PART: u64 = 4096;
/// Nothing waits once so many bytes do, or so many groups: they are replayed at open, and their records are in memory one by one. It is a group
/// of the default length, but for what the last batch leaves free at its end.
const WAITING_BYTES_MAX: u64 = (256 << 20) - (17 << 20);
const WAITING_GROUPS_MAX: usize = 8;

/// Which groups become storage, and when.
pub(crate) struct Sealer {
    store: Arc<Foundation>,
    catalog: Arc<Catalog>,
    rows: Arc<RowFiles>,
    log: Arc<LogWriter>,
    room: Arc<Room>,
    reserve: Arc<Reserve>,
    collector: Arc<Collector>,
    /// Guards which groups are sealed soon, and which wait for another engine.
    asked: Mutex<Asked, rank::RecordSeals>,
    /// Groups that got an index file.
    sealed_groups: Counter,
}

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    /// The groups up to this number are sealed as soon as they are closed: a caller asked for it.
    seal_to: u64,
    /// The group for which the other engine was asked to flush its memory.
    relieved: Option<u64>,
}

/// The parts that a sealer works with.
pub(crate) struct SealerParts {
    pub rows: Arc<RowFiles>,
    pub log: Arc<LogWriter>,
    pub room: Arc<Room>,
    pub reserve: Arc<Reserve>,
    pub collector: Arc<Collector>,
}

impl Sealer {
    /// Of these logs, with these parts.
    pub fn new(store: &Arc<Foundation>, catalog: &Arc<Catalog>, parts: SealerParts) -> Sealer {
        let SealerParts { rows, log, room, reserve, collector } = parts;
        let (asked, sealed_groups) = (Mutex::new(Asked::default()), Counter::default());
        let (store, catalog) = (store.clone(), catalog.clone());
        Sealer { store, catalog, rows, log, room, reserve, collector, asked, sealed_groups }
    }

    /// Groups that got an index file since the store was opened.
    pub fn sealed_groups(&self) -> u64 {
        self.sealed_groups.get()
    }

    /// True if closed groups are to get their index files now.
    pub fn has_to_seal(&self) -> bool {
        let groups = self.sealable();
        let filled: u64 = groups.iter().map(|group| group.filled).sum();
        let is_enough = filled
            >= WAITING_BYTES_MAX.min(CHECKPOINT_PART.saturating_mul(self.checkpoint_bytes()))
            || groups.len() >= WAITING_GROUPS_MAX;
        let Some(first) = groups.first() else { return false };
        is_enough || self.seals_alone() || first.ltn <= lock(&self.asked).seal_to
    }

    /// Bytes of the checkpoint with its copy.
    fn checkpoint_bytes(&self) -> u64 {
        self.store.manifest.state().checkpoints().map(|file| file.len).sum()
    }

    /// True where the checkpoint is short, or room is, or may be: then no group waits for others. Under a limit the room that is kept free has to do for index
    /// files and a checkpoint as well, and the fewer of them come at once the better it does.
    fn seals_alone(&self) -> bool {
        let is_refused =
            self.store.context().health.out_of_space() || self.store.lane.spares().ballast_is_short();
        let is_short = self.checkpoint_bytes() <= self.store.options.longest_group() / CHECKPOINT_SHORT_PART;
        is_short || is_refused || self.store.space.has_own_limit() || self.store.space.is_short()
    }

    /// Closes the group that is written, and has all groups sealed that are closed, without waiting for others.
    ///
    /// # Errors
    /// Those of the log.
    pub fn seal_active(&self) -> Result<()> {
        let active = self.store.lane.reader().to_retain().last().map(|group| group.ltn);
        let sealed = match self.store.lane.upkeep().seal_active() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.store.lane.spares().ballast_is_short() => {
                // There may be room by now: the ballast comes first.
                self.room.admit(false).and_then(|()| self.store.lane.upkeep().seal_active())
            }
            sealed => sealed,
        };
        lock(&self.asked).seal_to = active.unwrap_or_default();
        sealed.map(drop)
    }

    /// The groups with something of this engine that are closed and have no index file, oldest first.
    fn sealable(&self) -> Vec<LaneGroup> {
        let held = self.log.held_from();
        let mut groups = self.closed();
        groups.retain(|group| held.is_none_or(|ltn| group.ltn < ltn));
        groups
    }

    /// How many of them there are.
    pub fn waiting_groups(&self) -> usize {
        self.sealable().len()
    }

    /// The oldest such group, if all that can be done for it is that the engine that opened the store writes down what it has in
    /// memory, and it was not asked for that yet.
    pub fn to_relieve(&self) -> Option<u64> {
        let held = self.log.held_from().filter(|_| !self.store.is_owner())?;
        let group = self.closed().into_iter().next().filter(|group| group.ltn >= held)?;
        (lock(&self.asked).relieved != Some(group.ltn)).then_some(group.ltn)
    }

    /// Notes that the other engine was asked to flush its memory, for this group.
    pub fn relieved(&self, ltn: u64) {
        lock(&self.asked).relieved = Some(ltn);
    }

    /// The groups of this engine's that are closed and have no index file, oldest first.
    fn closed(&self) -> Vec<LaneGroup> {
        let mut groups = self.store.lane.reader().to_retain();
        groups.retain(|group| {
            let is_ours = group.seqs.as_ref().is_some_and(|seqs| seqs.of(TENANT).is_some());
            is_ours && matches!(group.state, GroupState::Closed | GroupState::Passed)
        });
        groups
    }

    /// The oldest of them above a number that may be sealed, after the log has let go of it: what is in it is applied, and durable.
    fn passed(&self, above: u64) -> Result<Option<LaneGroup>> {
        let oldest = || {
            let held = self.log.held_from();
            match self.store.lane.stored().first_passed(above, |group| group.seqs.of(TENANT).is_some()) {
                Some(group) => Some(group).filter(|group| held.is_none_or(|ltn| group.ltn < ltn)),
                // Those that the log has not let go of lie behind all others.
                None => self.sealable().into_iter().find(|group| group.ltn > above),
            }
        };
        for must_be in [false, true] {
            let group = oldest();
            if group.as_ref().is_none_or(|group| group.state == GroupState::Passed) {
                return Ok(group);
            }
            if must_be {
                // The group after it needs a durable page before this one may go.
                self.store.lane.upkeep().persist_watermark()?;
            }
            self.pass_closed()?;
        }
        Ok(oldest().filter(|group| group.state == GroupState::Passed))
    }

    /// Lets the log go of all groups before the one that is written.
    fn pass_closed(&self) -> Result<()> {
        let groups = self.store.lane.reader().to_retain();
        // All that is in a closed group was applied under the lock of the order, and what it carries noted.
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

    /// The index file of a group is named: it stands for the recent records of the group.
    fn become_storage(&self, indexed: Indexed) {
        let Indexed { group, seqs, logs, parts, file } = indexed;
        self.rows.add(&file.meta);
        self.catalog.install(group.ltn, &logs, parts);
        self.collector.keep(group.ltn, seqs.0);
        self.collector.may_collect(&file.meta, group.len);
    }

    /// Writes a checkpoint from which replay goes on at a sequence.
    fn checkpoint(&self, replay_from: SeqNo) -> Result<NewFile> {
        let (mut file, append) = self.store.new_file(Role::Checkpoint)?;
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
        // The operations of later logs create them again at replay.
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

/// Returns the part of each log in a file, for the index in memory.
pub(crate) fn parts_of(source: Source, directory: &Directory) -> Result<Vec<(LogId, Part)>> {
    directory.logs.iter().map(|rows| Ok((rows.log, Part::of(source, rows)?))).collect()
}

/// See the module.
pub(crate) struct Seal {
    sealer: Arc<Sealer>,
    /// How many groups there are in it at most.
    most: usize,
    writing: Option<Writing>,
    /// Groups whose index files are written, and not named yet.
    indexed: Vec<Indexed>,
    _right: MovingRight,
}

/// A group whose index file is written.
struct Indexed {
    group: LaneGroup,
    seqs: (SeqNo, SeqNo),
    logs: Vec<LogId>,
    parts: Vec<(LogId, Part)>,
    file: NewFile,
}

/// A group whose index file is being written, from the recent records of memory.
pub(crate) struct Writing {
    sealer: Arc<Sealer>,
    group: LaneGroup,
    seqs: (SeqNo, SeqNo),
    /// The logs that have records in the group, and how many of them are written.
    logs: Vec<LogId>,
    at: usize,
    index: Option<IndexFileWriter>,
    files: Vec<NewFile>,
}

impl Writing {
    /// Begins the file; `seqs`: the first and the last sequence in the group.
    pub fn begin(sealer: &Arc<Sealer>, group: LaneGroup, seqs: (SeqNo, SeqNo)) -> Result<Writing> {
        let logs = sealer.catalog.logs_in(group.ltn);
        let (file, append) = sealer.store.new_file(Role::Index { ltn: group.ltn })?;
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

    /// True if all logs are written.
    pub fn is_written(&self) -> bool {
        self.at == self.logs.len()
    }

    /// Writes the rows of some logs.
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

    /// Ends the index file. Returns its part of each log.
    fn finish_index(&mut self) -> Result<Option<Vec<(LogId, Part)>>> {
        let Some(index) = self.index.take() else { return Ok(None) };
        let finished = index.finish()?;
        self.files.iter_mut().for_each(|file| file.meta.len = finished.len);
        parts_of(Source::Group(self.group.ltn), &finished.directory).map(Some)
    }

    /// Removes the unfinished files.
    pub fn abandon(&mut self) {
        self.index = None;
        self.sealer.store.remove_unnamed(&self.files);
    }

    /// The group is storage already, and this its new index file in the place of one that was lost. Returns it.
    pub fn replace(&mut self, old: &FileMeta) -> Result<Vec<FileMeta>> {
        let sealer = self.sealer.clone();
        let Some(parts) = self.finish_index()? else { return Ok(Vec::new()) };
        sealer.store.files.sync_dir()?;
        // What was left out follows from operations that may not be durable yet.
        sealer.log.sync()?;
        let add: Vec<FileMeta> = self.files.iter().map(|file| file.meta).collect();
        let files = std::mem::take(&mut self.files);
        let step = Step { floor: None, remove: vec![old.number], add: add.clone() };
        let named = sealer.store.manifest.commit(commit(step, Vec::new()));
        named.inspect_err(|_| sealer.store.remove_unnamed(&files))?;
        add.iter().for_each(|meta| sealer.rows.add(meta));
        sealer.catalog.install(self.group.ltn, &self.logs, parts);
        sealer.collector.keep(self.group.ltn, self.seqs.0);
        Ok(add)
    }

    /// Ends the index file of a group that is not storage yet.
    fn end(&mut self) -> Result<Option<Indexed>> {
        let Some(parts) = self.finish_index()? else { return Ok(None) };
        let (group, seqs, logs) = (self.group.clone(), self.seqs, std::mem::take(&mut self.logs));
        Ok(self.files.pop().map(|file| Indexed { group, seqs, logs, parts, file }))
    }
}

impl Seal {
    /// Of the oldest groups that are not storage yet, with the right to move groups.
    pub fn new(sealer: &Arc<Sealer>, right: MovingRight) -> Seal {
        let most = if sealer.seals_alone() { 1 } else { WAITING_GROUPS_MAX };
        Seal { sealer: sealer.clone(), most, writing: None, indexed: Vec::new(), _right: right }
    }

    /// Begins the next group, if one more may be in it.
    fn begin(&mut self) -> Result<Option<Writing>> {
        let last = self.indexed.last().map_or(0, |indexed| indexed.group.ltn);
        let is_more = self.indexed.len() < self.most;
        let Some(group) = is_more.then(|| self.sealer.passed(last)).transpose()?.flatten() else {
            return Ok(None);
        };
        let seqs = group.seqs.as_ref().and_then(|seqs| seqs.of(TENANT)).unwrap_or_default();
        Writing::begin(&self.sealer, group, seqs).map(Some)
    }

    /// Writes the checkpoint, and names all.
    fn finish(&mut self) -> Result<()> {
        let sealer = self.sealer.clone();
        let Some(floor) = self.indexed.last().map(|last| last.seqs.1 + 1) else { return Ok(()) };
        let mut checkpoints = vec![sealer.checkpoint(floor)?];
        match sealer.checkpoint(floor) {
            // The edit that names them takes room as well, and nobody may refuse it any more.
            Ok(copy) if !sealer.reserve.has_room_for_edits() => sealer.store.remove_unnamed(&[copy]),
            Ok(copy) => checkpoints.push(copy),
            // The room is wanted for what frees more; the next one has its copy again.
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
        // What was left out of the index, or is in the checkpoint, follows from operations that may not be durable yet.
        sealer.log.sync()?;
        let indexed = &mut self.indexed;
        let index_files = indexed.iter().map(|indexed| &indexed.file);
        let add: Vec<FileMeta> = index_files.chain(checkpoints).map(|file| file.meta).collect();
        let old: Vec<FileMeta> = sealer.store.manifest.state().checkpoints().collect();
        let remove = old.iter().map(|file| file.number).collect();
        let step = Step { floor: Some(floor), remove, add };
        let ltns: Vec<u64> = indexed.iter().map(|indexed| indexed.group.ltn).collect();
        // Once the edit is there the index follows it, whatever happens to files afterwards.
        sealer.store.lane.stored().retain(&ltns, |records| {
            sealer.store.manifest.commit(commit(step, records))?;
            indexed.drain(..).for_each(|indexed| sealer.become_storage(indexed));
            sealer.catalog.forget_truncations(sealer.collector.needed_from(floor));
            Ok(())
        })?;
        sealer.sealed_groups.add(ltns.len() as u64);
        // One that was lost is none to be removed.
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
