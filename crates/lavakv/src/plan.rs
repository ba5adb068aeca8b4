//! What background work there is to do, and how much at once: decisions, as pure functions of facts.
//!
//! `facts`: what is asked. `answer`: what is decided. `in_progress`: what jobs have claimed. `next`: what is most urgent. `compaction`, `collection`,
//! `relocation`, `moves` with `pointer`, `scrub`: of each kind; `room`: whether it fits. `slots`: how many at once; `gc_pace`: how fast collection goes.

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
