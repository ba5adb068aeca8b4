//! Log groups: prepared ahead of the log, released behind it, recycled in between.
//!
//! A group is a file of fixed length, allocated and written once. The manifest lists it before the log may use it, and
//! the edit that drops it is durable before the file is used again or removed. Preparing one costs a device write of its
//! whole length, so the background does it while the log still has a spare ([`crate::jobs::log`]); a writer does it
//! itself only when the spare is used up, or for a batch larger than a whole group.

use crate::engine::Engine;
use crate::options::Options;
use crate::throttle::StallCause;
use crate::write_path::record_stall;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, OnceLock, lock};
use base::{Error, ErrorKind, Result};
use io::InPlaceFile;
use std::collections::BTreeMap;
use std::sync::Arc;
use version::{Edit, LogGroupMeta, Record, names};
use wal::{PreparedGroup, PriorGroup};

/// How long the log must be idle before its watermark is written on its own, after durable and after other writes.
const IDLE_DURABLE_NS: u64 = 10_000_000;
const IDLE_BUFFERED_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct LogGroups {
    /// Serializes preparation.
    preparing: Mutex<()>,
    state: Mutex<Groups>,
    /// Something happened after which groups may have become releasable.
    release_hint: AtomicBool,
    /// There was no room for a spare group when it was last tried.
    spare_refused: AtomicBool,
    idle: Mutex<Idle>,
    /// In a read-only store: the groups that were replayed, oldest first.
    replayed: OnceLock<Vec<PriorGroup>>,
}

#[derive(Debug, Default)]
struct Groups {
    /// Groups the manifest lists, by LTN.
    live: BTreeMap<u64, GroupFile>,
    /// Files of dropped groups that may be used again.
    free: Vec<GroupFile>,
    /// How many of those are kept: as many as the log last let go of at once, so that a log which uses many groups
    /// between two flushes recycles them all, and one that uses one keeps one.
    keep: usize,
    /// Groups that the log has let go of and the manifest still lists, oldest first. The log names each only once; if
    /// the edit that drops it is refused (a full disk), it must be part of the next one, because a group that stays
    /// listed while younger ones go is a hole in the log.
    leaving: Vec<u64>,
}

/// What the log looked like when it was last looked at.
#[derive(Debug, Default)]
struct Idle {
    batches: u64,
    since_ns: u64,
    vouched_batches: u64,
    vouched_durable_writes: u64,
}

/// The file of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupFile {
    pub number: u64,
    pub len: u64,
    pub file: Arc<dyn InPlaceFile>,
}

/// Under a space limit so many free groups are kept: what a flush lets go of, and the border that it crosses.
pub(crate) fn free_groups_max(options: &Options) -> usize {
    1 + (options.memtable_bytes as u64).div_ceil(options.log_group_bytes) as usize
}

impl LogGroups {
    /// Takes over a group found by recovery.
    pub fn adopt(&self, ltn: u64, file: GroupFile) {
        lock(&self.state).live.insert(ltn, file);
    }

    /// A read-only store has no log of its own: these groups it has read.
    pub fn set_replayed(&self, groups: Vec<PriorGroup>) {
        let _ = self.replayed.set(groups);
    }

    /// The groups that hold records somebody may need, oldest first; the last one may still be written.
    pub fn in_use(&self, engine: &Engine) -> Vec<PriorGroup> {
        match engine.wal.get() {
            Some(wal) => wal.groups(),
            None => self.replayed.get().cloned().unwrap_or_default(),
        }
    }

    /// Puts groups whose removal from the manifest is durable on the free list, so that they are used again.
    pub fn discard(&self, engine: &Engine, dropped: &[u64]) -> Result<()> {
        let bound = if engine.space.is_limited() { free_groups_max(&engine.options) } else { usize::MAX };
        let surplus = self.recycle(dropped, engine.options.log_group_bytes, bound);
        surplus.iter().try_for_each(|&number| crate::jobs::cleanup::remove_file(engine, &names::log(number)))
    }

    /// True if a file on the free list has this number: it is no orphan.
    pub fn is_free(&self, number: u64) -> bool {
        lock(&self.state).free.iter().any(|f| f.number == number)
    }

    /// True if a file of a former group waits to be used again.
    pub fn has_free(&self) -> bool {
        !lock(&self.state).free.is_empty()
    }

    /// Bytes of all groups, free ones included.
    pub fn file_bytes(&self) -> u64 {
        let state = lock(&self.state);
        state.live.values().chain(&state.free).map(|file| file.len).sum()
    }

    /// Called by a writer whose batch of `batch_len` bytes found no group to go to.
    pub fn provide(&self, engine: &Arc<Engine>, batch_len: usize) -> Result<()> {
        let start_ns = engine.env.clock.now_ns();
        let needed = wal::group_len_needed(batch_len);
        let regular = engine.options.log_group_bytes;
        let guard = lock(&self.preparing);
        let out = if needed <= regular && engine.wal().groups_wanted() == 0 {
            Ok(())
        } else {
            self.prepare(engine, regular.max(needed))
        };
        drop(guard);
        let wait_ns = engine.env.clock.now_ns() - start_ns;
        record_stall(engine, StallCause::Log, wait_ns);
        out
    }

