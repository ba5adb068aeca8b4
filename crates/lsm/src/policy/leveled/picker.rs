//! Chooses the files of leveled compactions.
//!
//! **Level 0** goes down oldest first: a set of its files may leave only together with every older
//! file that it overlaps. While another compaction of level 0 runs, or the base level is busy in
//! its key range, the newest files of level 0 are merged into one instead. Then reads and the write
//! stall see fewer files.
//!
//! Inputs need no widening to whole user keys: below level 0 a user key never spans two files. But
//! they are widened by neighbors that add no files of the next level (free riders).

use super::parameters::{FileChoice, Leveled};
use super::targets::LevelTargets;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::facts::{PickInputs, SingleFileCompactions};
use base::{HashSet, SeqNo};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use version::FileMeta;

/// Minimum number of files for a merge within level 0.
const INTRA_FILES_MIN: usize = 4;

/// Files of one level, and the files of the output level within their range.
struct Inputs {
    upper: Vec<Arc<FileMeta>>,
    lower: Range<usize>,
}

/// Picks the compactions of one tree. The policy `vlsm` uses it too.
pub(in crate::policy) struct Picker<'a> {
    policy: &'a Leveled,
    pub facts: PickInputs<'a>,
    pub targets: LevelTargets,
    /// Files that must stay in level 0.
    pub held: HashSet<u64>,
}

impl<'a> Picker<'a> {
    pub fn new(policy: &'a Leveled, facts: PickInputs<'a>) -> Self {
        Self::with_targets(policy, facts, policy.level_targets(facts.version, facts.set_aside))
    }

    /// Returns a picker with other level targets.
    pub fn with_targets(policy: &'a Leveled, facts: PickInputs<'a>, targets: LevelTargets) -> Self {
        let held = facts.set_aside.held(facts.version, targets.base_level);
        Picker { policy, facts, targets, held }
    }

    /// Merges the files that an unreadable table holds in level 0.
    pub fn held_within_l0(&self) -> Option<Compaction> {
        if self.held.is_empty() { None } else { self.intra() }
    }

    pub fn level_0(&self) -> Option<Compaction> {
        if self.facts.busy.l0_goes_down() {
            return self.intra();
        }
        let files = self.facts.version.files(0);
        let mut oldest =
            files.iter().rev().filter(|f| self.facts.is_free(f) && !self.held.contains(&f.number));
        let down = oldest.next().and_then(|oldest| self.l0_to_base(oldest, Reason::L0Files, u64::MAX));
        down.or_else(|| self.intra())
    }

    /// Compacts level 0 into the base level: `seed` with every file that it overlaps, directly or
    /// through others, up to the maximum width. Leaves out files with a sequence above `seq_max`,
    /// unless an older one needs them.
    fn l0_to_base(&self, seed: &Arc<FileMeta>, reason: Reason, seq_max: u64) -> Option<Compaction> {
        if self.held.contains(&seed.number) {
            return None;
        }
        let met = self.closure(seed);
        let mut taken = Vec::new();
        let mut bytes = 0u64;
        // A set closed under overlap leaves nothing older behind if it is cut by age.
        for file in self.facts.version.files(0).iter().rev().filter(|f| met.contains(&f.number)) {
            let wide = bytes >= self.policy.widest_bytes() && taken.len() >= self.policy.l0_compaction_files;
            if !self.facts.is_free(file) || wide || file.seq_range().1 > seq_max && !taken.is_empty() {
                break;
            }
            bytes = bytes.saturating_add(file.len);
            taken.push(file.clone());
        }
        taken.reverse();
        self.merge_into((0, taken), self.targets.base_level, reason)
    }

    /// Returns the numbers of the level 0 files that `seed` overlaps, directly or through others.
    fn closure(&self, seed: &FileMeta) -> HashSet<u64> {
        let files = self.facts.version.files(0);
        let (mut low, mut high) = (seed.smallest_user_key(), seed.largest_user_key());
        let mut met = HashSet::default();
        met.insert(seed.number);
        loop {
            let before = met.len();
            let meets = |f: &&Arc<FileMeta>| !f.ends_before(low) && !f.starts_after(high);
            // Held files are newer than every file that they overlap here.
            for f in files.iter().filter(|f| !self.held.contains(&f.number)).filter(meets) {
                if met.insert(f.number) {
                    (low, high) = (low.min(f.smallest_user_key()), high.max(f.largest_user_key()));
                }
            }
            if met.len() == before {
                return met;
            }
        }
    }

