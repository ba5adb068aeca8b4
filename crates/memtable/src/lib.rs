//! The memtable: recent writes, sorted, in memory.
//!
//! A [`MemTable`] keeps point entries in a concurrent skiplist whose nodes live in an arena, and range tombstones
//! apart. Several threads insert at once without waiting for each other, readers never wait for anything, and
//! nothing is removed before the whole table is dropped; that last property is what makes both simple.
//!
//! * `arena`: memory in chunks, given out once and freed together.
//! * `skiplist`: the sorted list of internal keys, and a cursor over it; `held`: many entries at once.
//! * [`memtable`]: what the engine sees: lookups at a snapshot, iterators, range tombstones, sizes.
//!
//! `unsafe` is confined to `arena` and `skiplist`; each opens with the argument for it. The memory order they rely on
//! is checked by a loom model (`skiplist/loom_tests.rs`), which runs under `--cfg loom` only.
#![allow(unexpected_cfgs, reason = "`loom` is set by hand, for the model of the memory order")]

mod arena;
pub mod memtable;
mod range_tombstones;
mod skiplist;
mod sync;

pub use memtable::{HeldEntries, MemEntry, MemIter, MemTable};
