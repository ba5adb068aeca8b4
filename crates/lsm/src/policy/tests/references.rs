//! Trees whose values lie elsewhere: tables are short beside what they stand for.

use super::simulation::Machine;
use super::*;

/// Overlap is physical: tables of references stand for much, but are short.
#[test]
fn short_tables_bound_the_width_of_a_compaction() {
    let mib = 1 << 20;
    let options = Leveled::default();
    let full = |number: u64, len: u64, values: u64| {
        let mut f = (*file(number, number as u32 * 10, number as u32 * 10 + 9, 1, 0)).clone();
        (f.len, f.raw_bytes) = (len, len + values);
        Arc::new(f)
    };
    let tree = |len: u64, values: u64| {
        let mut tree = vec![Vec::new(); 7];
        tree[5] = vec![full(1, len, values)];
        tree[6] = (1..200).map(|number| full(number, len, values)).collect();
        Version::with_files(0, tree)
    };
    let inline = tree(16 * mib, 0);
    assert_eq!(options.overlap_max(&inline, 5), 160 * mib);
    assert_eq!(options.width_bytes(&inline, &SetAside::default()), 12 * 16 * mib);
    let separated = tree(2 * mib, 14 * mib);
    assert_eq!(options.overlap_max(&separated, 5), 20 * mib);
    assert_eq!(options.width_bytes(&separated, &SetAside::default()), 12 * 2 * mib);
    assert_eq!(options.overlap_max(&tree(mib / 4, 64 * mib), 5), 10 * mib, "not below what is worth a file");
}

/// As in stores of values of a kilobyte.
const STANDS_FOR: u64 = 32;
/// Entries of a memtable.
const MEMTABLE: u64 = 64;

/// Sizes in proportion to those of the engine: a table is as long as a memtable.
fn policy(l0_references_files: usize) -> Leveled {
    let file_bytes = MEMTABLE * ENTRY * STANDS_FOR;
    let (l0_compaction_bytes, level_base_bytes) = (16 * file_bytes, 4 * file_bytes);
    Leveled { l0_references_files, l0_compaction_bytes, level_base_bytes, file_bytes, ..Leveled::default() }
}

/// A table as long as a memtable's.
fn table(number: u64, (low, high): (u32, u32), seq: SeqNo) -> Arc<FileMeta> {
    let len = MEMTABLE * ENTRY;
    Arc::new(FileMeta { len, raw_bytes: len * STANDS_FOR, ..(*file(number, low, high, seq, 0)).clone() })
}

/// So many tables in level 0, and so many in the deepest level.
fn tree(l0: u64, below: u64) -> Version {
    let mut tree = vec![Vec::new(); 7];
    tree[0] = (1000..1000 + l0).map(|number| table(number, (0, 9999), number)).rev().collect();
    tree[6] = (1..=below).map(|n| table(n, (n as u32 * 10, n as u32 * 10 + 9), 1)).collect();
    Version::with_files(0, tree)
}

#[test]
fn level_0_of_references_goes_down_by_its_size_beside_the_base_level() {
    let wants =
        |policy: &Leveled, l0, below| policy.l0_wants_compaction(&tree(l0, below), &SetAside::default());
    // Four tables are a quarter of sixteen; of more below more are waited for, but no more than eight.
    let due = |policy: &Leveled, below| (1..99).find(|&l0| wants(policy, l0, below)).unwrap();
    let with = policy(8);
    assert_eq!([16, 20, 24, 28, 32, 60, 90].map(|below| due(&with, below)), [4, 5, 6, 7, 8, 8, 8]);
    assert_eq!([16, 60, 90].map(|below| due(&policy(4), below)), [4, 4, 4], "as many as ever");
    // What hides a fifth of the store, and two tables more, goes down before.
    assert_eq!([1, 5].map(|below| due(&with, below)), [3, 3]);
    // Tables that are no references go down by their number.
    let mut inline = vec![Vec::new(); 7];
    inline[0] = (0..4).map(|n| file(100 + n, 0, 9, 100 + n, 1000)).rev().collect();
    inline[6] = (1..90).map(|n| file(n, n as u32 * 10, n as u32 * 10 + 9, 1, 1000)).collect();
    let with = Leveled { file_bytes: 1000, ..with };
    assert!(with.l0_wants_compaction(&Version::with_files(0, inline), &SetAside::default()));
    // The score says the same.
    let version = tree(7, 60);
    let scores = free(&version, |facts| policy(8).scores(facts));
    assert_eq!(scores.iter().find(|(level, _)| *level == 0).unwrap().1, 7.0 / 8.0);
}

/// The base level of long values may hold more of them: what counts is how long its tables are.
#[test]
fn the_base_level_of_long_values_is_bounded_by_its_tables() {
    let gib = 1u64 << 30;
    let base = |len: u64, stands_for: u64| {
        let mut tree = vec![Vec::new(); 7];
        tree[6] = vec![Arc::new(FileMeta { len, raw_bytes: stands_for, ..(*file(1, 0, 9, 1, 0)).clone() })];
        Leveled::default().level_targets(&Version::with_files(0, tree), &SetAside::default()).base_level
    };
    // 1 KB: up to 48 times 64 MiB. 16 KB: as much as 16 MiB of tables stand for.
    assert_eq!((base(gib / 11, 29 * gib / 10), base(gib / 10, 32 * gib / 10)), (6, 5));
    assert_eq!((base(15 << 20, 75 * gib / 10), base(17 << 20, 85 * gib / 10)), (6, 5));
}

/// Bytes of tables written for each flushed, and the most tables of level 0.
fn written(policy: Leveled, memtables: u64) -> (f64, usize) {
    let keys = memtables * MEMTABLE;
    let mut machine = Machine::new(7, 1, policy);
    machine.store.stands_for = STANDS_FOR;
    let mut next = |rng: &mut Rng| rng.below(keys) as u32;
    let mut deepest = 0;
    let (mut flushed, mut written) = (0, 0);
    for nth in 0..6 * memtables {
        machine.write_entries(1, MEMTABLE, Some(400 * MEMTABLE * ENTRY), &mut next);
        if nth == 3 * memtables {
            (flushed, written) = (machine.store.flushed_bytes, machine.store.written_bytes);
        }
        deepest = deepest.max(machine.store.version().files(0).len());
    }
    machine.rest();
    machine.store.check(keys as u32);
    let (flushed, written) = (machine.store.flushed_bytes - flushed, machine.store.written_bytes - written);
    (1.0 + written as f64 / flushed as f64, deepest)
}

#[test]
fn references_are_merged_less_often_and_reads_meet_a_bounded_number_of_tables() {
    let [(few, four), (bytes, eight)] = [4, 8].map(|most| written(policy(most), 64));
    println!("{few:.2} bytes with {four} tables, {bytes:.2} with {eight}");
    assert!(bytes * 1.6 < few, "{bytes:.2} bytes for each flushed, {few:.2} with four tables");
    assert!(four <= 5 && eight <= 9, "{four} and {eight} tables");
    // Where the base level is small, level 0 goes down as ever.
    let [(few, _), (bytes, _)] = [4, 8].map(|most| written(policy(most), 12));
    assert!((few - bytes).abs() < 0.01, "{few:.2} and {bytes:.2}");
}
