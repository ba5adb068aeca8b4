//! Scheduling of background work: which job to start next, and how many at once. Decisions are pure
//! functions of [`facts::Facts`].
//!
//! * `facts`: the input of decisions; `answer`: their results; `in_progress`: the claims of running
//!   jobs.
//! * `next`: the most urgent job over all kinds of work.
//! * `compaction`, `collection`, `relocation`, `moves` with `pointer`, `scrub`: the pick of each
//!   kind.
//! * `room`: the check that outputs fit; `slots`: the number of jobs per kind; `gc_pace`: the rate
//!   limit of collection.

pub(crate) mod answer;
pub(crate) mod collection;
mod compaction;
pub(crate) mod facts;
pub(crate) mod gc_pace;
pub(crate) mod in_progress;
pub(crate) mod log_load;
pub(crate) mod moves;
pub(crate) mod next;
pub(crate) mod placement;
pub(crate) mod pointer;
pub(crate) mod quiet;
mod relocation;
pub(crate) mod requests;
pub(crate) mod rest;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod slots;
