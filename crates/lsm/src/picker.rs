//! STUB by the lead so that lavakv compiles: to be overwritten by the engineer of the pickers. Keep these names.

use crate::merge_job::{OutputCutter, OutputSize};
use std::sync::Arc;
use version::{FamilyId, FileMeta, Version};

/// Options of the leveled picker.
#[derive(Clone, Debug)]
pub struct LeveledOptions {
    /// L0 files that start a compaction.
    pub l0_compaction_files: usize,
    /// Target of the first level below L0.
    pub level_base_bytes: u64,
    /// Ratio.
    pub level_multiplier: u64,
    /// Levels.
    pub levels: usize,
    /// Output file size.
    pub file_bytes: u64,
}
impl Default for LeveledOptions {
    fn default() -> Self {
        LeveledOptions {
            l0_compaction_files: 4,
            level_base_bytes: 64 << 20,
            level_multiplier: 10,
            levels: 7,
            file_bytes: 16 << 20,
        }
    }
}
/// What to compact.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// Family.
    pub family: FamilyId,
    /// From.
    pub level: usize,
    /// To.
    pub output_level: usize,
    /// Inputs by level.
    pub inputs: Vec<(usize, Vec<Arc<FileMeta>>)>,
    /// Just a move.
    pub trivial_move: bool,
    file_bytes: u64,
}
/// Cuts outputs.
pub struct Cutter(u64);
impl OutputCutter for Cutter {
    fn cut_before(&mut self, _k: &[u8], open: OutputSize) -> bool {
        open.file_bytes >= self.0
    }
}
impl Compaction {
    /// All inputs with their level.
    pub fn input_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> + '_ {
        self.inputs.iter().flat_map(|(l, f)| f.iter().map(move |f| (*l, f)))
    }
    /// Its cutter.
    pub fn cutter(&self, _version: &Version) -> Cutter {
        Cutter(self.file_bytes)
    }
}
/// Files under compaction.
#[derive(Clone, Debug, Default)]
pub struct InProgress {
    busy: bool,
}
impl InProgress {
    /// May run beside what is claimed.
    pub fn allows(&self, _c: &Compaction) -> bool {
        !self.busy
    }
    /// Claims.
    pub fn add(&mut self, _c: &Compaction) {
        self.busy = true;
    }
    /// Releases.
    pub fn remove(&mut self, _c: &Compaction) {
        self.busy = false;
    }
}
/// Picks.
pub fn pick(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    if busy.busy {
        return None;
    }
    let mut target = options.level_base_bytes;
    for level in 0..options.levels - 1 {
        let full = if level == 0 {
            version.files(0).len() >= options.l0_compaction_files
        } else {
            let over = version.level_compensated_bytes(level) > target;
            target *= options.level_multiplier;
            over
        };
        if !full {
            continue;
        }
        return Some(down(
            version,
            options,
            level,
            if level == 0 { version.files(0).to_vec() } else { vec![version.files(level)[0].clone()] },
        ));
    }
    None
}
fn down(version: &Version, options: &LeveledOptions, level: usize, files: Vec<Arc<FileMeta>>) -> Compaction {
    let low = files.iter().map(|f| f.smallest_user_key()).min();
    let high = files.iter().map(|f| f.largest_user_key()).max();
    let below = version.overlapping(level + 1, low, high);
    let trivial_move = level > 0 && below.is_empty();
    Compaction {
        family: version.family,
        level,
        output_level: level + 1,
        inputs: vec![(level, files), (level + 1, below)],
        trivial_move,
        file_bytes: options.file_bytes,
    }
}
/// A manual compaction of a level's part of a range.
pub fn pick_range(
    version: &Version,
    options: &LeveledOptions,
    busy: &InProgress,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Option<Compaction> {
    if busy.busy {
        return None;
    }
    let files = version.overlapping(level, start, end);
    if files.is_empty() {
        return None;
    }
    Some(down(version, options, level, if level == 0 { version.files(0).to_vec() } else { files }))
}
