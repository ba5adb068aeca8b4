//! The memtable: recent writes, sorted, in memory.
//!
//! A [`MemTable`] keeps point entries in a concurrent skiplist whose nodes are in an arena, and
//! range tombstones separately. Several threads insert at once without waiting for each other, and
//! readers never wait. Nothing is removed before the whole table is dropped, which makes both
//! simple.
//!
//! * `arena`: memory in chunks, allocated once and freed together.
//! * `skiplist`: the sorted list of internal keys, and a cursor over it; `held`: many entries at
//!   once.
//! * [`memtable`]: the interface for the engine: lookups at a snapshot, iterators, range
//!   tombstones, sizes.
//!
//! `unsafe` is confined to `arena` and `skiplist`; each begins with the safety argument. A loom
//! model (`skiplist/loom_tests.rs`, only under `--cfg loom`) checks the memory order that they rely
//! on.
#![allow(unexpected_cfgs, reason = "`loom` is set by hand, for the model of the memory order")]

mod arena;
pub mod memtable;
mod range_tombstones;
mod skiplist;
mod sync;

pub use memtable::{HeldEntries, MemEntry, MemIter, MemTable};
