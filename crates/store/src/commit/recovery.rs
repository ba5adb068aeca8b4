//! Recovery, start and close of a lane's log.

use super::files::{GroupFile, GroupFiles, GroupLens};
use super::floors::{Floors, tenant};
use super::lane_shared::LaneShared;
use super::pace::shortest_bytes;
use super::preparation::Preparation;
use super::read::open_group;
use super::reader::LaneReader;
use super::spares::LogGroupPurpose;
use super::stored::StoredGroups;
use super::{OnBatch, recorded, tail_buffer_len};
use crate::manifest::{EngineId, EngineView, LogGroupMeta, ManifestState, Record};
use base::{Error, ErrorKind, Result};
use io::InPlaceFile;
use std::path::Path;
use std::sync::Arc;
use wal::{LogGroup, PreparedGroup, RecoveryMode, RecoveryReport, Wal, WalOptions};

/// Length of the first group if there is no space for a regular one, bytes.
const FIRST_GROUP_BYTES_MIN: u64 = 4 * io::PAGE as u64;

/// Recovery, start and close: see the module.
#[derive(Debug)]
pub struct LogRecovery {
    base: Arc<LaneShared>,
    files: Arc<GroupFiles>,
    stored: Arc<StoredGroups>,
    floors: Arc<Floors>,
    preparation: Arc<Preparation>,
    reader: Arc<LaneReader>,
}

impl LogRecovery {
    pub(super) fn new(
        base: Arc<LaneShared>,
        files: Arc<GroupFiles>,
        stored: Arc<StoredGroups>,
        floors: Arc<Floors>,
        preparation: Arc<Preparation>,
        reader: Arc<LaneReader>,
    ) -> LogRecovery {
        LogRecovery { base, files, stored, floors, preparation, reader }
    }

    /// Replays the lane: reads its batches and hands them out. It changes nothing: see
    /// [`LogRecovery::resume`].
    ///
    /// # Errors
    /// As [`wal::recover_lane`]; `Corruption` if the manifest has lost its end.
    pub fn replay(&self, on_batch: &mut OnBatch<'_>) -> Result<RecoveryReport> {
        let (env, dir) = (&self.base.context.env, &self.base.context.dir);
        let groups = self.groups_to_read(|path| env.fs.open_in_place(path, self.base.terms.access))?;
        let of = (self.base.manifest.store(), self.base.lane);
        let report = wal::recover_lane(env, dir, of, &groups, RecoveryMode::ReadWrite, on_batch)?;
        self.base.manifest.require_edit(report.witness_edit)?;
        Ok(report)
    }

    /// As [`LogRecovery::replay`], for a read-only store. The lane never begins, and batches are
    /// read by their positions. With `up_to_damage` the replay ends at the first damage, which is
    /// returned with the report.
    ///
    /// # Errors
    /// As [`LogRecovery::replay`].
    pub fn replay_to_read(
        &self,
        up_to_damage: bool,
        on_batch: &mut OnBatch<'_>,
    ) -> Result<(RecoveryReport, Option<Error>)> {
        let (env, dir) = (&self.base.context.env, &self.base.context.dir);
        let groups = self.groups_to_read(|path| match up_to_damage {
            true => open_group(env, path, self.base.terms.access),
            false => io::open_in_place_read_only(&*env.fs, path, self.base.terms.access),
        })?;
        let of = (self.base.manifest.store(), self.base.lane);
        let read = wal::read_lane(env, dir, of, &groups, up_to_damage, on_batch)?;
        let lost = self.base.manifest.require_edit(read.report.witness_edit).err();
        for (ltn, file) in read.staged {
            if let Some(group) = self.files.file_of(ltn) {
                self.files.adopt(ltn, GroupFile { file, ..group });
            }
        }
        self.reader.set_replayed(read.report.history.groups.clone());
        match read.damage.or(lost) {
            Some(e) if !up_to_damage => Err(e),
            damage => Ok((read.report, damage)),
        }
    }

