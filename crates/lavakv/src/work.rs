//! Background work, in steps: see `jobs`. `verify`: reading everything again, on request and by the scrub.

pub(crate) mod jobs;
pub(crate) mod verify;
