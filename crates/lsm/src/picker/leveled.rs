//! Leveled compaction: targets, scores and automatic picks.
//!
//! **Targets** (dynamic level sizes). The deepest level has none. Going up from its size, each level's target is a
//! `level_multiplier`th of the one below, until it is at most `level_base_bytes`: that level is the base. Levels above
//! the base stay empty. No target is below `level_base_bytes`, so that the tree does not become an hourglass under a
//! burst.
//!
//! Where nearly all bytes of a level are values in vSSTs, merging it moves little, and what lies above it is garbage not
//! yet exposed. There the base level may be `SEPARATED_BASE_FACTOR` times as large: most trees then have level 0 and
//! one level more.
//!
//! **Scores** are bytes over target, without the files that are on their way down already; for level 0 the larger of
//! files over `l0_compaction_files` and bytes over the byte limit. Levels of at least 1 are tried, the highest first.
//!
//! **Level 0** goes down oldest first: a set of its files may leave only together with every older one that it meets.
//! While another compaction of level 0 runs, or the base level is busy where it would have to go, its newest files are
//! merged into one instead, so that reads and the write stall see fewer of them.
//!
//! Inputs need no widening to whole user keys: below level 0 a user key never spans two files. But they are widened by
//! neighbours that add nothing to what is taken from the level below (free riders).

use super::{Compaction, FileChoice, InProgress, LeveledOptions, Reason, set_aside};
use base::HashSet;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use version::{FileMeta, Version};

/// How much larger the base level may be where values are separated. A merge of level 0 into it reads about so many
/// references for each new one: a few microseconds of work for a value of several kilobytes, against a tenth of the
/// store as hidden garbage.
const SEPARATED_BASE_FACTOR: u64 = 48;

/// Values count as separated where the tables of a level are at most this part of what the level stands for.
const SEPARATED_PART: u64 = 16;

/// Fewer files of level 0 than this are not worth merging with each other.
const INTRA_FILES_MIN: usize = 4;

/// What the levels should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level that level 0 is compacted into.
    pub base_level: usize,
    /// Compensated bytes by level. 0 for level 0 and for the levels above the base; `u64::MAX` for the deepest.
    pub bytes: Vec<u64>,
}

/// The targets of the levels of `version`.
pub fn level_targets(version: &Version, options: &LeveledOptions) -> LevelTargets {
    let last = options.last_level();
    let multiplier = options.level_multiplier.max(2);
    let level_base_bytes = options.level_base_bytes.max(1);
    let size = |level: usize| options.level_size(version, level);
    let first_used = (1..=last).find(|&level| !version.files(level).is_empty()).unwrap_or(last);
    let largest = (1..=last).map(size).max().unwrap_or(0);
    let tables = (1..=last).fold(0u64, |sum, level| sum.saturating_add(version.level_bytes(level)));
    let separated = largest > 0 && tables <= largest / SEPARATED_PART;
    let base_max = level_base_bytes.saturating_mul(if separated { SEPARATED_BASE_FACTOR } else { 1 });

    // What the highest level in use would hold if the deepest one held the most.
    let mut base_level = first_used;
    let mut base_bytes = (first_used..last).fold(largest, |bytes, _| bytes / multiplier);
    while base_level > 1 && base_bytes > base_max {
        base_level -= 1;
        base_bytes /= multiplier;
    }
    while base_level > options.set_aside.base_below(version, base_level) {
        base_level -= 1;
        base_bytes /= multiplier;
    }
    base_bytes = base_bytes.clamp(level_base_bytes / multiplier + 1, base_max);

    let mut bytes = vec![0; last + 1];
    let mut target = base_bytes;
    for (level, slot) in bytes.iter_mut().enumerate().skip(base_level) {
        *slot = if level == last { u64::MAX } else { target.max(level_base_bytes) };
        target = target.saturating_mul(multiplier);
    }
    LevelTargets { base_level, bytes }
}

