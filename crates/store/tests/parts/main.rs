//! Parts of the store, tested by their public interfaces.

#![allow(clippy::unwrap_used, reason = "tests")]

extern crate lavastore_store as store;

mod budgets;
mod formats;
mod id_maps;
mod identities;
mod names;
mod paced_files;
mod rings;
mod signals;
mod two_disks;
mod volumes;
mod works;
