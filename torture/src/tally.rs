//! Counts of engine events, so that a row can prove that the mechanism it tests has run.
//!
//! Each place that opens a store adds its counters to those of its thread before the store is
//! dropped. The runner takes them after each case. A row about garbage collection that never
//! collected has proved nothing: see [`missing`].

use crate::logs::seen;
use crate::wide;
use lavastore::{Db, Statistics};
use std::cell::Cell;

/// A counter and its printed name.
type Kind = (&'static str, fn(&Statistics) -> u64);

const KINDS: [Kind; 24] = [
    (COLLECTIONS, |s| s.gc_runs),
    ("vSSTs collected in vain", |s| s.gc_abandoned),
    ("bytes moved by collection", |s| s.gc_bytes_written),
    (PRUNED, |s| s.vssts_pruned),
    (RENAMED, |s| s.aliases_pruned),
    ("bytes of large values", |s| s.segment_bytes_written),
    ("values read by iterators", |s| s.iter_values_read),
    ("reads together for seeks", |s| s.iter_seek_reads),
    ("waits of asynchronous scans for reads", |s| s.scan_waits),
    ("reads of values ahead of iterators", |s| s.iter_value_reads_ahead),
    ("reads of records ahead of collections", |s| s.gc_reads_ahead),
    ("compactions", |s| s.compactions - s.compaction_moves),
    ("pieces of compactions beyond the first", |s| {
        (s.subcompactions + s.compaction_moves).saturating_sub(s.compactions)
    }),
    ("compactions that level 0 waited for", |s| s.compaction_spills),
    ("compactions that expose garbage and no level asked for", |s| s.compaction_exposures),
    (SEPARATED, |s| s.get_value_reads + s.get_values_cached),
    (SCRUBBED, |s| s.scrub_passes),
    ("bytes of the log that flushes overtook", |s| s.wal_bytes_skipped),
    (ON_SPEED, |s| s.fast_tier_tables),
    ("tables without room on the second disk", |s| s.fast_tier_tables_elsewhere),
    (VALUES_ON_SPEED, |s| s.fast_tier_values),
    ("files of hot values without room on the second disk", |s| s.fast_tier_values_elsewhere),
    ("files of lasting values taken down from the second disk", |s| s.fast_tier_values_moved_down),
    (MOVED, |s| s.fast_tier_tables_moved_up + s.fast_tier_tables_moved_down),
];

/// Counted by rows of requests themselves.
pub(crate) const TOLD_DURABLE: &str = "writes told durable";
pub(crate) const REFUSED: &str = "writes refused";

/// Stores that `sched-crash` reopened with threads under a schedule.
pub(crate) const REOPENED: &str = "reopened under a schedule";

/// Row `age-after-power-loss`: losses that took writes, and losses with writes above the bound.
pub(crate) const AGE_TAKEN: &str = "losses that took buffered writes";
pub(crate) const OLD_WRITES: &str = "losses with buffered writes above the bound";

/// Row `refused-step`: refused steps.
pub(crate) const STEP_EDIT: &str = "edits of the manifest refused";
pub(crate) const STEP_CHECKPOINT: &str = "refusals during checkpoints";
pub(crate) const STEP_JOB: &str = "outputs of jobs refused";

/// Row `upgrade`: crash states, those in the raised format, and lost manifests and copies.
pub(crate) const UPGRADE_CUT: &str = "crash states in an upgrade";
pub(crate) const UPGRADED: &str = "of these in the newer format";
pub(crate) const FILES_LOST: &str = "single files lost";

/// Row `fork`.
pub(crate) const CHILDREN: &str = "children";
pub(crate) const WRITTEN_BESIDE: &str = "writes acknowledged";

const COLLECTIONS: &str = "vSSTs collected";
const PRUNED: &str = "vSSTs pruned";
const RENAMED: &str = "aliases pruned";
const SEPARATED: &str = "gets of separated values";
const ON_SPEED: &str = "tables on the second disk";
const VALUES_ON_SPEED: &str = "files of hot values on the second disk";
const MOVED: &str = "tables moved between two disks";
const SCRUBBED: &str = "passes of the scrub";

thread_local! {
    static COUNTS: Cell<[u64; KINDS.len()]> = const { Cell::new([0; KINDS.len()]) };
}

/// Adds the counters of a store before it is dropped.
pub(crate) fn add(db: &Db) {
    let stats = db.stats();
    let mut counts = COUNTS.get();
    for (count, (_, read)) in counts.iter_mut().zip(KINDS) {
        *count += read(&stats);
    }
    COUNTS.set(counts);
}

/// Adds collections reported by a store in another process.
pub(crate) fn add_collections(count: u64) {
    let mut counts = COUNTS.get();
    counts[0] += count;
    COUNTS.set(counts);
}

/// Returns the counts since the last call.
pub(crate) fn take() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = COUNTS.replace([0; KINDS.len()]);
    KINDS.iter().map(|(name, _)| *name).zip(counts).filter(|(_, count)| *count > 0)
}

