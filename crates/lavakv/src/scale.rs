//! Benchmarks of the metadata of a store of terabytes, without its data: for its values
//! ([`values::scale`]), and for the tree above them ([`tree`]). Used by `lava bench scale-meta`.

use crate::tree::unexposed_garbage::UnexposedGarbage;
use base::{ValueKind, key};
use lsm::policy::{CompactionPolicy, InProgress, Leveled, PickInputs, SetAside};
use std::sync::Arc;
pub use values::scale::{Counts, EditTimes, Found, Scale, Times, run};
use version::{Dependency, FileMeta, Version};

/// Entries of a table, bytes of the table, and bytes of the values that it references.
const ENTRIES: u64 = 100_000;
const TABLE_BYTES: u64 = 3 << 20;
const VALUE_BYTES: u64 = ENTRIES * 1000;

/// Times of operations on the tree, each the minimum of some rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeTimes {
    /// Number of tables.
    pub tables: u64,
    /// A full computation of unexposed garbage and overlap statistics, nanoseconds, as in an open.
    pub walk_ns: u64,
    /// An incremental one after a compaction of one table, nanoseconds, as before each install.
    pub hiding_ns: u64,
    /// A pick of the compaction that exposes most, with the best table claimed, nanoseconds.
    pub exposing_ns: u64,
    /// A pick that finds no worthwhile compaction, nanoseconds.
    pub exposing_none_ns: u64,
}

/// Builds the metadata of a tree, and times a running store's operations on it. The last level has
/// this many tables, the level above a tenth, and so on.
pub fn tree(tables: u64, rounds: u64, now_ns: &dyn Fn() -> u64) -> TreeTimes {
    let version = grown(tables);
    let best_ns = |of: &mut dyn FnMut()| {
        let timed = |_| {
            let begun_ns = now_ns();
            of();
            now_ns().saturating_sub(begun_ns)
        };
        (0..rounds.max(1)).map(timed).min().unwrap_or(0)
    };
    let hiding = UnexposedGarbage::of(&version);
    let next = compacted(&version);
    let (policy, set_aside, busy) = (Leveled::default(), SetAside::default(), held(&version));
    let facts = PickInputs { version: &version, set_aside: &set_aside, busy: &busy };
    let pick = |worth: f64| drop(policy.exposing(&facts, hiding.met(), worth));
    TreeTimes {
        tables: version.table_count() as u64,
        walk_ns: best_ns(&mut || drop(UnexposedGarbage::of(&version))),
        hiding_ns: best_ns(&mut || drop(hiding.after(&version, &next))),
        exposing_ns: best_ns(&mut || pick(1.0)),
        exposing_none_ns: best_ns(&mut || pick(f64::MAX)),
    }
}

/// Returns a table with the part `nth` of `of` of all keys.
fn table(number: u64, nth: u64, of: u64) -> FileMeta {
    let place = |at: u64| (u128::from(at) * 1_000_000_000_000 / u128::from(of.max(1))) as u64;
    let bound = |at: u64| key::encode(format!("{at:013}").as_bytes(), number, ValueKind::Reference);
    let list = vec![Dependency {
        blob_id: number,
        count: ENTRIES,
        raw_bytes: VALUE_BYTES,
        stored_bytes: VALUE_BYTES,
    }];
    FileMeta {
        number,
        len: TABLE_BYTES,
        smallest: bound(place(nth)),
        largest: bound(place(nth + 1).saturating_sub(1)),
        min_seq: number,
        max_seq: number,
        entries: ENTRIES,
        raw_bytes: TABLE_BYTES + VALUE_BYTES,
        uses: list.into(),
        ..FileMeta::default()
    }
}

/// The level above the last one.
const UPPER: usize = 5;

fn grown(tables: u64) -> Version {
    let mut levels: Vec<Vec<Arc<FileMeta>>> = vec![Vec::new(); UPPER + 2];
    let (mut number, mut count) = (0, tables.max(1));
    let mut next = || {
        number += 1;
        number
    };
    for level in (1..levels.len()).rev() {
        levels[level] = (0..count).map(|nth| Arc::new(table(next(), nth, count))).collect();
        count /= 10;
    }
    levels[0] = (0..4).map(|_| Arc::new(table(next(), 0, 1))).collect();
    Version::with_files(0, levels)
}

/// Returns the version after a compaction of a table from the level above the last.
fn compacted(version: &Version) -> Version {
    let mut levels: Vec<Vec<Arc<FileMeta>>> = version.levels.iter().map(|level| level.to_vec()).collect();
    let Some(gone) = levels[UPPER].pop() else { return version.clone() };
    let met = version.overlap_range(UPPER + 1, Some(gone.smallest_user_key()), Some(gone.largest_user_key()));
    for file in &mut levels[UPPER + 1][met] {
        *file = Arc::new(FileMeta { number: file.number + 1_000_000_000, ..FileMeta::clone(file) });
    }
    Version::with_files(version.family, levels)
}

/// Claims every second table of that level.
fn held(version: &Version) -> InProgress {
    let mut busy = InProgress::default();
    for file in version.files(UPPER).iter().step_by(2) {
        busy.claim_table(file.number);
    }
    busy
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn scale_model_describes_a_tree_and_runs_each_operation() {
        let ticks = Cell::new(0);
        let tick = || {
            ticks.set(ticks.get() + 1);
            ticks.get()
        };
        let times = tree(500, 3, &tick);
        assert_eq!(times.tables, 500 + 50 + 5 + 4);
        assert_eq!([times.walk_ns, times.hiding_ns, times.exposing_ns, times.exposing_none_ns], [1; 4]);
        let version = grown(500);
        let (facts, hiding) = (InProgress::default(), UnexposedGarbage::of(&version));
        assert_eq!(hiding.after(&version, &compacted(&version)), UnexposedGarbage::of(&compacted(&version)));
        let picked = |busy: &InProgress, worth| {
            let facts = PickInputs { version: &version, set_aside: &SetAside::default(), busy };
            Leveled::default()
                .exposing(&facts, hiding.met(), worth)
                .map(|c| (c.level, c.inputs[0].1[0].number))
        };
        let busy = held(&version);
        let (free, beside) = (picked(&facts, 1.0).unwrap(), picked(&busy, 1.0).unwrap());
        assert!(free.0 == UPPER && beside.0 == UPPER && free.1 != beside.1, "{free:?} {beside:?}");
        assert_eq!(picked(&busy, f64::MAX), None);
    }
}
