//! Tests specific to `vlsm`.

use super::*;
use crate::policy::vlsm::cutter::OverlapCutter;

const MIB: u64 = 1 << 20;

fn tree_options(file_bytes: u64) -> TreeOptions {
    TreeOptions {
        l0_compaction_files: 4,
        l0_slowdown_files: 16,
        level_base_bytes: 64 * MIB,
        level_multiplier: 10,
        levels: LEVELS_MAX,
        file_bytes,
        compensated: true,
        choice: FileChoice::default(),
    }
}

/// Returns the default policy, with a wide step from level 1 to level 2.
fn default_policy() -> Vlsm {
    Vlsm::new(VlsmOptions { growth_max: 32, ..VlsmOptions::default() }, Leveled::default())
}

/// Returns a table of `len` bytes on disk with `stands_for` compensated bytes.
fn table(number: u64, (low, high): (u32, u32), len: u64, stands_for: u64) -> Arc<FileMeta> {
    Arc::new(FileMeta { len, raw_bytes: stands_for, ..(*file(number, low, high, number, 0)).clone() })
}

/// Returns a level of equal tables of `each` bytes, with `bytes` in total.
fn full_level(first: u64, bytes: u64, each: u64) -> Vec<Arc<FileMeta>> {
    let file = |i: u64| table(first + i, (i as u32 * 10, i as u32 * 10 + 9), each, each);
    (0..bytes / each).map(file).collect()
}

#[test]
fn targets_keep_a_ninth_and_level_1_above_the_deepest_level() {
    let policy = default_policy();
    let with = |bytes: u64| {
        let mut levels = vec![Vec::new(); 7];
        levels[6] = full_level(1, bytes, 8 * MIB);
        policy.level_targets(&Version::with_files(0, levels), &SetAside::default())
    };
    let used = |bytes: u64| {
        let mut levels = vec![Vec::new(); 7];
        (levels[5], levels[6]) = (full_level(1000, MIB, MIB), full_level(1, bytes, 8 * MIB));
        levels
    };
    assert_eq!(with(0).base_level, 6);
    assert_eq!(with(64 * MIB).base_level, 6, "no more than level 1 may hold");
    let t = with(80 * MIB);
    assert_eq!((t.base_level, t.bytes[5]), (5, 80 * MIB / 6), "a sixth");
    let t = policy.level_targets(&Version::with_files(0, used(10 * MIB)), &SetAside::default());
    assert_eq!((t.base_level, t.bytes[5]), (5, 8 * MIB), "no less than a table");
    let t = with(2000 * MIB);
    assert_eq!((t.base_level, t.bytes[5]), (5, 64 * MIB), "level 2 may be 32 times as large as level 1");
    let t = with(2080 * MIB);
    assert_eq!((t.base_level, t.bytes[5], t.bytes[4]), (4, 208 * MIB, 64 * MIB), "level 1 is fixed");
    let above = |t: &LevelTargets| (t.base_level + 1..6).map(|l| t.bytes[l]).sum::<u64>();
    for bytes in (80..30_000).step_by(480) {
        let t = with(bytes * MIB);
        assert!(above(&t) * 100 <= 12 * bytes * MIB, "{bytes} MiB: {t:?}");
        assert_eq!(t.bytes[t.base_level], (bytes * MIB / 6).min(64 * MIB), "{bytes} MiB: {t:?}");
        let growth = if t.base_level == 5 { bytes * MIB } else { t.bytes[t.base_level + 1] } / (64 * MIB);
        assert!(growth <= 32, "{bytes} MiB: {t:?}");
    }
}

