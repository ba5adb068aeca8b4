//! Chooses the next compaction: pure functions of a version, the parameters of a policy, and the
//! running jobs.
//!
//! A [`CompactionPolicy`] determines the shape of a tree. There are [`Leveled`] and [`Vlsm`]; each
//! family stores its choice ([`named`]). All policies share the compactions that only move or
//! rewrite single files, which are built from the policy's [`SingleFileCompactions`].
//!
//! Sizes that decide the shape (targets, scores, file choice, debt) are compensated bytes, as in
//! Scavenger+: separated values count as if they were inline, and tombstones count the entries that
//! they hide. Sizes that limit a job's input and output (overlap, widest job) are physical.
//!
//! * [`contract`]: the policy trait. `facts`: its inputs.
//! * [`compaction`]: its results. `in_progress`: keeps concurrent compactions of a family apart.
//! * [`leveled`]: targets, scores, automatic picks.
//! * [`vlsm`]: targets, scores and picks with narrow compactions in short chains.
//! * [`manual`]: the walk of `compact_range`.
//! * [`quiet`]: compactions that pay off while the store is idle.
//! * [`rest`]: compactions that free deleted data.
//! * [`relocation`]: restores the key order of separated values.
//! * [`for_space`]: picks when space is short; `gain`: their expected benefit. [`exposing`]: picks
//!   that expose garbage, using [`overlap_stats`]: overlap statistics.
//! * [`set_aside`]: constraints from unreadable tables; `sink`: moves these tables down.
//! * [`cutter`]: decides where the outputs of a compaction end; [`pieces`]: splits a compaction for
//!   several threads.

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
pub mod named;
pub mod overlap_stats;
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
pub use facts::{PickInputs, SingleFileCompactions};
pub use for_space::RequiredBenefit;
pub use in_progress::InProgress;
pub use leveled::parameters::{FileChoice, Leveled};
pub use leveled::targets::LevelTargets;
pub use manual::{ManualRange, ManualStep};
pub use named::{Policies, PolicyChoice, TreeOptions};
pub use overlap_stats::OverlapStats;
pub use relocation::{Relocation, RelocationOptions, RelocationStep};
pub use rest::RestRequest;
pub use set_aside::SetAside;
pub use vlsm::parameters::{OverlapOf, Vlsm, VlsmOptions};

#[cfg(test)]
mod tests;
