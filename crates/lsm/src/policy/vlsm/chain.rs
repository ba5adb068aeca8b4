//! Whose turn it is: what has to be compacted before level 0 may go down, and then level 0.
//!
//! From the bottom up, a level that holds more than its bound has its turn first. The bound of level 1 is its target; the
//! deeper ones may be an eighth over theirs, so that other threads have time to see to them and level 0 does not wait for all levels
//! of the tree. As long as every level keeps its bound, a run from level 0 makes each level send on about one run: that is
//! the chain, and its width and length are bounded.
//!
//! A column of level 0 that is much too deep and holds a table of bytes at most does not wait for that, until level 1 holds one and a half times its target: writers wait
//! for how deep it is, and would do so for a merge that takes a moment.
//!
//! Where a level can send nothing on, because other jobs hold what it meets, the levels above it do not wait until it
//! holds twice its target. What a table that cannot be read keeps where it is does not count.

use super::parameters::Vlsm;
use super::queue::Queue;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::leveled::picker::Picker;

/// A deeper level may be this part of its target over it.
const SLACK_PART: u64 = 8;

impl Vlsm {
    /// The next compaction of the chain.
    pub(super) fn chain(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let base = picker.targets.base_level;
        let target = picker.targets.bytes[base];
        let has_room = self.movable_bytes(picker, base) <= target.saturating_add(target / 2);
        if has_room && let Some(compaction) = Queue::of(self, picker).deep_and_short(picker) {
            return Some(compaction);
        }
        for level in (base..self.tree.last_level()).rev() {
            let target = picker.targets.bytes[level];
            let bound = target.saturating_add(if level == base { 0 } else { target / SLACK_PART });
            // The version knows what is most: few levels have to be looked through.
            if self.tree.level_size(picker.facts.version, level) <= bound {
                continue;
            }
            let bytes = self.movable_bytes(picker, level);
            if bytes <= bound {
                continue;
            }
            let next = match level == base {
                true => self.spill(picker),
                false => picker.level(level).map(|c| Compaction { reason: Reason::Spill, ..c }),
            };
            if next.is_some() || bytes / 2 > target {
                return next;
            }
        }
        Queue::of(self, picker).first(picker)
    }

    /// What a level holds, compensated bytes, without what is on its way down and what has to stay.
    fn movable_bytes(&self, picker: &Picker<'_>, level: usize) -> u64 {
        let facts = &picker.facts;
        let files = facts.version.files(level).iter().enumerate();
        let free = files.filter(|(i, f)| !facts.busy.has_file(f.number) && !facts.is_barred(level, *i, true));
        free.fold(0, |sum: u64, (_, f)| sum.saturating_add(self.tree.size_of(f)))
    }
}
