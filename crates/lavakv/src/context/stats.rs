//! Counters of the engine: bytes written, reads, stalls. Each is one atomic; [`Statistics`] is a
//! snapshot of all.

use super::event::StallCause;
use super::times::Histograms;
use store::context::Counter;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// The counters of a store since it was opened, for monitoring and to find a bottleneck.
        ///
        /// Reading them is cheap. Each field is read at its own moment, so sums of fields may differ
        /// by running work. Compare two reads for a rate. Bytes are bytes, and `_ns` are
        /// nanoseconds; fields with `now`, `current` or `maximum` in their text are no sums.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// Latencies of operations, durations of stalls, and sizes of compactions.
            pub histograms: Histograms,
        }

        impl Statistics {
            /// Returns the name and value of every counter, in the order of the struct, to export
            /// all of them, also those of later releases; `histograms` is not among them.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// Returns the description of each counter, in the same order.
            pub(crate) fn help() -> Vec<String> {
                vec![$(concat!($($doc),*).trim().to_owned()),*]
            }
        }

        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Stats {
            $(pub $name: Counter,)*
        }

        impl Stats {
            pub fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.get(),)* histograms: Histograms::default() }
            }
        }
    };
}

counters! {
    /// Batches written.
    write_batches,
    /// Changes written.
    write_entries,
    /// Key and value bytes of all changes.
    user_bytes_written,
    /// Bytes of the write-ahead log handed to the device.
    wal_bytes_written,
    /// Bytes of the write-ahead log superseded by a flush and never written to a device
    /// (`buffered_age_ms_max`).
    wal_bytes_skipped,
    /// Data syncs and synchronous writes of the log.
    wal_syncs,
    /// Current maximum of concurrent durable log writes (`loggers`).
    wal_loggers,
    /// Number of trials of another maximum of concurrent log writes (`loggers.writes_max` 0).
    wal_loggers_tried,
    /// Number of trials whose maximum of concurrent log writes was kept.
    wal_loggers_kept,
    /// Bytes of segments: large values, which are written only once.
    segment_bytes_written,
    /// Bytes of tables written by flush.
    flush_bytes_written,
    /// Flushes installed.
    flushes,
    /// Bytes of tables read by compaction.
    compaction_bytes_read,
    /// Bytes of tables written by compaction.
    compaction_bytes_written,
    /// Compactions installed, moves included.
    compactions,
    /// Compactions that only moved a file to the next level.
    compaction_moves,
    /// Tables created on the fast tier (`fast_tier_levels`).
    fast_tier_tables,
    /// Tables created on the capacity tier because the fast tier had no room beside the log's
    /// reservation.
    fast_tier_tables_elsewhere,
    /// Files of hot values created on the fast tier (`fast_tier_values_bytes_max`).
    fast_tier_values,
    /// Files of hot values created on the capacity tier because the fast tier had no room, or their
    /// bound was reached.
    fast_tier_values_elsewhere,
    /// Value files moved to the capacity tier because long-lived values had filled their bound
    /// (`fast_tier_values_flushed`).
    fast_tier_values_moved_down,
    /// Times that the fast tier refused a file despite reported free space. For ten seconds after
    /// that only the log uses it.
    fast_tier_refusals,
    /// Levels on the fast tier now, in thousandths.
    fast_tier_levels_milli,
    /// Times that measurements changed the levels on the fast tier (`fast_tier_adaptive`).
    fast_tier_pointer_moves,
    /// Tables moved to the fast tier, unchanged.
    fast_tier_tables_moved_up,
    /// Tables moved to the capacity tier, unchanged.
    fast_tier_tables_moved_down,
    /// Bytes of tables moved between the tiers.
    fast_tier_bytes_moved,
    /// Subcompactions: the pieces of merges, at least one each. Several threads merge several
    /// pieces. Moves have none.
    subcompactions,
    /// Compactions of full lower levels that level 0 waited for (compaction policy `vlsm`).
    compaction_spills,
    /// Compactions of full lower levels that took a file above the overlap target, for lack of a
    /// better one.
    compaction_poor_spills,
    /// Tables written to level 1 within the overlap target for level 2 (compaction policy `vlsm`).
    compaction_tables_good,
    /// Tables written to level 1 above the overlap target for level 2.
    compaction_tables_poor,
    /// Bytes of tables written by rest work (`rest`), a part of `compaction_bytes_written`.
    rest_bytes_written,
    /// Compactions for reads: iterators had passed many tombstones or old versions.
    compaction_for_reads,
    /// Compactions that exposed garbage because it throttled writers (`exposing_first`).
    compaction_exposures,
    /// Compactions that relocated values into key order.
    relocations,
    /// Bytes of vSSTs read by relocations.
    relocation_bytes_read,
    /// Bytes of vSSTs written by relocations, a part of `compaction_bytes_written`.
    relocation_bytes_written,
    /// Collections of vSSTs installed.
    gc_runs,
    /// Collections abandoned early because they would have freed too little.
    gc_abandoned,
    /// Bytes of vSSTs read by garbage collection.
    gc_bytes_read,
    /// Bytes of vSSTs written by garbage collection.
    gc_bytes_written,
    /// Bytes of vSSTs freed by garbage collection.
    gc_bytes_freed,
    /// Record reads of garbage collection that overlapped with other steps.
    gc_reads_ahead,
    /// Maximum bytes of records that a collection held in memory, including reads in flight.
    gc_held_bytes_max,
    /// Total nanoseconds that collections were delayed because they slowed flushes down.
    gc_paced_ns,
    /// Current limit on the reads and writes of collections, bytes per second; 0: no limit.
    gc_pace_bytes_per_s,
    /// Current limit on the reads and writes of background work, bytes per second (`io_budget`); 0:
    /// no limit.
    io_budget_bytes_per_s,
    /// Current maximum of concurrent background I/O requests, in thousandths: less while foreground
    /// reads are slow.
    io_depth_milli,
    /// 90th percentile of the latency of reads on an otherwise idle device, nanoseconds; 0:
    /// unknown.
    io_usual_read_ns,
    /// Measured cost of an additional concurrent read without its bytes, nanoseconds; 0: unknown.
    io_read_request_ns,
    /// Measured cost of an additional mebibyte, nanoseconds; 0: unknown.
    io_read_mib_ns,
    /// Gap between two requested ranges that one read covers, bytes, measured or configured; 0: a
    /// default for most devices.
    io_read_gap_bytes,
    /// Bytes in flight that keep the device busy; 0: unknown.
    io_read_window_bytes,
    /// Bytes written and read by flushes.
    io_flush_bytes,
    /// Bytes written and read by compactions.
    io_compaction_bytes,
    /// Bytes written and read by garbage collections.
    io_gc_bytes,
    /// Bytes written and read by other background work: the scrub, cleanup.
    io_other_bytes,
    /// Times that a thread stayed idle because the log device was busy.
    jobs_held_for_log,
    /// Times that background work waited for the device.
    io_waits,
    /// Total nanoseconds that background work waited for the device.
    io_wait_ns,
    /// 1 if the system refused a lower CPU or I/O priority for background threads; else 0.
    io_priority_refused,
    /// vSSTs dropped without a rewrite, because no table referenced them.
    vssts_pruned,
    /// Aliases of former vSSTs dropped, because no table used them.
    aliases_pruned,
    /// Bytes of manifests written.
    manifest_bytes_written,
    /// Format number of the store: a release must know it to open the store.
    format,
    /// Newest format number of this release, to which `Db::upgrade` may raise the store.
    format_newest,
    /// Point reads.
    gets,
    /// Point reads that found a value.
    gets_found,
    /// Point reads answered by a memtable.
    gets_memtable,
    /// Device reads caused by point reads.
    get_device_reads,
    /// Bytes of device reads caused by point reads.
    get_device_bytes,
    /// Index blocks of tables read by point reads.
    get_index_reads,
    /// Filter blocks read by point reads.
    get_filter_reads,
    /// Data and reference blocks of tables read by point reads.
    get_data_reads,
    /// Index blocks of vSSTs read by point reads.
    get_vsst_index_reads,
    /// Separated values read by point reads.
    get_value_reads,
    /// Separated values that point reads found in the cache.
    get_values_cached,
    /// Tables that filters excluded from point reads.
    get_filter_negatives,
    /// Tables that passed a filter but did not have the key.
    get_filter_false_positives,
    /// Tables searched without their filter, because it is damaged or unreadable.
    get_filters_unreadable,
    /// Asynchronous requests submitted.
    requests,
    /// Asynchronous requests completed.
    requests_completed,
    /// Asynchronous requests refused because the maximum was in flight.
    requests_busy,
    /// Asynchronous requests in flight now.
    requests_in_flight,
    /// Iterators opened.
    iterators,
    /// Iterator seeks that read blocks of several tables in one batch.
    iter_seek_batches,
    /// Index parts and block ranges read in batches of seeks.
    iter_seek_reads,
    /// Separated values that iterators read from the device.
    iter_values_read,
    /// Parts of tables that scans passed over, because a filter has no key with their prefix.
    prefix_exclusions,
    /// Device reads of iterators for separated values; a read may cover several adjacent values.
    iter_value_reads,
    /// Device reads of iterators for separated values that overlapped with iteration.
    iter_value_reads_ahead,
    /// Bytes of device reads of iterators for separated values.
    iter_value_bytes,
    /// Times that asynchronous scans had reads in flight without occupying a thread.
    scan_waits,
    /// Times that a writer was slowed down or waited.
    stalls,
    /// Total nanoseconds that writers were slowed down or waited.
    stall_ns,
    /// Longest stall of a writer, nanoseconds.
    stall_ns_max,
    /// Operations whose total wait exceeded the budget (`stall_budget`).
    stalls_over_budget,
    /// Operations over the stall budget that waited longest for memory.
    stalls_over_budget_memory,
    /// Operations over the stall budget that waited longest for level 0.
    stalls_over_budget_l0,
    /// Operations over the stall budget that waited longest for the levels below level 0.
    stalls_over_budget_levels,
    /// Operations over the stall budget that waited longest for the log.
    stalls_over_budget_log,
    /// Operations over the stall budget that waited longest for garbage collection.
    stalls_over_budget_garbage,
    /// Operations over the stall budget that waited longest for space.
    stalls_over_budget_space,
    /// Part of `stall_ns` for memory (flush is behind).
    stall_memory_ns,
    /// Part of `stall_ns` for level 0 (compaction is behind).
    stall_l0_ns,
    /// Part of `stall_ns` for levels above their targets (compaction is behind).
    stall_levels_ns,
    /// Part of `stall_ns` for a log group.
    stall_log_ns,
    /// Part of `stall_ns` for garbage (collection is behind).
    stall_garbage_ns,
    /// Part of `stall_ns` for the space limit.
    stall_space_ns,
    /// Commits that failed because a key or range had changed since its read.
    conflicts,
    /// Row locks held now.
    row_locks,
    /// Row locks and writes that waited for a row lock of another transaction.
    row_lock_waits,
    /// Row locks and writes whose wait for a row lock was too long.
    row_lock_timeouts,
    /// Row locks refused because two transactions would have waited for each other.
    deadlocks,
    /// Runs of merge operands that the operator failed to fold in background work, and that stay.
    merge_failures,
    /// Entries that compaction filters removed.
    filter_removals,
    /// Entries whose value compaction filters changed.
    filter_changes,
    /// Compactions, or parts of one, whose filter failed; the rest of them was not filtered.
    filter_failures,
    /// Background jobs that failed, whether retried or not.
    background_errors,
    /// Tables and value files found damaged and set aside.
    files_set_aside,
    /// Log pages, values referenced only by the log, and manifests found damaged.
    log_damages,
    /// Bytes verified by the scrub.
    scrub_bytes,
    /// Data files left to read in the current pass of the scrub.
    scrub_files_left,
    /// Completed passes of the scrub.
    scrub_passes,
    /// Damage found by the scrub: files, log pages, manifests.
    scrub_damages,
    /// Failed writes of the metrics file (`metrics_file`).
    metrics_write_errors,
    /// Panics of the listener that were caught.
    listener_panics,
    /// Obsolete files removed.
    files_removed,
}

/// Counters of one stall cause.
pub(crate) struct StallCounters<'a> {
    /// Nanoseconds of waits.
    pub ns: &'a Counter,
    /// Operations over the stall budget with this cause of their longest wait.
    pub over_budget: &'a Counter,
}

impl Stats {
    /// Returns the counters of a cause.
    pub fn of_stall(&self, cause: StallCause) -> StallCounters<'_> {
        let (ns, over_budget) = match cause {
            StallCause::Memory => (&self.stall_memory_ns, &self.stalls_over_budget_memory),
            StallCause::L0 => (&self.stall_l0_ns, &self.stalls_over_budget_l0),
            StallCause::Levels => (&self.stall_levels_ns, &self.stalls_over_budget_levels),
            StallCause::Log => (&self.stall_log_ns, &self.stalls_over_budget_log),
            StallCause::Garbage => (&self.stall_garbage_ns, &self.stalls_over_budget_garbage),
            StallCause::Space => (&self.stall_space_ns, &self.stalls_over_budget_space),
        };
        StallCounters { ns, over_budget }
    }
}
