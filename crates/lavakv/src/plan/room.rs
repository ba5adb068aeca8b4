//! Space checks for the outputs of a compaction.

use super::facts::{Facts, FamilyFacts};
use lsm::policy::{Compaction, Reason};
use std::sync::Arc;
use version::FileMeta;

/// Returns an upper bound of a compaction's output: its inputs, minus the data covered by range
/// tombstones in the deeper level. A full store that was cleared by a range tombstone has no space
/// for a copy of the deleted data.
pub(crate) fn output_bytes(compaction: &Compaction, vsst_bytes: u64, has_snapshots: bool) -> u64 {
    // A relocation step ends with the table at which its relocated values fill one vSST.
    let relocated = if compaction.relocate_vssts.is_empty() { 0 } else { 2 * vsst_bytes };
    let all = compaction.input_bytes() + relocated;
    let covering =
        |(level, f): &(usize, &Arc<FileMeta>)| *level == compaction.level && f.range_tombstones > 0;
    let covered: u64 = compaction.input_files().filter(covering).map(|(_, f)| f.hidden_bytes).sum();
    match compaction.trivial_move {
        true => 0,
        // A rewrite also writes values, which may grow.
        false if compaction.reason == Reason::Rewrite => all.saturating_add(compaction.compensated_bytes()),
        false if covered == 0 || has_snapshots => all,
        false => {
            let lower = || compaction.input_files().filter(|(level, _)| *level != compaction.level);
            let (len, raw) = lower().fold((0, 1), |(len, raw), (_, f)| (len + f.len, raw + f.raw_bytes));
            all - (u128::from(len) * u128::from(covered.min(raw)) / u128::from(raw)) as u64
        }
    }
}

/// Returns whether the outputs of a compaction of this family fit.
pub(crate) fn fits(facts: &dyn Facts, family: &FamilyFacts, compaction: &Compaction) -> bool {
    let bytes = || output_bytes(compaction, family.options.expert.vsst_bytes, facts.has_snapshots());
    compaction.trivial_move || facts.would_grant(bytes())
}