/// The scores of the levels that can be compacted, highest first: at 1 and above a level wants to be.
pub fn scores(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Vec<(usize, f64)> {
    scores_for(version, options, busy, &level_targets(version, options))
}

fn scores_for(
    version: &Version,
    options: &LeveledOptions,
    busy: &InProgress,
    targets: &LevelTargets,
) -> Vec<(usize, f64)> {
    let held = options.set_aside.held(version, targets.base_level);
    let is_free = |f: &&Arc<FileMeta>| !busy.has_file(f.number) && !held.contains(&f.number);
    let free = |level: usize| version.files(level).iter().filter(is_free);
    let bytes = |level: usize| free(level).fold(0, |sum: u64, f| sum.saturating_add(options.size_of(f)));
    let by_files = free(0).count() as f64 / options.l0_compaction_files.max(1) as f64;
    let by_bytes = bytes(0) as f64 / l0_bytes_max(options, targets) as f64;
    let mut scores = vec![(0, by_files.max(by_bytes))];
    for level in targets.base_level..options.last_level() {
        scores.push((level, bytes(level) as f64 / targets.bytes[level] as f64));
    }
    // Stable: of two equal ones the upper level goes first, because it holds up the flushes.
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores
}

/// True if level 0 has so many files or bytes that it is to go down. As long as it is not, nobody may wait for it to
/// become smaller.
pub fn l0_wants_compaction(version: &Version, options: &LeveledOptions) -> bool {
    l0_wants(version, options, &level_targets(version, options))
}

fn l0_wants(version: &Version, options: &LeveledOptions, targets: &LevelTargets) -> bool {
    let load = load_of(version, options, targets);
    load.files >= options.l0_compaction_files.max(1) || load.size >= l0_bytes_max(options, targets)
}

/// What level 0 has to send down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L0Load {
    /// Files.
    pub files: usize,
    /// Physical bytes.
    pub bytes: u64,
    /// What they count for the shape of the tree.
    size: u64,
}

/// What level 0 has to send down: all of it, but for what a table that cannot be read keeps there.
pub fn l0_load(version: &Version, options: &LeveledOptions) -> L0Load {
    if options.set_aside.is_empty() {
        return all_of_l0(version, options);
    }
    load_of(version, options, &level_targets(version, options))
}

fn all_of_l0(version: &Version, options: &LeveledOptions) -> L0Load {
    let (files, bytes) = (version.files(0).len(), version.level_bytes(0));
    L0Load { files, bytes, size: options.level_size(version, 0) }
}

fn load_of(version: &Version, options: &LeveledOptions, targets: &LevelTargets) -> L0Load {
    let held = options.set_aside.held(version, targets.base_level);
    if held.is_empty() {
        return all_of_l0(version, options);
    }
    let free = version.files(0).iter().filter(|f| !held.contains(&f.number));
    free.fold(L0Load::default(), |sum, f| L0Load {
        files: sum.files + 1,
        bytes: sum.bytes.saturating_add(f.len),
        size: sum.size.saturating_add(options.size_of(f)),
    })
}

/// The byte limit of level 0 grows with the base level, or a burst would send every single file down against a base
/// level many times as large.
fn l0_bytes_max(options: &LeveledOptions, targets: &LevelTargets) -> u64 {
    let base = targets.bytes.get(targets.base_level).copied().filter(|bytes| *bytes != u64::MAX);
    options.l0_compaction_bytes.max(base.unwrap_or(0) / options.level_multiplier.max(2)).max(1)
}

/// The next compaction, if any level wants one that may run beside those that do.
pub fn pick(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    if let Some(compaction) = set_aside::sink(version, options, busy) {
        return Some(compaction);
    }
    let picker = Picker::new(version, options, busy);
    let mut l0_waits = false;
    for (level, score) in scores_for(version, options, busy, &picker.targets) {
        if score < 1.0 {
            break;
        }
        // A level 0 that waits for the base level must not be starved by more work that keeps that level busy.
        if level == 0 {
            match picker.level_0() {
                Some(compaction) => return Some(compaction),
                None => l0_waits = true,
            }
        } else if !(l0_waits && level == picker.targets.base_level)
            && let Some(compaction) = picker.level(level)
        {
            return Some(compaction);
        }
    }
    picker.held_within_l0()
}

/// As [`pick`], of level 0 only: for a worker that is kept free for what holds up the flushes.
pub fn pick_l0(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    if let Some(compaction) = set_aside::sink(version, options, busy) {
        return Some(compaction);
    }
    let picker = Picker::new(version, options, busy);
    let scores = scores_for(version, options, busy, &picker.targets);
    let wanted = scores.iter().any(|(level, score)| *level == 0 && *score >= 1.0);
    if wanted { picker.level_0() } else { picker.held_within_l0() }
}

/// How many compensated bytes compactions will have to rewrite until every level is within its target, if nothing
/// else is written.
pub fn debt_bytes(version: &Version, options: &LeveledOptions) -> u64 {
    let targets = level_targets(version, options);
    let size = |level: usize| options.level_size(version, level) as f64;
    let l0_wants = l0_wants(version, options, &targets);
    let mut debt = 0.0;
    // What arrives at the level from above.
    let mut arriving = 0.0;
    if l0_wants {
        arriving = size(0);
        debt += size(0) + size(targets.base_level);
    }
    for level in targets.base_level..options.last_level() {
        let bytes = size(level) + arriving;
        arriving = (bytes - targets.bytes[level] as f64).max(0.0);
        if arriving > 0.0 {
            debt += arriving * (1.0 + size(level + 1) / bytes);
        }
    }
    debt as u64
}

