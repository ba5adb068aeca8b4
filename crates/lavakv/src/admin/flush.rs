//! Flush on request: memtables are frozen at one sequence and become tables.

use crate::admin::wait::look;
use crate::work::jobs::Jobs;
use base::{Result, SeqNo};
use io::Cancel;
use std::sync::Arc;

/// Freezes the memtables of all families at one sequence, and waits until they are tables.
pub(crate) fn flush(jobs: &Arc<Jobs>) -> Result<()> {
    let upto = freeze_all(jobs)?;
    jobs.context.wait_until(|| look_flushed(jobs, upto))
}

/// As [`flush`], for a long call: once that is to end the wait ends, and the flush goes on.
pub(crate) fn flush_unless(jobs: &Arc<Jobs>, cancel: Option<&Cancel>) -> Result<()> {
    let upto = freeze_all(jobs)?;
    wait_flushed(jobs, upto, cancel)
}

/// Freezes all memtables; returns the sequence up to which everything is frozen.
pub(crate) fn freeze_all(jobs: &Arc<Jobs>) -> Result<SeqNo> {
    freeze_all_and(jobs, |_| {})
}

/// Freezes all memtables and calls `then` with the sequence before any later write is let in.
pub(crate) fn freeze_all_and(jobs: &Arc<Jobs>, then: impl FnOnce(SeqNo)) -> Result<SeqNo> {
    let mut writer = jobs.writes.memtables.lock();
    jobs.context.health.check()?;
    jobs.writes.memtables.settle();
    jobs.writes.memtables.freeze_all(&mut writer);
    let upto = jobs.tree.snapshots.visible();
    then(upto);
    Ok(upto)
}

const NO_SPACE: &str = "the flush found no disk space; it goes on when space returns";

/// Waits until no memtable holds a sequence up to `upto`, or the call is to end.
pub(crate) fn wait_flushed(jobs: &Arc<Jobs>, upto: SeqNo, cancel: Option<&Cancel>) -> Result<()> {
    let ended = || jobs.context.check_call(cancel).err().map(Err);
    jobs.context.wait_until(|| look_flushed(jobs, upto).or_else(ended))
}

/// One look whether that is so, for one who does not wait: `None`, not yet. What is in tables needs no room, whoever has none.
pub(crate) fn look_flushed(jobs: &Arc<Jobs>, upto: SeqNo) -> Option<Result<()>> {
    if jobs.context.health.check().is_ok() && jobs.tree.log_floor() > upto {
        return Some(Ok(()));
    }
    look(jobs, NO_SPACE, || Ok(false))
}
