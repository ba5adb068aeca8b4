//! Inputs of a policy, and the building blocks of the picks that all policies share.

use super::compaction::{Compaction, Reason};
use super::in_progress::InProgress;
use super::set_aside::SetAside;
use base::SeqNo;
use std::sync::Arc;
use version::{FileMeta, Version};

/// All inputs of a pick besides the policy itself. They do not change during a pick.
#[derive(Clone, Copy, Debug)]
pub struct PickInputs<'a> {
    /// The tree.
    pub version: &'a Version,
    /// Unreadable tables of the tree.
    pub set_aside: &'a SetAside,
    /// Files that running jobs hold.
    pub busy: &'a InProgress,
}

impl PickInputs<'_> {
    /// Returns true if a compaction may take this file.
    pub fn is_free(&self, file: &FileMeta) -> bool {
        !self.busy.has_file(file.number) && !self.set_aside.has(file.number)
    }

    /// Returns true if file `i` of a level below 0 is unreadable. With `down`, also if it overlaps
    /// an unreadable file of the next level.
    pub fn is_barred(&self, level: usize, i: usize, down: bool) -> bool {
        let Some(file) = self.version.files(level).get(i).filter(|_| !self.set_aside.is_empty()) else {
            return false;
        };
        let (low, high) = (Some(file.smallest_user_key()), Some(file.largest_user_key()));
        let below = self.version.overlap_range(level + 1, low, high);
        let met = if down { &self.version.files(level + 1)[below] } else { &[] };
        self.set_aside.has(file.number) || met.iter().any(|f| self.set_aside.has(f.number))
    }
}

/// The compactions of single files or neighbors that a policy can make. [`super::for_space`],
/// [`super::quiet`], [`super::manual`] and [`super::relocation`] choose among them, alike for every
/// policy. Each method returns `None` if a running job or an unreadable table is in the way.
pub trait SingleFileCompactions {
    /// Compacts level 0 down: `seed` with every older file that it overlaps, directly or through
    /// others. Leaves out files with a sequence above `seq_max`, unless an older one needs them.
    fn level_0(&self, seed: &Arc<FileMeta>, reason: Reason, seq_max: SeqNo) -> Option<Compaction>;

    /// Compacts file `i` of a level below 0 into the next level.
    fn down(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction>;

    /// Rewrites neighbors of a level below 0 in place, together with their values in
    /// `relocate_vssts`.
    fn in_place(
        &self,
        level: usize,
        files: Vec<Arc<FileMeta>>,
        reason: Reason,
        relocate_vssts: Vec<u64>,
    ) -> Option<Compaction>;

    /// Returns true for an unreadable file of level 0, and for a file that such a table holds in
    /// level 0.
    fn stays(&self, file: &FileMeta) -> bool;

    /// Returns the maximum physical input bytes to which shared picks widen a compaction.
    fn widest_bytes(&self) -> u64;
}
