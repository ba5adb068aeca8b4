//! The compaction chain: the levels that must be compacted before level 0 may go down, and then
//! level 0.
//!
//! From the bottom up, the first level over its bound has its turn. The bound of level 1 is its
//! target. The bound of a deeper level is its target plus an eighth, so that other threads have
//! time to compact it. Otherwise level 0 would wait for all levels of the tree. While every level
//! is within its bound, a run from level 0 makes each level send about one run to the next. That is
//! the chain; its width and length are bounded.
//!
//! A column of level 0 that is much too deep, and holds at most one table of bytes, does not wait
//! for its turn. The exception ends when level 1 exceeds one and a half times its target. Writers
//! wait because of the depth of the column, and otherwise they would wait for a merge that takes a
//! moment.
//!
//! A level may be unable to send a run because other jobs hold the tables that it overlaps. Then
//! the levels above it do not wait, unless it exceeds twice its target. Files held in place by an
//! unreadable table do not count.

use super::parameters::Vlsm;
use super::queue::Queue;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::leveled::picker::Picker;

/// A deeper level may exceed its target by one part in `SLACK_PART`.
const SLACK_PART: u64 = 8;

impl Vlsm {
    /// Returns the next compaction of the chain.
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
            // The version's sum is an upper bound, so few levels need a walk over their files.
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

    /// Returns the compensated bytes of a level, without files on their way down and held files.
    fn movable_bytes(&self, picker: &Picker<'_>, level: usize) -> u64 {
        let facts = &picker.facts;
        let files = facts.version.files(level).iter().enumerate();
        let free = files.filter(|(i, f)| !facts.busy.has_file(f.number) && !facts.is_barred(level, *i, true));
        free.fold(0, |sum: u64, (_, f)| sum.saturating_add(self.tree.size_of(f)))
    }
}
