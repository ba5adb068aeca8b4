//! A group of the log becomes storage: it gets its index file, and a checkpoint that it is not needed for any more.
//!
//! The group is closed, and all that is in it is applied. Its index file is written from the recent records of memory, by log and
//! LSN, then, in two copies, a checkpoint with names, trims, truncations and metadata, and one edit names both, takes the group out of what
//! is replayed, and lets go of the checkpoint before. Operations go on meanwhile: what dies is taken out when the file is installed,
//! and what the checkpoint has of operations behind the group is replayed once more and changes nothing.
//!
//! Groups are taken in their order. After a crash on the way the group is replayed as if nothing had been begun; files that no edit
//! names are removed at open.

use crate::checkpoint::{CheckpointHead, CheckpointWriter};
use crate::core::{Core, LOGS_AT_ONCE, needed_from};
use crate::disk::directory::Directory;
use crate::entry::{LogId, Source};
use crate::index::Part;
use crate::index_file::{IndexFileWriter, IndexHead};
use crate::logs::Log;
use crate::manifest::{FileMeta, Role, Step, TENANT, commit};
use base::sync::{lock, read, write};
use base::{ErrorKind, HashMap, Result, SeqNo};
use io::{AppendFile, CreateOptions};
use std::path::PathBuf;
use std::sync::Arc;
use store::commit::{GroupState, LaneGroup, TenantId};
use store::run::{Job, JobClass, Progress};

/// Logs in one step of the job.
const LOGS_IN_STEP: usize = 256;
/// Logs that are only looked at while nobody changes any.
const IDS_AT_ONCE: usize = 1024;

/// A file of the engine in the making, which is removed if it comes to nothing.
pub(crate) struct NewFile {
    pub meta: FileMeta,
    pub path: PathBuf,
}

impl Core {
    /// Begins a file.
    pub fn new_file(&self, role: Role) -> Result<(NewFile, Box<dyn AppendFile>)> {
        let number = self.manifest.allocate_file_number();
        let meta = FileMeta { number, uid: self.context().env.new_uid(), len: 0, role };
        let path = self.context().path(&meta.name());
        let options = CreateOptions { access: self.options.access, ..CreateOptions::default() };
        let file = self.context().env.fs.create(&path, &options)?;
        Ok((NewFile { meta, path }, file))
    }

    /// Removes files that no edit names, unless nobody knows whether one does.
    pub fn remove_unnamed(&self, files: &[NewFile]) {
        // The job that failed is asked before the store's health knows of it.
        if self.manifest.outcome_unknown() || self.context().health.check_sound().is_err() {
            return;
        }
        let listed = self.manifest.state();
        for file in files.iter().filter(|file| !listed.files.contains_key(&file.meta.number)) {
            // What stays is removed at the next open.
            let _ = self.files.remove(&file.meta.name());
        }
    }

    /// The oldest group with something of this engine that is closed and has no index file.
    pub fn to_seal(&self) -> Option<LaneGroup> {
        let held = self.held_from();
        self.closed().filter(|group| held.is_none_or(|ltn| group.ltn < ltn))
    }

    /// The oldest such group, if all that can be done for it is that the engine that opened the store writes down what it has in
    /// memory, and it was not asked for that yet.
    pub fn to_relieve(&self) -> Option<u64> {
        let held = self.held_from().filter(|_| self.roof.own().is_none())?;
        let group = self.closed().filter(|group| group.ltn >= held)?;
        (lock(&self.under_way).relieved != Some(group.ltn)).then_some(group.ltn)
    }

    /// The first group with a batch that carries another engine's which is in no file of that engine yet: it must stay among those that
    /// are replayed, and so must all behind it.
    fn held_from(&self) -> Option<u64> {
        if lock(&self.under_way).carried.is_empty() || base::canary::is("log-carried-changes-forgotten") {
            return None;
        }
        let floors = self.lane.floors();
        let floor =
            floors.iter().find(|(tenant, _)| *tenant == TenantId::FIRST).map_or(0, |(_, floor)| *floor);
        let mut under_way = lock(&self.under_way);
        under_way.carried.retain(|_, last| *last >= floor);
        under_way.carried.first_key_value().map(|(ltn, _)| *ltn)
    }

