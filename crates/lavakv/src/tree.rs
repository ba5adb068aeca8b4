//! A family and what is seen of it: memtables and version as one view, snapshots, who reads.
//!
//! * `family`: views. `snapshot`, `readers`: who keeps what.
//! * `log_floor`: what the log still holds for a family.

pub(crate) mod family;
pub(crate) mod log_floor;
pub(crate) mod memory;
pub(crate) mod readers;
pub(crate) mod snapshot;
pub(crate) mod writer;
