//! Background work, in steps: see `jobs`.

pub(crate) mod jobs;
