//! Level 0: a queue. Its oldest tables go down, together as much as one run: so a merge with level 1 is no wider than that,
//! however long the queue, and short tables (references alone, or memtables that were flushed early) do not rewrite level 1 one
//! by one. At least one table goes, whatever its length. Neighbours in age from the oldest on leave nothing older behind.

use super::parameters::Vlsm;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::leveled::picker::Picker;
use version::{FileMeta, Version};

impl Vlsm {
    /// The oldest of level 0 into level 1.
    pub(super) fn queued(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let version = picker.facts.version;
        let (run_bytes, base) = (self.run_bytes(version, &picker.targets), picker.targets.base_level);
        let (mut run, mut bytes) = (Vec::new(), 0u64);
        let (mut low, mut high) = (None, None);
        // What a damaged table keeps here meets nothing of the rest that is older.
        let oldest_first = version.files(0).iter().rev().filter(|f| !picker.held.contains(&f.number));
        for file in oldest_first.skip(usize::from(base::canary::is("oldest-of-the-queue-left-behind"))) {
            bytes = bytes.saturating_add(self.tree.size_of(file));
            let from = low.map_or(file.smallest_user_key(), |low: &[u8]| low.min(file.smallest_user_key()));
            let to = high.map_or(file.largest_user_key(), |high: &[u8]| high.max(file.largest_user_key()));
            let meets_only_free = || {
                let met = version.overlap_range(base, Some(from), Some(to));
                version.files(base)[met].iter().all(|f| picker.facts.is_free(f))
            };
            let is_more = !run.is_empty();
            if !picker.facts.is_free(file) || is_more && (bytes > run_bytes || !meets_only_free()) {
                break;
            }
            (low, high) = (Some(from), Some(to));
            run.push(file.clone());
        }
        run.reverse();
        let mut compaction = picker.merge_into((0, run), base, Reason::L0Files)?;
        let fits = compaction.input_files().all(|(_, f)| self.is_good(version, base, f));
        compaction.trivial_move &= fits;
        Some(compaction)
    }

    /// True for a table that may lie in level 1 as it is.
    pub(super) fn is_good(&self, version: &Version, base: usize, file: &FileMeta) -> bool {
        let (low, high) = (file.smallest_user_key(), file.largest_user_key());
        let met = version.overlap_range(base + 1, Some(low), Some(high));
        let overlap = version.files(base + 1)[met].iter().fold(0, |sum: u64, f| sum.saturating_add(f.len));
        overlap <= self.good_overlap(file.len, self.tree.table_bytes(version, base + 1))
    }
}
