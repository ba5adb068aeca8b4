//! Unexposed garbage: values in the last level that newer entries above it supersede. Updated from
//! version to version.
//!
//! The job that writes a table estimates from key samples how many of its keys are in older tables
//! ([`super::overwrites`]). Without an estimate each entry counts as an overwrite of its own size,
//! until a survey has read the samples (`work::jobs::survey`). A table never hides more than the
//! bytes below it in its key range.
//!
//! The bytes that a table hides depend on its own metadata and on that of the overlapping tables
//! below it. So an edit changes them only for new tables, and for tables above an added or removed
//! one: a few among ten thousand. The difference between two versions is found without a walk over
//! the rest ([`version::Level::changes`]).
//!
//! Level 0 is recomputed each time: it has few tables, and any of them may be above any other. If
//! the last level is another one than before, everything is recomputed. The overlap statistics of
//! the tables are kept here too; picks of garbage to expose use them
//! ([`lsm::policy::overlap_stats`]).

use base::HashSet;
use lsm::policy::OverlapStats;
use lsm::policy::overlap_stats::meeting;
use std::sync::Arc;
use version::{FileMeta, Hides, IdMap, Version};

/// Unexposed garbage of a version: see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnexposedGarbage {
    /// Hidden bytes of each table between level 0 and the last level, by its number.
    between: IdMap<u64, Hidden>,
    /// The sum of `between`.
    between_bytes: HiddenSums,
    /// Hidden bytes of the tables of level 0.
    level_0_bytes: Hidden,
    /// True if there are no levels below level 0: no compaction is due that would expose its
    /// garbage.
    is_level_0_alone: bool,
    met: OverlapStats,
}

/// Bytes hidden by one table or by several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hidden {
    /// Bytes of its own entries that overwrite or delete. Writes are throttled by these.
    priced: u64,
    /// Bytes of the records that they hide.
    likely: u64,
    /// Number of tables without an estimate.
    unknown: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HiddenSums {
    priced: u128,
    likely: u128,
    unknown: u64,
}

impl UnexposedGarbage {
    /// Computes the unexposed garbage of a version from all of its tables.
    pub fn of(version: &Version) -> UnexposedGarbage {
        let (level_0_bytes, met) = (of_level_0(version), OverlapStats::of(version));
        let is_level_0_alone = version.deepest_level().unwrap_or(0) == 0;
        let mut hiding =
            UnexposedGarbage { level_0_bytes, is_level_0_alone, met, ..UnexposedGarbage::default() };
        for level in 1..version.deepest_level().unwrap_or(0) {
            version.files(level).iter().for_each(|file| hiding.look_at(version, level, file));
        }
        hiding
    }

    /// Returns the unexposed garbage of `now`, where `self` is that of `before`.
    #[must_use]
    pub fn after(&self, before: &Version, now: &Version) -> UnexposedGarbage {
        let Some(deepest) = now.deepest_level().filter(|level| before.deepest_level() == Some(*level)) else {
            return UnexposedGarbage::of(now);
        };
        let (level_0_bytes, met) = (of_level_0(now), self.met.after(before, now));
        let mut hiding = UnexposedGarbage { level_0_bytes, met, ..self.clone() };
        let mut touched: Vec<(usize, &Arc<FileMeta>)> = Vec::new();
        for level in 1..=deepest {
            let (Some(old), Some(new)) = (before.levels.get(level), now.levels.get(level)) else { continue };
            let changes = new.changes(old);
            changes.gone.iter().for_each(|file| hiding.forget(file));
            touched.extend(changes.came.iter().filter(|_| level < deepest).map(|file| (level, *file)));
            for file in changes.gone.iter().chain(&changes.came) {
                touched.extend((1..level).flat_map(|upper| {
                    meeting(now.files(upper), file).iter().map(move |above| (upper, above))
                }));
            }
        }
        touched.sort_unstable_by_key(|(_, file)| file.number);
        touched.dedup_by_key(|(_, file)| file.number);
        touched.into_iter().for_each(|(level, file)| hiding.look_at(now, level, file));
        if cfg!(debug_assertions) && hiding.between.len() < 256 {
            assert_eq!(hiding, UnexposedGarbage::of(now), "what is kept is what a walk finds");
        }
        hiding
    }

    /// Returns the unexposed garbage that compactions will expose, in bytes.
    pub fn bytes(&self) -> u64 {
        if self.is_level_0_alone {
            return 0;
        }
        narrow(self.between_bytes.priced + u128::from(self.level_0_bytes.priced))
    }

    /// Returns all of the unexposed garbage, in bytes.
    pub fn likely_bytes(&self) -> u64 {
        narrow(self.between_bytes.likely + u128::from(self.level_0_bytes.likely))
    }

    /// True if the hidden bytes of some table are not estimated.
    pub fn has_unknown(&self) -> bool {
        self.between_bytes.unknown > 0 || self.level_0_bytes.unknown > 0
    }