    /// Continues the log in a new group, after the replayed ones. `listed` keeps that group from
    /// the time that the manifest lists it.
    ///
    /// # Errors
    /// `NoSpace`: the caller may try again with the same `listed`. Manifest and file system errors.
    pub fn resume(&self, report: &RecoveryReport, listed: &mut Option<PreparedGroup>) -> Result<()> {
        let first = match listed.take() {
            Some(first) => first,
            None => self.list_first()?,
        };
        let first = listed.insert(first).clone();
        self.begin(first, report, 0)?;
        self.floors.hint();
        Ok(())
    }

    /// Returns the listed groups for recovery, and takes over their files. `open` opens a path.
    ///
    /// # Errors
    /// Errors of `open`.
    pub fn groups_to_read(
        &self,
        open: impl Fn(&Path) -> Result<Arc<dyn InPlaceFile>>,
    ) -> Result<Vec<LogGroup>> {
        let (mut groups, state) = (Vec::new(), self.base.manifest.state());
        self.stored.adopt(state.log_groups.retained(self.base.lane));
        for meta in state.log_groups.chain(self.base.lane).filter(|g| !g.discarded) {
            let path = self.base.context.path(&crate::names::log(meta.file));
            let file = recorded::up_to(open(&path)?, meta.len);
            let (number, len, uid) = (meta.file, meta.len, meta.uid.unwrap_or_default());
            // The last group of a closed log released the space behind its end.
            let occupied = || self.base.context.env.fs.metadata(&path).map(|found| found.allocated).ok();
            let room_bytes = meta.sealed_end.and_then(|_| occupied()).unwrap_or(len).min(len);
            self.files.adopt(meta.ltn, GroupFile { number, len, uid, file: file.clone(), room_bytes });
            let LogGroupMeta { ltn, uid, sealed_end, begin, .. } = *meta;
            groups.push(LogGroup { ltn, uid, file, sealed_end, begin });
        }
        Ok(groups)
    }

    /// Adds the oldest groups whose records are all below the floors to the groups to discard.
    /// Where there is space they are released later, like any other group.
    pub fn let_go(&self, report: &mut RecoveryReport) {
        if self.base.lane.retains() {
            return;
        }
        let floors = self.floors.all(&self.base.manifest.state());
        report.discarded.extend(report.history.release_below(&floors));
    }

    /// Makes the end of the old log durable, and drops the groups that recovery discards. `first`:
    /// the first group of the new log, if it is listed already.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened, and it may be tried again. Manifest and file system errors.
    pub fn end_old(&self, report: &RecoveryReport, first: Option<u64>) -> Result<()> {
        let state = self.base.manifest.state();
        let old = state.log_groups.chain(self.base.lane).filter(|group| Some(group.ltn) != first);
        let cut = |ltn: u64, discarded: bool| discarded || report.discarded.contains(&ltn);
        let dropped: Vec<u64> = old.filter(|g| cut(g.ltn, g.discarded)).map(|g| g.ltn).collect();
        let mut records: Vec<Record> = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(missed(&state, report));
        if let Some((ltn, end_lpn)) = report.sealed.filter(|(ltn, _)| !dropped.contains(ltn))
            && state.log_groups.get(&ltn).is_some_and(|group| group.sealed_end != Some(end_lpn))
        {
            records.push(Record::SealLogGroup { ltn, end_lpn });
        }
        if !records.is_empty() {
            self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        } else if self.base.manifest.should_roll() {
            // The new manifest file must find space before the log takes any.
            self.base.manifest.commits().roll()?;
        }
        self.files.discard(&dropped)
    }

    /// Lists the first group of the log.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Manifest and file system errors.
    pub fn list_first(&self) -> Result<PreparedGroup> {
        self.base.store.begin_session()?;
        let wanted = shortest_bytes(self.base.terms.group_bytes);
        let least = FIRST_GROUP_BYTES_MIN.min(wanted);
        let lens = GroupLens { wanted, least, usual: self.preparation.next_len() };
        self.files.list_new(lens, LogGroupPurpose::Last)
    }

    /// Returns the bytes by which the staging file grows when the log begins. After a power failure
    /// it may be shorter than that. This growth is never refused, so earlier allocations must leave
    /// room for it.
    pub fn unmade_bytes(&self) -> u64 {
        let path = self.base.context.path(self.base.lane.staging_name());
        (self.first_staging_len() as u64).saturating_sub(self.base.space.meter().bytes_of(&path))
    }

