//! Tells whether older entries may exist under the output of a flush or compaction.
//!
//! A tombstone may be dropped, and a sequence zeroed, only if no older entry can exist underneath.
//! The answer comes from the key ranges of the files in deeper levels. No file is read, and a false
//! "may exist" only delays a drop. Because the job asks for keys in ascending order, a cursor for
//! each level answers in constant time.
//!
//! Other compactions may run meanwhile. They cannot make a "no" wrong: data only moves down,
//! entries above the job's inputs are newer, and the job itself holds the files beside its inputs
//! in the output level.

use std::sync::Arc;
use version::{FileMeta, Level, Version};

/// Tells whether older entries may exist under a job's output.
pub trait OlderEntryCheck: Send {
    /// Returns true if an older entry of `user_key` may exist. Keys must ascend from call to call.
    fn may_hold_key(&mut self, user_key: &[u8]) -> bool;
    /// Returns true if an older entry of a key in `[start, end)` may exist.
    fn may_hold_range(&mut self, start: &[u8], end: &[u8]) -> bool;
}

/// Assumes older entries everywhere, so that every tombstone stays. For flushes that finish before
/// those of older memtables, and for repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct AssumeOlderEntries;

impl OlderEntryCheck for AssumeOlderEntries {
    fn may_hold_key(&mut self, _user_key: &[u8]) -> bool {
        true
    }
    fn may_hold_range(&mut self, _start: &[u8], _end: &[u8]) -> bool {
        true
    }
}

/// Files of a version below an output level.
pub struct DeeperLevels {
    /// Files that are not sorted by key (level 0).
    unordered: Vec<Arc<FileMeta>>,
    /// Each level with the index of the first file that does not end before the last key asked.
    levels: Vec<(Level, usize)>,
}

impl DeeperLevels {
    /// Returns the files under a job that writes to `output_level` of `version`. For level 0 (a
    /// flush) the current files of level 0 count too: all of them are older than the memtable.
    pub fn new(version: &Version, output_level: usize) -> Self {
        let unordered = if output_level == 0 { version.files(0).to_vec() } else { Vec::new() };
        let deeper = version.levels.iter().skip(output_level + 1);
        DeeperLevels { unordered, levels: deeper.filter(|l| !l.is_empty()).map(|l| (l.clone(), 0)).collect() }
    }
}

impl OlderEntryCheck for DeeperLevels {
    fn may_hold_key(&mut self, user_key: &[u8]) -> bool {
        self.unordered.iter().any(|f| f.covers(user_key))
            || self.levels.iter_mut().any(|(files, at)| {
                if *at > 0 && !files[*at - 1].ends_before(user_key) {
                    *at = files.partition_point(|f| f.ends_before(user_key));
                }
                while files.get(*at).is_some_and(|f| f.ends_before(user_key)) {
                    *at += 1;
                }
                files.get(*at).is_some_and(|f| !f.starts_after(user_key))
            })
    }

    fn may_hold_range(&mut self, start: &[u8], end: &[u8]) -> bool {
        let meets = |f: &FileMeta| !f.ends_before(start) && f.smallest_user_key() < end;
        self.unordered.iter().any(|f| meets(f))
            || self.levels.iter().any(|(files, _)| {
                files.get(files.partition_point(|f| f.ends_before(start))).is_some_and(|f| meets(f))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::key::encode;
    use base::{MAX_SEQ, ValueKind};
    use io::Rng;

    fn file(number: u64, low: u8, high: u8, exclusive: bool) -> Arc<FileMeta> {
        let kind = if exclusive { ValueKind::Seek } else { ValueKind::Value };
        let largest = encode(&[high], if exclusive { MAX_SEQ } else { 1 }, kind);
        let smallest = encode(&[low], 1, ValueKind::Value);
        Arc::new(FileMeta { number, smallest, largest, ..FileMeta::default() })
    }

    #[test]
    fn agrees_with_asking_every_file() {
        for case in 0..300 {
            let mut rng = Rng::new(case);
            let mut levels = Vec::new();
            for level in 0..4 {
                let (mut files, mut next) = (Vec::new(), 0);
                while next < 40 && rng.below(8) > 0 {
                    let low = next + rng.below(6);
                    let (high, exclusive) = (low + 1 + rng.below(4), rng.one_in(2));
                    files.push(file(level * 100 + next + 1, low as u8, high as u8, exclusive));
                    next = high + u64::from(!exclusive);
                }
                levels.push(files);
            }
            let version = Version::with_files(0, levels);
            let output = rng.below(4) as usize;
            let first = if output == 0 { 0 } else { output + 1 };
            let under: Vec<_> = version.levels[first..].iter().flatten().collect();
            let mut below = DeeperLevels::new(&version, output);
            let random: Vec<u8> = (0..50).map(|_| rng.below(50) as u8).collect();
            for key in (0..50u8).chain(random) {
                assert_eq!(below.may_hold_key(&[key]), under.iter().any(|f| f.covers(&[key])));
                let end = key + 1 + rng.below(9) as u8;
                // Keys have one byte here, so the range holds the keys `key..end`.
                let expected = (key..end).any(|k| under.iter().any(|f| f.covers(&[k])));
                let got = below.may_hold_range(&[key], &[end]);
                assert!(got || !expected, "case {case}: a file in the range was missed");
                assert_eq!(
                    got,
                    under.iter().any(|f| !f.ends_before(&[key]) && f.smallest_user_key() < &[end][..])
                );
            }
        }
    }
}
