//! Counters of the engine: what it wrote, read, waited for. One atomic each, read together into [`Statistics`].

use super::event::StallCause;
use super::times::Histograms;
use store::context::Counter;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// A snapshot of the engine's counters, all since the store was opened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// How long operations took and writers waited, and how large compactions were.
            pub histograms: Histograms,
        }

        impl Statistics {
            /// Name and value of every counter, in the order of the struct.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// What each counter means, in the same order.
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
    /// Bytes of the write-ahead log that a flush overtook, and that were handed to no device (`buffered_age_ms_max`).
    wal_bytes_skipped,
    /// Data syncs and synchronous writes of the log.
    wal_syncs,
    /// Durable writes of the log that may be at the device at once now (`loggers`).
    wal_writes_at_once,
    /// Times that another number of these was tried, where it is found out (`loggers.writes_max` 0).
    wal_loggers_tried,
    /// Times that it was kept.
    wal_loggers_kept,
    /// Bytes of segments: large values, which are written once.
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
    /// Compactions that only moved a file down.
    compaction_moves,
    /// Tables that were made on the speed disk (`speed_levels`).
    speed_tables,
    /// Tables that belong there and were made in the directory, since the speed disk had no room for them beside what the log needs.
    speed_tables_elsewhere,
    /// Files of hot values that were made on the speed disk (`speed_values_bytes_max`).
    speed_values,
    /// Those that belong there and were made in the directory, since the speed disk had no room for them, or as many as it may have.
    speed_values_elsewhere,
    /// Files of values that went from there to the directory since what lasts had filled the bound (`speed_values_fresh`).
    speed_values_moved_down,
    /// Times that the speed disk refused a file for which it had said that it had room: for ten seconds nothing but the log goes there.
    speed_refusals,
    /// Levels whose tables are to be on the speed disk now, in thousandths.
    speed_levels_milli,
    /// Times that this was changed by what was measured (`speed_moving`).
    speed_pointer_moves,
    /// Tables that went to the speed disk, as they are.
    speed_tables_moved_up,
    /// Tables that went from there to the directory.
    speed_tables_moved_down,
    /// Bytes of both.
    speed_bytes_moved,
    /// Pieces that compactions were merged in, at least one each; moves have none. More than one are merged by several threads.
    compaction_pieces,
    /// Compactions that level 0 waited for, because the levels below it were full (compaction policy `vlsm`).
    compaction_spills,
    /// Those of them that took what meets more in the next level than it should, because nothing better was there.
    compaction_poor_spills,
    /// Tables that compactions wrote to level 1 and that meet no more of level 2 than they should (compaction policy `vlsm`).
    compaction_tables_good,
    /// Those that meet more.
    compaction_tables_poor,
    /// Bytes of tables that rest work has written (`rest`), a part of `compaction_bytes_written`.
    rest_bytes_written,
    /// Compactions that no level asked for: iterators had passed many tombstones or old versions.
    compaction_for_reads,
    /// Compactions that no level asked for: they exposed garbage where writers paid for such as was hidden (`exposing_first`).
    compaction_exposures,
    /// Compactions that put values back in the order of keys (relocation).
    relocations,
    /// Bytes of vSSTs read by these.
    relocation_bytes_read,
    /// Bytes of vSSTs written by these, which are part of `compaction_bytes_written`.
    relocation_bytes_written,
    /// Collections of vSSTs installed.
    gc_runs,
    /// Collections given up early because they would have freed too little.
    gc_abandoned,
    /// Bytes of vSSTs read by garbage collection.
    gc_bytes_read,
    /// Bytes of vSSTs written by garbage collection.
    gc_bytes_written,
    /// Bytes of vSSTs freed by garbage collection.
    gc_bytes_freed,
    /// Reads of records by garbage collection that went on while it did something else.
    gc_reads_ahead,
    /// The most bytes of records that a collection held at a time, read or being read.
    gc_held_bytes_max,
    /// Nanoseconds that collections were held back, together, because flushes suffered from them.
    gc_paced_ns,
    /// Bytes per second that collections may read and write now, so that flushes are quick; 0: they are not bounded.
    gc_pace_bytes_per_s,
    /// Bytes per second that background work may read and write now (`io_budget`); 0: it is not bounded.
    io_budget_bytes_per_s,
    /// Pieces of background work that may be at the device at once now, in thousandths: fewer where reads became slow.
    io_depth_milli,
    /// What nine of ten reads take at most that have the device for themselves, nanoseconds; 0: not known.
    io_usual_read_ns,
    /// What one read more costs beside others that are at the device together, without its bytes, nanoseconds; 0: not known.
    io_read_request_ns,
    /// What a mebibyte more costs, nanoseconds; 0: not known.
    io_read_mib_ns,
    /// Bytes between two places that are read over rather than left out, as far as that is measured or given; 0: what suits most devices.
    io_read_gap_bytes,
    /// Bytes that have to be in flight so that the device moves some all the time; 0: not known.
    io_read_window_bytes,
    /// Bytes that flushes wrote and read.
    io_flush_bytes,
    /// Bytes that compactions wrote and read.
    io_compaction_bytes,
    /// Bytes that garbage collections wrote and read.
    io_gc_bytes,
    /// Bytes that other background work wrote and read: the scrub, clean-up.
    io_other_bytes,
    /// Times that a thread found no work since the log was written much, and one job less runs then.
    jobs_held_for_log,
    /// Times that background work waited for a place at the device.
    io_waits,
    /// Nanoseconds of these, together.
    io_wait_ns,
    /// 1 if the system refused a lower priority to background threads, for processors or for the device; else 0.
    io_priority_refused,
    /// vSSTs dropped without a rewrite, because nothing referenced them.
    vssts_pruned,
    /// Names of former vSSTs dropped, because nothing used them.
    aliases_pruned,
    /// Bytes of manifests written.
    manifest_bytes_written,
    /// The number of the store's format: what a release must know to open it.
    format,
    /// The number of the newest format that this release knows, to which `Db::upgrade` may raise it.
    format_newest,
    /// Point reads.
    gets,
    /// Point reads that found a value.
    gets_found,
    /// Point reads answered by a memtable.
    gets_memtable,
    /// Device reads that point reads caused.
    get_device_reads,
    /// Bytes of those.
    get_device_bytes,
    /// Those that were index blocks.
    get_index_reads,
    /// Those that were filter blocks.
    get_filter_reads,
    /// Those that were data or reference blocks of tables.
    get_data_reads,
    /// Those that were index blocks of vSSTs.
    get_vsst_index_reads,
    /// Those that were separated values.
    get_value_reads,
    /// Separated values that were in the cache.
    get_values_cached,
    /// Tables that filters spared a point read.
    get_filter_negatives,
    /// Tables that a filter let through in vain.
    get_filter_false_positives,
    /// Tables that a point read had to ask without their filter, because it is damaged or cannot be read.
    get_filters_unreadable,
    /// Asynchronous requests that were submitted.
    requests,
    /// Those that are over.
    requests_completed,
    /// Those that were refused because as many as may be were in flight.
    requests_busy,
    /// Those that are in flight now.
    requests_in_flight,
    /// Iterators opened.
    iterators,
    /// Times that seeks of iterators read what several tables were asked for, all at once.
    iter_seek_batches,
    /// Parts of indexes and runs of blocks that were read so.
    iter_seek_reads,
    /// Separated values that iterators read from the device.
    iter_values_read,
    /// Requests to the device for these: one brings several where they lie side by side.
    iter_value_reads,
    /// Those of them that went on while the iterator went through what was before.
    iter_value_reads_ahead,
    /// Bytes of these requests.
    iter_value_bytes,
    /// Times that asynchronous scans had reads in flight, and no thread waited for them.
    scan_waits,
    /// Times a writer was slowed down or waited.
    stalls,
    /// Nanoseconds writers were slowed down or waited, together.
    stall_ns,
    /// The longest of these, nanoseconds.
    stall_ns_max,
    /// Operations that waited longer, all in all, than the budget (`stall_budget`).
    stalls_over_budget,
    /// Of these: those that waited longest for memory.
    stalls_over_budget_memory,
    /// Of these: those that waited longest for L0.
    stalls_over_budget_l0,
    /// Of these: those that waited longest for the levels below L0.
    stalls_over_budget_levels,
    /// Of these: those that waited longest for the log.
    stalls_over_budget_log,
    /// Of these: those that waited longest for garbage to be collected.
    stalls_over_budget_garbage,
    /// Of these: those that waited longest for space.
    stalls_over_budget_space,
    /// Of `stall_ns`: waiting for memory (flush behind).
    stall_memory_ns,
    /// Of `stall_ns`: L0 too full (compaction behind).
    stall_l0_ns,
    /// Of `stall_ns`: too much above the targets of the levels below L0 (compaction behind).
    stall_levels_ns,
    /// Of `stall_ns`: waiting for a log group.
    stall_log_ns,
    /// Of `stall_ns`: too much garbage (collection behind).
    stall_garbage_ns,
    /// Of `stall_ns`: the space limit near or reached.
    stall_space_ns,
    /// Background jobs that failed and were tried again or gave up.
    background_errors,
    /// Tables and value files that were found damaged and set aside.
    files_set_aside,
    /// Pages of the log, values that only the log refers to, and manifests that were found damaged.
    log_damages,
    /// Bytes that the scrub has read and found sound.
    scrub_bytes,
    /// Files of data that the scrub has still to read in the pass under way.
    scrub_files_left,
    /// Passes that the scrub has completed.
    scrub_passes,
    /// What the scrub has found damaged: files, pages of the log, manifests.
    scrub_damages,
    /// Times that the file of metrics could not be written (`metrics_file`).
    metrics_write_errors,
    /// Panics of the listener that were caught.
    listener_panics,
    /// Obsolete files removed.
    files_removed,
}

/// The counters of one cause of waits.
pub(crate) struct StallCounters<'a> {
    /// Nanoseconds of waits.
    pub ns: &'a Counter,
    /// Operations over the stall budget that waited longest for it.
    pub over_budget: &'a Counter,
}

impl Stats {
    /// The counters of a cause.
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