    /// The oldest group of this engine's that is closed and has no index file.
    fn closed(&self) -> Option<LaneGroup> {
        let groups = self.lane.to_retain();
        groups.into_iter().find(|group| {
            let is_ours = group.seqs.as_ref().is_some_and(|seqs| seqs.of(TENANT).is_some());
            is_ours && matches!(group.state, GroupState::Closed | GroupState::Passed)
        })
    }

    /// The same, after the log has let go of it: what is in it is applied, and durable.
    fn passed(&self) -> Result<Option<LaneGroup>> {
        for must_be in [false, true] {
            let group = self.to_seal();
            if group.as_ref().is_none_or(|group| group.state == GroupState::Passed) {
                return Ok(group);
            }
            if must_be {
                // The group after it needs a durable page before this one may go.
                self.lane.persist_watermark()?;
            }
            self.pass_closed()?;
        }
        Ok(self.to_seal().filter(|group| group.state == GroupState::Passed))
    }

    /// Lets the log go of all groups before the one that is written.
    fn pass_closed(&self) -> Result<()> {
        let (groups, held) = (self.lane.to_retain(), self.held_from());
        // All that is in a closed group was applied under the lock of the order.
        drop(lock(&self.order));
        let closed = groups.iter().filter(|group| group.state == GroupState::Closed);
        let closed = closed.filter(|group| held.is_none_or(|ltn| group.ltn < ltn));
        let last = closed.filter_map(|group| group.seqs.as_ref()?.last(TENANT)).max();
        if let Some(last) = last {
            self.lane.tell_floor(TENANT, last + 1);
        }
        self.lane.release(|| ())
    }
}

/// What a file has of each log, for the index in memory.
pub(crate) fn parts_of(source: Source, directory: &Directory) -> Result<Vec<(LogId, Part)>> {
    directory.logs.iter().map(|rows| Ok((rows.log, Part::of(source, rows)?))).collect()
}

/// See the module.
pub(crate) struct Seal {
    core: Arc<Core>,
    writing: Option<Writing>,
}

/// A group whose index file is being written, from the recent records of memory.
pub(crate) struct Writing {
    core: Arc<Core>,
    group: LaneGroup,
    seqs: (SeqNo, SeqNo),
    /// The logs that have records in the group, and how many of them are written.
    logs: Vec<LogId>,
    at: usize,
    index: Option<IndexFileWriter>,
    files: Vec<NewFile>,
}

impl Seal {
    /// Of the oldest group that is not storage yet. The caller has claimed the right to move groups.
    pub fn new(core: &Arc<Core>) -> Seal {
        Seal { core: core.clone(), writing: None }
    }
}

