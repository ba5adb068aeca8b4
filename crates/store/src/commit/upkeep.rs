//! Background work on the log: choosing the most urgent task, and running it.
//!
//! The tasks write pages out, make them durable, prepare and release groups, lengthen the tail
//! buffer, and confirm the durable end of an idle log. A log that stays idle also removes its free
//! files. Pages superseded by a flush are never written: see `super::buffered_pages`.

use super::files::GroupFiles;
use super::floors::Floors;
use super::idle::Idle;
use super::lane_shared::LaneShared;
use super::preparation::Preparation;
use super::spares::Spares;
use super::stored::StoredGroups;
use super::tail_buffer_len;
use crate::manifest::Record;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{ErrorKind, Result, SeqNo};
use std::sync::Arc;
use wal::{TenantId, UnrecordedBegin};

/// A background task of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Move full pages from the tail buffer to the group files.
    WriteOut,
    /// Prepare a group.
    Prepare,
    /// Lengthen the tail buffer.
    Lengthen,
    /// Release groups below the floors.
    Release,
    /// Sync the log for asynchronous completions.
    Sync,
    /// Write a page that confirms the durable end of the log.
    Confirm,
    /// Remove free files.
    RemoveFree,
}

/// Background work of the log: see the module.
#[derive(Debug)]
pub struct Upkeep {
    base: Arc<LaneShared>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    stored: Arc<StoredGroups>,
    floors: Arc<Floors>,
    preparation: Arc<Preparation>,
    idle: Idle,
    /// The last write-out found no space in the group files, on a copy-on-write volume.
    write_out_refused: AtomicBool,
    /// The last attempt to lengthen the tail buffer found no space.
    ring_refused: AtomicBool,
}

impl Upkeep {
    pub(super) fn new(
        base: Arc<LaneShared>,
        files: Arc<GroupFiles>,
        spares: Arc<Spares>,
        stored: Arc<StoredGroups>,
        floors: Arc<Floors>,
        preparation: Arc<Preparation>,
    ) -> Upkeep {
        Upkeep {
            base,
            files,
            spares,
            stored,
            floors,
            preparation,
            idle: Idle::default(),
            write_out_refused: AtomicBool::new(false),
            ring_refused: AtomicBool::new(false),
        }
    }

    /// Drops the groups below all floors: first from the manifest, then their files. One caller at
    /// a time. In a record lane they wait for [`StoredGroups::retain`] instead. `tell` reports the
    /// floors of engines with computed floors. A floor that rises later gives a hint for the next
    /// release.
    ///
    /// # Errors
    /// Manifest and file system errors. The next release drops the groups that this one could not
    /// drop.
    pub fn release(&self, tell: impl FnOnce()) -> Result<()> {
        let floors = self.floors.for_release(tell, || self.base.manifest.state());
        if self.base.lane.retains() {
            self.stored.pass(|| self.base.wal().content().release_groups_below(&floors));
            return Ok(());
        }
        if self.skip_overtaken(&floors).inspect_err(|_| self.floors.hint())? {
            return Ok(());
        }
        let released = self.base.wal().content().release_below(&floors);
        self.files.release(released).inspect_err(|_| self.floors.hint()).map(drop)
    }

    /// Returns the most urgent task. After a task found no space, no task that needs space runs for
    /// a while. It would be refused too, and would postpone the next attempt of all jobs again and
    /// again.
    pub fn task(&self) -> Option<Task> {
        let wal = self.base.wal();
        let has_room = !self.base.context.health.must_wait(self.base.context.now_ns());
        if has_room && let Some(task) = self.looks_for_overtaken() {
            Some(task)
        } else if wal.deferred().wants_write_out() {
            // Until the next attempt, a writer that finds the tail buffer full writes it out itself
            // and gets the error. No other task runs: confirming these pages would fail the same
            // way and stop the log.
            let refused = self.write_out_refused.load(Ordering::Relaxed);
            (has_room || !refused).then_some(Task::WriteOut)
        } else if wal.syncer().is_wanted() {
            Some(Task::Sync)
        } else if has_room && self.preparation.wants_spare() {
            Some(Task::Prepare)
        } else if has_room && self.wants_longer_ring() {
            Some(Task::Lengthen)
        } else if has_room && self.floors.is_hinted() {
            Some(Task::Release)
        } else if self.idle.is_idle(&wal.stats(), self.base.context.now_ns()) {
            Some(Task::Confirm)
        } else {
            let now_ns = self.base.context.now_ns();
            (self.idle.is_at_rest(now_ns) && self.spares.has_fitting(0)).then_some(Task::RemoveFree)
        }
    }

