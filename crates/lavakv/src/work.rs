//! Background work. `jobs`: flushes, compactions and all other jobs, in steps. `verify`: full reads
//! of the store, on request and by the scrub.

pub(crate) mod jobs;
pub(crate) mod verify;
