//! Tables that cannot be read stand in the way: what that means for the choice of compactions.
//!
//! Nobody knows what a damaged table holds, so nothing newer than it may come to lie under it, nothing older above it, and
//! it cannot be merged. In its range of keys it is a *barrier*, whose place in the tree is all that is left of it
//! (docs/decisions/0026-a-damaged-table-is-a-barrier.md):
//!
//! * It is no input. A compaction takes every file of its output level that lies in its range, so this alone keeps
//!   everything that meets the table on its own side, in the levels below 0.
//! * In level 0 a file stays while it meets a table set aside that is older, or that lies at or above the output level, or
//!   an older file that stays (`SetAside::held`). What stays counts neither as work for compaction nor as a reason to
//!   hold up writers; it is merged within level 0.
//! * So that little has to stay there, level 0 is compacted into a level above the highest table set aside, as far as
//!   there is one (`SetAside::base_below`), and a table of level 0 or 1 sinks as deep as nothing meets it: as it is, by
//!   name only (`sink`).

use super::{Compaction, InProgress, LeveledOptions, Reason};
use version::Version;

/// A table set aside in level 0 or 1 goes as deep as nothing meets its range: it is moved, not read. Not into level 1, from
/// which nothing would be gained: what is newer has to have room between it and level 0.
pub(super) fn sink(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    let level_0 = version.files(0);
    let candidates = options.set_aside.with_levels(version).filter(|(level, _)| *level <= 1);
    candidates.into_iter().find_map(|(level, table)| {
        let at = level_0.iter().position(|f| f.number == table.number);
        // In the order of level 0 what is older comes later, and goes down first.
        if at.is_some_and(|at| level_0[at + 1..].iter().any(|older| older.overlaps(table))) {
            return None;
        }
        let (low, high) = (Some(table.smallest_user_key()), Some(table.largest_user_key()));
        let free = |to: &usize| version.overlap_range(*to, low, high).is_empty();
        let to = (level + 1..=options.last_level()).take_while(free).last().filter(|&to| to > 1)?;
        let current = match at {
            Some(at) => &level_0[at],
            None => version.file_at(level, table.smallest_user_key())?,
        };
        let compaction = Compaction {
            family: version.family,
            level,
            output_level: to,
            inputs: vec![(level, vec![current.clone()])],
            reason: Reason::SetAside,
            trivial_move: true,
            file_bytes: options.file_bytes,
            overlap_max: u64::MAX,
            compensated: options.compensated,
            rebuild_vssts: Vec::new(),
            placement: current.location,
        };
        busy.allows(&compaction).then_some(compaction)
    })
}