    /// Returns true if the tail buffer is short for the current group length.
    fn wants_longer_ring(&self) -> bool {
        let wanted = self.ring_wanted();
        self.base.wal().content().tail_buffer_len() < wanted && !self.ring_refused.load(Ordering::Relaxed)
    }

    /// Runs a task.
    ///
    /// # Errors
    /// Manifest and file system errors.
    pub fn run(&self, task: Task) -> Result<()> {
        match task {
            Task::WriteOut => {
                self.write_out()?;
                self.floors.hint();
                Ok(())
            }
            Task::Prepare => self.preparation.prepare_ahead(),
            Task::Lengthen => self.lengthen_ring(),
            Task::Release => self.release(|| ()),
            Task::Sync => self.base.wal().syncer().sync_wanted(),
            Task::Confirm => self.persist_watermark(),
            Task::RemoveFree => self.spares.remove(self.spares.take_all()),
        }
    }

    /// Lengthens the tail buffer to fit the group length, if there is space.
    fn lengthen_ring(&self) -> Result<()> {
        let wanted = self.ring_wanted();
        match self.base.wal().lengthen_staging(&self.base.context.env, &self.base.context.dir, wanted) {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.ring_refused.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// Moves full pages from the tail buffer to the group files.
    fn write_out(&self) -> Result<()> {
        let outcome = self.base.wal().deferred().write_out();
        let refused = outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        self.write_out_refused.store(refused, Ordering::Relaxed);
        outcome.map(drop)
    }

    /// Returns true if the log has batches without a confirmed watermark.
    pub fn has_unconfirmed(&self) -> bool {
        self.idle.has_unconfirmed(&self.base.wal().stats())
    }

    /// Confirms all of the log: writes a page with the watermark.
    ///
    /// # Errors
    /// File system errors, which poison the log.
    pub fn persist_watermark(&self) -> Result<()> {
        let before = self.base.wal().stats();
        self.base.wal().persist_watermark()?;
        self.idle.confirmed(&before, &self.base.wal().stats());
        Ok(())
    }

    /// Closes the active group, however much room it has, and makes all of it durable. Returns
    /// false if it has no batches.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for another group: nothing happened. Manifest and file system
    /// errors.
    pub fn seal_active(&self) -> Result<bool> {
        loop {
            match self.base.wal().roll() {
                Err(e) if e.kind() == ErrorKind::Busy => self.preparation.provide_spare()?,
                Ok(true) => break,
                other => return other,
            }
        }
        // The next group must have a durable page before any part of this one is released.
        self.persist_watermark()?;
        self.floors.hint();
        Ok(true)
    }

    /// Returns the preferred length of the tail buffer for the current group length. It is the
    /// length without aging if no buffered pages wait, or if a longer one would use space that is
    /// kept for deletes and freeing jobs.
    fn ring_wanted(&self) -> usize {
        let (wal, group_len) = (self.base.wal(), self.files.len());
        let whole = self.base.terms.aging.tail_buffer_len(group_len, self.base.terms.group_bytes);
        let (short, useful) =
            (tail_buffer_len(group_len), wal.deferred().useful_ring_bytes() / io::PAGE as u64);
        let useful = usize::try_from(useful).unwrap_or(usize::MAX).saturating_mul(io::PAGE);
        let wanted = whole.min(useful).max(short);
        let more = wanted.saturating_sub(wal.content().tail_buffer_len().max(short)) as u64;
        if more == 0 || self.base.space.has_room_left(more) { wanted } else { short }
    }

    /// Returns a release task if a flush may have superseded pages that would otherwise be written.
    fn looks_for_overtaken(&self) -> Option<Task> {
        let wal = self.base.wal();
        (wal.keeps_pages() && self.floors.is_hinted() && !wal.syncer().is_wanted()).then_some(Task::Release)
    }

    /// Moves the beginning of the log past superseded pages, if that saves any page write. Returns
    /// true if it did.
    ///
    /// # Errors
    /// Manifest and file system errors. After `NoSpace` nothing happened.
    fn skip_overtaken(&self, floors: &[(TenantId, SeqNo)]) -> Result<bool> {
        let Some(overtaken) = self.base.wal().deferred().overtaken(floors) else { return Ok(false) };
        let UnrecordedBegin { ltn, begin, released } = &overtaken;
        let record = Record::BeginLogGroup { ltn: *ltn, begin: *begin };
        self.files.release_with(released, vec![record], || self.base.wal().deferred().skip_to(&overtaken))?;
        Ok(true)
    }
}