impl Writing {
    /// Begins the file; `seqs`: the first and the last sequence in the group.
    pub fn begin(core: &Arc<Core>, group: LaneGroup, seqs: (SeqNo, SeqNo)) -> Result<Writing> {
        let logs = core.logs_in(group.ltn);
        let (file, append) = core.new_file(Role::Index { ltn: group.ltn })?;
        let state = core.manifest.state();
        let uid = state.store.log_groups.get(&group.ltn).and_then(|listed| listed.uid).unwrap_or_default();
        let head =
            IndexHead { number: file.meta.number, ltn: group.ltn, group: uid, filled: group.filled, seqs };
        let index = IndexFileWriter::new(append, &file.path, file.meta.uid, head);
        Ok(Writing { core: core.clone(), group, seqs, logs, at: 0, index: Some(index), files: vec![file] })
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
                let logs = read(&self.core.logs);
                let Some(log) = logs.get(*log) else { continue };
                log.index().recent_in(log.id(), self.group.ltn).collect()
            };
            let left_out = usize::from(base::canary::is("log-index-file-leaves-out-a-record"));
            rows.iter().skip(left_out).try_for_each(|row| index.add(row))?;
        }
        self.at = end;
        Ok(())
    }

    /// Ends the index file. Returns what it has of each log.
    fn finish_index(&mut self) -> Result<Option<Vec<(LogId, Part)>>> {
        let Some(index) = self.index.take() else { return Ok(None) };
        let finished = index.finish()?;
        self.files.iter_mut().for_each(|file| file.meta.len = finished.len);
        parts_of(Source::Group(self.group.ltn), &finished.directory).map(Some)
    }

    /// Removes what comes to nothing.
    pub fn abandon(&mut self) {
        self.index = None;
        self.core.remove_unnamed(&self.files);
    }

    /// The group is storage already, and this its new index file in the place of one that was lost. Returns it.
    pub fn replace(&mut self, old: &FileMeta) -> Result<Vec<FileMeta>> {
        let core = self.core.clone();
        let Some(parts) = self.finish_index()? else { return Ok(Vec::new()) };
        core.files.sync_dir()?;
        // What was left out follows from operations that may not be durable yet.
        core.sync()?;
        let add: Vec<FileMeta> = self.files.iter().map(|file| file.meta).collect();
        let files = std::mem::take(&mut self.files);
        let step = Step { floor: None, remove: vec![old.number], add: add.clone() };
        let named = core.manifest.commit(commit(step, Vec::new()));
        named.inspect_err(|_| core.remove_unnamed(&files))?;
        add.iter().for_each(|meta| core.rows.add(meta));
        core.install(self.group.ltn, &self.logs, parts);
        lock(&core.under_way).kept.insert(self.group.ltn, self.seqs.0);
        Ok(add)
    }

    fn finish(&mut self) -> Result<()> {
        let core = self.core.clone();
        let Some(parts) = self.finish_index()? else { return Ok(()) };
        let floor = self.seqs.1 + 1;
        self.files.push(core.checkpoint(floor)?);
        match core.checkpoint(floor) {
            Ok(copy) => self.files.push(copy),
            // The room is wanted for what frees more; the next one has its copy again.
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            Err(e) => return Err(e),
        }
        if !base::canary::is("log-index-file-not-in-the-directory") {
            core.files.sync_dir()?;
        }
        // What was left out of the index, or is in the checkpoint, follows from operations that may not be durable yet.
        if !base::canary::is("log-sealed-before-it-is-durable") {
            core.sync()?;
        }
        let add: Vec<FileMeta> = self.files.iter().map(|file| file.meta).collect();
        let old: Vec<FileMeta> = core.manifest.state().checkpoints().collect();
        let remove = old.iter().map(|file| file.number).collect();
        let step = Step { floor: Some(floor), remove, add: add.clone() };
        // Once the edit is there the index follows it, whatever happens to files afterwards.
        let files = std::mem::take(&mut self.files);
        let named = core.lane.retain(&[self.group.ltn], |records| {
            core.manifest.commit(commit(step, records))?;
            add.iter().for_each(|meta| core.rows.add(meta));
            core.install(self.group.ltn, &self.logs, parts);
            let needed_from = {
                let kept = &mut lock(&core.under_way).kept;
                kept.insert(self.group.ltn, self.seqs.0);
                needed_from(kept, floor)
            };
            core.forget_truncations(needed_from);
            add.iter().for_each(|file| core.may_collect(file, self.group.len));
            Ok(())
        });
        named.inspect_err(|_| core.remove_unnamed(&files))?;
        core.counters.sealed_groups.add(1);
        core.job_found_room()?;
        // One that was lost is none to be removed.
        old.iter().try_for_each(|old| match core.files.remove(&old.name()) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        })?;
        core.rolled()
    }
}