/// A column goes down when it is worth its merge, oldest first, up to q tables of size M at once.
#[test]
fn level_0_columns_are_compacted_oldest_first() {
    let policy = default_policy();
    let taken = |level_0: Vec<Arc<FileMeta>>, level_6: Vec<Arc<FileMeta>>| {
        let mut levels = vec![level_0];
        levels.resize(7, Vec::new());
        levels[6] = level_6;
        let version = Version::with_files(0, levels);
        let c = free(&version, |facts| policy.l0(facts));
        assert_eq!(c.is_some(), policy.l0_wants_compaction(&version, &SetAside::default()));
        let c = c?;
        assert_eq!((c.level, c.reason), (0, Reason::L0Files));
        Some(c.inputs[0].1.iter().map(|f| f.number).collect::<Vec<_>>())
    };
    let level_0 = |count: u64, len: u64, stands_for: u64| -> Vec<_> {
        (1..=count).map(|number| table(number, (0, 99), len, stands_for)).collect()
    };
    let inline = |bytes: u64| full_level(100, bytes, 4 * MIB);
    assert_eq!(taken(level_0(1, 7 * MIB, 7 * MIB), inline(0)), Some(vec![1]), "nothing below");
    assert_eq!(taken(level_0(5, 7 * MIB, 7 * MIB), inline(40 * MIB)), None, "35 MiB into 40");
    assert_eq!(taken(level_0(6, 7 * MIB, 7 * MIB), inline(40 * MIB)), Some((1..7).rev().collect()));
    assert_eq!(
        taken(level_0(6, 15 * MIB, 15 * MIB), inline(16 * MIB)),
        Some(vec![4, 3, 2, 1]),
        "up to 8 tables of M"
    );
    assert_eq!(taken(level_0(3, 80 * MIB, 80 * MIB), inline(40 * MIB)), Some(vec![1]), "however long it is");
    assert_eq!(taken(level_0(7, MIB, MIB), inline(40 * MIB)), None, "too little to go down");
    let many = level_0(8, MIB, MIB);
    assert_eq!(taken(many, inline(40 * MIB)), Some((1..9).rev().collect()), "but they are many");
    // Tables of references have 40 KB each, and 16 MiB compensated.
    let references = |count| level_0(count, 40 << 10, 16 * MIB);
    let separated = |tables: u64| -> Vec<_> {
        (0..tables).map(|i| table(100 + i, (i as u32 * 10, i as u32 * 10 + 9), 4 << 10, 4 * MIB)).collect()
    };
    assert_eq!(taken(references(1), separated(1024)), None, "one alone rewrites nothing");
    assert_eq!(taken(references(4), separated(1024)), Some(vec![4, 3, 2, 1]));
    assert_eq!(taken(references(9), separated(1024)), Some(vec![6, 5, 4, 3, 2, 1]), "256 KiB of them");
    assert_eq!(taken(references(2), separated(10)), Some(vec![1]), "a small store shall not hide so much");
}

/// Ascending keys form columns none of which is worth its merge: together they hide no more than
/// one column would.
#[test]
fn reference_columns_bound_unexposed_garbage() {
    let policy = default_policy();
    let with = |columns: u64| {
        let mut levels = vec![Vec::new(); 7];
        let at = |i: u64| (i as u32 * 20, i as u32 * 20 + 9);
        levels[0] = (1..=columns).map(|i| table(i, at(i), 40 << 10, 16 * MIB)).collect();
        levels[6] =
            (0..100).map(|i| table(1000 + i, (i as u32 * 10, i as u32 * 10 + 9), MIB, 24 * MIB)).collect();
        Version::with_files(0, levels)
    };
    assert!(free(&with(30), |facts| policy.l0(facts)).is_none(), "480 MiB above 2400");
    let c = free(&with(31), |facts| policy.l0(facts)).expect("a fifth, and two tables of 8 MiB");
    assert_eq!((c.level, c.inputs[0].1.len()), (0, 1), "a column at a time");
    let excess = |columns| policy.excess_bytes(&with(columns), &SetAside::default());
    assert_eq!((excess(30), excess(31)), (0, 40 << 10), "what lies in tables, not what it stands for");
}

/// Returns the tables into which a flush of these keys is cut, with entries of `bytes`.
fn flushed(policy: &Vlsm, version: &Version, keys: &[u32], bytes: u64) -> Vec<Vec<u32>> {
    let Some(mut cutter) = policy.flush_cutter(version, &SetAside::default()) else {
        return vec![keys.to_vec()];
    };
    let (mut tables, mut open) = (Vec::new(), Vec::new());
    for &key in keys {
        let size = open.len() as u64 * bytes;
        let size = OutputSize { raw_bytes: size, file_bytes: size, is_empty: open.is_empty() };
        if cutter.cut_before(&user_key(key), size) {
            tables.push(std::mem::take(&mut open));
        }
        open.push(key);
    }
    tables.push(open);
    tables
}

