//! Operation on a full volume: which requests are refused, and how the store gets space again.
//!
//! A volume can be full because of this store or of other files. It then refuses new log groups,
//! index files and cold files. In that state:
//!
//! * Appends fail with `NoSpace` and write nothing, unless the active group still has space.
//! * Trims, truncations and deletes succeed, as they free space. They use a spare group, or a short
//!   group in the space that the reserved-space file occupied (`store::commit::GroupFiles`).
//! * Jobs are retried every tenth of a second. They free far more space than they need. After each
//!   refusal they get some space: first the rest of the reserved space, then one spare group at a
//!   time.
//! * Reads need no space.
//!
//! The reserved space belongs to the first lane of the log; the engines of a store share it.
//!
//! After reserved space was used, appends are refused until it is complete again. Otherwise appends
//! would consume the freed space before the next trim or job. Every append and every finished job
//! tries to complete it.
//!
//! Invariant: the reserved space itself is the only state, so the next open continues in the same
//! situation.

use crate::store_handles::StoreHandles;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use store::commit::{LogGroupPurpose, ReservePurpose};

pub(crate) struct FullVolume {
    store: Arc<StoreHandles>,
}

impl FullVolume {
    pub fn new(store: &Arc<StoreHandles>) -> FullVolume {
        FullVolume { store: store.clone() }
    }

    /// Refuses requests that free no space while the reserved space is incomplete, and all writes
    /// on a read-only store.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`.
    pub fn admit(&self, frees: bool) -> Result<()> {
        self.store.check_writable()?;
        if frees || !self.store.lane.spares().reserved_is_short() {
            return Ok(());
        }
        // If the store has failed, that is the error to report.
        self.store.context().health.check()?;
        if self.fill_reserved()? {
            return Ok(());
        }
        let why = "the volume of the logs is full, and nothing was written: trim or delete logs, or free space; appends then resume";
        Err(Error::new(ErrorKind::NoSpace, why).at_file(&self.store.context().dir))
    }

    /// Completes the reserved space if the volume has space for it. Spare groups are given up for
    /// it, since they occupy space.
    fn fill_reserved(&self) -> Result<bool> {
        let Some(first) = &self.store.first else { return Ok(true) };
        loop {
            match first.preparation().fill_reserved() {
                Err(e) if e.kind() == ErrorKind::NoSpace => {}
                filled => return filled.map(|()| true),
            }
            if !self.store.lane.spares().give_free()? {
                return Ok(false);
            }
        }
    }

    fn release_reserved(&self, part: ReservePurpose) -> bool {
        self.store.first.as_ref().is_some_and(|first| first.spares().release_reserved(part))
    }

    /// Provides a log group for a batch that frees space when the volume has no space for a new
    /// group. This is a shorter group, a spare one, or one in the reserved space.
    ///
    /// # Errors
    /// `NoSpace`: nothing was written. Errors of the manifest and I/O errors.
    pub fn provide_last(&self, len: usize) -> Result<()> {
        loop {
            match self.store.lane.preparation().provide(len, LogGroupPurpose::Last) {
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    if !self.release_reserved(ReservePurpose::Log) {
                        return Err(e);
                    }
                }
                provided => return provided,
            }
        }
    }

    /// Makes space for the next attempt of a job that failed with `NoSpace`. Returns false if
    /// nothing is left to give.
    pub fn job_found_no_room(&self) -> Result<bool> {
        if self.release_reserved(ReservePurpose::Jobs) {
            Ok(true)
        } else {
            self.store.lane.spares().give_free()
        }
    }

    /// Notes that a job finished, so there is space again.
    pub fn job_found_room(&self) -> Result<()> {
        self.store.context().health.space_found();
        if self.store.lane.spares().reserved_is_short() {
            self.fill_reserved()?;
        }
        Ok(())
    }
}
