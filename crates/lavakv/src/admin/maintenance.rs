//! What a user may ask of a store besides reading and writing: flush, compact, wait, close, describe.

use crate::context::stats::Statistics;
use crate::tree::family::Family;
use crate::work::jobs::{self, Jobs};
use base::{Error, ErrorKind, Result, SeqNo};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Freezes the memtables of all families at one sequence, and waits until they are tables.
pub(crate) fn flush(jobs: &Arc<Jobs>) -> Result<()> {
    let upto = freeze_all(jobs)?;
    wait_flushed(jobs, upto)
}

/// Freezes all memtables; returns the sequence up to which everything is frozen.
pub(crate) fn freeze_all(jobs: &Arc<Jobs>) -> Result<SeqNo> {
    freeze_all_and(jobs, |_| {})
}

/// Freezes all memtables and calls `then` with the sequence before any later write is let in.
pub(crate) fn freeze_all_and(jobs: &Arc<Jobs>, then: impl FnOnce(SeqNo)) -> Result<SeqNo> {
    let mut writer = jobs.writes.lock();
    jobs.context.health.check()?;
    jobs.writes.settle();
    jobs.writes.freeze_all(&mut writer);
    let upto = jobs.tree.snapshots.visible();
    then(upto);
    Ok(upto)
}

/// Waits until no memtable holds a sequence up to `upto`.
pub(crate) fn wait_flushed(jobs: &Arc<Jobs>, upto: SeqNo) -> Result<()> {
    let no_space = "the flush found no disk space; it goes on when space returns";
    wait_for_jobs(jobs, no_space, || Ok(jobs.tree.log_floor() > upto))
}

/// Waits until jobs have made `done` true, as long as they can: an error ends it, a store that failed, a disk on which
/// a job found no room a moment ago (`no_space`: what to say then), and what should have passed by itself and has not. What was
/// met a while ago is no answer: it may have passed since, and the work is tried again.
pub(crate) fn wait_for_jobs(
    jobs: &Arc<Jobs>,
    no_space: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    jobs.context.signals.wait_until(&jobs.context.env, || {
        if let Err(e) = jobs.context.health.check() {
            return Some(Err(e));
        }
        let now_ns = jobs.context.env.clock.now_ns();
        if jobs.context.health.out_of_space() && jobs.context.health.must_wait(now_ns) {
            return Some(Err(Error::new(ErrorKind::NoSpace, no_space).at_file(&jobs.context.dir)));
        }
        if let Some(e) = jobs.context.health.held_up(now_ns) {
            return Some(Err(
                e.context("work that this call waits for is held up; it goes on when this has passed")
            ));
        }
        done().map(|done| done.then_some(())).transpose()
    })
}

/// Compacts a range level by level, from the top.
pub(crate) fn compact_range(
    jobs: &Arc<Jobs>,
    family: &Arc<Family>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    flush(jobs)?;
    let mut range = lsm::policy::ManualRange::new(start, end);
    wait_for_jobs(jobs, "compaction found no disk space", || {
        Ok(jobs::advance_manual(jobs, family, &mut range))
    })
}

/// True if there is no background work, now or claimed.
pub(crate) fn is_idle(jobs: &Arc<Jobs>) -> bool {
    if jobs.log.get().is_none() || jobs.context.health.is_poisoned() {
        return true;
    }
    jobs::is_idle(jobs)
}

/// Waits for [`is_idle`], and then vouches for the log at once instead of when it has been idle for a while.
pub(crate) fn wait_idle(jobs: &Arc<Jobs>, timeout: Duration) -> bool {
    let clock = &jobs.context.env.clock;
    let end_ns = clock.now_ns().saturating_add(timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64);
    loop {
        jobs.quiet.declare(jobs.tree.snapshots.visible(), jobs.context.env.clock.now_ns());
        if is_idle(jobs) {
            if jobs.log.get().is_none() || jobs.context.health.is_poisoned() || !jobs.log.has_unvouched() {
                return true;
            }
            if let Err(e) = jobs.log.persist_watermark() {
                jobs.job_failed(e, &[]);
            }
            jobs.log.hint_release();
        }
        if clock.now_ns() >= end_ns {
            return false;
        }
        if jobs.context.env.is_simulated() {
            if !jobs.context.signals.step() {
                clock.sleep_ns(1_000_000);
            }
        } else {
            jobs.context.signals.notify_work();
            clock.sleep_ns(2_000_000);
        }
    }
}

/// Counters, with those that other parts keep.
pub(crate) fn statistics(jobs: &Jobs) -> Statistics {
    if let Some(log) = jobs.log.get() {
        let w = log.stats();
        jobs.context.stats.wal_bytes_written.set(w.written_bytes);
        jobs.context.stats.wal_syncs.set(w.durable_writes + w.syncs);
    }
    jobs.context.stats.manifest_bytes_written.set(jobs.files.manifest.bytes_written());
    let pace = jobs::gc::pace_bytes_per_s(jobs);
    jobs.context.stats.gc_pace_bytes_per_s.set(pace.unwrap_or(0));
    jobs.context.stats.read()
}

/// A line for each family and level.
pub(crate) fn describe(jobs: &Jobs) -> String {
    let mut out = String::new();
    if jobs.space.is_limited() {
        let (used, percent) = (jobs.space.used_bytes(), jobs.space.fill_percent());
        let _ = writeln!(
            out,
            "space: {used} B of {}, {} B reserved, {percent} % full",
            jobs.space.limit_bytes(),
            jobs.space.reserve_bytes()
        );
    }
    for family in jobs.tree.all_families() {
        let view = family.view();
        let _ = writeln!(
            out,
            "family {} (id {}): memtable {} B in {} entries, {} frozen",
            family.name,
            family.id,
            view.active.bytes(),
            view.active.len(),
            view.frozen.len()
        );
        for (level, files) in view.version.levels.iter().enumerate().filter(|(_, files)| !files.is_empty()) {
            let entries: u64 = files.iter().map(|f| f.entries).sum();
            let (files, bytes) = (files.len(), view.version.level_bytes(level));
            let compensated = view.version.level_compensated_bytes(level);
            let _ = writeln!(
                out,
                "  L{level}: {files} files, {bytes} B, compensated {compensated} B, {entries} entries"
            );
        }
        if !view.version.vssts.is_empty() {
            let (files, names, ledger) = (view.version.vssts.len(), view.version.aliases.len(), &view.ledger);
            let (records, garbage) = (ledger.record_bytes(), ledger.exposed_bytes());
            let _ = writeln!(
                out,
                "  values: {files} vSSTs, {names} aliases, records {records} B, exposed garbage {garbage} B"
            );
        }
    }
    out
}