/// Returns the names of all counts.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// Notes of the row `histories`.
pub(crate) const ROLLED_BACK: &str = "transactions rolled back";
pub(crate) const WRITE_SKEW: &str = "histories with write skew, as snapshot isolation allows";

/// Returns an event that a long run of a row must have counted but did not. (The short scripts of
/// `io-errors`, and the children of `kill`, whose counters die with them, require less.)
pub(crate) fn missing(row: &str, seen: impl Fn(&str) -> bool) -> Option<&'static str> {
    if matches!(row, "lavafs" | "kernel-faults" | "kernel-syncs") {
        // The first one opens no store; the scripts of the others ensure their events.
        return None;
    }
    let wanted: &[&str] = match row.trim_end_matches("-on-lavafs").trim_end_matches("-on-two-disks") {
        "two-disks" => &[ON_SPEED, VALUES_ON_SPEED],
        "sched-crash" => &[COLLECTIONS, wide::IMAGES, REOPENED],
        "damaged-log" | "soak" | "forks" | "io-errors" | "kill" | "block" => &[COLLECTIONS],
        "crash" | "recrash" => &[COLLECTIONS, PRUNED, RENAMED, SEPARATED, wide::IMAGES],
        "model" | "damage" => &[COLLECTIONS, PRUNED, RENAMED, SEPARATED, SCRUBBED],
        "full" => &[COLLECTIONS, PRUNED, RENAMED, SEPARATED],
        "async" | "async-io-errors" => &[TOLD_DURABLE, REFUSED, COLLECTIONS],
        row if row.starts_with("log-") => of_logs(row),
        "engines" => &[PRUNED],
        "histories" => &[ROLLED_BACK, WRITE_SKEW],
        "families" | "quiet-large" => &[SEPARATED],
        "upgrade" => &[UPGRADE_CUT, UPGRADED, FILES_LOST],
        "fork" => &[CHILDREN, WRITTEN_BESIDE],
        "refused-step" => &[STEP_EDIT, STEP_CHECKPOINT, STEP_JOB],
        "age-after-power-loss" => &[AGE_TAKEN, OLD_WRITES],
        "verify-beside-writers" => &[seen::NAMED, seen::OPENED_BESIDE, seen::REPEATED],
        _ => &[COLLECTIONS, PRUNED, RENAMED, SEPARATED],
    };
    wanted.iter().find(|name| !seen(name)).copied()
}

/// Returns the required events of a LavaLog row.
fn of_logs(row: &str) -> &'static [&'static str] {
    use seen::{
        ACKNOWLEDGED, ALONE, BATCHES, COLLECTED, COPIED, DURING, FLUSHED, HARMLESS, JOINT, LOST, LOST_KEYS,
        LOST_LOGS, OVERWRITTEN,
    };
    use seen::{
        LACKED, RECREATED, REFUSED, REFUSED_BOTH, SAVED, SEALED, STOPPED, STRUCK, TRIMS, TRUNCATIONS,
    };
    match row {
        "log-model" => {
            &[SEALED, COLLECTED, COPIED, DURING, BATCHES, TRIMS, TRUNCATIONS, OVERWRITTEN, RECREATED, REFUSED]
        }
        "log-flip" => &[SEALED, COPIED, LOST, HARMLESS],
        "log-repair" => &[SEALED, COPIED, LOST, SAVED],
        "log-io-errors" => &[STRUCK, LACKED],
        "log-kill" => &[SEALED, COLLECTED, ACKNOWLEDGED],
        "log-joint-io-errors" => &[STRUCK, STOPPED, LACKED],
        "log-joint-full" => &[REFUSED, REFUSED_BOTH],
        "log-joint-repair" => &[JOINT, FLUSHED, SEALED, SAVED, LOST_KEYS, LOST_LOGS],
        "log-joint-flip" => &[JOINT, FLUSHED, SEALED, LOST],
        "log-joint" => &[JOINT, FLUSHED, TRIMS, SEALED, COLLECTED, ALONE],
        _ => &[SEALED, COLLECTED, COPIED, DURING, BATCHES, TRIMS, TRUNCATIONS, OVERWRITTEN, RECREATED],
    }
}
