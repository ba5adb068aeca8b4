//! LavaKV and LavaLog in one store: one lock, one manifest, one set of threads, a lane of the log
//! for each.

#![allow(clippy::unwrap_used, reason = "tests")]

extern crate lavastore_lavalog as lavalog;

mod answers;
mod both;
mod carried;
mod copies;
mod crashes;
mod damage;
mod faults;
mod life;
mod open_files;
mod readers;
mod schedules;
mod strikes;

/// Returns the file system of a simulation.
fn simulated(sim: &io::sim::SimEnv) -> base::Result<io::Env> {
    Ok(sim.env())
}