/// What a compaction of one file into `level` reads at most, physical bytes, as long as files are as long as they should
/// be: what tables are cut by, and two more for the file itself and for what only begins within its range.
fn width_bytes(version: &Version, options: &LeveledOptions, level: usize) -> u64 {
    let tables = options.overlap_ratio_max.saturating_add(2);
    options.table_bytes(version, level).saturating_mul(tables)
}

/// What the widest compaction reads that the picker needs to be able to start, so that everything gets down in the end:
/// level 0 into the base level, or one file of any level. Physical bytes.
pub fn usual_width_bytes(version: &Version, options: &LeveledOptions) -> u64 {
    let base = level_targets(version, options).base_level;
    let level_0 = version.level_bytes(0).saturating_add(version.level_bytes(base));
    let deeper = (1..=options.last_level()).filter(|&level| !version.files(level).is_empty());
    let below = deeper.map(|level| width_bytes(version, options, level).min(version.level_bytes(level)));
    let all = version.levels.iter().fold(0, |sum: u64, level| sum.saturating_add(level.bytes()));
    below.max().unwrap_or(0).max(level_0).min(all)
}

/// The files of one level and the files of the output level within their range.
struct Inputs {
    upper: Vec<Arc<FileMeta>>,
    lower: Range<usize>,
}

pub(super) struct Picker<'a> {
    pub(super) version: &'a Version,
    options: &'a LeveledOptions,
    pub(super) busy: &'a InProgress,
    pub(super) targets: LevelTargets,
    /// Files of level 0 that have to stay there.
    held: HashSet<u64>,
}

impl<'a> Picker<'a> {
    pub(super) fn new(version: &'a Version, options: &'a LeveledOptions, busy: &'a InProgress) -> Self {
        let targets = level_targets(version, options);
        let held = options.set_aside.held(version, targets.base_level);
        Picker { version, options, busy, targets, held }
    }

    pub(super) fn is_free(&self, file: &FileMeta) -> bool {
        !self.busy.has_file(file.number) && !self.options.set_aside.has(file.number)
    }

    /// True for a file of level 0 that a table that cannot be read keeps there, and for such a table.
    pub(super) fn stays(&self, file: &FileMeta) -> bool {
        self.held.contains(&file.number)
    }

    /// True if the file `i` of a level below 0 cannot be read, or if it is to go `down` and meets one there.
    pub(super) fn is_barred(&self, level: usize, i: usize, down: bool) -> bool {
        let set_aside = &self.options.set_aside;
        let Some(file) = self.version.files(level).get(i).filter(|_| !set_aside.is_empty()) else {
            return false;
        };
        let (low, high) = (Some(file.smallest_user_key()), Some(file.largest_user_key()));
        let below = self.version.overlap_range(level + 1, low, high);
        let met = if down { &self.version.files(level + 1)[below] } else { &[] };
        set_aside.has(file.number) || met.iter().any(|f| set_aside.has(f.number))
    }

    /// What a table that cannot be read keeps in level 0 is merged there.
    fn held_within_l0(&self) -> Option<Compaction> {
        if self.held.is_empty() { None } else { self.intra() }
    }

    fn level_0(&self) -> Option<Compaction> {
        if self.busy.l0_goes_down() {
            return self.intra();
        }
        let files = self.version.files(0);
        let mut oldest = files.iter().rev().filter(|f| self.is_free(f) && !self.held.contains(&f.number));
        let down = oldest.next().and_then(|oldest| self.l0_to_base(oldest, Reason::L0Files, u64::MAX));
        down.or_else(|| self.intra())
    }

