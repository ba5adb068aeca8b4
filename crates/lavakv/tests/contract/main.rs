//! The space contract: the limit is kept at every moment, and returned room is used.
#![allow(clippy::disallowed_methods, reason = "tests look at files as a hand outside the engine would")]

#[path = "../common/mod.rs"]
mod common;

mod full;
mod levels_bound;
mod limits;
mod overwrites;
mod queues;
mod rest;
mod rewrite;
mod threads;
