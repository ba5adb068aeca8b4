//! The write path: `batch` -> `throttle` (the price of a write) -> `write_path`.

pub(crate) mod batch;
pub(crate) mod throttle;
pub(crate) mod write_path;