    /// Prepares a group if the log wants one.
    pub fn prepare_ahead(&self, engine: &Engine) -> Result<()> {
        let _guard = lock(&self.preparing);
        if engine.wal().groups_wanted() > 0 {
            let refused =
                |e: &Error| self.spare_refused.store(e.kind() == ErrorKind::NoSpace, Ordering::Release);
            self.prepare(engine, engine.options.log_group_bytes).inspect_err(refused)?;
        }
        Ok(())
    }

    fn prepare(&self, engine: &Engine, len: u64) -> Result<()> {
        let group = self.list_new_group(engine, len)?;
        engine.wal().add_group(group)
    }

    /// A group file that the manifest lists, not yet handed to the log.
    pub fn list_new_group(&self, engine: &Engine, len: u64) -> Result<PreparedGroup> {
        let recycled = {
            let mut state = lock(&self.state);
            let fit = state.free.iter().position(|f| f.len == len);
            fit.map(|i| state.free.swap_remove(i))
        };
        let group = match recycled {
            Some(file) => file,
            None => self.create_file(engine, len)?,
        };
        let meta = LogGroupMeta { file: group.number, len, ..Default::default() };
        let mut ltn = 0;
        let listed = engine.manifest.commit_with(
            |state| {
                ltn = state.next_ltn;
                Ok(Edit(vec![Record::AddLogGroup { group: LogGroupMeta { ltn, ..meta } }]))
            },
            |_| {},
        );
        if let Err(e) = listed {
            lock(&self.state).free.push(group);
            return Err(e);
        }
        lock(&self.state).live.insert(ltn, group.clone());
        Ok(PreparedGroup { ltn, file: group.file })
    }

    fn create_file(&self, engine: &Engine, len: u64) -> Result<GroupFile> {
        let number = engine.manifest.allocate_file_number();
        let path = engine.path(&names::log(number));
        // A page says which group of which store it is of: like a group that is used again, a new one may hold anything.
        let file = engine.env.fs.create_in_place_unzeroed(&path, len, engine.options.access)?;
        engine.env.fs.sync_dir(&engine.dir)?;
        Ok(GroupFile { number, len, file })
    }

    /// True once after there was no room for a spare group: then others have a turn. The log is the most urgent class, and
    /// after a refusal all wait for a while; without this it would be the first to be refused again, for ever, and the
    /// flush that makes room for it would never run.
    pub fn gives_way(&self) -> bool {
        self.spare_refused.swap(false, Ordering::AcqRel)
    }

    /// Groups may have become releasable.
    pub fn hint_release(&self) {
        self.release_hint.store(true, Ordering::Release);
    }

    /// True if groups may be releasable.
    pub fn may_release(&self) -> bool {
        self.release_hint.load(Ordering::Acquire)
    }

    /// Drops the groups that only hold flushed records: manifest first, then the files.
    pub fn release(&self, engine: &Engine) -> Result<()> {
        self.release_hint.store(false, Ordering::Release);
        let released = engine.wal().release_below(engine.log_floor());
        let dropped = {
            let mut state = lock(&self.state);
            state.leaving.extend(released);
            state.leaving.clone()
        };
        if dropped.is_empty() {
            return Ok(());
        }
        let records = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        engine.manifest.commit(Edit(records)).inspect_err(|_| self.hint_release())?;
        {
            let mut state = lock(&self.state);
            // One job at a time releases groups, so the list has not grown meanwhile.
            state.leaving.clear();
            state.keep = dropped.len();
        }
        self.discard(engine, &dropped)
    }

    /// Moves dropped groups to the free list; returns the files that are too many or of another length. `bound`: most
    /// that may be kept.
    fn recycle(&self, dropped: &[u64], len: u64, bound: usize) -> Vec<u64> {
        let mut state = lock(&self.state);
        let files: Vec<GroupFile> = dropped.iter().filter_map(|ltn| state.live.remove(ltn)).collect();
        let (fit, mut surplus): (Vec<_>, Vec<_>) = files.into_iter().partition(|f| f.len == len);
        state.free.extend(fit);
        let keep = state.keep.max(1).min(bound).min(state.free.len());
        surplus.extend(state.free.drain(keep..));
        surplus.into_iter().map(|f| f.number).collect()
    }

    /// True if the log has been idle for long enough that its watermark should be persisted.
    pub fn is_idle(&self, engine: &Engine) -> bool {
        let (stats, now_ns) = (engine.wal().stats(), engine.env.clock.now_ns());
        let mut idle = lock(&self.idle);
        if stats.batches != idle.batches {
            (idle.batches, idle.since_ns) = (stats.batches, now_ns);
            return false;
        }
        let durable = stats.durable_writes > idle.vouched_durable_writes;
        let wait_ns = if durable { IDLE_DURABLE_NS } else { IDLE_BUFFERED_NS };
        stats.batches > idle.vouched_batches && now_ns.saturating_sub(idle.since_ns) >= wait_ns
    }

    /// True if the log will want its watermark persisted once it has been idle for long enough.
    pub fn has_unvouched(&self, engine: &Engine) -> bool {
        engine.wal().stats().batches > lock(&self.idle).vouched_batches
    }

    /// Vouches for all of the log.
    pub fn persist_watermark(&self, engine: &Engine) -> Result<()> {
        let batches = engine.wal().stats().batches;
        engine.wal().persist_watermark()?;
        let mut idle = lock(&self.idle);
        idle.vouched_batches = batches;
        idle.vouched_durable_writes = engine.wal().stats().durable_writes;
        Ok(())
    }
}
