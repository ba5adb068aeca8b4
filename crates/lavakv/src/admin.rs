//! What operators ask for.
//!
//! * `families`: made, dropped, changed. `maintenance`: flush, compact, wait, close.
//! * `checkpoint`, `dump`: whole stores.
//! * `collect`, `space`, `metrics`, `live_files`: requests and reports.

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
