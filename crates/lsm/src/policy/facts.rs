//! What a policy decides from, and what the walks that all policies share are made of.

use super::compaction::{Compaction, Reason};
use super::in_progress::InProgress;
use super::set_aside::SetAside;
use base::SeqNo;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Everything a pick depends on besides the policy itself. Nothing of it changes while it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The tree.
    pub version: &'a Version,
    /// Its tables that cannot be read.
    pub set_aside: &'a SetAside,
    /// What running jobs hold.
    pub busy: &'a InProgress,
}

impl Facts<'_> {
    /// True if a compaction may take this file.
    pub fn is_free(&self, file: &FileMeta) -> bool {
        !self.busy.has_file(file.number) && !self.set_aside.has(file.number)
    }

    /// True if the file `i` of a level below 0 cannot be read, or if it is to go `down` and meets one there.
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

/// The compactions of single files or neighbours that a policy can make. Which of them to make is another matter: there the
/// walks of [`super::for_space`], [`super::quiet`], [`super::manual`] and [`super::relocation`] choose, the same for every policy.
/// Each is `None` where a running job or a table that cannot be read is in the way.
pub trait Moves {
    /// Level 0 goes down: `seed` with every older file that it meets, directly or over others; none with a sequence above
    /// `seq_max`, unless an older one needs it.
    fn level_0(&self, seed: &Arc<FileMeta>, reason: Reason, seq_max: SeqNo) -> Option<Compaction>;

    /// The file `i` of a level below 0 goes into the next level.
    fn down(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction>;

    /// Neighbours of a level below 0 are written anew where they are, with what they reference in `relocate_vssts`.
    fn in_place(
        &self,
        level: usize,
        files: Vec<Arc<FileMeta>>,
        reason: Reason,
        relocate_vssts: Vec<u64>,
    ) -> Option<Compaction>;

    /// True for a file of level 0 that a table that cannot be read keeps there, and for such a table.
    fn stays(&self, file: &FileMeta) -> bool;

    /// What walks are not widened beyond, physical bytes of inputs.
    fn widest_bytes(&self) -> u64;
}
