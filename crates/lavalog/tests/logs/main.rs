//! The engine through its public API, in simulation: against a model, through crashes, through
//! collection.

#![allow(clippy::unwrap_used, reason = "tests")]

extern crate lavastore_lavalog as lavalog;

mod api;
mod cancel;
mod checkpoint;
mod crashes;
mod damage;
mod faults;
mod model;
mod open_files;
mod pieces;
mod read_only;
mod remade;
mod repair;
mod scan_schedules;
mod scans;
mod schedules;
mod short_lives;
mod space;
mod strikes;
mod tails;
mod two_disks;
mod verify;
mod waits;
