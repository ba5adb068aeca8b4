//! Manual flush: memtables are frozen at one sequence number and become tables. A flush of chosen
//! families is one edit of the manifest, so that a crash leaves all of it or nothing.

use crate::admin::wait::look;
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use base::{Result, SeqNo};
use io::Cancel;
use std::sync::Arc;

/// Freezes the memtables of all families at one sequence number, and waits until they are flushed.
pub(crate) fn flush(jobs: &Arc<Jobs>) -> Result<()> {
    let upto = freeze_all(jobs)?;
    jobs.context.wait_until(|| look_flushed(jobs, upto))
}

/// Like [`flush`], with cancellation: a cancelled call stops waiting, and the flush continues.
pub(crate) fn flush_unless(jobs: &Arc<Jobs>, cancel: Option<&Cancel>) -> Result<()> {
    let upto = freeze_all(jobs)?;
    wait_flushed(jobs, upto, cancel)
}

/// Freezes all memtables. Returns the last sequence number that they contain.
pub(crate) fn freeze_all(jobs: &Arc<Jobs>) -> Result<SeqNo> {
    freeze_all_and(jobs, |_| {})
}

/// Freezes all memtables, and calls `then` with the last sequence number before any later write is
/// admitted.
pub(crate) fn freeze_all_and(jobs: &Arc<Jobs>, then: impl FnOnce(SeqNo)) -> Result<SeqNo> {
    let mut writer = jobs.writes.memtables.lock();
    jobs.context.health.check()?;
    jobs.writes.memtables.wait_for_inserts();
    jobs.writes.memtables.freeze_all(&mut writer);
    let upto = jobs.tree.snapshots.visible();
    then(upto);
    Ok(upto)
}

/// Flushes the memtables of some families in one edit of the manifest, and waits.
pub(crate) fn flush_families(jobs: &Arc<Jobs>, families: &[Arc<Family>]) -> Result<()> {
    families.iter().try_for_each(|family| family.check_there())?;
    let upto = {
        let mut writer = jobs.writes.memtables.lock();
        jobs.context.health.check()?;
        jobs.writes.memtables.freeze_together(&mut writer, families);
        jobs.tree.snapshots.visible()
    };
    let is_flushed = |family: &Arc<Family>| {
        let oldest = family.read_state().oldest_unflushed_seq();
        family.is_dropped() || oldest.is_none_or(|oldest| oldest > upto)
    };
    jobs.context.wait_until(|| match jobs.context.health.check() {
        Ok(()) if families.iter().all(is_flushed) => Some(Ok(())),
        _ => look(jobs, NO_SPACE, || Ok(false)),
    })
}

const NO_SPACE: &str = "the flush found no disk space for its table: free space, or raise the \
                        limit; the flush then resumes";

/// Waits until no memtable has a sequence number up to `upto`, or the call ends.
pub(crate) fn wait_flushed(jobs: &Arc<Jobs>, upto: SeqNo, cancel: Option<&Cancel>) -> Result<()> {
    let ended = || jobs.context.check_call(cancel).err().map(Err);
    jobs.context.wait_until(|| look_flushed(jobs, upto).or_else(ended))
}

/// Checks once, for callers that do not block; `None`: not flushed yet. A completed flush counts
/// even if space is now short.
pub(crate) fn look_flushed(jobs: &Arc<Jobs>, upto: SeqNo) -> Option<Result<()>> {
    if jobs.context.health.check().is_ok() && jobs.tree.log_floor() > upto {
        return Some(Ok(()));
    }
    look(jobs, NO_SPACE, || Ok(false))
}
