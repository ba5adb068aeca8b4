//! Who runs jobs, when, and how fast: `scheduler`, `rate_limit`, `drain`.

pub(crate) mod drain;
pub(crate) mod rate_limit;
pub(crate) mod scheduler;
