//! Operations for administrators.
//!
//! * `families`: create, drop, and change options. `flush`, `compact`, `collect`: manual background
//!   work.
//! * `wait`, `idle`: waits for background work.
//! * `checkpoint`, `dump`: operations on whole stores and on single files.
//! * `describe`, `space_report`, `metrics`, `live_files`: reports.

pub(crate) mod checkpoint;
pub(crate) mod collect;
pub(crate) mod compact;
pub(crate) mod describe;
pub mod dump;
pub(crate) mod families;
pub(crate) mod flush;
pub(crate) mod idle;
pub(crate) mod live_files;
pub(crate) mod metrics;
pub(crate) mod space_report;
pub(crate) mod wait;
