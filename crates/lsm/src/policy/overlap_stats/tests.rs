use super::*;
use crate::policy::tests::tables::of_values;
use base::key;
use io::Rng;

fn version(levels: &[Vec<Arc<FileMeta>>]) -> Version {
    Version::with_files(0, levels.to_vec())
}

/// In random trees with changing tables, the derived statistics are equal to those of a walk, also
/// across several versions at once.
#[test]
fn incremental_overlap_statistics_equal_a_full_walk() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut levels: Vec<Vec<Arc<FileMeta>>> = vec![Vec::new(); 7];
        let mut number = 0;
        let (mut kept, mut kept_of) = (OverlapStats::default(), version(&levels));
        for step in 0..200 {
            let level = rng.range(1, 5) as usize;
            if rng.one_in(4) && !levels[level].is_empty() {
                let at = rng.below(levels[level].len() as u64) as usize;
                levels[level].swap_remove(at);
            } else {
                number += 1;
                let (from, len) = (rng.below(200) as u32 * 10, rng.range(1, 20) as u32 * 10 + 1);
                let mut table = of_values(number, from..from + len, rng.range(1, 50), rng.range(1, 900), 0);
                if len > 1 && rng.one_in(3) {
                    // The table ends with a range tombstone: its last key is exclusive.
                    let last = key::user_key(&table.largest).to_vec();
                    table.largest = [&last[..], &u64::MAX.to_be_bytes()].concat();
                }
                levels[level].retain(|f| !f.overlaps(&table));
                levels[level].push(Arc::new(table));
            }
            if rng.one_in(3) {
                let now = version(&levels);
                kept = kept.after(&kept_of, &now);
                assert_eq!(kept, OverlapStats::of(&now), "seed {seed} step {step}");
                kept_of = now;
            }
        }
        assert!(kept.tables(1).chain(kept.tables(2)).count() > 3, "seed {seed}");
    }
}

#[test]
fn overlap_counts_entries_of_the_next_level() {
    let table = |number, keys, entries| Arc::new(of_values(number, keys, entries, entries * 10, 0));
    let mut levels = vec![Vec::new(); 7];
    levels[3] = vec![table(1, 0..100, 5), table(2, 100..200, 6), table(3, 300..400, 7)];
    levels[4] = vec![table(4, 50..150, 20), table(5, 150..160, 30), table(6, 500..600, 40)];
    levels[0] = vec![table(9, 0..1000, 3)];
    let of = version(&levels);
    let met = OverlapStats::of(&of);
    let seen = |level| -> Vec<(u64, u64, u64)> {
        met.tables(level).map(|t| (t.file.number, t.own.entries, t.met.entries)).collect()
    };
    assert_eq!(seen(3), [(1, 5, 20), (2, 6, 50), (3, 7, 0)]);
    assert!([0, 1, 2, 4, 9].iter().all(|level| seen(*level).is_empty()), "the last level meets nothing");
    assert!(met.tables(3).all(|t| t.own.bytes == 10 * t.own.entries && t.met.bytes == 10 * t.met.entries));
}
