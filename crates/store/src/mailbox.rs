//! Requests from other processes to the process that has a store open: the directory `REQUESTS` in
//! the store directory.
//!
//! `server`: the side of the store. `client`: the side of the other process. `format`: contents of
//! the files (docs/format/requests.md). `names`: names of the files.
//!
//! One request is a set of files with a common random number. The client holds the lock of `N.lock`
//! until it has its answer. The free lock of a dead client marks its request for removal. All other
//! files appear by a rename:
//! ```text
//! client: N.lock held, N.request  ->  server: N.taken  ->  checkpoint  ->  server: N.answer  ->  client: removes all
//! ```
//!
//! **Cost.** Without the directory the server probes one name, at most once a second. A client
//! creates the directory, and the last client removes it.
//!
//! **Trust.** A user who may write the store directory may make a request, and could as well
//! replace the store. The server never follows a name from a request, except the target. The target
//! must be absolute and is made like any other checkpoint: a new directory, never an existing file.
//! The server reads plain files of bounded length, takes a bounded number, and removes only names
//! that it generates.
//!
//! **Crash.** Nothing is synced: a request is of no use after a power loss. After a reopen the
//! server serves the requests that no server took, and refuses those that another server had taken.

mod client;
mod format;
mod names;
mod server;

pub use client::{CheckpointRequest, request_checkpoint};
pub use server::Mailbox;

use std::path::{Path, PathBuf};

/// The directory of requests, in the store directory.
const DIR: &str = "REQUESTS";
/// Minimum interval between two scans by the server, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

fn directory(store: &Path) -> PathBuf {
    io::fs::join(store, DIR)
}

#[cfg(all(test, not(loom)))]
mod tests;
