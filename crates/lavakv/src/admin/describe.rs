//! Counters, and a few lines about the shape of the store.

use crate::context::Context;
use crate::context::event::StallCause;
use crate::context::stats::Statistics;
use crate::context::times::Histograms;
use crate::work::jobs::{self, Jobs};
use std::fmt::Write;
use store::format::StoreFormat;
use wal::Wal;

/// Returns the counters, including those of other components.
pub(crate) fn statistics(jobs: &Jobs) -> Statistics {
    if let Some(log) = jobs.log.get() {
        let w = log.stats();
        jobs.context.stats.wal_bytes_written.set(w.written_bytes);
        jobs.context.stats.wal_bytes_skipped.set(w.skipped_bytes);
        jobs.context.stats.wal_syncs.set(w.durable_writes + w.syncs);
        jobs.context.stats.wal_loggers.set(w.writes_at_once);
        jobs.context.stats.wal_loggers_tried.set(w.loggers_tried);
        jobs.context.stats.wal_loggers_kept.set(w.loggers_kept);
    }
    jobs.context.stats.manifest_bytes_written.set(jobs.files.manifest.files().sizes().written());
    jobs.context.stats.format.set(jobs.files.manifest.format().number().into());
    jobs.context.stats.format_newest.set(StoreFormat::NEWEST.number().into());
    jobs.context.stats.files_removed.set(jobs.files.removed());
    let pace = jobs::gc::pace_bytes_per_s(jobs);
    jobs.context.stats.gc_pace_bytes_per_s.set(pace.unwrap_or(0));
    tell_pace(&jobs.context);
    let stats = &jobs.context.stats;
    // In this order, so that requests submitted meanwhile are not counted as completed.
    let over = stats.requests_completed.get();
    stats.requests_in_flight.set(stats.requests.get().saturating_sub(over));
    Statistics { histograms: histograms(jobs), ..jobs.context.stats.read() }
}

/// Copies the device usage of background work into the counters.
fn tell_pace(context: &Context) {
    let (pace, stats) = (context.pace().report(), &context.stats);
    stats.io_budget_bytes_per_s.set(pace.budget_bytes_per_s);
    stats.io_depth_milli.set(pace.depth_milli);
    stats.io_usual_read_ns.set(pace.usual_read_ns);
    stats.io_read_request_ns.set(pace.read_cost.request_ns);
    stats.io_read_mib_ns.set(pace.read_cost.mib_ns);
    stats.io_read_gap_bytes.set(pace.read_cost.gap_bytes);
    stats.io_read_window_bytes.set(pace.read_cost.window_bytes);
    let bytes =
        [&stats.io_flush_bytes, &stats.io_compaction_bytes, &stats.io_gc_bytes, &stats.io_other_bytes];
    bytes.into_iter().zip(pace.bytes).for_each(|(counter, bytes)| counter.set(bytes));
    stats.io_waits.set(pace.waits);
    stats.io_wait_ns.set(pace.wait_ns);
    let spawner = context.env.spawner.as_ref();
    stats.io_priority_refused.set(spawner.is_some_and(|spawner| spawner.refused_priority()).into());
}

/// Returns the histograms, including those of the log, whose full tail buffer stalls writers, and
/// of a secondary engine.
fn histograms(jobs: &Jobs) -> Histograms {
    let mut all = jobs.context.times.read();
    if let Some(times) = jobs.log.get().map(Wal::times) {
        all.operations.extend([("log_append", times.append.read()), ("log_sync", times.sync.read())]);
        let for_log = all.waits.iter_mut().find(|(cause, _)| *cause == StallCause::Log.name());
        for_log.into_iter().for_each(|(_, waits)| waits.merge(&times.ring_full.read()));
    }
    all.operations.extend(jobs.log.guest_times());
    all
}

/// Returns a line for each family and level.
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
    for family in jobs.tree.families.all() {
        let read_state = family.read_state();
        let _ = writeln!(
            out,
            "family {} (id {}): memtable {} B in {} entries, {} frozen",
            family.name,
            family.id,
            read_state.active.bytes(),
            read_state.active.len(),
            read_state.frozen.len()
        );
        for (level, files) in
            read_state.version.levels.iter().enumerate().filter(|(_, files)| !files.is_empty())
        {
            let entries: u64 = files.iter().map(|f| f.entries).sum();
            let (files, bytes) = (files.len(), read_state.version.level_bytes(level));
            let compensated = read_state.version.level_compensated_bytes(level);
            let _ = writeln!(
                out,
                "  L{level}: {files} files, {bytes} B, compensated {compensated} B, {entries} entries"
            );
        }
        if !read_state.version.vssts.is_empty() {
            let (files, names, ledger) =
                (read_state.version.vssts.len(), read_state.version.aliases.len(), &read_state.ledger);
            let (records, garbage) = (ledger.record_bytes(), ledger.exposed_bytes());
            let _ = writeln!(
                out,
                "  values: {files} vSSTs, {names} aliases, records {records} B, exposed garbage {garbage} B"
            );
        }
    }
    out
}
