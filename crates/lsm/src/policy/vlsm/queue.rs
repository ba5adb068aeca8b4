//! Level 0: a queue in columns ([`super::columns`]).
//!
//! A merge with level 1 costs the bytes that it reads there, shared by all data that comes down
//! with it. So a column waits until it is worth its merge: until it has q tables' worth for the f
//! tables of level 1 that it overlaps, or a key of it is in q tables. Then all of it goes down at
//! once, up to q tables of size M. Narrow columns send little, and a queue that is too long does
//! not read level 1 once for each of its parts. The oldest tables of a column go first, at least
//! one, and nothing older stays behind.
//!
//! The column that is worth most has its turn first. But if a key is in 2 q tables or more, the
//! deepest column goes first, since writers wait for depth, however few bytes it has. A column with
//! few keys becomes as deep as the others, is worth nothing by its bytes, and is merged at once.
//!
//! With separated values a flush is not cut, and one run of a column goes down ([`super::targets`])
//! however long the queue is. Ascending keys still form columns, none of which may ever be worth
//! its merge. So the column with the highest score also goes down if the size of level 0 reaches a
//! fifth of the deepest level plus two tables, as in [`leveled`](crate::policy::leveled::targets).
//! Otherwise level 0 could hide any amount of garbage, for which writers would be throttled, while
//! no compaction exposes it.

use super::columns::{Column, columns};
use super::parameters::Vlsm;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::in_progress::InProgress;
use crate::policy::leveled::picker::Picker;
use crate::policy::leveled::targets::LevelTargets;
use base::HashSet;
use std::cmp::Ordering;
use version::{FileMeta, Version};

/// A column with its score.
struct Queued<'a> {
    column: Column<'a>,
    /// Compensated bytes of the tables that are not on their way down.
    bytes: u64,
    /// Physical bytes of the same tables.
    table_bytes: u64,
    /// Maximum compensated bytes that go down at once.
    at_once: u64,
    /// Score of the column; at 1 or more it is due.
    score: f64,
    /// Depth divided by the target depth.
    by_depth: f64,
}

/// Relative depth from which columns are ordered by depth.
const DEEP: f64 = 2.0;
/// Relative depth from which a short column does not wait for its turn.
const TOO_DEEP: f64 = 3.0;

impl Queued<'_> {
    /// Sort key; the column with the highest key has its turn first.
    fn order(&self) -> (f64, f64) {
        let is_deep = self.by_depth >= DEEP;
        (if is_deep { self.by_depth } else { 0.0 }, self.score)
    }
}

/// All columns of level 0, with their scores.
pub(super) struct Queue<'a> {
    policy: &'a Vlsm,
    columns: Vec<Queued<'a>>,
}

impl<'a> Queue<'a> {
    /// Returns the columns, without the files that the picker holds.
    pub fn of(policy: &'a Vlsm, picker: &'a Picker<'_>) -> Self {
        Queue::new(policy, picker.facts.version, &picker.targets, &picker.held, picker.facts.busy)
    }

    pub fn new(
        policy: &'a Vlsm,
        version: &'a Version,
        targets: &LevelTargets,
        held: &HashSet<u64>,
        busy: &InProgress,
    ) -> Self {
        let separated = policy.tree.deepest(version).1;
        let queued = |column: Column<'a>| {
            let free = || column.tables().filter(|f| !busy.has_file(f.number));
            let bytes = free().fold(0, |sum: u64, f| sum.saturating_add(policy.tree.size_of(f)));
            let table_bytes = free().fold(0, |sum: u64, f| sum.saturating_add(f.len));
            let (files, depth) = (free().count(), column.depth());
            let (low, high) = (Some(column.low()), Some(column.high()));
            let met =
                &version.files(targets.base_level)[version.overlap_range(targets.base_level, low, high)];
            let met = met.iter().fold(0, |sum: u64, f| sum.saturating_add(policy.tree.size_of(f)));
            let (worth, at_once, most) = match separated {
                true => {
                    let run = policy.run_bytes(version, targets);
                    (run / 2, run, policy.queue_tables() as usize)
                }
                false => {
                    let (tables, full) = (policy.queue_tables(), policy.tree.file_bytes);
                    let worth = (met / policy.factor()).saturating_mul(tables);
                    (worth.max(full / 2), full.saturating_mul(tables), tables as usize)
                }
            };
            let by_depth = files.min(depth) as f64 / most.max(1) as f64;
            let score = by_depth.max(bytes as f64 / worth.max(1) as f64);
            Queued { column, bytes, table_bytes, at_once, score, by_depth }
        };
        let columns = columns(version, held).into_iter().map(queued).collect();
        let mut queue = Queue { policy, columns };
        if separated {
            queue.hides_no_more(version);
        }
        queue
    }

    /// Makes one column due if all columns together hide too much garbage.
    fn hides_no_more(&mut self, version: &Version) {
        let bytes = self.columns.iter().fold(0, |sum: u64, of| sum.saturating_add(of.bytes));
        let score = bytes as f64 / self.policy.tree.hidden_max(version) as f64;
        if let Some(first) = self.columns.iter_mut().max_by(|a, b| a.score.total_cmp(&b.score)) {
            first.score = first.score.max(score);
        }
    }

    /// Returns the highest score of a column: level 0 is due at 1 or more.
    pub fn score(&self) -> f64 {
        self.columns.iter().map(|of| of.score).fold(0.0, f64::max)
    }

    /// Returns the physical bytes of each column that is due.
    pub fn due_bytes(&self) -> impl Iterator<Item = u64> {
        self.columns.iter().filter(|of| of.score >= 1.0).map(|of| of.table_bytes)
    }

    /// Compacts the most valuable column that is due into level 1.
    pub fn first(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let mut due: Vec<_> = self.columns.iter().filter(|of| of.score >= 1.0).collect();
        due.sort_by(|a, b| b.order().partial_cmp(&a.order()).unwrap_or(Ordering::Equal));
        due.into_iter().find_map(|of| self.oldest_of(of, picker))
    }

    /// Compacts a column that is much too deep and short: it adds at most one table to level 1.
    pub fn deep_and_short(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let short_max = self.policy.tree.file_bytes;
        let short = self.columns.iter().filter(|of| of.by_depth >= TOO_DEEP && of.bytes <= short_max);
        let deepest = short.max_by(|a, b| a.by_depth.total_cmp(&b.by_depth))?;
        self.oldest_of(deepest, picker)
    }

    fn oldest_of(&self, queued: &Queued<'_>, picker: &Picker<'_>) -> Option<Compaction> {
        let (version, base) = (picker.facts.version, picker.targets.base_level);
        let (mut run, mut bytes) = (Vec::new(), 0u64);
        let (mut low, mut high) = (None, None);
        let oldest_first = queued.column.oldest_first().into_iter();
        for file in oldest_first {
            bytes = bytes.saturating_add(self.policy.tree.size_of(file));
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
        let fits = compaction.input_files().all(|(_, f)| self.policy.is_good(version, base, f));
        compaction.trivial_move &= fits;
        Some(compaction)
    }
}

impl Vlsm {
    /// Returns true if a table may move to level 1 unchanged.
    pub(super) fn is_good(&self, version: &Version, base: usize, file: &FileMeta) -> bool {
        let (low, high) = (file.smallest_user_key(), file.largest_user_key());
        let met = version.overlap_range(base + 1, Some(low), Some(high));
        let overlap = version.files(base + 1)[met].iter().fold(0, |sum: u64, f| sum.saturating_add(f.len));
        overlap <= self.good_overlap(file.len, self.tree.table_bytes(version, base + 1))
    }
}
