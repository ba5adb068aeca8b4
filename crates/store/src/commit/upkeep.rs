//! Work on the log in the background: what is most urgent, and doing it.
//!
//! Pages are written out and made durable, groups are prepared and released, the ring is made longer, and the durable end of an idle log
//! is confirmed. A log that has been idle for some time keeps no free files. What a flush overtakes is never written: see `super::overtaken`.

use super::files::GroupFiles;
use super::floors::Floors;
use super::foundation::Foundation;
use super::idle::Idle;
use super::preparation::Preparation;
use super::spares::Spares;
use super::staging_len;
use super::stored::StoredGroups;
use crate::manifest::Record;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{ErrorKind, Result, SeqNo};
use std::sync::Arc;
use wal::{Overtaken, TenantId};

/// What there is to do for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Move full pages from the ring to the group files.
    WriteOut,
    /// Prepare a group.
    Prepare,
    /// Make the ring of open pages longer.
    Lengthen,
    /// Let go of groups that nobody needs.
    Release,
    /// Make durable what somebody waits for without a thread.
    Sync,
    /// Leave a page that says that all before it is durable.
    Confirm,
    /// Remove files that wait to be used again.
    RemoveFree,
}

/// See the module.
#[derive(Debug)]
pub struct Upkeep {
    base: Arc<Foundation>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    stored: Arc<StoredGroups>,
    floors: Arc<Floors>,
    preparation: Arc<Preparation>,
    idle: Idle,
    /// There was no room to write pages to their group files, on a copy-on-write volume, when it was last tried.
    write_out_refused: AtomicBool,
    /// There was no room for a longer ring of open pages.
    ring_refused: AtomicBool,
}

impl Upkeep {
    pub(super) fn new(
        base: Arc<Foundation>,
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

    /// Drops the groups that nobody needs: manifest first, then the files. One caller at a time. (In a lane that keeps them they
    /// wait for [`StoredGroups::retain`].) `tell`: an engine whose floor
    /// is found out by asking is asked now and tells it. (What rises later is hinted at, and waits for the next time.)
    ///
    /// # Errors
    /// Those of the manifest and of the file system; what could not be dropped is, the next time.
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

    /// The most urgent of what there is to do. After something found no room, nothing that takes any is tried for a while: a
    /// job for anything else would be refused in its place, and put off everybody's next try again and again.
    pub fn task(&self) -> Option<Task> {
        let wal = self.base.wal();
        let has_room = !self.base.context.health.must_wait(self.base.context.now_ns());
        if has_room && let Some(task) = self.looks_for_overtaken() {
            Some(task)
        } else if wal.deferred().wants_write_out() {
            // Until it is tried again whoever finds the ring full tries himself, and is told. Nothing else is done: what
            // confirms these pages would meet the same, and stop the log.
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

    /// True if the ring of open pages is short for groups of the present length.
    fn wants_longer_ring(&self) -> bool {
        let wanted = self.ring_wanted();
        self.base.wal().content().staging_len() < wanted && !self.ring_refused.load(Ordering::Relaxed)
    }

    /// Does it.
    ///
    /// # Errors
    /// Those of the manifest and of the file system.
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

    /// Gives the log a ring of open pages that fits the length of its groups, if there is room.
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

    /// Moves full pages from the log's ring to the group files.
    fn write_out(&self) -> Result<()> {
        let outcome = self.base.wal().deferred().write_out();
        let refused = outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        self.write_out_refused.store(refused, Ordering::Relaxed);
        outcome.map(drop)
    }

    /// True if the log will want its watermark persisted once it has been idle for long enough.
    pub fn has_unconfirmed(&self) -> bool {
        self.idle.has_unconfirmed(&self.base.wal().stats())
    }

    /// Confirms all of the log.
    ///
    /// # Errors
    /// Those of the file system, which poison the log.
    pub fn persist_watermark(&self) -> Result<()> {
        let before = self.base.wal().stats();
        self.base.wal().persist_watermark()?;
        self.idle.confirmed(&before, &self.base.wal().stats());
        Ok(())
    }

    /// Closes the group that batches are appended to, however much room it has, and makes all of it durable. False if it has no
    /// batches.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for another group: nothing happened. Those of the manifest and of the file system.
    pub fn seal_active(&self) -> Result<bool> {
        loop {
            match self.base.wal().roll() {
                Err(e) if e.kind() == ErrorKind::Busy => self.preparation.provide_spare()?,
                Ok(true) => break,
                other => return other,
            }
        }
        // The next group must have a durable page before anything of this one is released.
        self.persist_watermark()?;
        self.floors.hint();
        Ok(true)
    }

    /// Bytes of the ring that groups of the present length ask for. Where nothing waits in it that is buffered, or where a longer one would take of what is
    /// kept for deletes and for the jobs that make room, no more than if pages were written at once.
    fn ring_wanted(&self) -> usize {
        let (wal, group_len) = (self.base.wal(), self.files.len());
        let whole = self.base.terms.aging.ring_len(group_len, self.base.terms.group_bytes);
        let (short, useful) = (staging_len(group_len), wal.deferred().useful_ring_bytes() / io::PAGE as u64);
        let useful = usize::try_from(useful).unwrap_or(usize::MAX).saturating_mul(io::PAGE);
        let wanted = whole.min(useful).max(short);
        let more = wanted.saturating_sub(wal.content().staging_len().max(short)) as u64;
        if more == 0 || self.base.space.has_room_left(more) { wanted } else { short }
    }

    /// A flush may have overtaken pages that would be written otherwise: that is found out first.
    fn looks_for_overtaken(&self) -> Option<Task> {
        let wal = self.base.wal();
        (wal.keeps_pages() && self.floors.is_hinted() && !wal.syncer().is_wanted()).then_some(Task::Release)
    }

    /// Lets the log begin behind what nobody needs, if that saves any page from being written. True if it does.
    ///
    /// # Errors
    /// Those of the manifest and of the file system. After `NoSpace` nothing happened.
    fn skip_overtaken(&self, floors: &[(TenantId, SeqNo)]) -> Result<bool> {
        let Some(overtaken) = self.base.wal().deferred().overtaken(floors) else { return Ok(false) };
        let Overtaken { ltn, begin, released } = &overtaken;
        let record = Record::BeginLogGroup { ltn: *ltn, begin: *begin };
        self.files.release_with(released, vec![record], || self.base.wal().deferred().skip_to(&overtaken))?;
        Ok(true)
    }
}
