//! A log engine on nothing but a store: it appends, is killed, replays, trims, and gives back what is not needed.
//!
//! `cargo run -p lavastore-store --example toy_log`. The engine is in `engine.rs`; `docs/extending.md` says what it touches.

#![allow(clippy::print_stdout, reason = "an example tells what it does")]

extern crate lavastore_store as store;

mod engine;
mod story;

fn main() {
    story::tell(&mut |line| println!("{line}"));
}
