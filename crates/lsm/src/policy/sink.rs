//! What tables that cannot be read do to make room for what is newer: see [`super::set_aside`].

use super::compaction::{Compaction, Reason};
use super::facts::Facts;

/// A table set aside in level 0 or 1 goes as deep as nothing meets its range: it is moved, not read. Not into level 1, from
/// which nothing would be gained: what is newer has to have room between it and level 0.
pub fn sink(facts: &Facts<'_>, last_level: usize) -> Option<Compaction> {
    let version = facts.version;
    let level_0 = version.files(0);
    let candidates = facts.set_aside.with_levels(version).filter(|(level, _)| *level <= 1);
    candidates.into_iter().find_map(|(level, table)| {
        let at = level_0.iter().position(|f| f.number == table.number);
        // In the order of level 0 what is older comes later, and goes down first.
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