impl Core {
    /// Files have come or gone: begins another manifest if this one has become long, and works out what is kept free.
    pub fn rolled(&self) -> Result<()> {
        if self.manifest.should_roll() {
            self.manifest.roll()?;
        }
        self.refresh_space();
        self.context().signals.notify_progress();
        Ok(())
    }

    /// The logs that have recent records in a group that is closed, their numbers ascending.
    pub fn logs_in(&self, ltn: u64) -> Vec<LogId> {
        let mut out: Vec<LogId> = Vec::new();
        loop {
            let begun = out.len();
            out.extend_from_slice(read(&self.logs).recent_in(ltn, begun, IDS_AT_ONCE));
            if out.len() == begun {
                break;
            }
        }
        out.sort_unstable();
        out
    }

    /// The index file of a group takes the place of the recent records in the group, of a bounded number of logs at a time. Each log
    /// changes as a whole, and both lead to the same records: so a reader finds them all the time.
    fn install(&self, ltn: u64, logs: &[LogId], parts: Vec<(LogId, Part)>) {
        let mut parts: HashMap<LogId, Part> = parts.into_iter().collect();
        for some in logs.chunks(LOGS_AT_ONCE) {
            let some: Vec<_> = some.iter().map(|log| (*log, parts.remove(log))).collect();
            write(&self.logs).install(ltn, some);
        }
        write(&self.logs).installed(ltn);
    }

    /// After all logs know what the files have of them.
    fn forget_truncations(&self, needed_from: SeqNo) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = write(&self.logs).forget_truncations(needed_from, from, LOGS_AT_ONCE);
        }
    }

    /// Looks at all logs, a bounded number of them at a time; of those that come or go meanwhile, at any.
    pub fn each_log(&self, mut look: impl FnMut(&Log)) {
        let mut last: Option<Arc<str>> = None;
        loop {
            let (logs, mut next) = (read(&self.logs), None);
            for log in logs.list_after(last.as_deref()).take(IDS_AT_ONCE) {
                look(log);
                next = Some(log.name());
            }
            match next.cloned() {
                Some(next) => last = Some(next),
                None => return,
            }
        }
    }

    /// Writes a checkpoint from which replay goes on at a sequence.
    pub fn checkpoint(&self, replay_from: SeqNo) -> Result<NewFile> {
        let (mut file, append) = self.new_file(Role::Checkpoint)?;
        match self.write_checkpoint(&file, append, replay_from) {
            Ok(len) => {
                file.meta.len = len;
                Ok(file)
            }
            Err(e) => {
                self.remove_unnamed(&[file]);
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
        let (next_seq, next_log) = {
            let order = lock(&self.order);
            (order.next_seq, read(&self.logs).next_id())
        };
        // Those that were created since are made again by the operations that did it.
        let mut ids: Vec<LogId> = Vec::new();
        self.each_log(|log| ids.extend(Some(log.id()).filter(|id| *id < next_log)));
        ids.sort_unstable();
        let head = CheckpointHead { number: file.meta.number, replay_from, next_seq, next_log };
        let mut writer = CheckpointWriter::new(append, &file.path, file.meta.uid, head);
        for id in ids {
            let saved = read(&self.logs).get(id).map(Log::save);
            saved.iter().try_for_each(|saved| writer.add(saved))?;
        }
        writer.finish()
    }
}

impl Job for Seal {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        match &mut self.writing {
            None => match self.core.passed()? {
                Some(group) => {
                    let seqs = group.seqs.as_ref().and_then(|seqs| seqs.of(TENANT)).unwrap_or_default();
                    self.writing = Some(Writing::begin(&self.core, group, seqs)?);
                }
                None => return Ok(Progress::Done),
            },
            Some(writing) if !writing.is_written() => writing.write_some()?,
            Some(writing) => {
                writing.finish()?;
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    fn abandon(&mut self) {
        if let Some(mut writing) = self.writing.take() {
            writing.abandon();
        }
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        lock(&self.core.under_way).is_moving = false;
    }
}
