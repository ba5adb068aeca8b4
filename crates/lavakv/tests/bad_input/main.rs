//! Bad input: for any fault of the directory, the files, the medium or the arguments the answer is
//! a typed error that names the fault, and no sound data is lost.
#![allow(clippy::disallowed_methods, reason = "tests stage files as a hand outside the engine would")]

#[path = "../common/mod.rs"]
mod common;

mod callback;
mod damage;
mod directory;
mod full_disk;
mod full_disk_threads;
mod full_reopen;
mod limits;
mod locked;
mod lost_end;
mod misuse;
mod newer;
mod read_only;
mod staging;
mod verify;