/// Flushes are cut where tables of level 1 begin. Existing columns stay apart, and each goes down
/// by itself.
#[test]
fn flushes_are_cut_at_level_1_table_boundaries() {
    let policy = default_policy();
    // Eight tables of 8 MiB in level 1, and a level 2 below.
    let mut levels = vec![Vec::new(); 7];
    levels[5] =
        (0..8).map(|i| table(i + 1, (i as u32 * 100, i as u32 * 100 + 99), 8 * MIB, 8 * MIB)).collect();
    levels[6] = full_level(1000, 640 * MIB, 8 * MIB);
    let version = Version::with_files(0, levels.clone());
    let keys: Vec<u32> = (3..800).step_by(4).collect();
    let tables = flushed(&policy, &version, &keys, 40 << 10);
    let firsts: Vec<u32> = tables.iter().map(|keys| keys[0]).collect();
    assert_eq!(firsts, vec![3, 103, 203, 303, 403, 503, 603, 703]);
    // Flushes of other keys: no column joins another, nor overlaps the next table, whatever the
    // first keys are.
    let mut number = 100;
    for offset in [3, 1, 0, 2, 3, 1, 2, 0] {
        let version = Version::with_files(0, levels.clone());
        let keys: Vec<u32> = (offset..800).step_by(4).collect();
        for keys in flushed(&policy, &version, &keys, 40 << 10) {
            number += 1;
            levels[0].push(table(number, (keys[0], keys[keys.len() - 1]), MIB, MIB));
        }
    }
    let version = Version::with_files(0, levels.clone());
    let load = policy.l0_load(&version, &SetAside::default());
    assert_eq!((version.files(0).len(), load.files, load.bytes), (64, 8, 64 * MIB));
    let c = free(&version, |facts| policy.l0(facts)).unwrap();
    assert_eq!((c.inputs[0].1.len(), c.inputs[1].1.len(), c.input_bytes()), (8, 1, 16 * MIB), "{c:?}");
    // A flush with too little data for a column makes no table for it.
    let few: Vec<u32> = (0..100).chain([250, 350, 450]).chain(700..800).collect();
    let tables = flushed(&policy, &version, &few, 40 << 10);
    let firsts: Vec<u32> = tables.iter().map(|keys| keys[0]).collect();
    assert_eq!(firsts, vec![0, 250, 450], "40 KiB are not enough");
    // References are short: the flush makes one table.
    let mut levels = vec![Vec::new(); 7];
    levels[6] = (0..64).map(|i| table(i + 1, (i as u32 * 10, i as u32 * 10 + 9), MIB, 24 * MIB)).collect();
    assert!(policy.flush_cutter(&Version::with_files(0, levels), &SetAside::default()).is_none());
}

/// Two columns: one of a few long tables, and one of many short ones.
#[test]
fn the_deepest_column_goes_first_where_writers_wait_for_it() {
    let policy = default_policy();
    let taken = |short: u64, short_bytes: u64, level_1: u64| {
        let mut levels = vec![Vec::new(); 7];
        levels[5] = (0..level_1)
            .map(|i| table(1000 + i, (i as u32 * 100, i as u32 * 100 + 99), 8 * MIB, 8 * MIB))
            .collect();
        levels[6] = full_level(5000, 640 * MIB, 8 * MIB);
        levels[0] = (1..=6).map(|number| table(number, (0, 99), 8 * MIB, 8 * MIB)).collect();
        levels[0].extend((0..short).map(|i| table(100 + i, (100, 199), short_bytes, short_bytes)));
        let version = Version::with_files(0, levels);
        let c = free(&version, |facts| policy.l0(facts)).unwrap();
        (c.level, c.inputs[0].1.len() as u64, c.inputs[0].1[0].number >= 100)
    };
    let full = policy.options.level_1_tables.into();
    assert_eq!(taken(15, 4096, full), (0, 6, false), "48 MiB are worth more than 15 tables of 4 KiB");
    assert_eq!(taken(16, 4096, full), (0, 16, true));
    assert_eq!(taken(23, 4096, full + 1).0, 5, "level 1 has its turn, being over its target");
    assert_eq!(taken(24, 4096, full + 1), (0, 24, true), "but for so little, and so deep");
    assert_eq!(taken(24, MIB, full + 1).0, 5, "that is more than a table");
    assert_eq!(taken(24, 4096, full / 2 * 3 + 1).0, 5, "level 1 is too full");
}

