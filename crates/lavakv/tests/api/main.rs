//! The public API, method by method: every way to read returns the written data.
#![allow(clippy::disallowed_methods, reason = "tests run threads and look at directories from outside")]

#[path = "../common/mod.rs"]
mod common;

mod background;
mod cancel;
mod catching_up;
mod checkpoint;
mod checkpoint_requests;
mod closing;
mod collect;
mod compression;
mod crashes;
mod cut_compactions;
mod dropped_at_work;
mod empty_keys;
mod failed_syncs;
mod families;
mod filters;
mod flush_families;
mod forks;
mod handles;
mod iterators;
mod large_values;
mod merges;
mod moving_tables;
mod multi_get;
mod names_on_devices;
mod open_files;
mod other_engines;
mod overflow;
mod overtaken;
mod overtaken_families;
mod overtaken_readers;
mod patience;
mod policies;
mod read_gaps;
mod read_only;
mod reads_and_writes;
mod reads_in_flight;
mod repair;
mod reports;
mod requests;
mod scans_in_flight;
mod separated_scans;
mod small_stores;
mod snapshots;
mod speed_tables;
mod sync;
mod two_disks;
mod two_processes;
