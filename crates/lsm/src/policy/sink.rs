//! Moves unreadable tables down, to make space for newer data: see [`super::set_aside`].

use super::compaction::{Compaction, Reason};
use super::facts::PickInputs;

/// Moves a table set aside in level 0 or 1 as deep as nothing overlaps its range; it is not read.
/// It never moves into level 1, where nothing would be gained: newer data needs a level between the
/// table and level 0.
pub fn sink(facts: &PickInputs<'_>, last_level: usize) -> Option<Compaction> {
    let version = facts.version;
    let level_0 = version.files(0);
    let candidates = facts.set_aside.with_levels(version).filter(|(level, _)| *level <= 1);
    candidates.into_iter().find_map(|(level, table)| {
        let at = level_0.iter().position(|f| f.number == table.number);
        // Older files come later in the order of level 0, and go down first.
        if at.is_some_and(|at| level_0[at + 1..].iter().any(|older| older.overlaps(table))) {
            return None;
        }
        let (low, high) = (Some(table.smallest_user_key()), Some(table.largest_user_key()));
        let free = |to: &usize| version.overlap_range(*to, low, high).is_empty();
        let to = (level + 1..=last_level).take_while(free).last().filter(|&to| to > 1)?;
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
            file_bytes: u64::MAX,
            overlap_max: u64::MAX,
            compensated: false,
            relocate_vssts: Vec::new(),
            volume: current.volume.0,
        };
        facts.busy.allows(&compaction).then_some(compaction)
    })
}