    /// Level 0 into the base level: `seed` with every file that it meets, directly or over others, as far as the width
    /// allows; none with a sequence above `seq_max`, unless an older one needs it.
    pub(super) fn l0_to_base(
        &self,
        seed: &Arc<FileMeta>,
        reason: Reason,
        seq_max: u64,
    ) -> Option<Compaction> {
        if self.held.contains(&seed.number) {
            return None;
        }
        let met = self.closure(seed);
        let mut taken = Vec::new();
        let mut bytes = 0u64;
        // A prefix in age of a set closed under overlap is a set that leaves nothing older behind.
        for file in self.version.files(0).iter().rev().filter(|f| met.contains(&f.number)) {
            let wide =
                bytes >= self.options.widest_bytes() && taken.len() >= self.options.l0_compaction_files;
            if !self.is_free(file) || wide || file.seq_range().1 > seq_max && !taken.is_empty() {
                break;
            }
            bytes = bytes.saturating_add(file.len);
            taken.push(file.clone());
        }
        taken.reverse();
        if taken.is_empty() {
            return None;
        }
        let output = self.targets.base_level;
        let inputs = Inputs { lower: self.lower_of(output, &taken), upper: taken };
        self.build(0, output, inputs, reason)
    }

    /// The numbers of the files of level 0 that `seed` meets, directly or over others.
    fn closure(&self, seed: &FileMeta) -> HashSet<u64> {
        let files = self.version.files(0);
        let (mut low, mut high) = (seed.smallest_user_key(), seed.largest_user_key());
        let mut met = HashSet::default();
        met.insert(seed.number);
        loop {
            let before = met.len();
            let meets = |f: &&Arc<FileMeta>| !f.ends_before(low) && !f.starts_after(high);
            // What has to stay is newer than whatever it meets here.
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

    /// The newest files of level 0 that nobody works on, merged into one. Neighbours in age, so that the sequences of
    /// the result do not enclose those of a file left out; and only as many as lower the cost of each file removed, so
    /// that a large old result is not rewritten for every few small files.
    fn intra(&self) -> Option<Compaction> {
        let files = self.version.files(0);
        let start = files.iter().position(|f| self.is_free(f))?;
        let run = files[start..].iter().take_while(|f| self.is_free(f)).count();
        // The base level will be free again: short queues wait for it.
        if run < self.options.l0_compaction_files + 2 {
            return None;
        }
        let mut bytes = files.get(start)?.len;
        let (mut taken, mut best) = (1, u64::MAX);
        for file in &files[start + 1..start + run] {
            let cost = (bytes.saturating_add(file.len)) / taken as u64;
            if cost > best || bytes.saturating_add(file.len) > self.options.widest_bytes() {
                break;
            }
            (best, bytes, taken) = (cost, bytes + file.len, taken + 1);
        }
        if taken < INTRA_FILES_MIN {
            return None;
        }
        let inputs = Inputs { upper: files[start..start + taken].to_vec(), lower: 0..0 };
        self.build(0, 0, inputs, Reason::L0Intra)
    }

    /// One file of a level below 0, and what may ride along.
    fn level(&self, level: usize) -> Option<Compaction> {
        let files = self.version.files(level);
        let mut order: Vec<usize> = (0..files.len()).filter(|&i| self.is_free(&files[i])).collect();
        match self.options.choice {
            FileChoice::LargestCompensated => {
                order.sort_by_key(|&i| Reverse(self.options.size_of(&files[i])))
            }
            FileChoice::MinOverlap => {
                let costs = self.overlap_costs(level);
                order.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]));
            }
        }
        order.into_iter().find_map(|i| self.down(level, i, Reason::LevelBytes))
    }

    /// For each file of a level: physical bytes that its merge would write for each compensated byte that it moves.
    fn overlap_costs(&self, level: usize) -> Vec<f64> {
        let below = self.version.files(level + 1);
        let mut from = 0;
        let cost = |f: &Arc<FileMeta>| {
            while below.get(from).is_some_and(|b| b.ends_before(f.smallest_user_key())) {
                from += 1;
            }
            let met = below[from..].iter().take_while(|b| !f.ends_before(b.smallest_user_key()));
            let bytes = met.fold(f.len, |sum, b| sum.saturating_add(b.len));
            bytes as f64 / self.options.size_of(f).max(1) as f64
        };
        self.version.files(level).iter().map(cost).collect()
    }

    /// The file `i` of a level below 0 into the next level.
    pub(super) fn down(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction> {
        let upper = vec![self.version.files(level).get(i)?.clone()];
        let inputs = Inputs { lower: self.lower_of(level + 1, &upper), upper };
        if !self.allows(level + 1, &inputs) {
            return None;
        }
        let wider = self.with_free_riders(level, i, &inputs);
        self.build(level, level + 1, wider.unwrap_or(inputs), reason)
    }

    /// Neighbours of the file that add nothing from the level below.
    fn with_free_riders(&self, level: usize, i: usize, inputs: &Inputs) -> Option<Inputs> {
        if inputs.lower.is_empty() {
            return None;
        }
        let (files, lower) = (self.version.files(level), self.version.files(level + 1));
        let (first, last) = (&lower[inputs.lower.start], &lower[inputs.lower.end - 1]);
        let mut bytes =
            lower[inputs.lower.clone()].iter().fold(files[i].len, |sum, f| sum.saturating_add(f.len));
        let width_max = self.options.widest_bytes().min(width_bytes(self.version, self.options, level + 1));
        let mut fits = |f: &Arc<FileMeta>| {
            let inside = f.smallest_user_key() >= first.smallest_user_key()
                && f.largest_user_key() <= last.largest_user_key();
            bytes = bytes.saturating_add(f.len);
            inside && self.is_free(f) && bytes <= width_max
        };
        let after = files[i + 1..].iter().take_while(|f| fits(f)).count();
        let before = files[..i].iter().rev().take_while(|f| fits(f)).count();
        let upper = files[i - before..=i + after].to_vec();
        let wider = Inputs { lower: self.lower_of(level + 1, &upper), upper };
        (wider.lower == inputs.lower && self.allows(level + 1, &wider)).then_some(wider)
    }

    /// The files of `output` within the range of `upper`.
    fn lower_of(&self, output: usize, upper: &[Arc<FileMeta>]) -> Range<usize> {
        let low = upper.iter().map(|f| f.smallest_user_key()).min();
        let high = upper.iter().map(|f| f.largest_user_key()).max();
        if output == 0 || low.is_none() { 0..0 } else { self.version.overlap_range(output, low, high) }
    }

    fn allows(&self, output: usize, inputs: &Inputs) -> bool {
        self.version.files(output)[inputs.lower.clone()].iter().all(|f| self.is_free(f))
    }

    fn build(&self, level: usize, output: usize, inputs: Inputs, reason: Reason) -> Option<Compaction> {
        let lower = self.version.files(output)[inputs.lower].to_vec();
        let trivial_move = level < output && lower.is_empty() && self.can_move(output, &inputs.upper);
        let inputs: Vec<_> = [(level, inputs.upper), (output, lower)].into_iter().collect();
        let compaction = Compaction {
            family: self.version.family,
            level,
            output_level: output,
            rebuild_vssts: Vec::new(),
            inputs: inputs.into_iter().filter(|(_, files)| !files.is_empty()).collect(),
            reason,
            trivial_move,
            file_bytes: self.options.file_bytes,
            overlap_max: self.options.overlap_max(self.version, output),
            compensated: self.options.compensated,
            placement: self.options.placement.get(output).copied().unwrap_or(0),
        };
        let readable = compaction.input_files().all(|(_, f)| !self.options.set_aside.has(f.number));
        (readable && self.busy.allows(&compaction)).then_some(compaction)
    }

    /// The bottom of the tree is rewritten in place, to be rid of tombstones.
    pub(super) fn rewrite(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction> {
        self.in_place(level, vec![self.version.files(level).get(i)?.clone()], reason, Vec::new())
    }

    /// Neighbours of a level are rewritten where they are.
    pub(super) fn in_place(
        &self,
        level: usize,
        upper: Vec<Arc<FileMeta>>,
        reason: Reason,
        rebuild_vssts: Vec<u64>,
    ) -> Option<Compaction> {
        let compaction = self.build(level, level, Inputs { upper, lower: 0..0 }, reason)?;
        let compaction = Compaction { rebuild_vssts, ..compaction };
        self.busy.allows(&compaction).then_some(compaction)
    }

    /// True if the files may change to `output`, where nothing meets them, as they are.
    fn can_move(&self, output: usize, files: &[Arc<FileMeta>]) -> bool {
        let placement = self.options.placement.get(output).copied().unwrap_or(0);
        let (from, to) = match files {
            [file] => (file.smallest_user_key(), file.largest_user_key()),
            _ => return false,
        };
        let below = self.version.overlap_range(output + 1, Some(from), Some(to));
        let overlap =
            self.version.files(output + 1)[below].iter().fold(0, |sum: u64, f| sum.saturating_add(f.len));
        // At the bottom tombstones have done their work: a file full of them is better rewritten than moved.
        let bottom = (output + 1..self.version.levels.len()).all(|l| self.version.files(l).is_empty());
        files.iter().all(|f| f.location == placement && !(bottom && has_many_tombstones(f)))
            && overlap <= self.options.overlap_max(self.version, output)
    }
}

/// True if a good part of the file is tombstones.
pub(super) fn has_many_tombstones(f: &FileMeta) -> bool {
    f.range_tombstones > 0 || f.tombstones.saturating_mul(8) >= f.entries.max(1)
}
