//! How much background work there is at once (`slots`), and how fast collection goes (`gc_pace`).

pub(crate) mod gc_pace;
pub(crate) mod quiet;
pub(crate) mod slots;
