//! Which files to compact next: pure functions of a version, the parameters of a policy and what is running.
//!
//! A [`CompactionPolicy`] is what gives a tree its shape. There are [`Leveled`] and [`Vlsm`]; a family stores which one it has
//! ([`named`]). What only makes single files go down or be written anew is the same for all of them, and made of the
//! [`Moves`] that a policy can make.
//!
//! Sizes that decide the shape (targets, scores, which file goes first, debt) are compensated bytes, as Scavenger+
//! has it: values kept elsewhere count as if they were inline, and tombstones as what they hide. Sizes that limit a
//! job's input and output (overlap, widest job) are physical.
//!
//! * [`contract`]: the trait. `facts`: what it is asked with.
//! * [`compaction`]: what it answers. `in_progress`: what keeps concurrent compactions of a family apart.
//! * [`leveled`]: targets, scores, automatic picks.
//! * [`vlsm`]: the same with narrow compactions and short chains of them.
//! * [`manual`]: the walk of `compact_range`.
//! * [`quiet`]: what is worth compacting when nobody writes.
//! * [`rest`]: compactions that free deleted data.
//! * [`relocation`]: values back into the order of their keys.
//! * [`for_space`]: picks where room is short; `gain`: what they bring. [`exposing`]: picks where much garbage is hidden, with [`met`]:
//!   what tables meet below them.
//! * [`set_aside`]: what tables that cannot be read keep where it is; `sink`: how they make room.
//! * [`cutter`]: where the outputs of a compaction end; [`pieces`]: where it can be cut to be merged by several threads.

pub mod compaction;
pub mod contract;
pub mod cutter;
pub mod exposing;
mod facts;
pub mod for_space;
mod gain;
mod in_progress;
pub mod leveled;
pub mod manual;
pub mod met;
pub mod named;
pub mod pieces;
pub mod quiet;
pub mod relocation;
pub mod rest;
pub mod set_aside;
mod sink;
pub mod vlsm;

pub use compaction::{Compaction, Reason};
pub use contract::{CompactionPolicy, L0Load};
pub use cutter::Cutter;
pub use facts::{Facts, Moves};
pub use for_space::Need;
pub use in_progress::InProgress;
pub use leveled::parameters::{FileChoice, Leveled};
pub use leveled::targets::LevelTargets;
pub use manual::{ManualRange, ManualStep};
pub use met::Met;
pub use named::{Policies, PolicyChoice, TreeOptions};
pub use relocation::{Relocation, RelocationOptions, RelocationStep};
pub use rest::RestRequest;
pub use set_aside::SetAside;
pub use vlsm::parameters::{OverlapOf, Vlsm, VlsmOptions};

#[cfg(test)]
mod tests;
