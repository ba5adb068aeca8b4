//! Requests of other processes to the process that has a store open: the directory `REQUESTS` in that of the store.
//!
//! `server`: the side of the store. `client`: the side of the other process. `format`: the contents of the files, which
//! docs/format/requests.md describes; `names`: their names.
//!
//! One request is a set of files with a common random number. The client holds the lock of `N.lock` until it has its
//! answer, so a request of a client that died is told by its lock, and is removed. All other files appear by a rename:
//!
//! ```text
//! client: N.lock held, N.request  ->  server: N.taken  ->  checkpoint  ->  server: N.answer  ->  client: removes all
//! ```
//!
//! **Cost.** Without the directory the server asks for one name, at most once a second. A client makes the
//! directory, and the last one removes it.
//!
//! **Trust.** Whoever may write the store's directory may make a request, and could as well replace the store. The server
//! never follows a name that a request gives but for the target, which must be absolute and is made like any other
//! checkpoint: a new directory, never an existing file. It reads plain files of bounded length, takes a bounded number,
//! and removes only names that it gives itself.
//!
//! **Crash.** Nothing is synced: a request is of no use after a loss of power. The server of a store that was opened
//! anew serves requests that no server took, and refuses those that another server had taken.

mod client;
mod format;
mod names;
mod server;

pub use client::{CheckpointRequest, request_checkpoint};
pub use server::Mailbox;

use std::path::{Path, PathBuf};

/// The directory of requests, in the directory of the store.
const DIR: &str = "REQUESTS";
/// Shortest pause between two looks of the server, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

fn directory(store: &Path) -> PathBuf {
    io::fs::join(store, DIR)
}

#[cfg(all(test, not(loom)))]
mod tests;
