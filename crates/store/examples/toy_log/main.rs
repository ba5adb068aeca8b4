//! A log engine alone on a store: it appends, is killed, replays, trims, and releases log space.
//!
//! `cargo run -p lavastore-store --example toy_log`. The engine is in `engine.rs`;
//! `docs/extending.md` describes the interfaces that it uses.

#![allow(clippy::print_stdout, reason = "an example tells what it does")]

extern crate lavastore_store as store;

mod engine;
mod story;

fn main() {
    story::tell(&mut |line| println!("{line}"));
}
