//! Values that are in files before they are in the log.
//!
//! * `segments`, `large_value`: a file of its own for a very long value.
//! * `placement`: values written in order of arrival.

pub(crate) mod large_value;
pub(crate) mod placement;
pub(crate) mod segments;