/// With separated values level 1 is all of a small store, and no run rewrites more than f times its
/// own bytes of it.
#[test]
fn reference_runs_bound_their_write_amplification() {
    let policy = default_policy();
    let below = |number: u64| {
        let at = number as u32 * 10;
        table(number, (at, at + 9), MIB, 24 * MIB)
    };
    for tables in [8, 40, 64] {
        let mut levels = vec![Vec::new(); 7];
        levels[0] = (900..940).map(|number| table(number, (0, 9_999), 360 << 10, 8 * MIB)).collect();
        levels[6] = (1..=tables).map(below).collect();
        let version = Version::with_files(0, levels);
        let targets = policy.level_targets(&version, &SetAside::default());
        assert_eq!(targets.base_level, 6, "{tables}: as many references as inline values: f times M");
        let c = free(&version, |facts| policy.l0(facts)).unwrap();
        let run: u64 = c.inputs[0].1.iter().map(|f| f.len).sum();
        assert!(run * 10 >= tables * MIB, "{tables}: {run} bytes for {tables} MiB");
        assert!(run * 5 <= tables * MIB, "{tables}: {run} bytes hide too much");
    }
    for (count, goes) in [(4, false), (7, false), (8, true)] {
        let mut levels = vec![Vec::new(); 7];
        levels[0] = (900..900 + count).map(|number| table(number, (0, 9_999), 360 << 10, 8 * MIB)).collect();
        levels[6] = (1..=64).map(below).collect();
        let version = Version::with_files(0, levels);
        let taken = free(&version, |facts| policy.l0(facts)).is_some();
        assert_eq!(taken, goes, "{count} tables of level 0 that stand for 8 MiB each, beside 1.5 GiB");
    }
    let mut levels = vec![Vec::new(); 7];
    levels[6] = (1..=80).map(below).collect();
    let targets = policy.level_targets(&Version::with_files(0, levels), &SetAside::default());
    assert_eq!((targets.base_level, targets.bytes[5]), (5, 192 * MIB));
}

/// A compaction of level 0.
fn from_level_0(policy: &Vlsm, output_level: usize) -> Compaction {
    Compaction {
        family: 0,
        level: 0,
        output_level,
        inputs: Vec::new(),
        reason: Reason::L0Files,
        trivial_move: false,
        file_bytes: policy.tree.file_bytes,
        overlap_max: 0,
        compensated: true,
        relocate_vssts: Vec::new(),
        volume: 0,
    }
}

/// Returns the tables that a cutter makes of `keys`, with entries of `bytes`: their entries and
/// overlaps.
fn cut(policy: &Vlsm, version: &Version, keys: &[u32], bytes: u64) -> Vec<(Vec<u32>, u64)> {
    let mut cutter = OverlapCutter::new(policy, &from_level_0(policy, 1), version);
    let (mut outputs, mut open) = (Vec::new(), Vec::new());
    for &key in keys {
        let size = open.len() as u64 * bytes;
        let size = OutputSize { raw_bytes: size, file_bytes: size, is_empty: open.is_empty() };
        if cutter.cut_before(&user_key(key), size) {
            outputs.push(std::mem::take(&mut open));
        }
        open.push(key);
    }
    outputs.push(open);
    let with_met = |keys: Vec<u32>| {
        let met = met_in(version, keys[0], keys[keys.len() - 1]);
        (keys, met)
    };
    outputs.into_iter().map(with_met).collect()
}

/// Returns the bytes of level 2 between two keys.
fn met_in(version: &Version, low: u32, high: u32) -> u64 {
    let met = version.overlapping(2, Some(&user_key(low)), Some(&user_key(high)));
    met.iter().map(|f| f.len).sum()
}

fn with_level_2(files: Vec<Arc<FileMeta>>) -> Version {
    Version::with_files(0, vec![vec![], vec![], files])
}