    fn first_staging_len(&self) -> usize {
        tail_buffer_len(shortest_bytes(self.base.terms.group_bytes))
    }

    /// Begins the log in a listed group. The results of recovery are already durable
    /// ([`LogRecovery::end_old`]). No page gets a number below `lpn_min`.
    ///
    /// # Errors
    /// File system errors.
    pub fn begin(&self, first: PreparedGroup, report: &RecoveryReport, lpn_min: u64) -> Result<()> {
        let options = WalOptions {
            lane: self.base.lane,
            group_len: self.base.terms.group_bytes,
            // With aging, the tail buffer grows as soon as there is space.
            tail_buffer_len: self.first_staging_len(),
            loggers: self.base.terms.loggers,
            buffered_age_ns: self.base.terms.aging.age_ms_max.saturating_mul(1_000_000),
            durable_wait_ns_max: self.base.terms.aging.durable_wait_us_max.saturating_mul(1000),
            expects_durable: self.base.terms.aging.expects_durable,
            ..Default::default()
        };
        let next_lpn = report.next_lpn.max(lpn_min);
        let (history, store) = (report.history.clone(), self.base.manifest.store());
        let wal = Wal::start(
            &self.base.context.env,
            &self.base.context.dir,
            options,
            store,
            next_lpn,
            first,
            history,
        )?;
        wal.join(self.base.context.health.clone());
        self.base.wal.set(wal).unwrap_or_else(|_| unreachable!("a store starts its log once"));
        Ok(())
    }

    /// Closes the log. Everything becomes durable, and the manifest records the end, so that a loss
    /// of the end is noticed. Prepared groups are dropped, and the space behind the end is
    /// released.
    ///
    /// # Errors
    /// Manifest and file system errors.
    pub fn close(&self) -> Result<()> {
        self.base.wal().close()?;
        self.seal()
    }

    /// Records the end of the closed log: see [`LogRecovery::close`].
    ///
    /// # Errors
    /// `NoSpace`: harmless, and the next close makes up for it. Other manifest and file system
    /// errors.
    pub fn seal(&self) -> Result<()> {
        let Some((ltn, end_lpn)) = self.base.wal().content().end() else { return Ok(()) };
        let (spares, files) = self.files.unused(ltn);
        let mut records = vec![Record::SealLogGroup { ltn, end_lpn }];
        records.extend(spares.into_iter().map(|ltn| Record::RemoveLogGroup { ltn }));
        self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        files.iter().try_for_each(|&number| self.base.store.remove(&crate::names::log(number)))?;
        self.give_back_room_behind(ltn)
    }

    /// Releases the space behind the end of the last group; no reader goes there. The edit that
    /// seals the group is durable. Record lanes reuse their files, so those stay whole.
    fn give_back_room_behind(&self, ltn: u64) -> Result<()> {
        let Some(group) = self.files.file_of(ltn).filter(|_| !self.base.lane.retains()) else {
            return Ok(());
        };
        let used = self.base.wal().content().end_offset();
        let (fs, path) =
            (&self.base.context.env.fs, self.base.context.path(&crate::names::log(group.number)));
        match fs.punch_hole(&path, used, group.len.saturating_sub(used)) {
            // The file keeps its space; the next open drops it.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::NoSpace) => Ok(()),
            punched => punched,
        }
    }
}

/// Returns records that update the `missed` flags. An absent engine with needed batches in this log
/// misses its end; an open engine that had missed an earlier end no longer does.
fn missed(state: &ManifestState, report: &RecoveryReport) -> Vec<Record> {
    let of = |engine: EngineId, missed: bool| Record::EngineMissed { engine, missed };
    let ends = report.sealed.is_some();
    let needs = |engine: &EngineView<'_>| {
        let last = tenant(engine.id).and_then(|tenant| report.seqs.last(tenant));
        last.is_some_and(|last| last >= engine.floor)
    };
    let mut records = Vec::new();
    for engine in state.engines.iter() {
        match (engine.is_here, engine.missed) {
            (true, true) => records.push(of(engine.id, false)),
            (false, false) if ends && needs(&engine) => records.push(of(engine.id, true)),
            _ => {}
        }
    }
    records
}