    /// Returns the bytes that the `nth` table of a level hides, if its point entries hide as much
    /// as `hides` says.
    pub fn likely_bytes_of(version: &Version, level: usize, nth: usize, hides: Option<Hides>) -> u64 {
        let files = version.files(level);
        let older = if level == 0 { files.get(nth + 1..).unwrap_or_default() } else { &[] };
        files.get(nth).map_or(0, |file| hidden_by(version, level, (file, hides), older).likely)
    }

    /// Returns the overlap statistics of the tables.
    pub fn met(&self) -> &OverlapStats {
        &self.met
    }

    fn look_at(&mut self, version: &Version, level: usize, file: &FileMeta) {
        self.forget(file);
        let bytes = hidden_by(version, level, (file, file.known.hides()), &[]);
        self.between.insert(file.number, bytes);
        self.between_bytes.priced += u128::from(bytes.priced);
        self.between_bytes.likely += u128::from(bytes.likely);
        self.between_bytes.unknown += bytes.unknown;
    }

    fn forget(&mut self, file: &FileMeta) {
        let bytes = self.between.remove(&file.number).unwrap_or_default();
        self.between_bytes.priced -= u128::from(bytes.priced);
        self.between_bytes.likely -= u128::from(bytes.likely);
        self.between_bytes.unknown -= bytes.unknown;
    }
}

fn narrow(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn of_level_0(version: &Version) -> Hidden {
    let files = version.files(0);
    let alone = alone(files);
    files.iter().enumerate().fold(Hidden::default(), |sum, (nth, file)| {
        let older = if alone.contains(&file.number) { &[] } else { &files[nth + 1..] };
        let bytes = hidden_by(version, 0, (file, file.known.hides()), older);
        Hidden {
            priced: sum.priced.saturating_add(bytes.priced),
            likely: sum.likely.saturating_add(bytes.likely),
            unknown: sum.unknown + bytes.unknown,
        }
    })
}

/// Returns the bytes that a table of a level hides; in level 0 also those in `older` tables there.
fn hidden_by(
    version: &Version,
    level: usize,
    (file, hides): (&FileMeta, Option<Hides>),
    older: &[Arc<FileMeta>],
) -> Hidden {
    let separated = |file: &FileMeta| file.compensated().saturating_sub(file.len);
    let Hidden { priced, likely, unknown } = by_itself(file, hides, separated(file));
    let most = priced.max(likely);
    let hidden = |met: u64| {
        let unknown = if met > 0 { unknown } else { 0 };
        Hidden { priced: met.min(priced), likely: met.min(likely), unknown }
    };
    if most == 0 {
        return Hidden::default();
    }
    let (low, high) = (file.smallest_user_key(), file.largest_user_key());
    let meets = |older: &&Arc<FileMeta>| !older.ends_before(low) && !older.starts_after(high);
    let deeper = (level + 1..version.levels.len())
        .flat_map(|below| &version.files(below)[version.overlap_range(below, Some(low), Some(high))]);
    // Usually the first overlapping table is enough.
    let mut met = 0u64;
    for below in deeper.chain(older.iter().filter(meets)) {
        met = met.saturating_add(separated(below));
        if met >= most {
            break;
        }
    }
    hidden(met)
}

/// Returns the bytes that a table hides if there are as many below it. Its tombstones hide the
/// bytes recorded in the manifest (`FileMeta::hidden_bytes`).
fn by_itself(file: &FileMeta, hides: Option<Hides>, own: u64) -> Hidden {
    let Some(hides) = hides else { return Hidden { priced: own, likely: own, unknown: 1 } };
    let values = own.saturating_sub(file.hidden_bytes);
    let overwrites = u128::from(values) * u128::from(hides.keys_ppm) / 1_000_000;
    let by_ranges = if file.range_tombstones > 0 { file.hidden_bytes } else { 0 };
    Hidden {
        priced: narrow(overwrites).saturating_add(file.hidden_bytes.min(own)),
        likely: hides.record_bytes.saturating_add(by_ranges),
        unknown: 0,
    }
}

/// Returns the tables of level 0 that overlap no other one there. Sequential keys may produce a
/// thousand of these, too many for a comparison of all pairs.
fn alone(files: &[Arc<FileMeta>]) -> HashSet<u64> {
    let mut by_key: Vec<&Arc<FileMeta>> = files.iter().collect();
    by_key.sort_by_key(|file| file.smallest_user_key());
    let mut farthest: Option<&Arc<FileMeta>> = None;
    let mut alone = HashSet::default();
    for (nth, file) in by_key.iter().enumerate() {
        let is_after = farthest.is_none_or(|before| before.ends_before(file.smallest_user_key()));
        let next = by_key.get(nth + 1);
        if is_after && next.is_none_or(|next| file.ends_before(next.smallest_user_key())) {
            alone.insert(file.number);
        }
        if farthest.is_none_or(|before| before.ends_before(file.largest_user_key())) {
            farthest = Some(file);
        }
    }
    alone
}

#[cfg(all(test, not(loom)))]
mod tests;