#[test]
fn level_1_tables_end_by_their_overlap() {
    let policy = default_policy();
    let level_2 = |tables: u64| with_level_2(full_level(1, tables * 8 * MIB, 8 * MIB));
    let lengths = |outputs: &[(Vec<u32>, u64)], bytes: u64| -> Vec<u64> {
        outputs.iter().map(|(keys, _)| keys.len() as u64 * bytes / MIB).collect()
    };
    // As dense as level 2: each ends at its size, as a good table.
    let keys: Vec<u32> = (0..320).collect();
    let outputs = cut(&policy, &level_2(32), &keys, MIB);
    assert!(lengths(&outputs, MIB).iter().all(|&len| len <= 8), "{outputs:?}");
    // A tenth as dense: the overlap of the first 8 tables exceeds 8 times their own bytes, so each
    // is poor, and ends at m.
    let keys: Vec<u32> = (0..320).step_by(10).collect();
    let outputs = cut(&policy, &level_2(32), &keys, MIB / 2);
    assert_eq!(lengths(&outputs, MIB / 2), vec![4, 4, 4, 4], "{outputs:?}");
    // A quarter as dense: good tables, which end before they would become poor, or at their size.
    let outputs = cut(&policy, &level_2(32), &keys, 2 * MIB);
    assert_eq!(lengths(&outputs, 2 * MIB), vec![8; 8], "{outputs:?}");
    assert!(outputs.iter().all(|(keys, met)| *met <= 8 * keys.len() as u64 * 2 * MIB));
    // Dense, and then almost empty: the dense part ends, as a good table, before its overlap
    // becomes too large.
    let keys: Vec<u32> = (0..10).chain((10..320).step_by(10)).collect();
    let outputs = cut(&policy, &level_2(32), &keys, MIB / 4);
    assert_eq!((outputs[0].0.last(), outputs[0].1), (Some(&10), 16 * MIB), "{outputs:?}");
    // Data that is not worth a table continues, whatever its overlap, up to the maximum width of a
    // job.
    let keys: Vec<u32> = (0..1000).step_by(10).collect();
    let outputs = cut(&policy, &level_2(100), &keys, 1 << 10);
    let met: Vec<u64> = outputs.iter().map(|(_, met)| met / (8 * MIB)).collect();
    assert_eq!(met, vec![34, 34, 32], "{outputs:?}");
    // The other reference size: overlap up to f full tables, however short the table.
    let options = VlsmOptions { overlap: OverlapOf::FullTable, ..VlsmOptions::default() };
    let policy = Vlsm::new(options, Leveled::default());
    let outputs = cut(&policy, &level_2(100), &keys, 64 << 10);
    assert!(outputs[..12].iter().all(|(_, met)| *met == 64 * MIB), "{outputs:?}");
}

#[test]
fn level_1_tables_are_good_or_poor_by_overlap() {
    let policy = default_policy();
    let version = with_level_2(full_level(1, 32 * 8 * MIB, 8 * MIB));
    // The first overlaps as many bytes as it has itself, the second 80 times as many.
    let outputs = [((0, 9), 8 * MIB), ((100, 195), MIB)];
    let outputs = outputs.map(|(keys, len)| (*table(100, keys, len, len)).clone());
    let into = |level: usize, version: &Version| {
        policy.good_tables(&from_level_0(&policy, level), version, &outputs)
    };
    assert_eq!(into(1, &version), Some(1));
    assert_eq!(into(2, &version), None, "nothing lies below");
    assert_eq!(into(0, &version), None);
    let leveled = Leveled::default();
    assert_eq!(leveled.good_tables(&from_level_0(&policy, 1), &version, &outputs), None);
}

/// For any level below, only the last table, or one of maximum overlap, is shorter than a table
/// worth a file. No overlap exceeds the maximum. No good table would stay good with the next key.
#[test]
fn level_1_cut_rules_hold_for_any_level_below() {
    let (mut good, mut poor, mut wide) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut options = VlsmOptions { poor_percent: 25 + rng.below(75) as u32, ..VlsmOptions::default() };
        options.overlap = if seed % 2 == 0 { OverlapOf::Table } else { OverlapOf::FullTable };
        options.growth_max = 2 + rng.below(30) as u32;
        let policy = Vlsm::new(options, Leveled::default());
        let (mut files, mut key) = (Vec::new(), 0);
        for number in 1..2 + rng.below(100) {
            let low = key + rng.below(30) as u32;
            key = low + 1 + rng.below(40) as u32;
            let len = 1 + rng.below(12 * MIB);
            files.push(table(number, (low, key - 1), len, len));
        }
        let version = with_level_2(files);
        let density = 1 + rng.below(12) as usize;
        let keys: Vec<u32> = (0..key + 50).filter(|_| rng.below(density as u64) == 0).collect();
        if keys.is_empty() {
            continue;
        }
        let bytes = 1 + rng.below(MIB);
        let outputs = cut(&policy, &version, &keys, bytes);
        assert_eq!(outputs.iter().flat_map(|(keys, _)| keys).count(), keys.len());
        let full = policy.tree.table_bytes(&version, 2);
        let cap = policy.overlap_cap(&version, 1);
        for (i, (keys, met)) in outputs.iter().enumerate() {
            let own = keys.len() as u64 * bytes;
            let is_last = i + 1 == outputs.len();
            let is_good = *met <= policy.good_overlap(own, full);
            let longest = version.overlapping(2, None, None).iter().map(|f| f.len).max().unwrap_or(0);
            assert!(*met <= cap.max(longest * 2), "seed {seed}: {met} of {cap}");
            let next_met = outputs.get(i + 1).map_or(0, |(next, _)| met_in(&version, keys[0], next[0]));
            let is_wide = next_met > cap;
            assert!(is_last || is_wide || own >= policy.least_bytes(), "seed {seed}: {own} bytes");
            assert!(own <= policy.tree.file_bytes + bytes, "seed {seed}: {own} bytes");
            let is_full = own >= policy.tree.file_bytes;
            let ends_good = is_good && next_met > policy.good_overlap(own, full);
            let ends_poor = own >= policy.poor_bytes();
            assert!(
                is_last || is_wide || is_full || ends_good || ends_poor,
                "seed {seed}: ends for no reason"
            );
            (good, poor) = (good + u64::from(is_good), poor + u64::from(!is_good));
            wide += u64::from(is_wide && !is_full && !ends_good && !ends_poor);
        }
    }
    println!("{good} good ones, {poor} poor ones, {wide} cut for their width alone");
    assert!(good > 1000 && poor > 50 && wide > 10);
}

