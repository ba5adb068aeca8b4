//! A guest with a lane of its own in LavaKV's store: how it is opened with it ([`store::guest`]).
//!
//! Its lane is replayed before LavaKV's, and is durable then. Both lanes end and begin in the same call ([`crate::service`]), and both
//! end when LavaKV is closed. A store that has no room for the two logs is not opened with a guest.

use crate::files::Files;
use crate::files::log::Log;
use base::Result;
use store::guest::{Ground, Guest};
use store::run::Scheduler;
use wal::RecoveryReport;

/// Replays the lane of a guest.
pub(crate) fn replay(log: &Log, files: &Files, guest: &mut dyn Guest) -> Result<RecoveryReport> {
    let lane = log.add_records(guest.terms(), files);
    guest.restore(files.store().context(), files.manifest.shared())?;
    lane.replay(&mut |batch| guest.replay(batch))
}

/// The logs have begun: the guest serves. Before there are workers.
pub(crate) fn begin(log: &Log, files: &Files, scheduler: &Scheduler, guest: &mut dyn Guest) -> Result<()> {
    let Some(lane) = log.records() else { return Ok(()) };
    let ground = Ground { files: files.store().clone(), space: log.space().clone(), lane: lane.clone() };
    scheduler.join(guest.begin(ground)?);
    Ok(())
}