    /// Merges the newest idle files of level 0 into one. They must be neighbors in age, so that the
    /// sequences of the result do not enclose those of another file. Only as many are taken as
    /// lower the cost of each removed file, so that a large old result is not rewritten for every
    /// few small files.
    fn intra(&self) -> Option<Compaction> {
        let files = self.facts.version.files(0);
        let start = files.iter().position(|f| self.facts.is_free(f))?;
        let run = files[start..].iter().take_while(|f| self.facts.is_free(f)).count();
        // A short queue waits for the base level instead.
        if run < self.policy.l0_compaction_files + 2 {
            return None;
        }
        let mut bytes = files.get(start)?.len;
        let (mut taken, mut best) = (1, u64::MAX);
        for file in &files[start + 1..start + run] {
            let cost = (bytes.saturating_add(file.len)) / taken as u64;
            if cost > best || bytes.saturating_add(file.len) > self.policy.widest_bytes() {
                break;
            }
            (best, bytes, taken) = (cost, bytes + file.len, taken + 1);
        }
        while taken >= INTRA_FILES_MIN && self.encloses_others(start..start + taken) {
            taken -= 1;
        }
        if taken < INTRA_FILES_MIN {
            return None;
        }
        let inputs = Inputs { upper: files[start..start + taken].to_vec(), lower: 0..0 };
        self.build(0, 0, inputs, Reason::L0Intra)
    }

    /// Returns true if the merge of these level 0 files would overlap another file in keys and in
    /// sequences. This happens if one flush wrote several files.
    fn encloses_others(&self, taken: Range<usize>) -> bool {
        let files = self.facts.version.files(0);
        let run = &files[taken.clone()];
        let low = run.iter().map(|f| f.smallest_user_key()).min();
        let high = run.iter().map(|f| f.largest_user_key()).max();
        let from = run.iter().map(|f| f.seq_range().0).min();
        let to = run.iter().map(|f| f.seq_range().1).max();
        let is_within = |f: &FileMeta| {
            let (first, last) = f.seq_range();
            let in_keys =
                !low.is_some_and(|low| f.ends_before(low)) && !high.is_some_and(|high| f.starts_after(high));
            in_keys && Some(first) <= to && from <= Some(last)
        };
        files.iter().enumerate().any(|(i, f)| !taken.contains(&i) && is_within(f))
    }

