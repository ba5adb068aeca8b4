//! What operators ask for.
//!
//! * `families`: made, dropped, changed. `maintenance`: flush, compact, wait, close.
//! * `checkpoint`, `repair`, `verify`, `dump`: whole stores.
//! * `collect`, `space`, `metrics`: requests and reports.

pub(crate) mod checkpoint;
pub(crate) mod collect;
pub mod dump;
pub(crate) mod families;
pub(crate) mod maintenance;
pub(crate) mod metrics;
pub(crate) mod repair;
pub(crate) mod space;
pub(crate) mod verify;
