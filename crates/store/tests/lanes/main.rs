//! Two lanes in one store: each is a log of its own, and the groups of the second are kept as
//! storage.

extern crate lavastore_store as store;

mod crashes;
mod engine;
mod schedules;
mod storage;
