//! What a user may ask of a store besides reading and writing: flush, compact, wait, close, describe.

use crate::context::stats::Statistics;
use crate::engine::Engine;
use crate::tree::family::Family;
use crate::work::jobs;
use crate::write::write_path::{freeze_all as freeze_all_families, settle};
use base::sync::atomic::Ordering;
use base::sync::lock;
use base::{Error, ErrorKind, Result, SeqNo};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use version::{Edit, Record, StoreRecord};

/// Freezes the memtables of all families at one sequence, and waits until they are tables.
pub(crate) fn flush(engine: &Arc<Engine>) -> Result<()> {
    let upto = freeze_all(engine)?;
    wait_flushed(engine, upto)
}

/// Freezes all memtables; returns the sequence up to which everything is frozen.
pub(crate) fn freeze_all(engine: &Arc<Engine>) -> Result<SeqNo> {
    freeze_all_and(engine, |_| {})
}

/// Freezes all memtables and calls `then` with the sequence before any later write is let in.
pub(crate) fn freeze_all_and(engine: &Arc<Engine>, then: impl FnOnce(SeqNo)) -> Result<SeqNo> {
    must_be_writable(engine)?;
    let mut writer = lock(&engine.writer);
    engine.health.check()?;
    settle(engine);
    freeze_all_families(engine, &mut writer);
    let upto = engine.snapshots.visible();
    then(upto);
    Ok(upto)
}

/// Fails in a store that was opened for reading. One that found no room for a log when it was opened tries again.
pub(crate) fn must_be_writable(engine: &Arc<Engine>) -> Result<()> {
    if engine.wal.get().is_some() {
        return Ok(());
    }
    if engine.manifest.is_read_only() {
        return Err(Error::new(ErrorKind::ReadOnly, "the store was opened read-only").at_file(&engine.dir));
    }
    engine.health.check()?;
    crate::open::service::begin(engine)
}

/// Waits until no memtable holds a sequence up to `upto`.
pub(crate) fn wait_flushed(engine: &Arc<Engine>, upto: SeqNo) -> Result<()> {
    let no_space = "the flush found no disk space; it goes on when space returns";
    wait_for_jobs(engine, no_space, || Ok(engine.log_floor() > upto))
}

/// Waits until jobs have made `done` true, as long as they can: an error ends it, a store that failed, a disk on which
/// a job found no room a moment ago (`no_space`: what to say then), and what should have passed by itself and has not. What was
/// met a while ago is no answer: it may have passed since, and the work is tried again.
pub(crate) fn wait_for_jobs(
    engine: &Arc<Engine>,
    no_space: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    engine.scheduler.wait_until(engine, || {
        if let Err(e) = engine.health.check() {
            return Some(Err(e));
        }
        let now_ns = engine.env.clock.now_ns();
        if engine.health.out_of_space() && engine.health.must_wait(now_ns) {
            return Some(Err(Error::new(ErrorKind::NoSpace, no_space).at_file(&engine.dir)));
        }
        if let Some(e) = engine.health.held_up(now_ns) {
            return Some(Err(
                e.context("work that this call waits for is held up; it goes on when this has passed")
            ));
        }
        done().map(|done| done.then_some(())).transpose()
    })
}

/// Compacts a range level by level, from the top.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    family: &Arc<Family>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        return Err(Error::invalid("compact_range: the start is after the end"));
    }
    family.check_served()?;
    flush(engine)?;
    let mut range = lsm::policy::ManualRange::new(start, end);
    wait_for_jobs(engine, "compaction found no disk space", || {
        Ok(jobs::advance_manual(engine, family, &mut range))
    })
}

/// True if there is no background work, now or claimed.
pub(crate) fn is_idle(engine: &Arc<Engine>) -> bool {
    if engine.wal.get().is_none() || engine.health.is_poisoned() {
        return true;
    }
    jobs::is_idle(engine)
}

