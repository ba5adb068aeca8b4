//! Compactions that make room: what lies above the deepest level goes down, whatever the targets say.
//!
//! A level that is not over its target may still hide garbage: every entry above the deepest level may be the newer
//! version of one below, or its tombstone. Where room is short nobody can wait until the level is full. Each of these
//! compactions moves files down, so they end: when all is in the deepest level, none is left.

use super::leveled::Picker;
use super::{Compaction, InProgress, LeveledOptions, Reason};
use std::cmp::Reverse;
use version::Version;

/// The compaction that is likely to free most, if any may run beside those that do.
pub fn pick_for_space(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    let bottom = version.deepest_level()?;
    let mut upper: Vec<usize> = (0..bottom).filter(|&level| !version.files(level).is_empty()).collect();
    // Level 0 alone hides only what its files hide of each other, or what tombstones are still kept for.
    let files = version.files(0);
    if bottom == 0 && (files.len() > 1 || files.iter().any(|f| f.tombstones > 0 || f.range_tombstones > 0)) {
        upper.push(0);
    }
    upper.sort_by_key(|&level| Reverse(version.level_compensated_bytes(level)));
    let picker = Picker::new(version, options, busy);
    upper.into_iter().find_map(|level| {
        if level == 0 {
            let oldest = version.files(0).iter().rev().find(|f| picker.is_free(f))?;
            return picker.l0_to_base(oldest, Reason::Space, u64::MAX);
        }
        let files = version.files(level);
        let mut order: Vec<usize> = (0..files.len()).filter(|&i| picker.is_free(&files[i])).collect();
        order.sort_by_key(|&i| Reverse(files[i].compensated()));
        order.into_iter().find_map(|i| picker.down(level, i, Reason::Space))
    })
}

/// A file of the deepest level written anew in place, if `wanted` says that it may hold what nobody reads any more: entries
/// that were kept for a snapshot.
pub fn pick_rewrite(
    version: &Version,
    options: &LeveledOptions,
    busy: &InProgress,
    wanted: impl Fn(u64) -> bool,
) -> Option<Compaction> {
    let bottom = version.deepest_level().filter(|&level| level > 0)?;
    let files = version.files(bottom);
    let picker = Picker::new(version, options, busy);
    let free = |i: &usize| picker.is_free(&files[*i]) && wanted(files[*i].number);
    (0..files.len()).filter(free).find_map(|i| picker.rewrite(bottom, i, Reason::Space))
}
