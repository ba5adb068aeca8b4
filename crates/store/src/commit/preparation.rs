//! Preparation of log groups: time, length, and the check for space.
//!
//! Preparing a group costs a device write of its full length. The log thread does it while the log
//! still has a spare group. A writer prepares one itself only when the spare is used up, or for a
//! batch larger than a group ([`Preparation::provide`]).

use super::files::{GroupFiles, GroupLens};
use super::lane_shared::LaneShared;
use super::pace::shortest_bytes;
use super::spares::{LogGroupPurpose, Spares};
use super::stored::StoredGroups;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Prepares log groups: see the module.
#[derive(Debug)]
pub struct Preparation {
    base: Arc<LaneShared>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    stored: Arc<StoredGroups>,
    /// Serializes the creation of groups and of the reserved space.
    one_at_a_time: Mutex<(), rank::LogPreparing>,
    /// The last attempt to prepare a spare group found no space.
    spare_refused: AtomicBool,
}

impl Preparation {
    pub(super) fn new(
        base: Arc<LaneShared>,
        files: Arc<GroupFiles>,
        spares: Arc<Spares>,
        stored: Arc<StoredGroups>,
    ) -> Preparation {
        let spare_refused = AtomicBool::new(false);
        Preparation { base, files, spares, stored, one_at_a_time: Mutex::new(()), spare_refused }
    }

    /// Prepares a group for a writer whose batch of `batch_len` bytes found no group with room.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Manifest and file system errors.
    pub fn provide(&self, batch_len: usize, need: LogGroupPurpose) -> Result<()> {
        let _guard = lock(&self.one_at_a_time);
        if self.base.wal().content().has_room(batch_len) {
            return Ok(());
        }
        let needed = wal::group_len_needed(batch_len);
        let wanted = self.next_len().max(needed);
        if need == LogGroupPurpose::Usual && !self.admits(self.new_bytes(needed, wanted)) {
            return Err(self.no_room_for_group(wanted));
        }
        self.prepare(wanted, needed, need)
    }

    /// Returns the bytes of new space for a group: 0 if a free file fits.
    pub fn new_bytes(&self, least: u64, wanted: u64) -> u64 {
        if self.spares.has_fitting(least.max(wanted)) { 0 } else { wanted }
    }

    /// Returns true if a write of `bytes` leaves the reserve for freeing jobs intact. Record lanes
    /// decide this for each group, here. In the first lane the engine admits each write.
    pub fn admits(&self, bytes: u64) -> bool {
        !self.base.lane.retains()
            || !self.base.space.has_own_limit()
            || self.base.space.has_room_for_write(bytes)
    }

    fn no_room_for_group(&self, bytes: u64) -> Error {
        let why = format!(
            "the space limit of {} bytes leaves no room for a log group of {bytes} bytes: {} \
             bytes are occupied, {} reserved; trim or delete logs, or raise the limit",
            self.base.space.limit_bytes(),
            self.base.space.used_bytes(),
            self.base.space.reserve_bytes(),
        );
        Error::new(ErrorKind::NoSpace, why).at_file(&self.base.context.dir)
    }

    /// Prepares a spare group if there is none.
    pub(super) fn provide_spare(&self) -> Result<()> {
        let _guard = lock(&self.one_at_a_time);
        if self.base.wal().content().groups_wanted() == 0 {
            return Ok(());
        }
        let (wanted, least) = (self.next_len(), shortest_bytes(self.base.terms.group_bytes));
        let admitted = self.admits(self.new_bytes(wanted, wanted));
        // The caller closes the active group in order to release it, which frees more than this
        // group takes.
        self.prepare(wanted, least, if admitted { LogGroupPurpose::Usual } else { LogGroupPurpose::Deletes })
    }

    fn prepare(&self, wanted: u64, least: u64, need: LogGroupPurpose) -> Result<()> {
        let group = self.files.list_new(GroupLens { wanted, least, usual: self.next_len() }, need)?;
        self.base.wal().content().add_group(group)
    }

    /// Prepares a group if the log wants one.
    pub(super) fn prepare_ahead(&self) -> Result<()> {
        let _guard = lock(&self.one_at_a_time);
        if self.base.wal().content().groups_wanted() == 0 {
            return Ok(());
        }
        let (shortest, mut wanted) = (shortest_bytes(self.base.terms.group_bytes), self.next_len());
        let fits = |bytes| self.base.space.grants.fits_job(bytes) && self.admits(bytes);
        while wanted > shortest && !self.spares.has_free(self.next_len()) && !fits(wanted) {
            wanted = (wanted / 2 / io::PAGE as u64 * io::PAGE as u64).max(shortest);
        }
        let refused =
            |e: &base::Error| self.spare_refused.store(e.kind() == ErrorKind::NoSpace, Ordering::Release);
        self.prepare(wanted, shortest, LogGroupPurpose::Usual).inspect_err(refused)
    }

    /// Runs `look` while no group file is being made, so that every group file is listed or a
    /// spare.
    pub fn while_none_is_made<T>(&self, look: impl FnOnce() -> T) -> T {
        let _guard = lock(&self.one_at_a_time);
        look()
    }

    /// Creates the missing files of the reserved space.
    ///
    /// # Errors
    /// `NoSpace` as long as there is no room for it; other file system errors.
    pub fn fill_reserved(&self) -> Result<()> {
        let _guard = lock(&self.one_at_a_time);
        self.spares.fill_reserved()
    }

    /// Returns true if the log wants a spare group and there is space for one.
    pub(super) fn wants_spare(&self) -> bool {
        let shortest = shortest_bytes(self.base.terms.group_bytes);
        let fits = || {
            let has_free = self.spares.has_free(self.next_len());
            let new_bytes = if has_free { 0 } else { shortest };
            (has_free || self.base.space.grants.fits_job(shortest)) && self.admits(new_bytes)
        };
        let wanted =
            self.base.wal().content().groups_wanted() > 0 && self.base.wal().content().is_half_full();
        // The remaining space is for deletes and for the jobs that free more.
        wanted && !self.spares.reserved_is_short() && fits()
    }

    /// Returns true once after a spare group found no space, so that other job classes get a turn.
    /// The log is the most urgent class, and after a refusal all jobs wait for a while. Without
    /// this the log would always be refused first, and the flush that frees space would never run.
    pub fn gives_way(&self) -> bool {
        self.spare_refused.swap(false, Ordering::AcqRel)
    }

    fn live_bytes(&self) -> u64 {
        self.base.wal.get().map_or(0, |wal| wal.content().live_bytes())
    }

    /// Returns the length of the next group.
    pub fn next_len(&self) -> u64 {
        self.files.next_len(self.live_bytes() + self.stored.bytes())
    }
}
