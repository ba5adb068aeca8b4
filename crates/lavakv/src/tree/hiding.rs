//! What values lie above the last level and may hide others: kept from version to version.
//!
//! No more of a table than lies below it where its keys are. A table that meets nothing, as where keys come in order, hides nothing, and no compaction would expose any
//! garbage.
//!
//! What a table may hide follows from its own description and from those of the tables below that its keys meet. So an edit changes it for the tables that come, and for
//! those above a table that comes or goes; of ten thousand these are a few, and what is different between two versions is found without a look at the rest
//! ([`version::Level::changes`]). Level 0 is gone through each time: it has few tables, and each may be above any other. Where the last level is
//! another one than before all is worked out anew. What tables meet below them is kept with it, for picks of what to expose ([`lsm::policy::met`]).

use base::HashSet;
use lsm::policy::Met;
use lsm::policy::met::meeting;
use std::sync::Arc;
use version::{FileMeta, IdMap, Version};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hiding {
    /// What each table between level 0 and the last level may hide, by its number.
    between: IdMap<u64, u64>,
    /// The sum of these.
    between_bytes: u128,
    /// What those of level 0 may hide.
    level_0_bytes: u64,
    met: Met,
}

impl Hiding {
    /// Of a version, by a walk.
    pub fn of(version: &Version) -> Hiding {
        let (level_0_bytes, met) = (of_level_0(version), Met::of(version));
        let mut hiding = Hiding { level_0_bytes, met, ..Hiding::default() };
        for level in 1..version.deepest_level().unwrap_or(0) {
            version.files(level).iter().for_each(|file| hiding.look_at(version, level, file));
        }
        hiding
    }

    /// Of `now`, where this is that of `before`.
    #[must_use]
    pub fn after(&self, before: &Version, now: &Version) -> Hiding {
        let Some(deepest) = now.deepest_level().filter(|level| before.deepest_level() == Some(*level)) else {
            return Hiding::of(now);
        };
        let (level_0_bytes, met) = (of_level_0(now), self.met.after(before, now));
        let mut hiding = Hiding { level_0_bytes, met, ..self.clone() };
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
            assert_eq!(hiding, Hiding::of(now), "what is kept is what a walk finds");
        }
        hiding
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        let all = self.between_bytes + u128::from(self.level_0_bytes);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// What the tables meet below them.
    pub fn met(&self) -> &Met {
        &self.met
    }

    fn look_at(&mut self, version: &Version, level: usize, file: &FileMeta) {
        let bytes = hidden_by(version, level, file, &[]);
        let before = self.between.insert(file.number, bytes).unwrap_or(0);
        self.between_bytes = self.between_bytes + u128::from(bytes) - u128::from(before);
    }

    fn forget(&mut self, file: &FileMeta) {
        self.between_bytes -= u128::from(self.between.remove(&file.number).unwrap_or(0));
    }
}

fn of_level_0(version: &Version) -> u64 {
    let files = version.files(0);
    if version.deepest_level().unwrap_or(0) == 0 {
        return 0;
    }
    let alone = alone(files);
    files.iter().enumerate().fold(0, |sum: u64, (nth, file)| {
        let older = if alone.contains(&file.number) { &[] } else { &files[nth + 1..] };
        sum.saturating_add(hidden_by(version, 0, file, older))
    })
}

/// What a table of a level may hide; if it is of level 0 also of `older` ones there.
fn hidden_by(version: &Version, level: usize, file: &FileMeta, older: &[Arc<FileMeta>]) -> u64 {
    let separated = |file: &FileMeta| file.compensated().saturating_sub(file.len);
    let (own, mut met) = (separated(file), 0u64);
    let (low, high) = (file.smallest_user_key(), file.largest_user_key());
    let meets = |older: &&Arc<FileMeta>| !older.ends_before(low) && !older.starts_after(high);
    let deeper = (level + 1..version.levels.len())
        .flat_map(|below| &version.files(below)[version.overlap_range(below, Some(low), Some(high))]);
    // The first that it meets is enough, most often.
    for below in deeper.chain(older.iter().filter(meets)) {
        met = met.saturating_add(separated(below));
        if met >= own {
            return own;
        }
    }
    met
}

/// The tables of level 0 that meet no other one there: keys in order may make a thousand of them, too many to hold each against all others.
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
