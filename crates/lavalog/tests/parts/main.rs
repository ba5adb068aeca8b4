//! Components of the log engine through their public interfaces: readers return the written data,
//! and refuse damage.

#![allow(clippy::unwrap_used, reason = "tests")]

extern crate lavastore_lavalog as lavalog;

mod batches;
mod checkpoints;
mod cold_files;
mod footers;
mod golden;
mod golden_batches;
mod index_files;
mod index_parts;
mod logs;
mod picks;
mod places;
mod rows;
mod sets;

#[path = "../../src/disk/tests/memory.rs"]
mod memory;