    /// Compacts one file of a level below 0, with its free riders.
    pub fn level(&self, level: usize) -> Option<Compaction> {
        let files = self.facts.version.files(level);
        let mut order: Vec<usize> = (0..files.len()).filter(|&i| self.facts.is_free(&files[i])).collect();
        match self.policy.choice {
            FileChoice::LargestCompensated => order.sort_by_key(|&i| Reverse(self.policy.size_of(&files[i]))),
            FileChoice::MinOverlap => {
                let costs = self.overlap_costs(level);
                order.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]));
            }
        }
        order.into_iter().find_map(|i| self.down_from(level, i, Reason::LevelBytes))
    }

    /// Returns, for each file of a level, the physical bytes that its merge would write for each
    /// compensated byte moved.
    fn overlap_costs(&self, level: usize) -> Vec<f64> {
        let below = self.facts.version.files(level + 1);
        let mut from = 0;
        let cost = |f: &Arc<FileMeta>| {
            while below.get(from).is_some_and(|b| b.ends_before(f.smallest_user_key())) {
                from += 1;
            }
            let met = below[from..].iter().take_while(|b| !f.ends_before(b.smallest_user_key()));
            let bytes = met.fold(f.len, |sum, b| sum.saturating_add(b.len));
            bytes as f64 / self.policy.size_of(f).max(1) as f64
        };
        self.facts.version.files(level).iter().map(cost).collect()
    }

    /// Compacts file `i` of a level below 0 into the next level.
    fn down_from(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction> {
        let upper = vec![self.facts.version.files(level).get(i)?.clone()];
        let inputs = Inputs { lower: self.lower_of(level + 1, &upper), upper };
        if !self.allows(level + 1, &inputs) {
            return None;
        }
        let wider = self.with_free_riders(level, i, &inputs);
        self.build(level, level + 1, wider.unwrap_or(inputs), reason)
    }

    /// Adds the neighbors of the file that need no more files of the next level.
    fn with_free_riders(&self, level: usize, i: usize, inputs: &Inputs) -> Option<Inputs> {
        if inputs.lower.is_empty() {
            return None;
        }
        let (files, lower) = (self.facts.version.files(level), self.facts.version.files(level + 1));
        let (first, last) = (&lower[inputs.lower.start], &lower[inputs.lower.end - 1]);
        let mut bytes =
            lower[inputs.lower.clone()].iter().fold(files[i].len, |sum, f| sum.saturating_add(f.len));
        let width_max = self.policy.widest_bytes().min(self.policy.width_of(self.facts.version, level + 1));
        let mut fits = |f: &Arc<FileMeta>| {
            let inside = f.smallest_user_key() >= first.smallest_user_key()
                && f.largest_user_key() <= last.largest_user_key();
            bytes = bytes.saturating_add(f.len);
            inside && self.facts.is_free(f) && bytes <= width_max
        };
        let after = files[i + 1..].iter().take_while(|f| fits(f)).count();
        let before = files[..i].iter().rev().take_while(|f| fits(f)).count();
        let upper = files[i - before..=i + after].to_vec();
        let wider = Inputs { lower: self.lower_of(level + 1, &upper), upper };
        (wider.lower == inputs.lower && self.allows(level + 1, &wider)).then_some(wider)
    }

    /// Returns the files of `output` within the range of `upper`.
    fn lower_of(&self, output: usize, upper: &[Arc<FileMeta>]) -> Range<usize> {
        let low = upper.iter().map(|f| f.smallest_user_key()).min();
        let high = upper.iter().map(|f| f.largest_user_key()).max();
        if output == 0 || low.is_none() { 0..0 } else { self.facts.version.overlap_range(output, low, high) }
    }

    fn allows(&self, output: usize, inputs: &Inputs) -> bool {
        self.facts.version.files(output)[inputs.lower.clone()].iter().all(|f| self.facts.is_free(f))
    }

    /// Merges neighbors of a level with their overlap in `output`. For level 0, `upper` must
    /// include every older overlapping file that is not held.
    pub fn merge_into(
        &self,
        (level, upper): (usize, Vec<Arc<FileMeta>>),
        output: usize,
        reason: Reason,
    ) -> Option<Compaction> {
        let inputs = Inputs { lower: self.lower_of(output, &upper), upper };
        if inputs.upper.is_empty() || !self.allows(output, &inputs) {
            return None;
        }
        self.build(level, output, inputs, reason)
    }

    fn build(&self, level: usize, output: usize, inputs: Inputs, reason: Reason) -> Option<Compaction> {
        let lower = self.facts.version.files(output)[inputs.lower].to_vec();
        let trivial_move = level < output && lower.is_empty() && self.can_move(output, &inputs.upper);
        let inputs: Vec<_> = [(level, inputs.upper), (output, lower)].into_iter().collect();
        let compaction = Compaction {
            family: self.facts.version.family,
            level,
            output_level: output,
            relocate_vssts: Vec::new(),
            inputs: inputs.into_iter().filter(|(_, files)| !files.is_empty()).collect(),
            reason,
            trivial_move,
            file_bytes: self.policy.file_bytes,
            overlap_max: self.policy.overlap_max(self.facts.version, output),
            compensated: self.policy.compensated,
            volume: self.policy.volume.get(output).copied().unwrap_or(0),
        };
        let readable = compaction.input_files().all(|(_, f)| !self.facts.set_aside.has(f.number));
        (readable && self.facts.busy.allows(&compaction)).then_some(compaction)
    }

    /// Returns true if the files may move to `output` unchanged. The caller has checked that
    /// `output` has no overlap.
    fn can_move(&self, output: usize, files: &[Arc<FileMeta>]) -> bool {
        let volume = self.policy.volume.get(output).copied().unwrap_or(0);
        let (from, to) = match files {
            [file] => (file.smallest_user_key(), file.largest_user_key()),
            _ => return false,
        };
        let below = self.facts.version.overlap_range(output + 1, Some(from), Some(to));
        let overlap = self.facts.version.files(output + 1)[below]
            .iter()
            .fold(0, |sum: u64, f| sum.saturating_add(f.len));
        // At the bottom tombstones have no further use: a file full of them is better rewritten
        // than moved.
        let bottom =
            (output + 1..self.facts.version.levels.len()).all(|l| self.facts.version.files(l).is_empty());
        files.iter().all(|f| f.volume.0 == volume && !(bottom && has_many_tombstones(f)))
            && overlap <= self.policy.overlap_max(self.facts.version, output)
    }
}

/// Returns true if at least an eighth of the entries are tombstones, or if the file has range
/// tombstones.
fn has_many_tombstones(f: &FileMeta) -> bool {
    f.range_tombstones > 0 || f.tombstones.saturating_mul(8) >= f.entries.max(1)
}

impl SingleFileCompactions for Picker<'_> {
    fn level_0(&self, seed: &Arc<FileMeta>, reason: Reason, seq_max: SeqNo) -> Option<Compaction> {
        self.l0_to_base(seed, reason, seq_max)
    }

    fn down(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction> {
        self.down_from(level, i, reason)
    }

    fn in_place(
        &self,
        level: usize,
        files: Vec<Arc<FileMeta>>,
        reason: Reason,
        relocate_vssts: Vec<u64>,
    ) -> Option<Compaction> {
        let compaction = self.build(level, level, Inputs { upper: files, lower: 0..0 }, reason)?;
        let compaction = Compaction { relocate_vssts, ..compaction };
        self.facts.busy.allows(&compaction).then_some(compaction)
    }

    fn stays(&self, file: &FileMeta) -> bool {
        self.held.contains(&file.number)
    }

    fn widest_bytes(&self) -> u64 {
        self.policy.widest_bytes()
    }
}