/// Waits for [`is_idle`], and then vouches for the log at once instead of when it has been idle for a while.
pub(crate) fn wait_idle(engine: &Arc<Engine>, timeout: Duration) -> bool {
    let clock = &engine.env.clock;
    let end_ns = clock.now_ns().saturating_add(timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64);
    loop {
        engine.quiet.declare(engine.snapshots.visible(), engine.env.clock.now_ns());
        if is_idle(engine) {
            if engine.wal.get().is_none() || engine.health.is_poisoned() || !engine.log.has_unvouched(engine)
            {
                return true;
            }
            if let Err(e) = engine.log.persist_watermark(engine) {
                engine.background_failed(e);
            }
            engine.log.hint_release();
        }
        if clock.now_ns() >= end_ns {
            return false;
        }
        if engine.env.is_simulated() {
            if !engine.scheduler.run_one(engine) {
                clock.sleep_ns(1_000_000);
            }
        } else {
            engine.scheduler.notify_work();
            clock.sleep_ns(2_000_000);
        }
    }
}

/// Stops background work and closes the log. Volatile writes are flushed first; nothing else needs to be.
pub(crate) fn close(engine: &Arc<Engine>) -> Result<()> {
    if engine.closed.swap(true, Ordering::AcqRel) || engine.wal.get().is_none() {
        return Ok(());
    }
    // Whether a flush was asked for says nothing: it may have found no room.
    let volatile = lock(&engine.writer).volatile_seq >= engine.log_floor();
    let flushed = if volatile && !engine.health.is_poisoned() { flush(engine) } else { Ok(()) };
    {
        let _writer = lock(&engine.writer);
        settle(engine);
        engine.health.poison(&Error::new(ErrorKind::Closed, "the store was closed"));
    }
    engine.scheduler.stop(engine);
    let placed = engine.placement.sync(engine);
    let log_closed = placed.and_then(|()| engine.wal().close()).and_then(|()| seal(engine));
    // A job may have failed until a moment ago.
    match engine.health.first_error().filter(|e| e.kind() != ErrorKind::Closed) {
        Some(e) => Err(e),
        None => flushed.and(log_closed),
    }
}

/// After a clean close the manifest knows where the log ends, and `CURRENT` where the manifest ends, so that the loss of
/// either end is noticed too: pages and edits vouch for those before them, and nothing else would vouch for the last.
/// A full volume has no room for that. Nothing depends on it, and the next close makes up for it.
fn seal(engine: &Engine) -> Result<()> {
    match seal_log(engine).and_then(|()| engine.manifest.vouch()) {
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        sealed => sealed,
    }
}

fn seal_log(engine: &Engine) -> Result<()> {
    let Some((ltn, end_lpn)) = engine.wal().end() else { return Ok(()) };
    // What was prepared for writes to come is space that a closed store does not need.
    let (spares, files) = engine.log.unused(ltn);
    let mut records = vec![Record::Store(StoreRecord::SealLogGroup { ltn, end_lpn })];
    records.extend(spares.into_iter().map(|ltn| Record::Store(StoreRecord::RemoveLogGroup { ltn })));
    engine.manifest.commit(Edit(records))?;
    files
        .iter()
        .try_for_each(|&number| crate::files::obsolete::remove_file(engine, &version::names::log(number)))
}

/// Counters, with those that other parts keep.
pub(crate) fn statistics(engine: &Engine) -> Statistics {
    if let Some(log) = engine.wal.get() {
        let w = log.stats();
        engine.stats.wal_bytes_written.set(w.written_bytes);
        engine.stats.wal_syncs.set(w.durable_writes + w.syncs);
    }
    engine.stats.manifest_bytes_written.set(engine.manifest.bytes_written());
    let pace = jobs::gc::when::pace_bytes_per_s(engine);
    engine.stats.gc_pace_bytes_per_s.set(pace.unwrap_or(0));
    engine.stats.read()
}

/// A line for each family and level.
pub(crate) fn describe(engine: &Engine) -> String {
    let mut out = String::new();
    if engine.space.is_limited() {
        let (used, percent) = (engine.used_bytes(), engine.fill_percent());
        let _ = writeln!(
            out,
            "space: {used} B of {}, {} B reserved, {percent} % full",
            engine.space.limit_bytes(),
            engine.reserve_bytes()
        );
    }
    for family in engine.all_families() {
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