/// The table that frees the most for its overlap goes first. If no table is good, the best of the
/// rest goes, and is reported as poor.
#[test]
fn level_1_moves_the_table_with_the_best_benefit_per_overlap() {
    let policy = default_policy();
    let pick = |level_1: Vec<Arc<FileMeta>>| {
        let mut levels = vec![Vec::new(); 7];
        levels[5] = level_1;
        levels[6] = full_level(1000, 1600 * MIB, 8 * MIB);
        let version = Version::with_files(0, levels);
        let c = free(&version, |facts| policy.levels(facts))?;
        assert_eq!((c.level, c.output_level), (5, 6));
        assert!(c.input_bytes() <= policy.width_bytes(&version, &SetAside::default()));
        Some((c.reason, c.inputs[0].1.iter().map(|f| f.number).collect::<Vec<_>>()))
    };
    // 20 tables of 8 MiB are 160 MiB, the target is 64 MiB. Each overlaps ten tables, except one
    // that overlaps three.
    let mut level_1: Vec<_> =
        (0..20).map(|i| table(i + 1, (i as u32 * 100, i as u32 * 100 + 99), 8 * MIB, 8 * MIB)).collect();
    assert_eq!(pick(level_1.clone()), Some((Reason::PoorSpill, vec![1])));
    level_1[7] = table(8, (705, 725), 8 * MIB, 8 * MIB);
    assert_eq!(pick(level_1.clone()), Some((Reason::Spill, vec![8])));
    // Two short neighbors within one table below are worth more together.
    level_1[12] = table(13, (1201, 1203), 2 * MIB, 2 * MIB);
    level_1.insert(13, table(21, (1204, 1208), 2 * MIB, 2 * MIB));
    assert_eq!(pick(level_1), Some((Reason::Spill, vec![13, 21])));
}

/// A tree of either policy continues under the other one.
#[test]
fn a_tree_changes_its_policy_while_it_runs() {
    const KEYS: u32 = 20_000;
    for seed in 0..6 {
        let mut store = Store::new(seed, EitherPolicy { vlsm: short_chains(), is_vlsm: seed % 2 == 0 });
        for round in 0..160 {
            if round % 40 == 39 {
                store.policy.is_vlsm ^= true;
            }
            store.flush(200, 10, |rng| rng.below(u64::from(KEYS)) as u32);
            let leave = store.rng.below(3) as usize;
            store.work(3, leave);
        }
        store.check(KEYS);
        store.settle();
        store.check(KEYS);
        assert!(store.space_amplification() < 1.25, "seed {seed}: {}", store.space_amplification());
    }
}

/// Either of the two policies.
#[derive(Debug)]
struct EitherPolicy {
    vlsm: Vlsm,
    is_vlsm: bool,
}

impl EitherPolicy {
    fn now(&self) -> &dyn Shape {
        if self.is_vlsm { &self.vlsm } else { &self.vlsm.tree }
    }
}

impl Shape for EitherPolicy {
    fn targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        self.now().targets(version, set_aside)
    }
    fn highest_score(&self, facts: &PickInputs<'_>) -> f64 {
        self.now().highest_score(facts)
    }
    fn tree(&self) -> &Leveled {
        &self.vlsm.tree
    }
}

