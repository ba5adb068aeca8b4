//! LavaKV and LavaLog in one store: one lock, one manifest, one set of threads, a lane of the log for each.

#![allow(clippy::unwrap_used, reason = "tests")]

extern crate lavastore_lavalog as lavalog;

mod both;
mod carried;
mod copies;
mod crashes;
mod life;
mod readers;
mod schedules;
