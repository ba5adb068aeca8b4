//! Level 0: a queue in columns ([`super::columns`]).
//!
//! What a merge with level 1 costs is what it reads there, for all that comes down with it. So a column waits until it
//! is worth its merge: until it has q tables' worth for the f tables of level 1 that it would meet, or a key of it is in q tables.
//! Then all of it goes down at once, up to q tables of M: where columns are narrow that is little, and where the queue is longer than
//! it should be, level 1 is not read once for each part of it. Its oldest tables go first, at least one, and nothing older stays
//! behind. The column that is worth most has its turn first; but where keys are in twice q tables or more the deepest one, since writers wait for
//! that, however little is in it: a column with few keys becomes as deep as the others, is worth nothing by its bytes, and is merged at once.
//!
//! Where values are separated a flush is not cut, and a run of a column goes down ([`super::targets`]) however long the queue is. Keys that come in order make
//! columns all the same, none of which may ever be worth its merge. So the one with the highest score goes down as well if all of level 0 stands for a fifth of
//! the deepest level and two tables more, as in [`leveled`](crate::policy::leveled::targets): else it could hide any garbage, for which writers would
//! pay while nobody exposes it.

use super::columns::{Column, columns};
use super::parameters::Vlsm;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::in_progress::InProgress;
use crate::policy::leveled::picker::Picker;
use crate::policy::leveled::targets::LevelTargets;
use base::HashSet;
use std::cmp::Ordering;
use version::{FileMeta, Version};

/// A column, and whether it is to go down.
pub(super) struct Queued<'a> {
    column: Column<'a>,
    /// Compensated bytes of the tables that are not on their way down.
    pub bytes: u64,
    /// The same, as they lie in tables.
    pub table_bytes: u64,
    /// As much goes down at once.
    at_once: u64,
    /// From 1 on it is to go down.
    pub score: f64,
    /// How deep it is, of what it should be at most.
    by_depth: f64,
}

/// From here on columns have their turn by how deep they are.
const DEEP: f64 = 2.0;
/// From here on one that is short does not wait for others.
const TOO_DEEP: f64 = 3.0;

impl Queued<'_> {
    /// The highest has its turn first.
    fn order(&self) -> (f64, f64) {
        let is_deep = self.by_depth >= DEEP;
        (if is_deep { self.by_depth } else { 0.0 }, self.score)
    }
}

impl Vlsm {
    /// All columns of level 0.
    pub(super) fn queue<'a>(
        &self,
        version: &'a Version,
        targets: &LevelTargets,
        held: &HashSet<u64>,
        busy: &InProgress,
    ) -> Vec<Queued<'a>> {
        let separated = self.tree.deepest(version).1;
        let queued = |column: Column<'a>| {
            let free = || column.tables().filter(|f| !busy.has_file(f.number));
            let bytes = free().fold(0, |sum: u64, f| sum.saturating_add(self.tree.size_of(f)));
            let table_bytes = free().fold(0, |sum: u64, f| sum.saturating_add(f.len));
            let (files, depth) = (free().count(), column.depth());
            let (low, high) = (Some(column.low()), Some(column.high()));
            let met =
                &version.files(targets.base_level)[version.overlap_range(targets.base_level, low, high)];
            let met = met.iter().fold(0, |sum: u64, f| sum.saturating_add(self.tree.size_of(f)));
            let (worth, at_once, most) = match separated {
                true => {
                    let run = self.run_bytes(version, targets);
                    (run / 2, run, self.queue_tables() as usize)
                }
                false => {
                    let (tables, full) = (self.queue_tables(), self.tree.file_bytes);
                    let worth = (met / self.factor()).saturating_mul(tables);
                    (worth.max(full / 2), full.saturating_mul(tables), tables as usize)
                }
            };
            let by_depth = files.min(depth) as f64 / most.max(1) as f64;
            let score = by_depth.max(bytes as f64 / worth.max(1) as f64);
            Queued { column, bytes, table_bytes, at_once, score, by_depth }
        };
        let mut queue: Vec<_> = columns(version, held).into_iter().map(queued).collect();
        if separated {
            self.hides_no_more(version, &mut queue);
        }
        queue
    }

    /// One of all columns is to go down if together they hide too much.
    fn hides_no_more(&self, version: &Version, queue: &mut [Queued<'_>]) {
        let bytes = queue.iter().fold(0, |sum: u64, of| sum.saturating_add(of.bytes));
        let score = bytes as f64 / self.tree.hidden_max(version) as f64;
        if let Some(first) = queue.iter_mut().max_by(|a, b| a.score.total_cmp(&b.score)) {
            first.score = first.score.max(score);
        }
    }

    /// The column of level 0 that is worth most, into level 1.
    pub(super) fn queued(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let mut queue = self.queue(picker.facts.version, &picker.targets, &picker.held, picker.facts.busy);
        queue.retain(|of| of.score >= 1.0);
        queue.sort_by(|a, b| b.order().partial_cmp(&a.order()).unwrap_or(Ordering::Equal));
        queue.iter().find_map(|of| self.oldest_of(of, picker))
    }

    /// A column that is much too deep, and short: it adds a table to level 1 at most.
    pub(super) fn deep_and_short(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let mut queue = self.queue(picker.facts.version, &picker.targets, &picker.held, picker.facts.busy);
        queue.retain(|of| of.by_depth >= TOO_DEEP && of.bytes <= self.tree.file_bytes);
        let deepest = queue.iter().max_by(|a, b| a.by_depth.total_cmp(&b.by_depth))?;
        self.oldest_of(deepest, picker)
    }

    fn oldest_of(&self, queued: &Queued<'_>, picker: &Picker<'_>) -> Option<Compaction> {
        let (version, base) = (picker.facts.version, picker.targets.base_level);
        let (mut run, mut bytes) = (Vec::new(), 0u64);
        let (mut low, mut high) = (None, None);
        let oldest_first = queued.column.oldest_first().into_iter();
        for file in oldest_first {
            bytes = bytes.saturating_add(self.tree.size_of(file));
            let from = low.map_or(file.smallest_user_key(), |low: &[u8]| low.min(file.smallest_user_key()));
            let to = high.map_or(file.largest_user_key(), |high: &[u8]| high.max(file.largest_user_key()));
            let meets_only_free = || {
                let met = version.overlap_range(base, Some(from), Some(to));
                version.files(base)[met].iter().all(|f| picker.facts.is_free(f))
            };
            let is_more = !run.is_empty();
            if !picker.facts.is_free(file) || is_more && (bytes > queued.at_once || !meets_only_free()) {
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