impl CompactionPolicy for EitherPolicy {
    fn l0(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        self.now().l0(facts)
    }
    fn levels(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        self.now().levels(facts)
    }
    fn moves<'a>(&'a self, facts: &PickInputs<'a>) -> Box<dyn SingleFileCompactions + 'a> {
        self.now().moves(facts)
    }
    fn cutter(&self, compaction: &Compaction, version: &Version) -> Box<dyn OutputCutter + Send> {
        self.now().cutter(compaction, version)
    }
    fn flush_cutter(&self, version: &Version, set_aside: &SetAside) -> Option<Box<dyn OutputCutter + Send>> {
        self.now().flush_cutter(version, set_aside)
    }
    fn excess_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        self.now().excess_bytes(version, set_aside)
    }
    fn width_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        self.now().width_bytes(version, set_aside)
    }
    fn l0_load(&self, version: &Version, set_aside: &SetAside) -> L0Load {
        self.now().l0_load(version, set_aside)
    }
    fn l0_wants_compaction(&self, version: &Version, set_aside: &SetAside) -> bool {
        self.now().l0_wants_compaction(version, set_aside)
    }
}

#[test]
fn parameters_are_stored_and_checked() {
    let policies = Policies::default();
    let make = |parameters: Vec<u8>| {
        let choice = PolicyChoice { parameters, ..PolicyChoice::vlsm(&VlsmOptions::default()) };
        policies.make(&choice, &tree_options(16 * MIB)).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(PolicyChoice::vlsm(&VlsmOptions::default()).parameters, []);
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let options = VlsmOptions {
            table_bytes: (4 << 10) + rng.below(4 << 30),
            poor_percent: 1 + rng.below(100) as u32,
            level_1_tables: 1 + rng.below(1000) as u32,
            growth_max: 2 + rng.below(999) as u32,
            overlap: if rng.one_in(2) { OverlapOf::Table } else { OverlapOf::FullTable },
            queue_tables: 1 + rng.below(1000) as u32,
        };
        let options = VlsmOptions { table_bytes: options.table_bytes.min(4 << 30), ..options };
        assert_eq!(VlsmOptions::decode(&options.encode()).unwrap(), options);
        // The encoding from before the last number was added.
        let five = VlsmOptions { queue_tables: 1, ..options }.encode();
        let older = VlsmOptions::decode(&five[..five.len() - 1]).unwrap();
        assert_eq!(older, VlsmOptions { queue_tables: 8, ..options });
        let mut spoilt = options.encode();
        let at = rng.below(spoilt.len() as u64) as usize;
        spoilt[at] ^= 1 << rng.below(8);
        spoilt.truncate(spoilt.len() - rng.below(2) as usize);
        let _ = make(spoilt);
    }
    assert!(make(vec![]).is_ok());
    let stored =
        VlsmOptions { table_bytes: 2 << 20, growth_max: 32, queue_tables: 4, ..VlsmOptions::default() };
    assert_eq!(stored.encode(), [0x80, 0x80, 0x80, 0x01, 50, 8, 32, 0, 4], "these bytes are in stores");
    let told = |options: VlsmOptions| make(options.encode()).unwrap_err();
    assert!(
        told(VlsmOptions { growth_max: 1, ..VlsmOptions::default() })
            .contains("growth_max = 1 is out of range")
    );
    assert!(told(VlsmOptions { table_bytes: 1, ..VlsmOptions::default() }).contains("table_bytes = 1"));
    let small = VlsmOptions { poor_percent: 60, ..VlsmOptions::default() };
    assert!(make([small.encode(), vec![0]].concat()).unwrap_err().contains("five or six numbers"));
    assert!(make(vec![0xff]).unwrap_err().contains("five or six numbers"));
    let newer = PolicyChoice { version: 2, ..PolicyChoice::vlsm(&VlsmOptions::default()) };
    assert_eq!(policies.make(&newer, &tree_options(MIB)).unwrap_err().kind(), base::ErrorKind::Unsupported);
    // A table is at most as long as the family allows.
    assert_eq!(
        Vlsm::new(VlsmOptions::default(), Leveled { file_bytes: MIB, ..Leveled::default() }).tree.file_bytes,
        MIB
    );
    assert_eq!(default_policy().tree.file_bytes, 8 * MIB);
}
